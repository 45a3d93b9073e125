import { messageStop, toolCallDelta } from "@larkline/model";
import { toolResultPart } from "@larkline/protocol/content";
import type { EngineEvent } from "@larkline/protocol/event";
import { stopReasons, type ModelChunk } from "@larkline/protocol/model-stream";
import { describe, expect, it } from "vitest";
import type { StepResult } from "./facts.ts";
import { readStep, createAccumulator, deltaEventOf } from "./stream.ts";
import { environment, startRun } from "./turn.fixture.ts";
import { afterStep } from "./turn.ts";
import { turnLimits } from "./step.ts";

function accumulated(chunks: readonly ModelChunk[]): StepResult {
  const accumulator = createAccumulator();
  for (const chunk of chunks) accumulator.push(chunk);
  return accumulator.result();
}

async function* nothing(): AsyncGenerator<ModelChunk> {}

async function* broken(): AsyncGenerator<ModelChunk> {
  yield { type: "text_delta", text: "a" };
  throw new Error("socket");
}

const usage = { inputTokens: 3, outputTokens: 2, cacheReadTokens: 1, cacheCreationTokens: 0 };

describe("the vocabulary of a model stream", () => {
  it("AL-1: the stop reasons are exactly the five of the contract", () => {
    expect([...stopReasons]).toEqual(["end_turn", "tool_use", "max_tokens", "refusal", "other"]);
  });

  it("AL-2: isError defaults to false, arguments to empty text, usage to null", () => {
    expect(toolResultPart("c1", "ok").isError).toBe(false);
    expect(toolCallDelta(0)).toEqual({
      type: "tool_call_delta",
      index: 0,
      id: null,
      name: null,
      arguments: "",
    });
    expect(messageStop("end_turn")).toEqual({
      type: "message_stop",
      stopReason: "end_turn",
      usage: null,
    });
  });
});

