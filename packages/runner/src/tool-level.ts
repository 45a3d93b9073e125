import type { ToolOutcome } from "@larkline/protocol";
import { inputOf, runTool, type RunToolRequest, type Tool } from "@larkline/tool-kit";

/**
 * Called once, at the last moment before a call can have an effect: its input is good, and there is a place for it.
 * Where the call may not start it gives the outcome instead. Never rejects.
 */
export type BeginCall = () => Promise<ToolOutcome | undefined>;

/** Runs the calls of tools at one level of isolation. */
export interface ToolLevel {
  /** One call, from the model's text to its outcome. Never rejects. */
  run(tool: Tool, request: RunToolRequest, begin: BeginCall): Promise<ToolOutcome>;
  /** Ends what still runs, at once. Idempotent. */
  close(): Promise<void>;
}

/** Tools in the runner's own process. */
export function createInlineLevel(): ToolLevel {
  return {
    run: async (tool, request, begin) => {
      if (tool.kind === "handler") {
        const input = inputOf(tool, request.argumentsText);
        if (!input.ok) return input;
        return (await begin()) ?? (await runTool(tool, request));
      }
      return { ok: false, error: `tool ${tool.name} runs programs, which need a sandbox` };
    },
    close: async () => await Promise.resolve(),
  };
}
