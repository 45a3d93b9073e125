import { randomUUID } from "node:crypto";
import { toolJobId, toolsQueue, type ToolJob } from "@larkline/protocol/runner";
import { startRedis } from "@larkline/testkit";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, inject, it, onTestFinished, vi } from "vitest";
import {
  createToolWorker,
  createTurnWorker,
  type JobResult,
  type JobWorker,
} from "./job-worker.ts";
import type { JobPresence } from "./kept-jobs.ts";
import { type QueueOptions, ToolQueues, TurnQueue, turnJobId, type TurnJob } from "./queues.ts";
import type { Scripts } from "./small-scripts.ts";
import type { Fate } from "../presence.ts";

// Shorter than a lock, so that nothing here passes because a stalled job was recovered.
const patience = { timeout: 60_000, interval: 10 };

/** Whichever scripts move the jobs, the same holds. */
const both: Scripts[] = ["small", "bullmq"];

const redact = (text: string): string => text.replaceAll(/sk-\w+/g, "[secret]");

let redis: Redis;
let options: QueueOptions & { scripts?: Scripts };
let turns: TurnQueue;
let tools: ToolQueues;
let workers: JobWorker[];

beforeEach(() => {
  redis = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  options = { connection: redis, prefix: `{test-${randomUUID()}}` };
  turns = new TurnQueue(options);
  tools = new ToolQueues(options);
  workers = [];
});

afterEach(async () => {
  await Promise.all(workers.map(async (worker) => await worker.close({ deadlineMs: 500 })));
  await Promise.all([turns.close(), tools.close()]);
  redis.disconnect();
});

function turnWorker(handle: (job: TurnJob, signal: AbortSignal) => Promise<JobResult>): JobWorker {
  const worker = createTurnWorker({
    ...options,
    redact,
    concurrency: 4,
    handle,
    onFailed: async () => {},
  });
  workers.push(worker);
  return worker;
}

function toolJob(callId: string, changes: Partial<ToolJob> = {}): ToolJob {
  return {
    v: 1,
    session: "app.oc_1",
    turnId: "app.oc_1-1",
    callId,
    name: "echo",
    arguments: "{}",
    effect: "pure",
    attempt: 1,
    actor: { app: "app", userId: "ou_1", chatId: "oc_1" },
    envelope: "",
    queuedAtMs: Date.now(),
    deadlineMs: Date.now() + 10_000,
    ...changes,
  };
}

