import { Queue, type ConnectionOptions } from "bullmq";

/** Keys of all queues start with this; the braces keep them in one Redis Cluster slot. */
export const defaultQueuePrefix = "{larkline}";

/** What every part of this package needs: an open connection, which stays the caller's to close. */
export interface QueueOptions {
  connection: ConnectionOptions;
  prefix?: string;
  /** Connection and protocol errors; the parts reconnect by themselves. */
  onError?: (error: Error) => void;
}

/**
 * Entries of a queue's stream of events, which BullMQ writes at every step of a job and which no process reads.
 * Shortened in portions of about 100.
 */
export const maxEvents = 200;

/** Opens a queue to add jobs to it. */
export function openQueue(name: string, { connection, prefix = defaultQueuePrefix, onError }: QueueOptions): Queue {
  const queue = new Queue(name, { connection, prefix, streams: { events: { maxLen: maxEvents } } });
  queue.on("error", (error) => onError?.(error));
  return queue;
}
