import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { systemClock } from "@larkline/protocol/clock";
import type { ToolJob } from "@larkline/protocol/runner";
import { Job, Queue, Worker } from "bullmq";

import * as fc from "fast-check";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, inject, it, vi } from "vitest";
import { createTurnWorker, type JobResult } from "./job-worker.ts";
import { kept, type KeepingBackend } from "./kept-jobs.ts";
import { JobAdder, TurnQueue } from "./queues.ts";
import { workerBackend, type Scripts } from "./small-scripts.ts";

const patience = { timeout: 60_000, interval: 10 };
const redact = (text: string): string => text;

let redis: Redis;
const closing: (() => Promise<unknown>)[] = [];

beforeEach(() => {
  redis = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
});

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
  redis.disconnect();
});

/** A call as a job holds it; of the ids only that of the call differs. */
function callOf(callId: string): ToolJob {
  return {
    v: 1,
    session: "app.oc_1",
    turnId: "app.oc_1-1",
    callId,
    name: "deploy",
    arguments: '{"note":"the merger is on Friday"}',
    effect: "pure",
    attempt: 1,
    actor: { app: "app", userId: "ou_1", chatId: "oc_1" },
    envelope: "signed",
    queuedAtMs: 1_000,
    deadlineMs: 2_000,
  };
}

/** One queue whose jobs are moved by hand, each step by the scripts that `pick` names. */
class Bench {
  readonly prefix = `{test-${randomUUID()}}`;
  readonly queue: Queue;
  readonly held: { job: Job; token: string }[] = [];
  readonly #adder: JobAdder;
  readonly #workers: Record<Scripts, Worker>;
  readonly #pick: () => Scripts;
  #tokens = 0;

