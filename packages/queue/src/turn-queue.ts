import { newEngineError, parserOf, TurnJob, turnJobId, turnsQueue, type SessionKey } from "@larkline/protocol";
import { JobAdder } from "./add-job.ts";
import { openQueue, type QueueOptions } from "./connection.ts";

/** Wakes sessions. Jobs carry no data: adding one twice is harmless, losing one is healed. */
export interface TurnQueue {
  /** Adds the wake-up of generation `gen` unless it is waiting, delayed or active; one that has finished is replaced. */
  wake(session: SessionKey, gen: number): Promise<void>;
  /** The same. True if it had to be added. */
  ensure(session: SessionKey, gen: number): Promise<boolean>;
  /** Whether it is waiting, delayed or active. */
  alive(session: SessionKey, gen: number): Promise<boolean>;
  close(): Promise<void>;
}

const parseJob = parserOf(TurnJob);

// More would be a bug: a wake-up holds a session and a number.
const maxBytes = 2_048;

export function createTurnQueue(options: QueueOptions): TurnQueue {
  const queue = openQueue(turnsQueue, options);
  const jobs = new JobAdder(queue);

  const ensure = async (session: SessionKey, gen: number): Promise<boolean> => {
    const job = parseJob({ v: 1, session, gen });
    if (!job.ok) throw newEngineError("internal_error", `refusing to queue a wake-up: ${job.error}`);
    return await jobs.add({ id: turnJobId(session, gen), name: "turn", data: job.value, maxBytes });
  };

  return {
    ensure,
    wake: async (session, gen) => {
      await ensure(session, gen);
    },
    alive: async (session, gen) =>
      !["unknown", "failed", "completed"].includes(await queue.getJobState(turnJobId(session, gen))),
    close: async () => {
      await queue.close();
    },
  };
}
