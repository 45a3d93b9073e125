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
export { EngineError, formatErrorForDisplay, isRetryable } from "@larkline/protocol/error";
export type { Approval } from "@larkline/protocol/approval";
export type { EngineEvent } from "@larkline/protocol/event";
export type { Message } from "@larkline/protocol/content";
export type { ModelChunk } from "@larkline/protocol/model-stream";
export type { AnyMessage } from "@larkline/protocol/views/chat-messages";
export type { RunRecord } from "@larkline/protocol/views/engine-events";
export type { RunResult } from "@larkline/protocol/views/item-view";
export type { InputItem, RunItem } from "@larkline/protocol/views/run-items";