  constructor(pick: () => Scripts) {
    const options = { connection: redis, prefix: this.prefix };
    this.queue = new Queue("tools-alpha", options);
    this.#adder = new JobAdder(this.queue);
    this.#pick = pick;
    const workerOf = (scripts: Scripts): Worker =>
      new Worker(
        "tools-alpha",
        null,
        {
          ...options,
          lockDuration: 600_000,
          stalledInterval: 600_000,
          maxStalledCount: 2,
          autorun: false,
        },
        workerBackend({
          isCall: true,
          redact,
          scripts,
          clock: systemClock,
          settled: new WeakSet(),
        }),
      );
    this.#workers = { small: workerOf("small"), bullmq: workerOf("bullmq") };
    const workers = Object.values(this.#workers);
    for (const worker of workers) worker.on("error", () => undefined); // the caller gets the error
    closing.push(
      async () =>
        await Promise.all([this.queue.close(), ...workers.map((worker) => worker.close(true))]),
    );
  }

  async add(id: string, priority = 0): Promise<unknown> {
    return await this.#adder.add({
      id,
      name: "deploy",
      data: callOf(id),
      maxBytes: 10_000,
      priority,
    });
  }

  /** As a worker does that was woken: what the marker held is gone when it asks. */
  async take(isWoken: boolean): Promise<unknown> {
    if (isWoken) await redis.zpopmin(this.queue.toKey("marker"));
    const token = `token-${(this.#tokens += 1)}`;
    const worker = this.#workers[this.#pick()];
    // The first answer may say that the last script has seen no other job; a worker asks again when it is woken.
    const job =
      (await worker.getNextJob(token, { block: false })) ??
      (await worker.getNextJob(token, { block: false }));
    return this.#hold(job, token);
  }

  async finish(index: number, fetchNext: boolean): Promise<unknown> {
    return await this.#end(
      index,
      async (job, token) => await job.moveToCompleted(undefined, token, fetchNext),
    );
  }

  async fail(index: number, fetchNext: boolean): Promise<unknown> {
    const error = Object.assign(new Error("no way"), { stack: "Error: no way\n    at somewhere" });
    return await this.#end(
      index,
      async (job, token) => await job.moveToFailed(error, token, fetchNext),
    );
  }

  async giveBack(index: number): Promise<unknown> {
    return await this.#end(index, async (job, token) => void (await job.moveToWait(token)));
  }

  async postpone(index: number): Promise<unknown> {
    return await this.#end(
      index,
      async (job, token) => void (await job.moveToDelayed(Date.now() + 5_000, token)),
    );
  }

  /** Its lock runs out, its worker lives on. */
  async loseLock(at: number): Promise<unknown> {
    const held = this.held[at % Math.max(1, this.held.length)];
    return held === undefined
      ? undefined
      : await redis.del(this.queue.toKey(`${held.job.id}:lock`));
  }

  async findStalled(): Promise<unknown> {
    await redis.del(this.queue.toKey("stalled-check"));
    return await this.backend().moveStalledJobsToWait();
  }

  backend(): KeepingBackend {
    return this.#workers[this.#pick()].getBackend() as KeepingBackend;
  }

  async #end(index: number, end: (job: Job, token: string) => Promise<unknown>): Promise<unknown> {
    const at = index % Math.max(1, this.held.length);
    const [held] = this.held.splice(at, 1);
    if (held === undefined) return undefined;
    const worker = this.#workers[this.#pick()];
    // A job belongs to the worker that made it; here another one may finish it, as after an upgrade.
    const job = Job.fromJSON(
      worker,
      { ...held.job.asJSON(), opts: held.job.opts } as never,
      held.job.id,
    );
    const next: unknown = await end(job, held.token);
    if (!Array.isArray(next) || !next[0]) return next === undefined ? undefined : "no other";
    return this.#hold(Job.fromJSON(worker, next[0], next[1]), held.token);
  }

  #hold(job: Job | undefined, token: string): unknown {
    if (job === undefined) return "none";
    this.held.push({ job, token });
    return job.asJSON();
  }

  /** All keys with what they hold, but for the stream of events, and for the marker, of which there are several right states. */
  async everything(): Promise<Record<string, unknown>> {
    const keys = await redis.keys(`${this.prefix.replaceAll(/[{}]/g, "?")}*`);
    const values = await Promise.all(
      keys.toSorted().map(async (key): Promise<[string, unknown]> => {
        const name = key.slice(this.queue.toKey("").length);
        if (["events", "marker", "stalled-check"].includes(name)) return [name, undefined];
        const type = await redis.type(key);
        if (type === "string") return [name, await redis.get(key)];
        if (type === "hash") return [name, await redis.hgetall(key)];
        if (type === "list") return [name, await redis.lrange(key, 0, -1)];
        if (type === "set") return [name, (await redis.smembers(key)).toSorted()];
        return [name, await redis.zrange(key, "0", "-1", "WITHSCORES")];
      }),
    );
    return Object.fromEntries(values.filter(([, value]) => value !== undefined));
  }

  /**
   * Whether idle workers would be woken for the jobs that wait, and of the delayed ones. Of those a worker knows that was
   * woken and has found nothing else: they are asked for where it has found a job.
   */
  async isHeard(alsoDelayed: boolean): Promise<boolean> {
    const [waiting, prioritized, delayed, marker, limits] = await Promise.all([
      redis.llen(this.queue.toKey("wait")),
      redis.zcard(this.queue.toKey("prioritized")),
      redis.zcard(this.queue.toKey("delayed")),
      redis.zrange(this.queue.toKey("marker"), "0", "-1"),
      redis.hmget(this.queue.toKey("meta"), "paused", "concurrency"),
    ]);
    if (limits.some((limit) => limit !== null)) return true;
    if (waiting + prioritized > 0) return marker.includes("0");
    return !alsoDelayed || delayed === 0 || marker.length > 0;
  }
}

type Step = [name: string, act: (bench: Bench) => Promise<unknown>];