describe.each(both)("wake-ups, by %s scripts", (scripts) => {
  beforeEach(() => void (options = { ...options, scripts }));

  it("reach a worker with session and generation", async () => {
    const seen: TurnJob[] = [];
    turnWorker(async (job) => {
      seen.push(job);
      return "done";
    });
    await turns.wake("app.oc_1", 3);
    await vi.waitFor(() => expect(seen).toEqual([{ v: 1, session: "app.oc_1", gen: 3 }]), patience);
  });

  it("of one generation are queued once, and again after they are done", async () => {
    await turns.wake("app.oc_1", 1);
    await turns.wake("app.oc_1", 1);
    expect(await turns.ensure("app.oc_1", 1)).toBe(false);
    let runs = 0;
    turnWorker(async () => {
      runs += 1;
      return "done";
    });
    await vi.waitFor(async () => expect(await turns.alive("app.oc_1", 1)).toBe(false), patience);
    expect(runs).toBe(1);
    expect(await turns.ensure("app.oc_1", 1)).toBe(true);
    await vi.waitFor(() => expect(runs).toBe(2), patience);
  });

  it.each(["requeue", "postpone"] as const)(
    "that are put back (%s) while Redis takes no writes come again when it does",
    async (result) => {
      const server = await startRedis();
      onTestFinished(async () => await server.stop());
      const connection = new Redis(server.url, { maxRetriesPerRequest: null });
      onTestFinished(() => connection.disconnect());
      const own = { connection, prefix: "{own}" };
      const queue = new TurnQueue(own);
      onTestFinished(async () => await queue.close());
      const refused = Promise.withResolvers<void>();
      const failed: unknown[] = [];
      let runs = 0;
      const worker = createTurnWorker({
        ...own,
        redact,
        concurrency: 1,
        // Longer than this test: it is not a stalled job that comes again.
        lockDurationMs: 120_000,
        postponeMs: 3_600_000,
        onError: ({ message }) => {
          if (message.startsWith("READONLY")) refused.resolve();
        },
        onFailed: async (_job, error) => void failed.push(error),
        handle: async () => {
          runs += 1;
          if (runs > 1) return "done";
          await connection.call("REPLICAOF", "127.0.0.1", "1");
          return result;
        },
      });
      onTestFinished(async () => await worker.close({ deadlineMs: 500 }));
      await queue.wake("app.oc_1", 1);
      await refused.promise;
      await connection.call("REPLICAOF", "NO", "ONE");
      await vi.waitFor(() => expect(runs).toBe(2), { timeout: 60_000, interval: 10 });
      await vi.waitFor(async () => expect(await queue.alive("app.oc_1", 1)).toBe(false), patience);
      expect(failed).toEqual([]);
    },
  );

  it("that a worker cannot do wait for one that can, and count as no failure", async () => {
    const passedOn: number[] = [];
    const handle = async ({ gen }: TurnJob) => {
      passedOn.push(gen);
      return "postpone" as const;
    };
    const unable = createTurnWorker({
      ...options,
      redact,
      concurrency: 4,
      handle,
      onFailed: async () => {},
      postponeMs: 500,
    });
    workers.push(unable);
    await turns.wake("app.oc_1", 1);
    await vi.waitFor(() => expect(passedOn).toEqual([1]), patience);
    await unable.close({ deadlineMs: 2_000 });
    expect(await turns.alive("app.oc_1", 1)).toBe(true);
    expect(await turns.ensure("app.oc_1", 1)).toBe(false);
    const done: number[] = [];
    turnWorker(async ({ gen }) => {
      done.push(gen);
      return "done";
    });
    await vi.waitFor(() => expect(done).toEqual([1]), patience);
  });

  it("that have to be alone run beside no other of the process, and the others go on afterwards", async () => {
    const running = new Set<number>();
    const beside: number[][] = [];
    const done: number[] = [];
    const first = Promise.withResolvers<void>();
    const worker = createTurnWorker({
      ...options,
      redact,
      concurrency: 4,
      onFailed: async () => {},
      handle: async ({ gen }, _signal, alone) => {
        if (gen === 2 && !alone) return "alone";
        beside.push([...running, gen]);
        running.add(gen);
        if (gen === 1) await first.promise;
        running.delete(gen);
        done.push(gen);
        return "done";
      },
    });
    workers.push(worker);
    await turns.wake("app.oc_1", 1);
    await vi.waitFor(() => expect([...running]).toEqual([1]), patience);
    await turns.wake("app.oc_1", 2);
    await turns.wake("app.oc_1", 3);
    await turns.wake("app.oc_1", 4);
    await vi.waitFor(async () => expect(await turns.alive("app.oc_1", 4)).toBe(true), patience);
    first.resolve();
    await vi.waitFor(() => expect(done.toSorted()).toEqual([1, 2, 3, 4]), patience);
    expect(beside.find((together) => together.includes(2))).toEqual([2]);
  });

  it("that have to be alone wait for a bounded time: the others are asked to leave, and come again", async () => {
    const ran: string[] = [];
    const worker = createTurnWorker({
      ...options,
      redact,
      concurrency: 4,
      drainMs: 100,
      onFailed: async () => {},
      handle: async ({ gen }, signal, alone) => {
        if (gen === 2) {
          if (!alone) return "alone";
          ran.push("alone");
          return "done";
        }
        ran.push(`long ${ran.length}`);
        if (ran.length > 1) return "done";
        await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
        return "requeue";
      },
    });
    workers.push(worker);
    await turns.wake("app.oc_1", 1);
    await vi.waitFor(() => expect(ran).toEqual(["long 0"]), patience);
    await turns.wake("app.oc_1", 2);
    await vi.waitFor(() => expect(ran).toEqual(["long 0", "alone", "long 2"]), patience);
  });

  it("a worker that waits to be alone closes all the same, and leaves both to others", async () => {
    const asked = Promise.withResolvers<void>();
    const worker = turnWorker(async ({ gen }, signal) => {
      if (gen === 2) {
        asked.resolve();
        return "alone";
      }
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      return "requeue";
    });
    await turns.wake("app.oc_1", 1);
    await turns.wake("app.oc_1", 2);
    await asked.promise;
    await worker.close({ deadlineMs: 5_000 });
    const seen: number[] = [];
    turnWorker(async ({ gen }) => {
      seen.push(gen);
      return "done";
    });
    await vi.waitFor(() => expect(seen.toSorted()).toEqual([1, 2]), patience);
  });

  it("that throw are tried again, and are not reported as failed for good", async () => {
    let runs = 0;
    const failed: number[] = [];
    const worker = createTurnWorker({
      ...options,
      redact,
      concurrency: 4,
      handle: async () => {
        runs += 1;
        if (runs < 3) throw new Error("Redis was away");
        return "done";
      },
      onFailed: async ({ gen }) => void failed.push(gen),
    });
    workers.push(worker);
    await turns.wake("app.oc_1", 1);
    await vi.waitFor(() => expect(runs).toBe(3), patience);
    await vi.waitFor(async () => expect(await turns.alive("app.oc_1", 1)).toBe(false), patience);
    expect(failed).toEqual([]);
  });

  it("that keep throwing fail for good once, and do not block a new one of the same generation", async () => {
    let broken = true;
    const failed: number[] = [];
    const seen: number[] = [];
    const worker = createTurnWorker({
      ...options,
      redact,
      concurrency: 4,
      handle: async ({ gen }) => {
        if (broken) throw new Error("broken");
        seen.push(gen);
        return "done";
      },
      onFailed: async ({ gen }) => void failed.push(gen),
    });
    workers.push(worker);
    await turns.wake("app.oc_1", 1);
    const queue = new Queue("turns", options);
    onTestFinished(async () => await queue.close());
    await vi.waitFor(async () => {
      await queue.promoteJobs(); // the pauses between tries add up to six seconds
      expect(failed).toEqual([1]);
    }, patience);
    broken = false;
    expect(await turns.ensure("app.oc_1", 1)).toBe(true);
    await vi.waitFor(() => expect(seen).toEqual([1]), patience);
    expect(failed).toEqual([1]);
  });

  /** What a worker knows of the processes that hold jobs. */
  const presenceOf = (fates: Record<string, Fate>, isSteady = true): JobPresence => ({
    id: "own",
    lockMs: 30_000,
    hold: () => () => undefined,
    isSteady: () => isSteady,
    fatesOf: async (ids) =>
      await Promise.resolve(new Map(ids.map((id) => [id, fates[id] ?? "unknown"]))),
  });

  /** A job that a process has taken. */
  async function takenBy(holder: string, gen: number): Promise<void> {
    await turns.wake("app.oc_1", gen);
    await redis.rpoplpush(`${options.prefix}:turns:wait`, `${options.prefix}:turns:active`);
    await redis.set(`${options.prefix}:turns:${turnJobId("app.oc_1", gen)}:lock`, `${holder}:7`);
  }

  function startWorker(presence: JobPresence, seen: number[]): JobWorker {
    const worker = createTurnWorker({
      ...options,
      redact,
      concurrency: 4,
      handle: async ({ gen }) => {
        seen.push(gen);
        return await Promise.resolve("done");
      },
      onFailed: async () => {},
      presence,
      stalledIntervalMs: 600_000,
    });
    workers.push(worker);
    return worker;
  }

  it("of dead processes come back at once, and those of the living and of strangers stay", async () => {
    for (const [at, holder] of ["dead", "alive", "stranger", "left"].entries()) {
      await takenBy(holder, at + 1);
    }
    const fates: Record<string, Fate> = { dead: "alive", alive: "alive", left: "alive" };
    const seen: number[] = [];
    const worker = startWorker(presenceOf(fates), seen);
    await worker.recover();
    expect(seen).toEqual([]);
    Object.assign(fates, { dead: "died", left: "left" });
    await worker.recover();
    await vi.waitFor(() => expect(seen.toSorted()).toEqual([1, 4]), patience);
    expect(await redis.lrange(`${options.prefix}:turns:active`, 0, -1)).toHaveLength(2);
  });

  it("without a lock stay right after an outage of Redis, in which locks of the living have run out", async () => {
    await takenBy("alive", 1);
    await redis.del(`${options.prefix}:turns:${turnJobId("app.oc_1", 1)}:lock`);
    const seen: number[] = [];
    let isSteady = false;
    const worker = startWorker({ ...presenceOf({}), isSteady: () => isSteady }, seen);
    for (let looks = 0; looks < 3; looks += 1) await worker.recover();
    expect(seen).toEqual([]);
    isSteady = true;
    for (let looks = 0; looks < 2; looks += 1) {
      await redis.del(`${options.prefix}:turns:stalled-check`); // as time does
      await worker.recover();
    }
    await vi.waitFor(() => expect(seen).toEqual([1]), patience);
  });

  it("with data that cannot be right are refused before they are queued", async () => {
    await expect(turns.wake("spaces are bad", 1)).rejects.toThrow(/refusing to queue/);
    await expect(turns.wake("app.oc_1", 0)).rejects.toThrow(/gen/);
  });
});

