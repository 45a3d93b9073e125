import { parserOf, type SessionKey } from "@larkline/protocol";
import { runScript, scriptsBeside } from "../lua.ts";
import { ToolJob } from "@larkline/protocol/runner";
import { Queue, type Job, type JobType } from "bullmq";
import { mastersOf } from "../connection.ts";
import { defaultQueuePrefix, type QueueOptions, TurnJob } from "./queues.ts";

const script = scriptsBeside<Record<never, never>>(import.meta.url);

/** How full a queue is. */
export interface QueueDepth {
  /** Waiting jobs, those of background turns included. */
  waiting: number;
  active: number;
  delayed: number;
  /** Jobs that failed for good and whose sessions were not given a reason: not failed calls and turns that are answered. */
  failed: number;
  isPaused: boolean;
  /** Epoch ms at which the oldest waiting job was added. */
  oldestAtMs?: number;
}

/** A job as its queue holds it; `data` is unchecked. */
export interface QueuedJob {
  id: string;
  name: string;
  state: string;
  addedAtMs: number;
  tries: number;
  failedReason?: string;
  data: unknown;
}

/** A job that has used up its tries; not one whose session knows how it has failed. */
export interface FailedJob {
  id: string;
  addedAtMs: number;
  failedAtMs: number;
  tries: number;
  reason: string;
  /** Whether it can run again. A call cannot: it has been answered, and its arguments are not kept. */
  isRepeatable: boolean;
}

/** For operators: lists queues and jobs, and retries or removes failed jobs. */
export interface QueueCatalog {
  /** Names of all queues. Scans all keys, so call it seldom. */
  find(signal: AbortSignal): Promise<string[]>;
  /** The queue itself, as Bull Board takes it; it stays the catalog's to close. */
  open(name: string): Queue;
  depth(name: string): Promise<QueueDepth>;
  job(name: string, jobId: string): Promise<QueuedJob | undefined>;
  /** Newest first. */
  failed(name: string, limit: number): Promise<FailedJob[]>;
  /** Lets a failed job run again. False when there is no such failed job (any more), or it is not repeatable. */
  retryFailed(name: string, jobId: string): Promise<boolean>;
  /** Removes a failed job. False when there is no such failed job (any more). */
  discardFailed(name: string, jobId: string): Promise<boolean>;
  /**
   * Removes what all queues keep of the finished jobs of a session, or of calls made for a person, and the streams of
   * events, which name them. Gives how many of such jobs are active: they leave something once more.
   */
  erase(of: { session: SessionKey } | { person: string }, signal: AbortSignal): Promise<number>;
  close(): Promise<void>;
}

const eraseJobs = script("erase-jobs");
const unsettledJobs = script("unsettled-jobs");

async function eraseIn(
  queue: Queue,
  of: { session: SessionKey } | { person: string },
): Promise<number> {
  const client = await queue.getBackend().client;
  const [session, named] =
    "session" in of
      ? [of.session, `"session":${JSON.stringify(of.session)}`]
      : ["", `"userId":${JSON.stringify(of.person)}`];
  return Number(
    await runScript(client, eraseJobs, queue.keys, { queue: queue.toKey(""), session, named }),
  );
}

const pageSize = 1_000;
const waitingStates: JobType[] = ["waiting", "prioritized"];

/** Every queue has a hash of this name, from its first use on. */
const metaSuffix = ":meta";

async function depthOf(queue: Queue): Promise<QueueDepth> {
  const [counts, isPaused, oldest, { length: failed }] = await Promise.all([
    queue.getJobCounts(...waitingStates, "active", "delayed"),
    queue.isPaused(),
    queue.getJobs(waitingStates, 0, 0, true),
    unsettledOf(queue),
  ]);
  const { waiting = 0, prioritized = 0, active = 0, delayed = 0 } = counts;
  // A job that a worker has taken meanwhile is missing.
  const added = oldest.flatMap((job: { timestamp: number } | undefined) =>
    job === undefined ? [] : [job.timestamp],
  );
  const oldestAtMs = added.length === 0 ? {} : { oldestAtMs: Math.min(...added) };
  return { waiting: waiting + prioritized, active, delayed, failed, isPaused, ...oldestAtMs };
}

