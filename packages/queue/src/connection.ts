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
