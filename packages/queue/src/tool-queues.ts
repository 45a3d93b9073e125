import { Queue, type Job } from "bullmq";
import { newEngineError, parserOf, ToolJob, toolJobId, toolsQueue } from "@larkline/protocol";
import { defaultQueuePrefix, retries, type QueueOptions } from "./connection.ts";

/** Sends calls to runners, one queue per runner. */
export interface ToolQueues {
  /** Adds calls; one that is queued or running already is not added again. */
  dispatch(runner: string, jobs: readonly ToolJob[]): Promise<void>;
  /** Takes every waiting call of a runner that will not come back, handing each to `answer` first. */
  drain(runner: string, answer: (job: ToolJob) => Promise<void>): Promise<number>;
  close(): Promise<void>;
}

const parseJob = parserOf(ToolJob);

// 256 KB: arguments come from a model and are limited there; a larger job is a bug.
const jobOptions = { ...retries, removeOnComplete: true, removeOnFail: { count: 500 }, sizeLimit: 262_144 };

function checked(data: ToolJob): ToolJob {
  const job = parseJob(data);
  if (!job.ok) throw newEngineError("internal_error", `refusing to queue a tool call: ${job.error}`);
  return job.value;
}

export function createToolQueues(options: QueueOptions): ToolQueues {
  const queues = new Map<string, Queue>();
  const queueOf = (runner: string): Queue => {
    const known = queues.get(runner);
    if (known !== undefined) return known;
    const queue = new Queue(toolsQueue(runner), {
      connection: options.connection,
      prefix: options.prefix ?? defaultQueuePrefix,
    });
    queue.on("error", (error) => options.onError?.(error));
    queues.set(runner, queue);
    return queue;
  };

  return {
    dispatch: async (runner, jobs) => {
      const queue = queueOf(runner);
      const entries = jobs.map((job) => ({
        name: job.name,
        data: checked(job),
        opts: { ...jobOptions, jobId: toolJobId(job.turnId, job.callId) },
      }));
      const [only] = entries;
      if (entries.length === 1 && only !== undefined) await queue.add(only.name, only.data, only.opts);
      else if (entries.length > 1) await queue.addBulk(entries);
    },
    drain: async (runner, answer) => await drain(queueOf(runner), answer),
    close: async () => {
      await Promise.all([...queues.values()].map(async (queue) => await queue.close()));
    },
  };
}

async function drain(queue: Queue, answer: (job: ToolJob) => Promise<void>): Promise<number> {
  const waiting: Job[] = await queue.getJobs(["waiting", "delayed", "prioritized"]);
  for (const job of waiting) {
    const parsed = parseJob(job.data);
    if (parsed.ok) await answer(parsed.value);
    await job.remove().catch(() => undefined); // a runner that came back took it: its begin finds the call closed
  }
  return waiting.length;
}
