import type { ToolOutcome } from "@larkline/protocol";
import { runTool, type RunToolRequest, type Tool } from "@larkline/tool";

/** Runs the calls of tools at one level of isolation. */
export interface ToolLevel {
  /** One call, from the model's text to its outcome. Never rejects. */
  run(tool: Tool, request: RunToolRequest): Promise<ToolOutcome>;
  /** Ends what still runs, at once. Idempotent. */
  close(): Promise<void>;
}

/** Tools in the runner's own process. */
export function createInlineLevel(): ToolLevel {
  return {
    run: async (tool, request) => {
      if (tool.kind === "handler") return await runTool(tool, request);
      return { ok: false, error: `tool ${tool.name} runs programs, which need a sandbox` };
    },
    close: async () => await Promise.resolve(),
  };
}
