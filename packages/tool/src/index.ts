export {
  announcementOf,
  defineTool,
  isTool,
  type InputOf,
  type Isolation,
  type Tool,
  type ToolContext,
  type ToolDefinition,
} from "./tool.ts";
export {
  createToolRegistry,
  ToolNotFoundError,
  ToolValidationError,
  type ToolHandler,
  type ToolRegistration,
  type ToolRegistry,
} from "./tool-registry.ts";
export { runTool, type CallContext, type RunToolRequest } from "./run-tool.ts";
export type { FileFacts, StoreFile } from "./saved-files.ts";
export { OutcomeUnknownError } from "./outcome-unknown.ts";