describe.each(both)("closing a worker, by %s scripts", (scripts) => {
  beforeEach(() => void (options = { ...options, scripts }));

  it("aborts the running job, which goes to another worker at once", async () => {
    let started = false;
    const first = turnWorker(async (_job, signal) => {
      started = true;
      return await new Promise<JobResult>((resolve) =>
        signal.addEventListener("abort", () => resolve("requeue")),
      );
    });
    await turns.wake("app.oc_1", 1);
    await vi.waitFor(() => expect(started).toBe(true), patience);
    await first.close();
    const seen: number[] = [];
    turnWorker(async ({ gen }) => {
      seen.push(gen);
      return "done";
    });
    await vi.waitFor(() => expect(seen).toEqual([1]), patience);
  });

  it("does not wait longer than its deadline", async () => {
    let started = false;
    const stuck = turnWorker(async () => {
      started = true;
      return await new Promise<JobResult>(() => {});
    });
    await turns.wake("app.oc_1", 1);
    await vi.waitFor(() => expect(started).toBe(true), patience);
    await stuck.close({ deadlineMs: 50 });
    await stuck.close();
  });
});

interface ToolWorkerChanges {
  runner?: string;
  limitedTool?: string;
  concurrency?: number;
  lockDurationMs?: number;
  stalledIntervalMs?: number;
  onError?: (error: Error) => void;
  handle?: (job: ToolJob) => Promise<JobResult>;
}

