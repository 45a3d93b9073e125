import type { HandlerTool } from "@larkline/tool-kit";
import { baseTools } from "./base/base.ts";
import { readingTools } from "./documents/reading.ts";
import { writingTools } from "./documents/writing.ts";
import type { WorkToolSettings } from "./platform.ts";

export type { WorkToolSettings } from "./platform.ts";

/** Feishu's work tools: each acts as the person who asks. */
export function feishuTools(settings: WorkToolSettings = {}): HandlerTool[] {
  return [...readingTools(settings), ...writingTools(settings), ...baseTools(settings)];
}

export default feishuTools();