describe("accumulating a model stream", () => {
  it("AL-4: text deltas join in order without separator", () => {
    const step = accumulated([
      { type: "text_delta", text: "你" },
      { type: "text_delta", text: "好" },
      { type: "text_delta", text: ", 世界" },
    ]);
    expect(step.text).toBe("你好, 世界");
    expect(step.parts).toEqual([{ type: "text", text: "你好, 世界" }]);
  });

  it("AL-5: deltas for indexes 2, 0, 2 yield two calls, index 0 first", () => {
    const step = accumulated([
      toolCallDelta(2, { id: "c2", name: "b", arguments: "{" }),
      toolCallDelta(0, { id: "c0", name: "a" }),
      toolCallDelta(2, { arguments: "}" }),
    ]);
    expect(step.toolCalls).toEqual([
      { id: "c0", name: "a", arguments: "" },
      { id: "c2", name: "b", arguments: "{}" },
    ]);
  });

  it("AL-6, SA-10: the first non-empty id and name win; later ones are ignored", () => {
    const step = accumulated([
      toolCallDelta(0, { id: "", name: "" }),
      toolCallDelta(0, { id: "first", name: null }),
      toolCallDelta(0, { id: "second", name: "weather" }),
      toolCallDelta(0, { id: "third", name: "clock" }),
    ]);
    expect(step.toolCalls).toEqual([{ id: "first", name: "weather", arguments: "" }]);
  });

  it("AL-7: a split argument text reassembles to the exact original", () => {
    const original = '{"city":"上海","note":"a\\"b\\u4e0a"}';
    for (let cut = 0; cut <= original.length; cut++) {
      const step = accumulated([
        toolCallDelta(0, { id: "c", name: "n", arguments: original.slice(0, cut) }),
        toolCallDelta(0, { arguments: original.slice(cut) }),
      ]);
      expect(step.toolCalls[0]?.arguments).toBe(original);
    }
  });

  it("SA-7: fragments of interleaved indexes 1 and 0 assemble, in index order", () => {
    const step = accumulated([
      toolCallDelta(1, { id: "c1", name: "b", arguments: '{"x":' }),
      toolCallDelta(0, { id: "c0", name: "a", arguments: '{"y":' }),
      toolCallDelta(1, { arguments: "1}" }),
      toolCallDelta(0, { arguments: "2}" }),
    ]);
    expect(step.toolCalls.map(({ arguments: text }) => text)).toEqual(['{"y":2}', '{"x":1}']);
  });

  it("AL-8: without a stop the reason is other and the usage null", () => {
    const step = accumulated([{ type: "text_delta", text: "a" }]);
    expect(step.stopReason).toBe("other");
    expect(step.usage).toBeNull();
  });

  it("AL-9: of two stops the second decides reason and usage", () => {
    const step = accumulated([messageStop("tool_use", usage), messageStop("end_turn")]);
    expect(step.stopReason).toBe("end_turn");
    expect(step.usage).toBeNull();
  });

  it("AL-10: an empty stream is empty text, no calls, other, no usage", async () => {
    expect(await readStep(nothing())).toEqual({
      text: "",
      toolCalls: [],
      parts: [],
      stopReason: "other",
      usage: null,
      warnings: [],
      blocksTold: true,
    });
  });

  it("chunks after a stop still count, unknown kinds are skipped", () => {
    const unknown = JSON.parse('{"type":"audio_delta"}') as ModelChunk; // a newer adapter may send it
    const step = accumulated([
      messageStop("end_turn", usage),
      unknown,
      { type: "text_delta", text: "late" },
    ]);
    expect(step).toMatchObject({ text: "late", stopReason: "end_turn", usage });
  });

  it("thinking is grouped by index with merged metadata and keeps its place among the text", () => {
    const step = accumulated([
      { type: "thinking_delta", index: 0, text: "let " },
      { type: "thinking_delta", index: 0, text: "me", providerMetadata: { signature: "s" } },
      { type: "text_delta", text: "A" },
      { type: "text_delta", text: "B" },
      { type: "thinking_delta", index: 2, text: "again" },
      { type: "thinking_delta", index: 0, text: "", providerMetadata: { format: "f" } },
      { type: "text_delta", text: "C" },
    ]);
    expect(step.parts).toEqual([
      { type: "thinking", text: "let me", providerMetadata: { signature: "s", format: "f" } },
      { type: "text", text: "AB" },
      { type: "thinking", text: "again" },
      { type: "text", text: "C" },
    ]);
    expect(step.text).toBe("ABC");
  });

  it("the metadata of a call is kept", () => {
    const step = accumulated([
      toolCallDelta(0, { id: "c", name: "n", providerMetadata: { a: "1" } }),
      toolCallDelta(0, { providerMetadata: { b: "2" } }),
    ]);
    expect(step.toolCalls[0]?.providerMetadata).toEqual({ a: "1", b: "2" });
  });

  it("a restart voids everything received but the warnings", () => {
    const step = accumulated([
      { type: "warning", code: "w", message: "m" },
      { type: "text_delta", text: "half an ans" },
      { type: "thinking_delta", index: 0, text: "hm" },
      toolCallDelta(0, { id: "c", name: "n" }),
      messageStop("tool_use", usage),
      { type: "restart", model: "fallback-1", reason: "cut" },
      { type: "text_delta", text: "whole" },
      messageStop("end_turn"),
    ]);
    expect(step).toEqual({
      text: "whole",
      toolCalls: [],
      parts: [{ type: "text", text: "whole" }],
      stopReason: "end_turn",
      usage: null,
      model: "fallback-1",
      warnings: [{ type: "warning", code: "w", message: "m" }],
    });
  });

  it("a failure is kept with what came before it", () => {
    const failure: ModelChunk = {
      type: "error",
      code: "api_overloaded",
      message: "busy",
      suggestion: "wait",
      retryable: true,
      partial: true,
    };
    expect(accumulated([{ type: "text_delta", text: "a" }, failure])).toMatchObject({
      text: "a",
      failure,
    });
  });

  it("an exception of the iterator propagates", async () => {
    await expect(readStep(broken())).rejects.toThrow("socket");
  });

  it("a result is a snapshot that later chunks do not change", () => {
    const accumulator = createAccumulator();
    accumulator.push({ type: "text_delta", text: "a" });
    const early = accumulator.result();
    accumulator.push({ type: "text_delta", text: "b" });
    expect(early.parts).toEqual([{ type: "text", text: "a" }]);
  });
});

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
    expect(deltaEventOf({ type: "text_delta", text: "a" }, 3)).toEqual({
      type: "text_delta",
      text: "a",
    });
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

  it("EE-10: stops with used, calls and warnings are not live events", () => {
    const used = { inputTokens: 1, outputTokens: 1, cacheReadTokens: 0, cacheCreationTokens: 0 };
    expect(deltaEventOf(messageStop("end_turn", used), 3)).toBeUndefined();
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
    expect(event).toEqual({
      type: "step_restarted",
      turnNumber: 3,
      model: "m2",
      reason: "stream_truncated",
    });
  });
});

