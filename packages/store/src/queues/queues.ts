import { parserOf, SessionKey } from "@larkline/protocol";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import { newEngineError } from "@larkline/protocol/error";
import { runScript, scriptsBeside } from "../lua.ts";
import {
  attemptIdOf,
  backgroundPriority,
  ToolJob,
  toolJobId,
  toolsQueue,
} from "@larkline/protocol/runner";
import type { ToolLimits } from "@larkline/protocol/tool";
import { Type, type Static } from "@larkline/protocol/type";
import { Queue } from "bullmq";
import type { RedisConnection } from "../connection.ts";

// The queues of wake-ups and of calls: how jobs are added to them.

/** Queue of wake-ups of sessions. */
export const turnsQueue = "turns";

/** A wake-up: the data lives in the session. `gen` distinguishes stale wake-ups from the current one. */
export const TurnJob = Type.Object({
  v: Type.Literal(1),
  session: SessionKey,
  gen: Type.Integer({ minimum: 1 }),
});
export type TurnJob = Static<typeof TurnJob>;

/** Job id of a wake-up (BullMQ job ids must not hold `:`). */
export function turnJobId(session: SessionKey, gen: number): string {
  return `${session}-${gen}`;
}

const parseTurnJob = parserOf(TurnJob);

// More would be a bug: a wake-up holds a session and a number.
const maxTurnBytes = 2_048;

/** Wakes sessions. Jobs carry no data: adding one twice is harmless, losing one is healed. */
export class TurnQueue {
  readonly #queue: Queue;
  readonly #jobs: JobAdder;

  constructor(options: QueueOptions) {
    this.#queue = openQueue(turnsQueue, options);
    this.#jobs = new JobAdder(this.#queue, options.clock);
  }

  /** Adds the wake-up of generation `gen` unless it is waiting, delayed or active; one that has finished is replaced. */
  async wake(session: SessionKey, gen: number): Promise<void> {
    await this.ensure(session, gen);
  }

  /** The same. True if it had to be added. */
  async ensure(session: SessionKey, gen: number): Promise<boolean> {
    const job = parseTurnJob({ v: 1, session, gen });
    if (!job.ok) {
      throw newEngineError("internal_error", `refusing to queue a wake-up: ${job.error}`);
    }
    return await this.#jobs.add({
      id: turnJobId(session, gen),
      name: "turn",
      data: job.value,
      maxBytes: maxTurnBytes,
    });
  }

  /** Whether it is waiting, delayed or active. */
  async alive(session: SessionKey, gen: number): Promise<boolean> {
    return !["unknown", "failed", "completed"].includes(
      await this.#queue.getJobState(turnJobId(session, gen)),
    );
  }

  async close(): Promise<void> {
    await this.#queue.close();
  }
}

export interface DispatchOptions {
  /** Calls of background turns: they come after all others of their queue. Default false. */
  background?: boolean;
  /** Tools of the runner that have limits, and so queues of their own. */
  limitedTools?: ReadonlySet<string>;
}

/** Sends calls to runners: one queue per runner, and one for each of its tools that has limits. */
export class ToolQueues {
  readonly #options: QueueOptions;
  readonly #queues = new Map<string, { queue: Queue; jobs: JobAdder }>();

  constructor(options: QueueOptions) {
    this.#options = options;
  }