const idOf = (number: number): string => `t-app.oc_1-1-c${number}`;
const add = (number: number, priority = 0): Step => [
  `add ${number}${priority > 0 ? " for later" : ""}`,
  async (bench) => await bench.add(idOf(number), priority),
];
const take: Step = ["take", async (bench) => await bench.take(false)];
const takeWoken: Step = ["take when woken", async (bench) => await bench.take(true)];
/** Of the jobs held, the one at that place, counted round. */
const finish = (at: number, next = false): Step => [
  `finish ${at}${next ? " and take" : ""}`,
  async (bench) => await bench.finish(at, next),
];
const fail = (at: number, next = false): Step => [
  `fail ${at}${next ? " and take" : ""}`,
  async (bench) => await bench.fail(at, next),
];
const giveBack = (at: number): Step => [
  `give ${at} back`,
  async (bench) => await bench.giveBack(at),
];
const postpone = (at: number): Step => [
  `postpone ${at}`,
  async (bench) => await bench.postpone(at),
];
const loseLock = (at: number): Step => [
  `lose the lock of ${at}`,
  async (bench) => await bench.loseLock(at),
];
const findStalled: Step = ["find stalled jobs", async (bench) => await bench.findStalled()];
const pause: Step = ["pause", async ({ queue }) => await queue.pause()];
const resume: Step = ["resume", async ({ queue }) => await queue.resume()];
const limit: Step = [
  "allow one at once",
  async ({ queue }) => void (await queue.setGlobalConcurrency(1)),
];
const unlimit: Step = [
  "allow any number",
  async ({ queue }) => void (await queue.removeGlobalConcurrency()),
];
const drain: Step = ["drain", async ({ queue }) => await queue.drain(true)];
const obliterate: Step = [
  "obliterate",
  async ({ queue }) => await queue.obliterate({ force: true }),
];
const remove = (number: number): Step => [
  `remove ${number}`,
  async ({ queue }) => await queue.remove(idOf(number)),
];
const retryFailed: Step = [
  "retry failed",
  async ({ queue }) => await queue.retryJobs({ state: "failed" }),
];
const promote: Step = ["promote", async ({ queue }) => await queue.promoteJobs()];
const clean: Step = ["clean", async ({ queue }) => await queue.clean(60_000, 100, "completed")];
/** Once for all queues, which have one clock. */
const pass = (ms: number): Step => [`${ms} ms pass`, async () => ms];

/** What happens to a queue, with how often it does beside the others. */
const anyStep: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.integer({ min: 1, max: 5 }).map((number) => add(number)) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 5 }).map((number) => add(number, 10)) },
  { weight: 9, arbitrary: fc.constantFrom(take, takeWoken) },
  {
    weight: 9,
    arbitrary: fc.tuple(fc.nat({ max: 3 }), fc.boolean()).map(([at, next]) => finish(at, next)),
  },
  {
    weight: 2,
    arbitrary: fc.tuple(fc.nat({ max: 3 }), fc.boolean()).map(([at, next]) => fail(at, next)),
  },
  {
    weight: 4,
    arbitrary: fc
      .tuple(fc.constantFrom(giveBack, postpone, loseLock), fc.nat(3))
      .map(([of, at]) => of(at)),
  },
  {
    weight: 9,
    arbitrary: fc.constantFrom(
      findStalled,
      findStalled,
      pause,
      resume,
      resume,
      retryFailed,
      promote,
    ),
  },
  {
    weight: 3,
    arbitrary: fc.constantFrom(drain, obliterate, clean, limit, unlimit, remove(1), remove(2)),
  },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      pass(1),
      pass(100),
      pass(4_000),
      pass(60_000),
      pass(15 * 86_400_000),
    ),
  },
);

const stall = [loseLock(0), findStalled, findStalled];

