import { messageStop, toolCallDelta, type EngineEvent, type ModelChunk } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import { afterStep, createAccumulator, deltaEventOf } from "./index.ts";
import { environment, startRun } from "./turn.fixture.ts";

/** Blocks as a reader of the live events would build them: a change of kind begins a new one. */
function joinedDeltas(chunks: readonly ModelChunk[]): EngineEvent[] {
  const blocks: (EngineEvent & { type: "text" | "thinking" })[] = [];
  for (const chunk of chunks) {
    const event = deltaEventOf(chunk, 3);
    if (event?.type !== "text_delta" && event?.type !== "thinking_delta") continue;
    const type = event.type === "text_delta" ? "text" : "thinking";
    const last = blocks.at(-1);
    if (last?.type === type) last.text += event.text;
    else blocks.push({ type, text: event.text });
  }
  return blocks;
}

describe("live events of a model stream", () => {
  it("text and thinking deltas are shown as they come", () => {
    expect(deltaEventOf({ type: "text_delta", text: "a" }, 3)).toEqual({ type: "text_delta", text: "a" });
    expect(deltaEventOf({ type: "thinking_delta", index: 3, text: "b" }, 3)).toEqual({
      type: "thinking_delta",
      text: "b",
    });
  });

  it("SA-6: empty deltas produce no event", () => {
    expect(deltaEventOf({ type: "text_delta", text: "" }, 3)).toBeUndefined();
    expect(
      deltaEventOf({ type: "thinking_delta", index: 0, text: "", providerMetadata: { s: "1" } }, 3),
    ).toBeUndefined();
  });

  it("EE-10: stops with usage, calls and warnings are not live events", () => {
    const usage = { inputTokens: 1, outputTokens: 1, cacheReadTokens: 0, cacheCreationTokens: 0 };
    expect(deltaEventOf(messageStop("end_turn", usage), 3)).toBeUndefined();
    expect(deltaEventOf(toolCallDelta(0), 3)).toBeUndefined();
    expect(deltaEventOf({ type: "warning", code: "w", message: "m" }, 3)).toBeUndefined();
  });

  it("EE-5: the deltas of a block concatenate to its complete event", () => {
    const chunks: ModelChunk[] = [
      { type: "thinking_delta", index: 0, text: "let " },
      { type: "thinking_delta", index: 0, text: "me" },
      { type: "text_delta", text: "A" },
      { type: "text_delta", text: "" },
      { type: "text_delta", text: "B" },
      { type: "thinking_delta", index: 1, text: "again" },
      { type: "text_delta", text: "C" },
      messageStop("end_turn"),
    ];
    const accumulator = createAccumulator();
    for (const chunk of chunks) accumulator.push(chunk);
    const run = startRun().apply((turn) => afterStep(turn, accumulator.result(), environment()));
    const blocks = run.events.filter(({ type }) => type === "text" || type === "thinking");
    expect(blocks).toEqual(joinedDeltas(chunks));
  });

  it("a restart voids the deltas so far", () => {
    const event = deltaEventOf({ type: "restart", model: "m2", reason: "stream_truncated" }, 3);
    expect(event).toEqual({ type: "step_restarted", turnNumber: 3, model: "m2", reason: "stream_truncated" });
  });
});
