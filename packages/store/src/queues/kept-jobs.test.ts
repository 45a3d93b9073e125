import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { followClock, forgetClock, sharedNow, systemClock } from "@larkline/protocol/clock";
import { finishedCallOf, toolJobId, type ToolJob } from "@larkline/protocol/runner";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, inject, it, onTestFinished, vi } from "vitest";
import {
  createToolWorker,
  createTurnWorker,
  type JobResult,
  type JobWorker,
} from "./job-worker.ts";
import { finishJobScript, kept, timeAt } from "./kept-jobs.ts";
import { createQueueCatalog } from "./queue-catalog.ts";
import { type QueueOptions, ToolQueues, TurnQueue, turnJobId, type TurnJob } from "./queues.ts";
import { workerBackend, type Scripts } from "./small-scripts.ts";

const patience = { timeout: 60_000, interval: 10 };
const session = "app.oc_1";
const secretText = "the merger is on Friday";

let redis: Redis;
let options: QueueOptions & { prefix: string; scripts?: Scripts };
let turns: TurnQueue;
let tools: ToolQueues;
/** As the console sees them. */
let turnQueue: Queue;
let toolQueue: Queue;
let workers: JobWorker[];

beforeEach(() => {
  redis = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  options = { connection: redis, prefix: `{test-${randomUUID()}}` };
  turns = new TurnQueue(options);
  tools = new ToolQueues(options);
  turnQueue = new Queue("turns", options);
  toolQueue = new Queue("tools-alpha", options);
  workers = [];
});

afterEach(async () => {
  await Promise.all(workers.map(async (worker) => await worker.close({ deadlineMs: 500 })));
  await Promise.all([turns.close(), tools.close(), turnQueue.close(), toolQueue.close()]);
  redis.disconnect();
});

/** Whichever scripts move the jobs, the same holds. */
const both: Scripts[] = ["small", "bullmq"];

const redact = (text: string): string => text.replaceAll(/sk-\w+/g, "[secret]");

function serveTurns(
  handle: (job: TurnJob) => Promise<JobResult>,
  changes: { postponeMs?: number } = {},
): JobWorker {
  const worker = createTurnWorker({
    ...options,
    redact,
    concurrency: 8,
    handle,
    onFailed: async () => {},
    ...changes,
  });
  workers.push(worker);
  return worker;
}

function serveTools(
  handle: (job: ToolJob) => Promise<JobResult>,
  onFailed = async (): Promise<void> => {},
): JobWorker {
  const worker = createToolWorker({
    ...options,
    redact,
    runner: "alpha",
    concurrency: 8,
    // No call comes again because this process stood still between its beginning and its end.
    lockDurationMs: 60_000,
    stalledIntervalMs: 500,
    handle,
    onFailed,
  });
  workers.push(worker);
  return worker;
}

function callOf(callId: string, changes: Partial<ToolJob> = {}): ToolJob {
  return {
    v: 1,
    session,
    turnId: `${session}-1`,
    callId,
    name: "deploy",
    arguments: JSON.stringify({ note: secretText }),
    effect: "pure",
    attempt: 1,
    actor: { app: "app", userId: "ou_ann", userName: "Ann Lee", chatId: "oc_1" },
    envelope: "signed-by-a-worker",
    queuedAtMs: 1_000,
    deadlineMs: 2_000,
    ...changes,
  };
}

/** All that Redis holds of the queues. */
async function everything(): Promise<string> {
  const parts: unknown[] = [];
  for (const key of await redis.keys(`${options.prefix.replaceAll(/[{}]/g, "?")}*`)) {
    const type = await redis.type(key);
    parts.push(key);
    if (type === "string") parts.push(await redis.get(key));
    if (type === "hash") parts.push(await redis.hgetall(key));
    if (type === "list") parts.push(await redis.lrange(key, 0, -1));
    if (type === "set") parts.push(await redis.smembers(key));
    if (type === "zset") parts.push(await redis.zrange(key, "0", "-1"));
    if (type === "stream") parts.push(await redis.xrange(key, "-", "+"));
  }
  return JSON.stringify(parts);
}

