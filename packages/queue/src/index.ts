export type { Bus, PubSubConnection } from "./bus.ts";
export { cancelChannelOf, createCancelBus, type Cancellation, type CancelBus } from "./cancel-bus.ts";
export { defaultQueuePrefix, type QueueOptions } from "./connection.ts";
export { finishJobScript } from "./kept-jobs.ts";
export {
  createQueueCatalog,
  type KeyScanner,
  type QueueCatalog,
  type QueueCatalogOptions,
  type QueueDepth,
  type FailedJob,
  type QueuedJob,
} from "./queue-catalog.ts";
export { createToolQueues, type DispatchOptions, type ToolQueues } from "./tool-queues.ts";
export { createTurnQueue, type TurnQueue } from "./turn-queue.ts";
export { createToolWorker, createTurnWorker, type JobResult, type JobWorker, type JobWorkerOptions } from "./worker.ts";
