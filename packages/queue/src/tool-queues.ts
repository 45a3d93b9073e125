import { Queue } from "bullmq";
import {
  attemptIdOf,
  backgroundPriority,
  newEngineError,
  parserOf,
  ToolJob,
  toolJobId,
  toolsQueue,
  type ToolLimits,
} from "@larkline/protocol";
import { defaultQueuePrefix, retries, type QueueOptions } from "./connection.ts";

export interface DispatchOptions {
  /** Nobody waits for these calls: they come after all others of their queue. Default false. */
  background?: boolean;
  /** Tools of the runner that have limits, and so queues of their own. */
  limitedTools?: ReadonlySet<string>;
}

/** Sends calls to runners: one queue per runner, and one for each of its tools that has limits. */
export interface ToolQueues {
  /** Adds calls; an attempt that is queued or running already is not added again. */
  dispatch(runner: string, jobs: readonly ToolJob[], options?: DispatchOptions): Promise<void>;
  /** Bounds the queue of one tool from now on, over all instances of its runner together. */
  limit(runner: string, tool: string, limits: ToolLimits): Promise<void>;
  close(): Promise<void>;
}

const parseJob = parserOf(ToolJob);

// Workers send at most 200 KB of arguments, which as JSON inside JSON can double; a larger job is a bug.
const jobOptions = { ...retries, removeOnComplete: true, removeOnFail: { count: 500 }, sizeLimit: 524_288 };

function checked(data: ToolJob): ToolJob {
  const job = parseJob(data);
  if (!job.ok) throw newEngineError("internal_error", `refusing to queue a tool call: ${job.error}`);
  return job.value;
}

type Entry = Parameters<Queue["addBulk"]>[0][number];

function entryOf(data: ToolJob, background: boolean): Entry {
  const job = checked(data);
  const opts = { ...jobOptions, jobId: toolJobId(job.turnId, attemptIdOf(job)) };
  return { name: job.name, data: job, opts: background ? { ...opts, priority: backgroundPriority } : opts };
}

async function addAll(queue: Queue, entries: Entry[]): Promise<void> {
  const [first, ...others] = entries;
  if (first === undefined) return;
  if (others.length > 0) await queue.addBulk(entries);
  else await queue.add(first.name, first.data, first.opts); // one command in place of a transaction
}

async function setLimits(queue: Queue, { concurrency, rate }: ToolLimits): Promise<void> {
  if (concurrency === undefined) await queue.removeGlobalConcurrency();
  else await queue.setGlobalConcurrency(concurrency);
  if (rate === undefined) await queue.removeGlobalRateLimit();
  else await queue.setGlobalRateLimit(rate.calls, rate.perMs);
}

export function createToolQueues(options: QueueOptions): ToolQueues {
  const queues = new Map<string, Queue>();
  const queueOf = (name: string): Queue => {
    const known = queues.get(name);
    if (known !== undefined) return known;
    const queue = new Queue(name, {
      connection: options.connection,
      prefix: options.prefix ?? defaultQueuePrefix,
    });
    queue.on("error", (error) => options.onError?.(error));
    queues.set(name, queue);
    return queue;
  };

  return {
    dispatch: async (runner, jobs, { background = false, limitedTools } = {}) => {
      const limited = (job: ToolJob): string | undefined => (limitedTools?.has(job.name) ? job.name : undefined);
      const byQueue = Map.groupBy(jobs, (job) => toolsQueue(runner, limited(job)));
      await Promise.all(
        [...byQueue].map(async ([name, batch]) => {
          const entries = batch.map((job) => entryOf(job, background));
          await addAll(queueOf(name), entries);
        }),
      );
    },
    limit: async (runner, tool, limits) => await setLimits(queueOf(toolsQueue(runner, tool)), limits),
    close: async () => {
      await Promise.all([...queues.values()].map(async (queue) => await queue.close()));
    },
  };
}
