import type { ConnectionOptions } from "bullmq";

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
 * How often a job that throws is tried, with growing pauses (0.1 s to 3.2 s, 6.3 s in all): Redis may
 * be away for a moment between two steps of a job, and only the job knows what is left to do.
 */
export const retries = { attempts: 7, backoff: { type: "exponential", delay: 100 } } as const;
