import { newEngineError, sharedNow } from "@larkline/protocol";
import type { Queue } from "bullmq";
import { maxEvents } from "./connection.ts";

/** A job as it is added. */
export interface NewJob {
  id: string;
  name: string;
  data: object;
  /** Above 0: after all jobs without one. Default 0. */
  priority?: number;
  /** Of the data as JSON, in UTF-8; a larger job is a bug. */
  maxBytes: number;
}

/**
 * Adds one job, as BullMQ 6's addStandardJob and addPrioritizedJob do with an id of the caller's choice. BullMQ ignores
 * a job whose id it knows, one that has finished and is kept included; this replaces a finished one and leaves alone
 * only one that is waiting, active or delayed. All of its keys are in the slot of the queue's prefix. Nothing is added to
 * the queue's stream of events: no process reads it. Gives 1 where the job was added.
 */
const addJobLua = `
local wait, prioritized, counter, active = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local meta, marker, completed, failed, job = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local id, name, data, options, addedAtMs, priority = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
if redis.call('EXISTS', job) == 1 then
  if redis.call('ZREM', completed, id) + redis.call('ZREM', failed, id) == 0 then return 0 end
  redis.call('DEL', job)
end
redis.call('HSET', job, 'name', name, 'data', data, 'opts', options, 'timestamp', addedAtMs, 'delay', 0, 'priority', priority)
if priority == 0 then
  redis.call('LPUSH', wait, id)
else
  redis.call('ZADD', prioritized, priority * 0x100000000 + redis.call('INCR', counter) % 0x100000000, id)
end
local queue = redis.call('HMGET', meta, 'paused', 'concurrency', 'opts.maxLenEvents')
if not queue[3] then redis.call('HSET', meta, 'opts.maxLenEvents', ARGV[7]) end
local isMaxed = queue[2] and redis.call('LLEN', active) >= tonumber(queue[2])
if not queue[1] and not isMaxed then redis.call('ZADD', marker, 0, '0') end
return 1
`;

const command = "larklineAddJob";
const keys = ["wait", "prioritized", "pc", "active", "meta", "marker", "completed", "failed"] as const;

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
  #isDefined = false;

  constructor(queue: Queue) {
    this.#queue = queue;
  }

  /** True where the job was added; false where one of its id is waiting, active or delayed. */
  async add({ id, name, data, priority = 0, maxBytes }: NewJob): Promise<boolean> {
    const text = JSON.stringify(data);
    const bytes = Buffer.byteLength(text);
    if (bytes > maxBytes) {
      throw newEngineError(
        "internal_error",
        `refusing to queue ${id}: its size of ${bytes} bytes is above ${maxBytes}`,
      );
    }
    const client = await this.#queue.getBackend().client;
    if (!this.#isDefined) client.defineCommand(command, { numberOfKeys: keys.length + 1, lua: addJobLua });
    this.#isDefined = true;
    const named = [...keys.map((key) => this.#queue.toKey(key)), this.#queue.toKey(id)];
    const job = [id, name, text, storedOptions, sharedNow(), priority];
    return (await client.runCommand(command, [...named, ...job, maxEvents])) === 1;
  }
}
