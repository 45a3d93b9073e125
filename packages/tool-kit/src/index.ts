export {
  createToolRegistry,
  defineTool,
  isTool,
  runTool,
  type FileFacts,
  type InputOf,
  type StoreFile,
  type Tool,
  type ToolContext,
  type ToolDefinition,
} from "@larkline/tool";