describe.each(both)("finished jobs, by %s scripts", (scripts) => {
  beforeEach(() => void (options = { ...options, scripts }));

  it("of calls are kept with ids and numbers, and without what people and models wrote", async () => {
    const call = callOf("c1");
    await tools.dispatch("alpha", [call]);
    expect(await everything()).toContain(secretText);
    serveTools(async () => "done");
    await vi.waitFor(async () => expect(await toolQueue.getCompletedCount()).toBe(1), patience);
    const [job] = await toolQueue.getCompleted();
    expect(job).toMatchObject({
      id: toolJobId(call.turnId, "c1"),
      name: "deploy",
      data: finishedCallOf(call),
    });
    expect(job?.returnvalue).toBeNull();
    const left = await everything();
    for (const text of [secretText, "Ann", "ou_ann", "signed-by"]) expect(left).not.toContain(text);
  });

  it("of wake-ups are kept as they were", async () => {
    await turns.wake(session, 1);
    serveTurns(async () => "done");
    await vi.waitFor(async () => expect(await turnQueue.getCompletedCount()).toBe(1), patience);
    expect((await turnQueue.getCompleted())[0]).toMatchObject({ data: { v: 1, session, gen: 1 } });
  });

  it("are bounded: the newest stay", async () => {
    serveTurns(async () => "done");
    const count = kept.completed.count + 20;
    for (let gen = 1; gen <= count; gen += 1) await turns.wake(session, gen);
    await vi.waitFor(async () => {
      expect(await turns.alive(session, count)).toBe(false);
      expect(await turnQueue.getActiveCount()).toBe(0);
    }, patience);
    expect(await turnQueue.getCompletedCount()).toBe(kept.completed.count);
    expect(await turnQueue.getJobState(turnJobId(session, count))).toBe("completed");
    expect(await redis.exists(turnQueue.toKey(turnJobId(session, 1)))).toBe(0);
  });

  it("that have failed show where, but neither arguments, nor secrets, nor what a parser was given", async () => {
    await tools.dispatch("alpha", [callOf("c1")]);
    serveTools(async () => {
      throw new SyntaxError(
        `Unexpected token with sk-12345678, "${secretText}" is not valid JSON\n${secretText}`,
      );
    });
    await vi.waitFor(async () => {
      await toolQueue.promoteJobs(); // the pauses between tries add up to six seconds
      expect(await toolQueue.getFailedCount()).toBe(1);
    }, patience);
    const [job] = await toolQueue.getFailed();
    expect(job).toMatchObject({
      failedReason: "Unexpected token with [secret], …",
      data: finishedCallOf(callOf("c1")),
    });
    expect(job?.stacktrace).toHaveLength(3);
    expect(job?.stacktrace?.at(-1)).toMatch(
      /^SyntaxError: Unexpected token with \[secret\], …\n\s+at .*kept-jobs\.test/,
    );
    const left = await everything();
    for (const text of [secretText, "sk-123", "Ann", "ou_ann", "signed-by"]) {
      expect(left).not.toContain(text);
    }
  });

  it("whose sessions know how they have failed say it at once, are not tried again, and are no trouble of the queue", async () => {
    const told: unknown[] = [];
    await tools.dispatch("alpha", [callOf("c1")]);
    const handle = async (job: ToolJob): Promise<JobResult> => {
      told.push(job.callId);
      return { failed: `no disk for sk-12345678, "${secretText}"` };
    };
    serveTools(handle, async () => void told.push("failed for good"));
    await vi.waitFor(async () => expect(await toolQueue.getFailedCount()).toBe(1), patience);
    expect((await toolQueue.getFailed())[0]).toMatchObject({
      failedReason: "no disk for [secret], …",
      stacktrace: ["no disk for [secret], …"],
      attemptsMade: 1,
      data: finishedCallOf(callOf("c1")),
    });
    const catalog = createQueueCatalog(options);
    onTestFinished(async () => await catalog.close());
    expect(await catalog.depth("tools-alpha")).toMatchObject({ failed: 0 });
    expect(await catalog.failed("tools-alpha", 9)).toEqual([]);
    // Its outcome is on its way to the session, which hands its open calls out again meanwhile.
    await tools.dispatch("alpha", [callOf("c1")]);
    expect(await toolQueue.getJobCounts("failed", "wait", "active")).toEqual({
      failed: 1,
      wait: 0,
      active: 0,
    });
    expect(told).toEqual(["c1"]);
    expect(await everything()).not.toContain(secretText);
  });

  it("show nothing of it while they are tried again either, and keep what the next try needs", async () => {
    const seen: string[] = [];
    await tools.dispatch("alpha", [callOf("c1")]);
    serveTools(async (job) => {
      seen.push(job.arguments);
      if (seen.length > 1) return "done";
      throw new Error(`sk-12345678 and "${secretText}"`);
    });
    await vi.waitFor(async () => expect(await toolQueue.getCompletedCount()).toBe(1), patience);
    expect(seen).toEqual([callOf("c1").arguments, callOf("c1").arguments]);
    expect(await everything()).not.toContain("sk-123");
    expect(await everything()).not.toContain(secretText);
  });

  it("that cannot be read are kept without their data", async () => {
    await toolQueue.add("odd", { text: secretText }, { jobId: "odd-1" });
    serveTools(async () => "done");
    await vi.waitFor(async () => expect(await toolQueue.getFailedCount()).toBe(1), patience);
    expect(await everything()).not.toContain(secretText);
  });

  it("of a runner without BullMQ are kept in the same way, or given up when others have taken them", async () => {
    const [keys, id] = [
      (name: string): string => toolQueue.toKey(name),
      toolJobId(`${session}-1`, "c1"),
    ];
    const finish = async (reason = ""): Promise<unknown> =>
      await redis.eval(
        finishJobScript.lua,
        5,
        ...["active", "completed", "failed", id, `${id}:lock`].map(keys),
        id,
        JSON.stringify(finishedCallOf(callOf("c1"))),
        keys("").slice(0, -1),
        reason,
      );
    const take = async (): Promise<void> => {
      await tools.dispatch("alpha", [callOf("c1")]);
      await redis.lmove(keys("wait"), keys("active"), "RIGHT", "LEFT");
      await redis.set(keys(`${id}:lock`), "runner");
    };
    await tools.dispatch("alpha", [callOf("c1")]);
    expect(await finish()).toBe(0);
    await take();
    expect(await finish()).toBe(1);
    expect(await finish()).toBe(0);
    expect((await toolQueue.getCompleted())[0]).toMatchObject({
      id,
      data: finishedCallOf(callOf("c1")),
    });
    expect(await redis.exists(keys(`${id}:lock`))).toBe(0);
    await redis.hset(keys(id), "finishedOn", 5); // so long ago that the call is handed out again
    await take();
    expect(await finish("no disk")).toBe(1);
    expect((await toolQueue.getFailed())[0]).toMatchObject({ id, failedReason: "no disk" });
    expect(await toolQueue.getCompletedCount()).toBe(0);
    await tools.dispatch("alpha", [callOf("c1")]);
    expect(await toolQueue.getJobState(id)).toBe("failed");
    expect(await everything()).not.toContain(secretText);
  });
});

