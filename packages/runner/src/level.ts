import type { ToolOutcome } from "@larkline/protocol/tool";
import type { RunToolRequest, Tool } from "@larkline/tool-kit";

// What every level of isolation is to the runner.

/**
 * Called once, at the last moment before a call can have an effect: its input is good, and there is a place for it.
 * Where the call may not start it gives the outcome instead. Never rejects.
 */
export type BeginCall = () => Promise<ToolOutcome | undefined>;

/** Runs the calls of tools at one level of isolation. */
export interface ToolLevel {
  /** One call, from the model's text to its outcome. Never rejects. */
  run(tool: Tool, request: RunToolRequest, begin: BeginCall): Promise<ToolOutcome>;
  /** Starts what the first call would have to wait for. Rejects when the tools cannot run, with the reason. */
  warm?(): Promise<void>;
  /** Ends what still runs, at once. Idempotent. */
  close(): Promise<void>;
}
