export {
  createClient,
  Run,
  RunError,
  type Client,
  type ClientOptions,
  type CommandOptions,
  type Decision,
  type NestedItem,
  type RunEvent,
  type RunOptions,
  type ModelResponse,
  type RunResult,
  type ViewOptions,
} from "./client.ts";
export { ConnectionError, RequestError } from "./connection.ts";
export * from "./items.ts";
export {
  EngineError,
  formatErrorForDisplay,
  isRetryable,
  newEngineError,
  wrapError,
  type EngineErrorOptions,
  type ErrorCode,
} from "@larkline/protocol/error";
export type * from "./wire-types.ts";