/** How a job of an id stands before it is added once more. */
const standings: Record<string, (queue: Queue, id: string) => Promise<void>> = {
  none: async () => {},
  waiting: async (queue, id) => void (await queue.add("old", { old: true }, { jobId: id })),
  prioritized: async (queue, id) =>
    void (await queue.add("old", { old: true }, { jobId: id, priority: 3 })),
  delayed: async (queue, id) =>
    void (await queue.add("old", { old: true }, { jobId: id, delay: 60_000 })),
  active: async (queue, id) => {
    await queue.add("old", { old: true }, { jobId: id });
    await redis.lmove(queue.toKey("wait"), queue.toKey("active"), "RIGHT", "LEFT");
  },
  completed: async (queue, id) => await ended(queue, id, "completed"),
  failed: async (queue, id) => await ended(queue, id, "failed"),
};

async function ended(queue: Queue, id: string, state: "completed" | "failed"): Promise<void> {
  await queue.add("old", { old: true }, { jobId: id });
  await redis.lrem(queue.toKey("wait"), 1, id);
  await redis.hset(queue.toKey(id), { finishedOn: 5, failedReason: "old", atm: 7 });
  await redis.zadd(queue.toKey(state), 5, id);
}

describe.each(both)("adding a job, by %s scripts", (scripts) => {
  beforeEach(() => void (options = { ...options, scripts }));

  it.each(Object.keys(standings))(
    "finds %s of its id: only one that has ended is replaced",
    async (standing) => {
      const isReplaced = ["none", "completed", "failed"].includes(standing);
      await standings[standing]?.(turnQueue, turnJobId(session, 1));
      const added = await Promise.all(
        Array.from({ length: 12 }, async () => await turns.ensure(session, 1)),
      );
      expect(added.filter(Boolean)).toHaveLength(isReplaced ? 1 : 0);
      const counts = await turnQueue.getJobCounts();
      expect(Object.values(counts).reduce((sum, count) => sum + count)).toBe(1);
      const job = await turnQueue.getJob(turnJobId(session, 1));
      expect(job?.data).toEqual(isReplaced ? { v: 1, session, gen: 1 } : { old: true });
      expect(await job?.getState()).toBe(isReplaced ? "waiting" : standing);
      if (isReplaced) {
        expect([job?.attemptsMade, job?.finishedOn, job?.failedReason]).toEqual([
          0,
          undefined,
          undefined,
        ]);
      }
    },
  );

  it.each(Object.keys(standings))(
    "finds %s of a call: what the ledger wants run is run with its arguments",
    async (standing) => {
      const id = toolJobId(`${session}-1`, "c1");
      if (standing === "completed") {
        await tools.dispatch("alpha", [callOf("c1")]);
        const first = serveTools(async () => "done");
        await vi.waitFor(async () => expect(await toolQueue.getCompletedCount()).toBe(1), patience);
        await first.close();
        const answeredMs = Number(await redis.hget(toolQueue.toKey(id), "finishedOn"));
        await redis.hset(toolQueue.toKey(id), { finishedOn: answeredMs - 10_000 }); // its outcome did not arrive
      } else if (standing === "failed" || standing === "none") {
        await standings[standing]?.(toolQueue, id);
      } else {
        await tools.dispatch("alpha", [callOf("c1")], { background: standing === "prioritized" });
      }
      await tools.dispatch("alpha", [callOf("c1")]);
      const seen: string[] = [];
      serveTools(async (job) => {
        seen.push(job.arguments);
        return "done";
      });
      await vi.waitFor(async () => expect(await toolQueue.getCompletedCount()).toBe(1), patience);
      expect(seen).toEqual([callOf("c1").arguments]);
    },
  );

  it.each([
    ["that has just been answered, not", 0, ["c1", "c2"]],
    ["that was answered some time ago, once more", -10_000, ["c1", "c1", "c2"]],
    ["that a runner with a wrong clock has answered, once more", 60_000, ["c1", "c1", "c2"]],
  ])("runs a call %s when it is handed out again", async (_name, byMs, expected) => {
    const seen: string[] = [];
    serveTools(async ({ callId }) => {
      seen.push(callId);
      return "done";
    });
    await tools.dispatch("alpha", [callOf("c1")]);
    await vi.waitFor(async () => expect(await toolQueue.getCompletedCount()).toBe(1), patience);
    const key = toolQueue.toKey(toolJobId(callOf("c1").turnId, "c1"));
    await redis.hset(key, { finishedOn: Number(await redis.hget(key, "finishedOn")) + byMs });
    await tools.dispatch("alpha", [callOf("c1")]);
    // Behind it in the queue.
    await tools.dispatch("alpha", [callOf("c2")]);
    await vi.waitFor(() => expect(seen).toContain("c2"), patience);
    expect(seen).toEqual(expected);
  });

  it("writes what BullMQ itself writes, but for its options and its stream of events", async () => {
    const other = new Queue("turns", { ...options, prefix: `{test-${randomUUID()}}` });
    const call = callOf("c1");
    const of = async (queue: Queue) => ({
      wait: await redis.lrange(queue.toKey("wait"), 0, -1),
      prioritized: await redis.zrange(queue.toKey("prioritized"), "0", "-1", "WITHSCORES"),
      marker: await redis.zrange(queue.toKey("marker"), "0", "-1", "WITHSCORES"),
      jobs: await Promise.all(
        ["c1", "c2"].map(async (callId) => {
          const hash = await redis.hgetall(queue.toKey(toolJobId(call.turnId, callId)));
          return { ...hash, opts: "", timestamp: "" };
        }),
      ),
    });
    await tools.dispatch("alpha", [call]);
    await tools.dispatch("alpha", [callOf("c2")], { background: true });
    await other.add("deploy", call, { jobId: toolJobId(call.turnId, "c1") });
    await other.add("deploy", callOf("c2"), { jobId: toolJobId(call.turnId, "c2"), priority: 10 });
    expect(await of(toolQueue)).toEqual(await of(other));
    await other.close();
  });

  it("wakes no worker of a queue that is paused or has as many active jobs as it may", async () => {
    await toolQueue.pause();
    await tools.dispatch("alpha", [callOf("c1")]);
    expect(await redis.exists(toolQueue.toKey("marker"))).toBe(0);
    await toolQueue.resume();
    await toolQueue.setGlobalConcurrency(1);
    await redis.del(toolQueue.toKey("marker"));
    await redis.lmove(toolQueue.toKey("wait"), toolQueue.toKey("active"), "RIGHT", "LEFT");
    await tools.dispatch("alpha", [callOf("c2")]);
    expect(await redis.exists(toolQueue.toKey("marker"))).toBe(0);
    expect(await toolQueue.getWaitingCount()).toBe(1);
  });

  it("that a worker lost on the way is found by the next, with its arguments", async () => {
    await tools.dispatch("alpha", [callOf("c1")]);
    let started = false;
    const dying = serveTools(async () => {
      started = true;
      return await new Promise<JobResult>(() => {});
    });
    await vi.waitFor(() => expect(started).toBe(true), patience);
    await dying.close({ deadlineMs: 0, abort: false });
    await tools.dispatch("alpha", [callOf("c1")]);
    const seen: string[] = [];
    serveTools(async (job) => {
      seen.push(job.arguments);
      return "done";
    });
    await redis.del(toolQueue.toKey(`${toolJobId(`${session}-1`, "c1")}:lock`));
    await vi.waitFor(() => expect(seen).toEqual([callOf("c1").arguments]), patience);
  });
});