async function jobOf(queue: Queue, jobId: string): Promise<QueuedJob | undefined> {
  const job = await queue.getJob(jobId);
  if (job === undefined) return undefined;
  const { name, timestamp, attemptsMade, failedReason } = job;
  const data: unknown = job.data;
  return {
    id: jobId,
    name,
    state: await job.getState(),
    addedAtMs: timestamp,
    tries: attemptsMade,
    ...(failedReason === undefined ? {} : { failedReason }),
    data,
  };
}

async function failedJobsOf(queue: Queue, limit: number): Promise<FailedJob[]> {
  const ids = (await unsettledOf(queue)).slice(0, limit);
  const jobs: (Job | undefined)[] = await Promise.all(
    ids.map(async (id) => await queue.getJob(id)),
  );
  return jobs.flatMap((job) => {
    if (job?.id === undefined) return [];
    const { id, timestamp, finishedOn = timestamp, attemptsMade, failedReason = "" } = job;
    const facts = {
      id,
      addedAtMs: timestamp,
      failedAtMs: finishedOn,
      tries: attemptsMade,
      reason: failedReason,
    };
    return [{ ...facts, isRepeatable: isRepeatable(job) }];
  });
}

/** Ids of the failed jobs whose sessions were not given a reason, newest first. */
async function unsettledOf(queue: Queue): Promise<string[]> {
  const { failed = "" } = queue.keys;
  const client = await queue.getBackend().client;
  return (await runScript(
    client,
    unsettledJobs,
    { failed },
    { queue: queue.toKey("") },
  )) as string[]; // as the script has it
}

const parseTurn = parserOf(TurnJob);
const parseCall = parserOf(ToolJob);

function isRepeatable({ data }: Job): boolean {
  return parseTurn(data).ok || parseCall(data).ok;
}

/** Applies `work` to a failed job; false when the job has not failed, or another process was faster. */
async function withFailed(
  queue: Queue,
  jobId: string,
  act: (job: Job) => Promise<boolean>,
): Promise<boolean> {
  const job: Job | undefined = await queue.getJob(jobId);
  if (job === undefined || !(await job.isFailed())) return false;
  try {
    return await act(job);
  } catch (error) {
    if (await job.isFailed()) throw error;
    return false;
  }
}

export function createQueueCatalog(options: QueueOptions): QueueCatalog {
  const { connection, prefix = defaultQueuePrefix, onError } = options;
  const queues = new Map<string, Queue>();
  const open = (name: string): Queue => {
    const known = queues.get(name);
    if (known !== undefined) return known;
    // Skip writing its settings: looking at a queue must not create it.
    const queue = new Queue(name, { connection, prefix, skipMetasUpdate: true });
    queue.on("error", (error) => onError?.(error));
    queues.set(name, queue);
    return queue;
  };
  const namesOf = (keys: readonly string[]): string[] =>
    keys
      .map((key) => key.slice(prefix.length + 1, -metaSuffix.length))
      .filter((name) => !name.includes(":"));

  const find = async (signal: AbortSignal): Promise<string[]> => {
    const names = new Set<string>();
    for (const master of mastersOf(connection)) {
      let cursor = "0";
      do {
        signal.throwIfAborted();
        const [next, keys] = await master.scan(
          cursor,
          "MATCH",
          `${prefix}:*${metaSuffix}`,
          "COUNT",
          pageSize,
        );
        for (const name of namesOf(keys)) names.add(name);
        cursor = next;
      } while (cursor !== "0");
    }
    return [...names].sort();
  };

  return {
    find,
    open,
    depth: async (name) => await depthOf(open(name)),
    job: async (name, jobId) => await jobOf(open(name), jobId),
    failed: async (name, limit) => await failedJobsOf(open(name), limit),
    retryFailed: async (name, jobId) =>
      await withFailed(open(name), jobId, async (job) => {
        if (!isRepeatable(job)) return false;
        await job.retry("failed", { resetAttemptsMade: true });
        return true;
      }),
    discardFailed: async (name, jobId) =>
      await withFailed(open(name), jobId, async (job) => {
        await job.remove();
        return true;
      }),
    erase: async (of, signal) => {
      const running = await Promise.all(
        (await find(signal)).map(async (name) => await eraseIn(open(name), of)),
      );
      return running.reduce((sum, count) => sum + count, 0);
    },
    close: async () => {
      await Promise.all([...queues.values()].map(async (queue) => await queue.close()));
    },
  };
}
