export {
  type Bus,
  type PubSubConnection,
  cancelChannelOf,
  createCancelBus,
  type Cancellation,
  type CancelBus,
} from "./cancel-bus.ts";
export {
  defaultQueuePrefix,
  type QueueOptions,
  ToolQueues,
  type DispatchOptions,
  TurnQueue,
  finishJobScript,
  createToolWorker,
  createTurnWorker,
  type JobResult,
  type JobWorker,
  type JobWorkerOptions,
} from "./queues.ts";
export {
  createQueueCatalog,
  type KeyScanner,
  type QueueCatalog,
  type QueueCatalogOptions,
  type QueueDepth,
  type FailedJob,
  type QueuedJob,
} from "./queue-catalog.ts";