describe.each(both)("a worker whose machine has another time, by %s scripts", (scripts) => {
  beforeEach(() => void (options = { ...options, scripts }));

  const hourMs = 3_600_000;

  afterEach(forgetClock);

  it.each([
    ["an hour ahead", hourMs],
    ["an hour behind", -hourMs],
  ])(
    "%s postpones jobs, tries them again and finishes them by the shared clock",
    async (_name, aheadMs) => {
      const sharedMs = (): number => Date.now() - aheadMs;
      followClock(sharedMs(), performance.now());
      const seen: number[] = [];
      const handle = async ({ gen }: TurnJob): Promise<JobResult> => {
        seen.push(gen);
        if (seen.length === 1) {
          // It takes no other job, so that the postponed one is still there when this test reads its time.
          void first.close();
          return "postpone";
        }
        if (seen.length === 2) throw new Error("once more");
        return "done";
      };
      const first = serveTurns(handle, { postponeMs: 300 });
      await turns.wake(session, 1);
      await vi.waitFor(async () => expect(await turnQueue.getDelayedCount()).toBe(1), patience);
      const [, score] = await redis.zrange(turnQueue.toKey("delayed"), "0", "0", "WITHSCORES");
      expect(Math.abs(Number(score) / 0x1000 - sharedMs())).toBeLessThan(60_000);
      serveTurns(handle);
      await vi.waitFor(async () => expect(await turnQueue.getCompletedCount()).toBe(1), patience);
      expect(seen).toEqual([1, 1, 1]);
      const [job] = await turnQueue.getCompleted();
      for (const time of [job?.timestamp, job?.processedOn, job?.finishedOn]) {
        expect(Math.abs(Number(time) - sharedMs())).toBeLessThan(60_000);
      }
    },
  );

  it("computes by its own time when the next delayed job is due, and neither asks all the time nor sleeps on", async () => {
    followClock(Date.now() - hourMs, performance.now());
    let runs = 0;
    const first = serveTurns(
      async () => {
        runs += 1;
        return "postpone";
      },
      { postponeMs: 60_000 },
    );
    await turns.wake(session, 1);
    await vi.waitFor(async () => expect(await turnQueue.getDelayedCount()).toBe(1), patience);
    await first.close();
    const backend = workerBackend({
      isCall: false,
      redact,
      scripts,
      clock: systemClock,
      settled: new WeakSet(),
    })("turns", options, {
      withBlockingConnection: true,
    });
    const found = await backend.moveToActive("token");
    expect(Math.abs(Number(found[3]) - Date.now() - 60_000)).toBeLessThan(30_000);
    await redis.zadd(turnQueue.toKey("marker"), sharedNow() + 60_000, "1");
    const marker = await backend.waitForJob(1);
    expect(Math.abs(Number(marker?.score) - Date.now() - 60_000)).toBeLessThan(30_000);
    await backend.close();
    expect(runs).toBe(1);
  });

  const folder = join(
    dirname(createRequire(import.meta.url).resolve("bullmq")),
    "..",
    "esm",
    "commands",
  );

  it.each([
    ["moveToActive", "moveToActive-11", "timestamp"],
    ["moveStalledJobsToWait", "moveStalledJobsToWait-9", "timestamp"],
    ["retryJob", "retryJob-11", "timestamp"],
  ])("gives %s of this version of BullMQ the time where it expects it", (command, file, word) => {
    const header = readFileSync(join(folder, `${file}.lua`), "utf8").split("]]")[0] ?? "";
    const place = new RegExp(`ARGV\\[(\\d+)\\]\\s+${word}`).exec(header)?.[1];
    expect(timeAt[command]).toBe(Number(file.split("-")[1]) + Number(place) - 1);
  });
});
