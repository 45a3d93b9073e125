import { describe, expect, it } from "vitest";
import { engineEventTypes, isTerminal, warningCodes } from "./event.ts";

describe("engine events", () => {
  it("EE-1: there are exactly the 23 types of the contract and four of ours, each once", () => {
    expect(engineEventTypes.toSorted()).toEqual([
      "agent_changed",
      "checkpoint",
      "checkpoint_suggested",
      "compact",
      "done",
      "error",
      "inbox_message",
      "input_requested",
      "memory_query",
      "permission_learn",
      "permission_request",
      "session_info",
      "slash_command",
      "step_restarted",
      "teammate_message_received",
      "text",
      "text_delta",
      "thinking",
      "thinking_delta",
      "tool_progress",
      "tool_result",
      "tool_summary",
      "tool_use",
      "turn_end",
      "turn_start",
      "usage",
      "warning",
    ]);
  });

  it("EE-2: a run is over after done and after error, and after nothing else", () => {
    const ends = isTerminal({
      type: "error",
      message: "m",
      code: "internal_error",
      suggestion: "",
      retryable: false,
    });
    expect(ends).toBe(true);
    expect(isTerminal({ type: "text_delta", text: "done" })).toBe(false);
    expect(isTerminal({ type: "warning", code: "error", message: "m", detail: "" })).toBe(false);
  });

  it("EE-19: the warning codes have exactly these values", () => {
    expect(warningCodes).toEqual(["token_usage_high", "budget_near_limit", "session_expiring"]);
  });
});