/** A worker of runner `alpha` that notes the calls it is given. */
function toolWorker(seen: string[], changes: ToolWorkerChanges = {}): JobWorker {
  const worker = createToolWorker({
    ...options,
    redact,
    runner: "alpha",
    concurrency: 4,
    handle: async ({ callId, attempt }) => {
      seen.push(attempt === 1 ? callId : `${callId} ${attempt}`);
      return "done";
    },
    onFailed: async () => {},
    ...changes,
  });
  workers.push(worker);
  return worker;
}

describe.each(both)("tool calls, by %s scripts", (scripts) => {
  beforeEach(() => void (options = { ...options, scripts }));

  it("reach the worker of their runner, several at once, and are queued once each", async () => {
    const seen: string[] = [];
    await tools.dispatch("alpha", [toolJob("c1"), toolJob("c2")]);
    await tools.dispatch("alpha", [toolJob("c1"), toolJob("c2")]);
    await tools.dispatch("beta", [toolJob("c3")]);
    toolWorker(seen);
    await vi.waitFor(() => expect(seen.toSorted()).toEqual(["c1", "c2"]), patience);
  });

  it("are queued again as another attempt while the first is there", async () => {
    const seen: string[] = [];
    await tools.dispatch("alpha", [toolJob("c1")]);
    await tools.dispatch("alpha", [toolJob("c1", { attempt: 2 })]);
    toolWorker(seen);
    await vi.waitFor(() => expect(seen.toSorted()).toEqual(["c1", "c1 2"]), patience);
  });

  it("wait for a runner that is away", async () => {
    const seen: string[] = [];
    const first = toolWorker(seen);
    await first.close();
    await tools.dispatch("alpha", [toolJob("c1")]);
    toolWorker(seen);
    await vi.waitFor(() => expect(seen).toEqual(["c1"]), patience);
  });

  it("for which no client waits come after all others", async () => {
    const seen: string[] = [];
    await tools.dispatch("alpha", [toolJob("b1"), toolJob("b2")], { background: true });
    await tools.dispatch("alpha", [toolJob("c1"), toolJob("c2")]);
    toolWorker(seen, { concurrency: 1 });
    await vi.waitFor(() => expect(seen).toHaveLength(4), patience);
    expect(seen).toEqual(["c1", "c2", "b1", "b2"]);
  });

  it("with as many arguments as workers send, all of them quotes, fit into a job", async () => {
    const seen: string[] = [];
    await tools.dispatch("alpha", [
      toolJob("c1", { arguments: '"'.repeat(200_000), envelope: "x".repeat(16_384) }),
    ]);
    toolWorker(seen);
    await vi.waitFor(() => expect(seen).toEqual(["c1"]), patience);
    await expect(
      tools.dispatch("alpha", [toolJob("c2", { arguments: '"'.repeat(300_000) })]),
    ).rejects.toThrow(/size/);
  });
});