/** What must not be left to chance. */
const stories: Record<string, Step[]> = {
  "jobs come in order, those for later last": [
    add(1),
    add(2, 10),
    add(3),
    take,
    finish(0, true),
    finish(0, true),
  ],
  "a job comes again after it has finished": [
    add(1),
    take,
    add(1),
    finish(0),
    add(1),
    takeWoken,
    finish(0, true),
  ],
  "the lock has run out": [
    add(1),
    take,
    loseLock(0),
    finish(0),
    findStalled,
    findStalled,
    takeWoken,
    finish(0),
  ],
  "another worker has the job": [add(1), take, ...stall, take, finish(0), finish(0, true)],
  "the job is gone": [add(1), add(2), take, obliterate, finish(0, true), add(1), take, finish(0)],
  "the job is in no list": [
    add(1),
    take,
    ["leave the list", async ({ queue }) => await redis.del(queue.toKey("active"))],
    finish(0, true),
  ],
  "a job stalls too often": [add(1), take, ...stall, take, ...stall, take, ...stall, take, fail(0)],
  "a job fails, is tried again when it is due, and succeeds": [
    add(1),
    add(2),
    take,
    fail(0, true),
    pass(50),
    add(3),
    take,
    finish(0, true),
    pass(50),
    add(4),
    takeWoken,
    takeWoken,
    finish(0, true),
    finish(0, true),
  ],
  "a job counts as stalled, but its worker continues": [
    add(1),
    take,
    findStalled,
    finish(0),
    add(1),
    take,
    findStalled,
  ],
  "the worker that waits for a delayed job gets another": [
    add(1),
    take,
    fail(0),
    takeWoken,
    takeWoken,
    add(2),
    takeWoken,
  ],
  "a job is delayed while others are taken": [
    add(1),
    add(2),
    take,
    postpone(0),
    takeWoken,
    finish(0, true),
    promote,
  ],
  "it pauses": [
    add(1),
    add(2),
    take,
    pause,
    takeWoken,
    finish(0, true),
    add(3),
    take,
    resume,
    takeWoken,
  ],
  "one job at once": [
    limit,
    add(1),
    add(2),
    add(3),
    take,
    take,
    finish(0, true),
    take,
    unlimit,
    takeWoken,
  ],
  "nothing is left": [
    add(1),
    take,
    finish(0, true),
    take,
    drain,
    add(2),
    takeWoken,
    giveBack(0),
    takeWoken,
  ],
};

async function outcomeOf(act: Promise<unknown>): Promise<unknown> {
  try {
    return await act;
  } catch (error) {
    return error instanceof Error ? error.message : error;
  }
}

describe("small scripts and BullMQ's", () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["Date"], now: 1_800_000_000_000 }));
  afterEach(() => void vi.useRealTimers());

  /** Does the same to three queues: one has BullMQ's scripts, one the small ones, and one both, by turns. */
  async function compare(acts: readonly Step[], mixed: () => Scripts): Promise<void> {
    const benches = [new Bench(() => "bullmq"), new Bench(() => "small"), new Bench(mixed)];
    let wasLimited = false;
    for (const [name, act] of acts) {
      const [expected, ...others] = await Promise.all(
        benches.map(async (bench) => await outcomeOf(act(bench))),
      );
      for (const outcome of others) expect(outcome, name).toEqual(expected);
      if (name.endsWith(" ms pass")) vi.setSystemTime(Date.now() + Number(expected));
      const [left, ...otherLeft] = await Promise.all(
        benches.map(async (bench) => await bench.everything()),
      );
      for (const each of otherLeft) expect(each, name).toEqual(left);
      const isTaken = typeof expected === "object" && name.includes("take");
      const [isHeard, ...otherHeard] = await Promise.all(
        benches.map(async (bench) => await bench.isHeard(isTaken)),
      );
      // BullMQ itself wakes no worker for a job with priority that is given back, or when a limit falls away.
      wasLimited ||= name === limit[0];
      if (isHeard === true && !wasLimited) expect(otherHeard, name).not.toContain(false);
    }
    await Promise.all(closing.splice(0).map(async (close) => await close()));
  }

  it.each(Object.entries(stories))("answer and leave the same: %s", async (_name, acts) => {
    let turn = 0;
    await compare(acts, () => ((turn += 1) % 2 === 0 ? "small" : "bullmq"));
    await compare(acts, () => ((turn += 1) % 3 === 0 ? "bullmq" : "small"));
  });

  it("answer and leave the same, whatever happens to a queue", async () => {
    const picks = fc.infiniteStream(fc.constantFrom<Scripts>("small", "bullmq"));
    await fc.assert(
      fc.asyncProperty(
        fc.array(anyStep, { minLength: 5, maxLength: 40 }),
        picks,
        async (acts, stream) => {
          await compare(acts, () => stream.next().value);
        },
      ),
      { numRuns: 60 },
    );
  });

  it.each([
    ["none", 0, 0],
    ["almost as many as stay, some too old", kept.completed.count - 1, 50],
    ["as many as stay", kept.completed.count, 0],
    ["more than stay, as after an upgrade", kept.completed.count + 30, 0],
    ["more than stay, nearly all too old", kept.completed.count + 30, kept.completed.count + 10],
    ["as many as stay, all too old", kept.completed.count, kept.completed.count],
  ])("keep the same of what has finished before: %s", async (_name, count, old) => {
    const nowMs = Date.now();
    const finished: Step = [
      "were finished before",
      async ({ queue }) => {
        for (let index = 0; index < count; index += 1) {
          const ageMs = (index < old ? kept.completed.age * 1_000 : 0) + count - index;
          await redis.hset(queue.toKey(`old-${index}`), { data: "{}", finishedOn: nowMs - ageMs });
          await redis.lpush(queue.toKey(`old-${index}:logs`), "line");
          await redis.zadd(queue.toKey("completed"), nowMs - ageMs, `old-${index}`);
        }
      },
    ];
    await compare([finished, add(1), add(2), take, finish(0, true), finish(0)], () => "small");
  });
});