  /**
   * Adds calls; an attempt that is queued or running already is not added again, nor is one that was answered within the
   * last 10 s, with a result or an error: its outcome is on its way to the session. One that was answered before is:
   * its outcome is lost.
   */
  async dispatch(
    runner: string,
    jobs: readonly ToolJob[],
    { background = false, limitedTools }: DispatchOptions = {},
  ): Promise<void> {
    const limited = (job: ToolJob): string | undefined =>
      limitedTools?.has(job.name) ? job.name : undefined;
    const added = jobs.map((job) => ({
      to: toolsQueue(runner, limited(job)),
      job: newJobOf(job, background),
    }));
    await Promise.all(added.map(async ({ to, job }) => await this.#open(to).jobs.add(job)));
  }

  /** Bounds the queue of one tool from now on, over all instances of its runner together. */
  async limit(runner: string, tool: string, { concurrency, rate }: ToolLimits): Promise<void> {
    const { queue } = this.#open(toolsQueue(runner, tool));
    if (concurrency === undefined) await queue.removeGlobalConcurrency();
    else await queue.setGlobalConcurrency(concurrency);
    if (rate === undefined) await queue.removeGlobalRateLimit();
    else await queue.setGlobalRateLimit(rate.calls, rate.perMs);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#queues.values()].map(async ({ queue }) => await queue.close()));
  }

  #open(name: string): { queue: Queue; jobs: JobAdder } {
    const known = this.#queues.get(name);
    if (known !== undefined) return known;
    const queue = openQueue(name, this.#options);
    const opened = { queue, jobs: new JobAdder(queue, this.#options.clock) };
    this.#queues.set(name, opened);
    return opened;
  }
}

const parseToolJob = parserOf(ToolJob);

// Workers send at most 200 KB of arguments, which as JSON inside JSON can double; a larger job is a bug.
const maxToolBytes = 524_288;

/**
 * A suspended turn adds all of its open calls again whenever it is woken, for example by the answer to one of them. The
 * outcome of a call that has just ended may not be in the session yet, and the call would run a second time. Carrying it
 * over takes some ms, about a second if the notification is lost, and longer while workers are replaced.
 */
const answeredMs = 10_000;

function checked(data: ToolJob): ToolJob {
  const job = parseToolJob(data);
  if (!job.ok) {
    throw newEngineError("internal_error", `refusing to queue a tool call: ${job.error}`);
  }
  return job.value;
}

function newJobOf(data: ToolJob, background: boolean): NewJob {
  const job = checked(data);
  const id = toolJobId(job.turnId, attemptIdOf(job));
  return {
    id,
    name: job.name,
    data: job,
    maxBytes: maxToolBytes,
    recentMs: answeredMs,
    ...(background && { priority: backgroundPriority }),
  };
}

/** A job as it is added. */
export interface NewJob {
  id: string;
  name: string;
  data: object;
  /** Above 0: after all jobs without one. Default 0. */
  priority?: number;
  /** One of the same id that was answered within so many ms is left alone. Default 0: it is replaced. */
  recentMs?: number;
  /** Of the data as JSON, in UTF-8; a larger job is a bug. */
  maxBytes: number;
}

const addJob = scriptsBeside<Record<never, never>>(import.meta.url)("add-job");

/**
 * How often a job that throws is tried, with growing pauses (0.1 s to 3.2 s, 6.3 s in all): Redis may
 * be away for a moment between two steps of a job, and only the job knows what is left to do.
 */
const retries = { attempts: 7, backoff: { type: "exponential", delay: 100 } };

// Workers of this version decide by themselves what they keep (see `keptDataOf` of kept-jobs.ts); those of the version before do what
// the job says, and must keep no arguments.
const storedOptions = JSON.stringify({
  ...retries,
  removeOnComplete: true,
  removeOnFail: { count: 500 },
});

/** Adds jobs to one queue. No other way of adding them replaces finished ones. */
export class JobAdder {
  readonly #queue: Queue;
  readonly #clock: Clock;

  constructor(queue: Queue, clock = systemClock) {
    this.#queue = queue;
    this.#clock = clock;
  }

  /** True where the job was added; false where one of its id is waiting, active or delayed, or was just answered. */
  async add({ id, name, data, priority = 0, recentMs = 0, maxBytes }: NewJob): Promise<boolean> {
    const text = JSON.stringify(data);
    const bytes = Buffer.byteLength(text);
    if (bytes > maxBytes) {
      throw newEngineError(
        "internal_error",
        `refusing to queue ${id}: its size of ${bytes} bytes is above ${maxBytes}`,
      );
    }
    const { keys } = this.#queue;
    const added = await runScript(
      await this.#queue.getBackend().client,
      addJob,
      { ...keys, priorityCounter: keys["pc"] ?? "", job: this.#queue.toKey(id) },
      {
        id,
        name,
        data: text,
        options: storedOptions,
        nowMs: this.#clock.now(),
        priority,
        maxEvents,
        recentMs,
      },
    );
    return added === 1;
  }
}

/** Keys of all queues start with this; the braces keep them in one Redis Cluster slot. */
export const defaultQueuePrefix = "{larkline}";

/** What queues and their workers need: an open connection, which stays the caller's to close. */
export interface QueueOptions {
  connection: RedisConnection;
  prefix?: string;
  /** Connection and protocol errors; the parts reconnect by themselves. */
  onError?: (error: Error) => void;
  /** The machine's if absent. */
  clock?: Clock;
}

/**
 * Entries of a queue's stream of events, which BullMQ writes at every step of a job and which no process reads.
 * Shortened in portions of about 100.
 */
export const maxEvents = 200;

/** Opens a queue to add jobs to it. */
export function openQueue(
  name: string,
  { connection, prefix = defaultQueuePrefix, onError }: QueueOptions,
): Queue {
  const queue = new Queue(name, { connection, prefix, streams: { events: { maxLen: maxEvents } } });
  queue.on("error", (error) => onError?.(error));
  return queue;
}