describe("the blocks of a stream", () => {
  const item = { type: "reasoning", id: "rs_1" };
  const hosted = { type: "web_search_call", id: "ws_1" };
  const metadata = (of: object) => ({ vendor: "openai-responses", item: JSON.stringify(of) });
  const stop = messageStop("end_turn");

  function told(chunks: readonly ModelChunk[]): (EngineEvent | string)[] {
    const accumulator = createAccumulator();
    return chunks.flatMap((chunk) => [...accumulator.push(chunk), chunk.type]);
  }

  it("EE-5: are complete before the first delta of the next one, and two texts with something between stay two", () => {
    const chunks: ModelChunk[] = [
      { type: "thinking_delta", index: 0, text: "Hm" },
      { type: "thinking_delta", index: 0, text: "m." },
      { type: "text_delta", text: "One" },
      { type: "text_delta", text: " two" },
      toolCallDelta(1, { id: "c1", name: "a" }),
      { type: "text_delta", text: "three" },
      stop,
    ];
    expect(told(chunks)).toEqual([
      "thinking_delta",
      "thinking_delta",
      { type: "thinking", text: "Hmm." },
      "text_delta",
      "text_delta",
      { type: "text", text: "One two" },
      "tool_call_delta",
      "text_delta",
      { type: "text", text: "three" },
      "message_stop",
    ]);
    const accumulator = createAccumulator();
    for (const chunk of chunks) accumulator.push(chunk);
    expect(accumulator.result()).toMatchObject({
      text: "One twothree",
      parts: [{}, { text: "One two" }, { text: "three" }],
    });
  });

  it("a restart voids the one under way, and one that broke off is never complete", () => {
    const open: ModelChunk = { type: "text_delta", text: "half" };
    expect(
      told([open, { type: "restart", model: "m", reason: "stream_truncated" }, open, stop]),
    ).toEqual([
      "text_delta",
      "restart",
      "text_delta",
      { type: "text", text: "half" },
      "message_stop",
    ]);
  });

  it("carry the vendor's own items, those without an event with the next one that has", () => {
    const chunks: ModelChunk[] = [
      { type: "thinking_delta", index: 0, text: "", providerMetadata: metadata(item) },
      {
        type: "thinking_delta",
        index: 1,
        text: "",
        providerMetadata: { ...metadata(hosted), opaque: "web_search_call" },
      },
      { type: "text_delta", text: "Found." },
      {
        type: "thinking_delta",
        index: 3,
        text: "",
        providerMetadata: { ...metadata(hosted), opaque: "web_search_call" },
      },
      stop,
    ];
    const events = told(chunks).filter((event) => typeof event !== "string");
    expect(events).toEqual([
      { type: "thinking", text: "", vendorItem: item },
      { type: "text", text: "Found.", vendorItems: [hosted] },
    ]);
    const accumulator = createAccumulator();
    for (const chunk of chunks) accumulator.push(chunk);
    expect(accumulator.result().vendorItems).toEqual([hosted]);
  });

  it("EE-48, EE-52: an answer that paused counts each of its calls, with its own usage and nothing estimated", () => {
    const accumulator = createAccumulator();
    const used = (outputTokens: number) => ({
      inputTokens: 1,
      outputTokens,
      cacheReadTokens: 0,
      cacheCreationTokens: 0,
    });
    const attempt = { type: "attempt", model: "m", maxTokens: 9 } as const;
    const chunks: ModelChunk[] = [
      attempt,
      { type: "text_delta", text: "a long beginning" },
      { type: "usage_so_far", usage: used(5) },
      { ...attempt, continues: true },
      { type: "text_delta", text: "end" },
      messageStop("end_turn", used(2)),
    ];
    for (const chunk of chunks) accumulator.push(chunk);
    expect(accumulator.result()).toMatchObject({
      text: "a long beginningend",
      vendorCalls: [
        { usage: used(5), complete: true },
        { usage: used(2), complete: true },
      ],
    });
  });
});

describe("turn limits", () => {
  it("AL-19: the default of maxIterations is 25", () => {
    expect(turnLimits().maxIterations).toBe(25);
    expect(turnLimits({ maxIterations: 3 }).maxIterations).toBe(3);
  });

  it.each([0, -1, 1.5, Number.NaN])(
    "AL-19: maxIterations %d is refused, naming option and value",
    (maxIterations) => {
      expect(() => turnLimits({ maxIterations })).toThrow(
        `maxIterations must be a whole number of at least 1, got ${maxIterations}`,
      );
    },
  );

  it("every other limit is checked too", () => {
    expect(() => turnLimits({ maxResultChars: 0 })).toThrow("maxResultChars");
  });
});
