import type { Queue } from "bullmq";
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
import { JobAdder, type NewJob } from "./add-job.ts";
import { openQueue, type QueueOptions } from "./connection.ts";

export interface DispatchOptions {
  /** Nobody waits for these calls: they come after all others of their queue. Default false. */
  background?: boolean;
  /** Tools of the runner that have limits, and so queues of their own. */
  limitedTools?: ReadonlySet<string>;
}

/** Sends calls to runners: one queue per runner, and one for each of its tools that has limits. */
export interface ToolQueues {
  /**
   * Adds calls; an attempt that is queued or running already is not added again, nor is one that was answered within the
   * last 10 s: its outcome is on its way to the session. One that was answered before is: its outcome is lost.
   */
  dispatch(runner: string, jobs: readonly ToolJob[], options?: DispatchOptions): Promise<void>;
  /** Bounds the queue of one tool from now on, over all instances of its runner together. */
  limit(runner: string, tool: string, limits: ToolLimits): Promise<void>;
  close(): Promise<void>;
}

const parseJob = parserOf(ToolJob);

// Workers send at most 200 KB of arguments, which as JSON inside JSON can double; a larger job is a bug.
const maxBytes = 524_288;

/**
 * A turn that was suspended hands all of its open calls out again whenever it is woken, as when another one of them has
 * been answered. The outcome of a call that has just ended may not be in the session by then, and the call would run a
 * second time. Carrying it over takes some ms, about a second if the ring is lost, and longer while workers are replaced.
 */
const recentMs = 10_000;

function checked(data: ToolJob): ToolJob {
  const job = parseJob(data);
  if (!job.ok) throw newEngineError("internal_error", `refusing to queue a tool call: ${job.error}`);
  return job.value;
}

function newJobOf(data: ToolJob, background: boolean): NewJob {
  const job = checked(data);
  const id = toolJobId(job.turnId, attemptIdOf(job));
  return { id, name: job.name, data: job, maxBytes, recentMs, ...(background && { priority: backgroundPriority }) };
}

async function setLimits(queue: Queue, { concurrency, rate }: ToolLimits): Promise<void> {
  if (concurrency === undefined) await queue.removeGlobalConcurrency();
  else await queue.setGlobalConcurrency(concurrency);
  if (rate === undefined) await queue.removeGlobalRateLimit();
  else await queue.setGlobalRateLimit(rate.calls, rate.perMs);
}

export function createToolQueues(options: QueueOptions): ToolQueues {
  const queues = new Map<string, { queue: Queue; jobs: JobAdder }>();
  const open = (name: string): { queue: Queue; jobs: JobAdder } => {
    const known = queues.get(name);
    if (known !== undefined) return known;
    const queue = openQueue(name, options);
    const opened = { queue, jobs: new JobAdder(queue) };
    queues.set(name, opened);
    return opened;
  };

  return {
    dispatch: async (runner, jobs, { background = false, limitedTools } = {}) => {
      const limited = (job: ToolJob): string | undefined => (limitedTools?.has(job.name) ? job.name : undefined);
      const added = jobs.map((job) => ({ to: toolsQueue(runner, limited(job)), job: newJobOf(job, background) }));
      await Promise.all(added.map(async ({ to, job }) => await open(to).jobs.add(job)));
    },
    limit: async (runner, tool, limits) => await setLimits(open(toolsQueue(runner, tool)).queue, limits),
    close: async () => {
      await Promise.all([...queues.values()].map(async ({ queue }) => await queue.close()));
    },
  };
}
