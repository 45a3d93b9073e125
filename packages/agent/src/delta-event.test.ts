import { messageStop, toolCallDelta } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import { answerRestarted, deltaEventOf } from "./index.ts";

describe("live events of a model stream", () => {
  it("text and thinking deltas are shown as they come", () => {
    expect(deltaEventOf({ type: "text_delta", text: "a" })).toEqual({ type: "text_delta", text: "a" });
    expect(deltaEventOf({ type: "thinking_delta", index: 3, text: "b" })).toEqual({
      type: "thinking_delta",
      text: "b",
    });
  });

  it("SA-6: empty deltas produce no event", () => {
    expect(deltaEventOf({ type: "text_delta", text: "" })).toBeUndefined();
    expect(deltaEventOf({ type: "thinking_delta", index: 0, text: "", providerMetadata: { s: "1" } })).toBeUndefined();
  });

  it("EE-10: stops with usage, calls and warnings are not live events", () => {
    const usage = { inputTokens: 1, outputTokens: 1, cacheReadTokens: 0, cacheCreationTokens: 0 };
    expect(deltaEventOf(messageStop("end_turn", usage))).toBeUndefined();
    expect(deltaEventOf(toolCallDelta(0))).toBeUndefined();
    expect(deltaEventOf({ type: "warning", code: "w", message: "m" })).toBeUndefined();
  });

  it("a restart voids the deltas so far", () => {
    expect(deltaEventOf({ type: "restart", model: "m2", reason: "cut" })).toMatchObject({
      type: "warning",
      code: answerRestarted,
      detail: "m2",
    });
  });
});
