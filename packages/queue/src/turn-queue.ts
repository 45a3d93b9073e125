import { Queue } from "bullmq";
import { newEngineError, parserOf, TurnJob, turnJobId, turnsQueue, type SessionKey } from "@larkline/protocol";
import { defaultQueuePrefix, retries, type QueueOptions } from "./connection.ts";

/** Wakes sessions. Jobs carry no data: adding one twice is harmless, losing one is healed. */
export interface TurnQueue {
  /** Adds the wake-up of generation `gen`. */
  wake(session: SessionKey, gen: number): Promise<void>;
  /** Adds it unless it is already waiting, delayed or active. True if it had to be added. */
  ensure(session: SessionKey, gen: number): Promise<boolean>;
  /** Whether it is waiting, delayed or active. */
  alive(session: SessionKey, gen: number): Promise<boolean>;
  close(): Promise<void>;
}

const parseJob = parserOf(TurnJob);

// A failed wake-up stays for a look in Bull Board; the session itself is healed.
const jobOptions = { ...retries, removeOnComplete: true, removeOnFail: { count: 500 }, sizeLimit: 2_048 };

function isOver(state: string): boolean {
  return state === "unknown" || state === "failed" || state === "completed";
}

export function createTurnQueue(options: QueueOptions): TurnQueue {
  const queue = new Queue(turnsQueue, { connection: options.connection, prefix: options.prefix ?? defaultQueuePrefix });
  queue.on("error", (error) => options.onError?.(error));

  const wake = async (session: SessionKey, gen: number): Promise<void> => {
    const job = parseJob({ v: 1, session, gen });
    if (!job.ok) throw newEngineError("internal_error", `refusing to queue a wake-up: ${job.error}`);
    await queue.add("turn", job.value, { ...jobOptions, jobId: turnJobId(session, gen) });
  };

  return {
    wake,
    alive: async (session, gen) => !isOver(await queue.getJobState(turnJobId(session, gen))),
    ensure: async (session, gen) => {
      const jobId = turnJobId(session, gen);
      const state = await queue.getJobState(jobId);
      if (!isOver(state)) return false;
      if (state !== "unknown") await queue.remove(jobId); // a finished job of this id would swallow the new one
      await wake(session, gen);
      return true;
    },
    close: async () => {
      await queue.close();
    },
  };
}
