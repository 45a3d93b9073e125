// BullMQ's queues: of wake-ups for workers and of calls for runners; what operators see of them; and the channels on
// which a cancel arrives sooner than by its control entry.
export {
  type DispatchOptions,
  type QueueOptions,
  ToolQueues,
  TurnJob,
  turnJobId,
  TurnQueue,
  turnsQueue,
} from "./queues.ts";
export {
  createToolWorker,
  createTurnWorker,
  type JobResult,
  type JobWorker,
} from "./job-worker.ts";
export { finishJobScript } from "./kept-jobs.ts";
export {
  createQueueCatalog,
  type QueueCatalog,
  type QueueDepth,
  type FailedJob,
  type QueuedJob,
} from "./queue-catalog.ts";
export {
  cancelChannelOf,
  createCancelBus,
  type Cancellation,
  type CancelBus,
} from "./cancel-bus.ts";
