export {
  isolationLevels,
  type Isolation,
  type IsolationLevel,
  type IsolationSettings,
  type ProgramLimits,
  type ResolvedIsolation,
} from "./isolation.ts";
export { OutcomeUnknownError } from "./outcome-unknown.ts";
export { inputOf, interruptedOutcome, runToEnd, runTool, type CallContext, type RunToolRequest } from "./run-tool.ts";
export { fileSaver, maxFilesPerCall, type FileFacts, type StoreFile } from "./saved-files.ts";
export { errorText, outcomeOfResult } from "./tool-output.ts";
export {
  announcementOf,
  defineProgramTool,
  defineTool,
  isTool,
  type HandlerTool,
  type InputOf,
  type ProgramTool,
  type ProgramToolDefinition,
  type Tool,
  type ToolContext,
  type ToolDefinition,
  type ToolProgram,
} from "./tool.ts";
export {
  createToolRegistry,
  ToolNotFoundError,
  ToolValidationError,
  type ToolHandler,
  type ToolRegistration,
  type ToolRegistry,
} from "./tool-registry.ts";
export { collectTools, offerTools, trustDefinitions } from "./tool-offer.ts";
