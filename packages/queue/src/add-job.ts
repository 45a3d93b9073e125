import { newEngineError, sharedNow } from "@larkline/protocol";
import type { Queue } from "bullmq";
import { maxEvents } from "./connection.ts";
import { runScript, script } from "./script.ts";

/** A job as it is added. */
export interface NewJob {
  id: string;
  name: string;
  data: object;
  /** Above 0: after all jobs without one. Default 0. */
  priority?: number;
  /** One of the same id that has succeeded within so many ms is left alone. Default 0: it is replaced. */
  recentMs?: number;
  /** Of the data as JSON, in UTF-8; a larger job is a bug. */
  maxBytes: number;
}

const addJob = script("add-job");

/**
 * How often a job that throws is tried, with growing pauses (0.1 s to 3.2 s, 6.3 s in all): Redis may
 * be away for a moment between two steps of a job, and only the job knows what is left to do.
 */
const retries = { attempts: 7, backoff: { type: "exponential", delay: 100 } };

// Workers of this version decide by themselves what they keep (see kept-jobs.ts); those of the version before do what
// the job says, and must keep no arguments.
const storedOptions = JSON.stringify({ ...retries, removeOnComplete: true, removeOnFail: { count: 500 } });

/** Adds jobs to one queue. No other way of adding them replaces finished ones. */
export class JobAdder {
  readonly #queue: Queue;

  constructor(queue: Queue) {
    this.#queue = queue;
  }

  /** True where the job was added; false where one of its id is waiting, active or delayed, or has just succeeded. */
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
      { id, name, data: text, options: storedOptions, nowMs: sharedNow(), priority, maxEvents, recentMs },
    );
    return added === 1;
  }
}