describe("a job that was taken and finished by small scripts", () => {
  /** What Redis does for one queue, scripts' own commands included, while something happens. */
  async function commandsOf(bench: Bench, act: () => Promise<unknown>): Promise<string[]> {
    // The client that the workers have cannot monitor.
    const monitor = spawn("redis-cli", ["-u", inject("redisUrl"), "monitor"], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    closing.push(async () => await kill(monitor));
    const lines: string[] = [];
    createInterface({ input: monitor.stdout }).on("line", (line) => lines.push(line));
    await vi.waitFor(() => expect(lines).not.toEqual([]), patience);
    await act();
    const last = `${bench.prefix} is done`;
    await redis.get(last);
    await vi.waitFor(() => expect(lines.some((line) => line.includes(last))).toBe(true), patience);
    const ofQueue = lines.filter((line) => line.includes(bench.prefix) && !line.includes(last));
    return ofQueue.map((line) => /\] "(\w+)"/.exec(line)?.[1]?.toLowerCase() ?? line);
  }

  it("costs half of BullMQ's commands, and no second question whether there is another", async () => {
    const [small, bullmq] = await Promise.all(
      (["small", "bullmq"] as const).map(async (scripts) => {
        const bench = new Bench(() => scripts);
        // As many as stay: from now on each job that finishes has another one removed.
        for (let index = 0; index < kept.completed.count; index += 1) {
          await redis.hset(bench.queue.toKey(`old-${index}`), { data: "{}" });
          await redis.zadd(bench.queue.toKey("completed"), Date.now(), `old-${index}`);
        }
        const worker = new Worker(
          "tools-alpha",
          null,
          { connection: redis, prefix: bench.prefix, lockDuration: 10_000, autorun: false },
          workerBackend({
            isCall: true,
            redact,
            scripts,
            clock: systemClock,
            settled: new WeakSet(),
          }),
        );
        worker.on("error", () => undefined);
        closing.push(async () => await worker.close(true));
        await bench.add(idOf(0));
        await (
          await worker.getNextJob("0", { block: false })
        )?.moveToCompleted(undefined, "0", true); // loads scripts
        await bench.add(idOf(1));
        return await commandsOf(bench, async () => {
          const job = await worker.getNextJob("1", { block: false });
          expect(job?.id).toBe(idOf(1));
          expect(await worker.getNextJob("2", { block: false })).toBeUndefined();
          await job?.moveToCompleted(undefined, "1", true);
        });
      }),
    );
    expect(small?.filter((command) => command === "evalsha")).toHaveLength(2);
    expect(bullmq?.filter((command) => command === "evalsha")).toHaveLength(3);
    expect(small?.length).toBeLessThan((bullmq?.length ?? 0) / 2 + 1);
  });
});

/** A process that works a turn queue as agent-worker does, tells of each job on its output, and is killed by the test. */
const workerProgram = `
import { setTimeout as delay } from "node:timers/promises";
const [modules, redisUrl, prefix, scripts, hangs] = process.argv.slice(1);
const { Redis } = await import("ioredis");
const { createTurnWorker } = await import(modules + "job-worker.ts");
createTurnWorker({
  connection: new Redis(redisUrl, { maxRetriesPerRequest: null }),
  prefix, scripts, concurrency: 4, lockDurationMs: 1_000, stalledIntervalMs: 300,
  redact: (text) => text,
  handle: async ({ gen }) => {
    process.stdout.write(gen + "\\n");
    if (hangs === "hangs") await new Promise(() => {});
    await delay(gen % 7);
    return "done";
  },
  onFailed: async () => {},
});
`;

