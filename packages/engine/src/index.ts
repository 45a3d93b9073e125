export { createEngine, type Engine } from "./engine.ts";
export type {
  ConversationStore,
  EngineAgent,
  EngineObserver,
  EngineOptions,
  EngineRunOptions,
  SessionStats,
} from "./house.ts";
export {
  anthropic,
  openai,
  scripted,
  type ModelProvider,
  type ScriptedModels,
  type ScriptedStep,
  type VendorOptions,
} from "./models.ts";
export type { EngineRun } from "./run.ts";
export type { Decision } from "./turn.ts";
export {
  defineTool,
  type InputOf,
  type Tool,
  type ToolContext,
  type ToolDefinition,
} from "@larkline/tool-kit";
export {
  EngineError,
  formatErrorForDisplay,
  isRetryable,
  type Approval,
  type EngineEvent,
  type Message,
  type ModelChunk,
} from "@larkline/protocol";
export type { AnyMessage } from "@larkline/protocol/views/chat-messages";
export type { RunRecord } from "@larkline/protocol/views/engine-events";
export type { RunResult } from "@larkline/protocol/views/item-view";
export type { InputItem, RunItem } from "@larkline/protocol/views/run-items";