describe.each(both)("a tool with limits, by %s scripts", (scripts) => {
  beforeEach(() => void (options = { ...options, scripts }));

  const limitedTools = new Set(["echo"]);

  it("has a queue of its own, which does not hold up the others of its runner", async () => {
    const seen: string[] = [];
    await tools.dispatch("alpha", [toolJob("c1"), toolJob("c2", { name: "other" })], {
      limitedTools,
    });
    toolWorker(seen);
    await vi.waitFor(() => expect(seen).toEqual(["c2"]), patience);
    toolWorker(seen, { limitedTool: "echo" });
    await vi.waitFor(() => expect(seen).toEqual(["c2", "c1"]), patience);
  });

  it("runs no more calls at once than it may, over all instances, and loses none when one instance leaves", async () => {
    await tools.limit("alpha", "echo", { concurrency: 2 });
    const calls = Array.from({ length: 12 }, (_, index) => toolJob(`c${index}`));
    await tools.dispatch("alpha", calls, { limitedTools });
    let running = 0;
    let most = 0;
    const gates: (() => void)[] = [];
    const handle = async (): Promise<JobResult> => {
      running += 1;
      most = Math.max(most, running);
      await new Promise<void>((resolve) => gates.push(resolve));
      running -= 1;
      return "done";
    };
    const instances = [1, 2, 3].map(() => toolWorker([], { limitedTool: "echo", handle }));
    for (let ended = 0; ended < calls.length; ended += 1) {
      await vi.waitFor(() => expect(gates.length).toBeGreaterThan(ended), patience);
      if (ended === 4) void instances[0]?.close();
      gates[ended]?.();
    }
    await vi.waitFor(() => expect(running).toBe(0), patience);
    expect(most).toBe(2);
  });

  it("starts no more calls in a span of time than it may, over all instances", async () => {
    await tools.limit("alpha", "echo", { rate: { calls: 3, perMs: 3_600_000 } });
    const calls = Array.from({ length: 9 }, (_, index) => toolJob(`c${index}`));
    await tools.dispatch("alpha", calls, { limitedTools });
    const seen: string[] = [];
    const instances = [1, 2].map(() => toolWorker(seen, { limitedTool: "echo" }));
    const queue = new Queue(toolsQueue("alpha", "echo"), options);
    onTestFinished(async () => await queue.close());
    // A worker that finishes a call asks for the next one in the same step.
    await vi.waitFor(async () => expect(await queue.getCompletedCount()).toBe(3), patience);
    expect(await queue.getJobCounts("active", "wait")).toEqual({ active: 0, wait: 6 });
    expect(seen).toHaveLength(3);
    expect(await redis.pttl(queue.toKey("limiter"))).toBeGreaterThan(3_000_000);
    await Promise.all(instances.map(async (instance) => await instance.close()));
    // The others have their turns when the span is over.
    await tools.limit("alpha", "echo", { rate: { calls: 3, perMs: 400 } });
    await redis.del(queue.toKey("limiter"));
    for (const _ of [1, 2]) toolWorker(seen, { limitedTool: "echo" });
    await vi.waitFor(() => expect(seen).toHaveLength(9), patience);
    expect(new Set(seen).size).toBe(9);
  });

  it("counts a call once whose process stood still, and has two of it running only while that is not back", async () => {
    await tools.limit("alpha", "echo", { concurrency: 1 });
    const log: string[] = [];
    const gates = new Map<string, () => void>();
    const refusals: string[] = [];
    const instance = (name: string): void => {
      toolWorker([], {
        limitedTool: "echo",
        concurrency: 1,
        lockDurationMs: 60_000, // it is not renewed while this runs
        stalledIntervalMs: 100,
        onError: (error) => refusals.push(`${name}: ${error.message}`),
        handle: async ({ callId }) => {
          log.push(`${name} begins ${callId}`);
          await new Promise<void>((resolve) => gates.set(`${name} ${callId}`, resolve));
          log.push(`${name} ends ${callId}`);
          return "done";
        },
      });
    };
    const queue = `${options.prefix}:${toolsQueue("alpha", "echo")}`;
    const [c1, c2] = ["c1", "c2"].map((callId) => toolJobId(toolJob(callId).turnId, callId));
    await tools.dispatch("alpha", [toolJob("c1"), toolJob("c2")], { limitedTools });
    instance("frozen");
    await vi.waitFor(() => expect(log).toEqual(["frozen begins c1"]), patience);
    instance("other");
    await redis.del(`${queue}:${c1}:lock`); // as time does while no process renews it
    await vi.waitFor(() => expect(log).toEqual(["frozen begins c1", "other begins c1"]), patience);
    gates.get("frozen c1")?.();
    // It has lost the job: the call still counts as the other one's, and nothing else starts.
    await vi.waitFor(
      () => expect(refusals.join(" ")).toMatch(/frozen: .*(?:lock|owned)/i),
      patience,
    );
    expect(await redis.lrange(`${queue}:active`, 0, -1)).toEqual([c1]);
    expect(await redis.lrange(`${queue}:wait`, 0, -1)).toEqual([c2]);
    gates.get("other c1")?.();
    await vi.waitFor(() => expect(log).toHaveLength(5), patience);
    expect(log.slice(2, 4)).toEqual(["frozen ends c1", "other ends c1"]);
    expect(log[4]).toMatch(/^(?:frozen|other) begins c2$/);
    for (const open of gates.values()) open();
  });

  it("is bounded by what was said last", async () => {
    await tools.limit("alpha", "echo", { concurrency: 1, rate: { calls: 1, perMs: 60_000 } });
    await tools.limit("alpha", "echo", { concurrency: 8 });
    const seen: string[] = [];
    toolWorker(seen, { limitedTool: "echo" });
    await tools.dispatch("alpha", [toolJob("c1"), toolJob("c2"), toolJob("c3")], { limitedTools });
    await vi.waitFor(() => expect(seen).toHaveLength(3), patience);
  });
});