function startWorker(
  prefix: string,
  scripts: Scripts,
  hangs = false,
): { child: ChildProcess; seen: number[] } {
  const modules = new URL("./", import.meta.url).href;
  const given = [modules, inject("redisUrl"), prefix, scripts, ...(hangs ? ["hangs"] : [])];
  const child = spawn(
    process.execPath,
    ["--input-type=module", "--eval", workerProgram, "--", ...given],
    {
      cwd: new URL(".", import.meta.url),
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  const seen: number[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => seen.push(Number(line)));
  closing.push(async () => await kill(child));
  return { child, seen };
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}

const pairs = (["small", "bullmq"] as const).flatMap((one) => [
  { one, other: "small" as const },
  { one, other: "bullmq" as const },
]);

describe("workers that are killed", () => {
  it.each(pairs)(
    "with $one scripts leave their jobs to workers with $other ones",
    async ({ one, other }) => {
      const prefix = `{test-${randomUUID()}}`;
      const turns = new TurnQueue({ connection: redis, prefix });
      closing.push(async () => await turns.close());
      const dying = startWorker(prefix, one, true);
      for (const gen of [1, 2, 3]) await turns.wake("app.oc_1", gen);
      // One of them may have come twice: it stood still for longer than its locks are good for.
      await vi.waitFor(() => expect(new Set(dying.seen)).toEqual(new Set([1, 2, 3])), patience);
      await kill(dying.child);
      await turns.wake("app.oc_1", 4);
      const done: number[] = [];
      const handle = async ({ gen }: { gen: number }): Promise<JobResult> => {
        done.push(gen);
        return "done";
      };
      const timing = { lockDurationMs: 60_000, stalledIntervalMs: 300, concurrency: 4 };
      const worker = createTurnWorker({
        connection: redis,
        prefix,
        scripts: other,
        redact,
        ...timing,
        handle,
        onFailed: async () => {},
      });
      closing.push(async () => await worker.close());
      await vi.waitFor(() => expect(done.toSorted()).toEqual([1, 2, 3, 4]), patience);
      for (const gen of done) {
        await vi.waitFor(
          async () => expect(await turns.alive("app.oc_1", gen)).toBe(false),
          patience,
        );
      }
    },
  );

  it("one by one, while both kinds work on one queue, lose no job and leave none behind", async () => {
    const prefix = `{test-${randomUUID()}}`;
    const queue = new Queue("turns", { connection: redis, prefix });
    const turns = new TurnQueue({ connection: redis, prefix });
    closing.push(async () => await Promise.all([queue.close(), turns.close()]));
    const kinds: Scripts[] = ["small", "bullmq", "small", "bullmq"];
    const workers = kinds.map((scripts) => startWorker(prefix, scripts));
    const all = Array.from({ length: kept.completed.count }, (_, index) => index + 1);
    const seen = (): Set<number> => new Set(workers.flatMap((worker) => worker.seen));
    for (const gen of all) {
      await turns.wake("app.oc_1", gen);
      if (gen % 50 !== 0) continue;
      await vi.waitFor(() => expect(seen().size).toBeGreaterThan(gen - 30), patience);
      const [oldest] = workers.filter(({ child }) => child.signalCode === null);
      if (oldest !== undefined) await kill(oldest.child);
      workers.push(startWorker(prefix, kinds[(gen / 50) % 2] ?? "small"));
    }
    await vi.waitFor(
      async () => expect(await queue.getCompletedCount()).toBe(all.length),
      patience,
    );
    // The lines that workers wrote before a job was finished may not have been read yet.
    await vi.waitFor(
      () => expect([...seen()].toSorted((left, right) => left - right)).toEqual(all),
      patience,
    );
    const { completed, ...others } = await queue.getJobCounts();
    expect([completed, ...new Set(Object.values(others))]).toEqual([all.length, 0]);
    expect((await redis.keys(`${prefix.replaceAll(/[{}]/g, "?")}:*:lock`)).length).toBe(0);
  });
});
