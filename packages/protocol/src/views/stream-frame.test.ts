import { describe, expect, it } from "vitest";
import { engineEventTypes, type EngineEvent, type EventOf } from "../event.ts";
import { formatSseEvent, streamFramesOf, streamFramesOfRecord } from "./stream-frame.ts";

function toolResult(fields: Partial<EventOf<"tool_result">>): EngineEvent {
  return {
    type: "tool_result",
    id: "c1",
    toolName: "get_weather",
    output: "晴",
    isError: false,
    truncated: false,
    storedPath: "",
    ...fields,
  };
}

function done(reason: string, final = "hello"): EventOf<"done"> {
  return {
    type: "done",
    totalInputTokens: 1,
    totalOutputTokens: 2,
    totalCostUsd: 0,
    turnCount: 1,
    reason,
    final,
  };
}

describe("the view of engine events as stream frames", () => {
  it("SA-3: each frame has exactly the required fields of its type, plus the call id", () => {
    const toolUse: EngineEvent = {
      type: "tool_use",
      id: "c1",
      toolName: "get_weather",
      input: { city: "北京" },
    };
    expect(streamFramesOf({ type: "text_delta", text: "你" })).toEqual([
      { type: "assistant", content: "你" },
    ]);
    expect(streamFramesOf(toolUse)).toEqual([
      { type: "tool_call", name: "get_weather", args: { city: "北京" }, id: "c1" },
    ]);
    expect(streamFramesOf(toolResult({}))).toEqual([
      { type: "tool_result", name: "get_weather", result: "晴", id: "c1" },
    ]);
    expect(streamFramesOf(toolResult({ isError: true, output: "boom" }))).toEqual([
      { type: "tool_error", name: "get_weather", error: "boom", id: "c1" },
    ]);
    expect(streamFramesOf(done(""))).toEqual([{ type: "done", final: "hello" }]);
  });

  it("SA-3: parallel calls of one tool are paired with their results by id, whichever ends first", () => {
    const call = (id: string): EngineEvent => ({
      type: "tool_use",
      id,
      toolName: "get_weather",
      input: { of: id },
    });
    const events = [
      call("c1"),
      call("c2"),
      toolResult({ id: "c2", output: "2" }),
      toolResult({ id: "c1", isError: true }),
    ];
    expect(events.flatMap((event) => streamFramesOf(event))).toMatchObject([
      { type: "tool_call", id: "c1", args: { of: "c1" } },
      { type: "tool_call", id: "c2", args: { of: "c2" } },
      { type: "tool_result", id: "c2", result: "2" },
      { type: "tool_error", id: "c1" },
    ]);
  });

  it("SA-3: origin fields are additive", () => {
    const record = { seq: 7, runId: "api.s1-2", event: { type: "text_delta", text: "a" } } as const;
    expect(streamFramesOfRecord(record)).toEqual([
      { type: "assistant", content: "a", run_id: "api.s1-2", seq: 7 },
    ]);
  });

  it("EE-49: a step that is asked again makes a restart frame", () => {
    expect(
      streamFramesOf({ type: "step_restarted", turnNumber: 1, model: "m", reason: "crash" }),
    ).toEqual([{ type: "restart" }]);
  });

  it("SA-6: an empty delta makes no frame", () => {
    expect(streamFramesOf({ type: "text_delta", text: "" })).toEqual([]);
  });

  it("EE-41: a result that is kept elsewhere is shown without its handle", () => {
    const handle = "res_0123456789abcdef";
    const frames = streamFramesOf(
      toolResult({ output: `head [read on: ${handle}] tail`, truncated: true, storedPath: handle }),
    );
    expect(frames).toEqual([
      { type: "tool_result", name: "get_weather", result: "head [read on: …] tail", id: "c1" },
    ]);
  });

  it("a tool result is the tool's own JSON value when there is one", () => {
    const result = { temperature: "25°C", list: [1, null] };
    expect(streamFramesOf(toolResult({ result }))).toEqual([
      { type: "tool_result", name: "get_weather", result, id: "c1" },
    ]);
    for (const value of [0, false, "", null]) {
      expect(streamFramesOf(toolResult({ result: value }))).toEqual([
        { type: "tool_result", name: "get_weather", result: value, id: "c1" },
      ]);
    }
  });

  it("SA-18: the round limit is an error with the fixed text", () => {
    expect(streamFramesOf(done("max_turns_reached"))).toEqual([
      { type: "error", message: "ERROR: reached maximum tool rounds" },
    ]);
  });

  it("SA-20: an error event and any other early end are error frames", () => {
    const failed: EngineEvent = {
      type: "error",
      message: "The model is overloaded.",
      code: "api_overloaded",
      suggestion: "",
      retryable: true,
    };
    expect(streamFramesOf(failed)).toEqual([
      { type: "error", message: "The model is overloaded." },
    ]);
    expect(streamFramesOf(done("cancelled"))).toEqual([
      { type: "error", message: "ERROR: the run was stopped (cancelled)" },
    ]);
  });

  it("a question to people names the approval, and the call where it is known", () => {
    const asked: EngineEvent = {
      type: "permission_request",
      id: "p1",
      toolName: "rm",
      input: { path: "/" },
      message: "?",
    };
    const frame = {
      type: "approval_request",
      approval_id: "p1",
      name: "rm",
      args: { path: "/" },
      message: "?",
    };
    expect(streamFramesOf(asked)).toEqual([frame]);
    expect(streamFramesOf({ ...asked, toolCallId: "c1" })).toEqual([{ ...frame, id: "c1" }]);
  });

  it("ends say what people in chats read", () => {
    const told = {
      reply: "So far\n\nIt was cut off.",
      notice: "truncated",
      notes: ["a.pdf could not be read"],
    };
    const [cut] = streamFramesOf({ ...done("max_tokens"), ...told });
    expect(cut).toEqual({
      type: "error",
      message: "ERROR: the run was stopped (max_tokens)",
      ...told,
    });
    const [whole] = streamFramesOf({ ...done(""), notes: told.notes });
    expect(whole).toMatchObject({ type: "done", notes: told.notes });
  });

  it("events without a counterpart make no frame", () => {
    expect(streamFramesOf({ type: "thinking_delta", text: "hm" })).toEqual([]);
    expect(streamFramesOf({ type: "text", text: "whole" })).toEqual([]);
    expect(engineEventTypes).toHaveLength(27);
  });
});

describe("the wire form of a frame", () => {
  it("SA-22: a frame is one data line, whatever the text holds", () => {
    for (const content of [
      "a\nb",
      "a\r\nb",
      "\u2028\u2029\u0085",
      "data: x\n\ndata: y",
      "\ud800",
      '"\\',
      "你好 🎉",
    ]) {
      const text = formatSseEvent({ type: "assistant", content });
      expect(text).toMatch(/^data: {.*}\n\n$/);
      expect(text.slice(0, -2)).not.toMatch(/[\n\r]/);
      expect(JSON.parse(text.slice(6))).toEqual({ type: "assistant", content });
    }
  });

  it("SA-22: the sequence number has a line of its own before the data", () => {
    expect(formatSseEvent({ type: "done", final: "" }, 12)).toBe(
      'id: 12\ndata: {"type":"done","final":""}\n\n',
    );
  });

  it("SA-23: non-ASCII text is not escaped", () => {
    expect(formatSseEvent({ type: "assistant", content: "你好，°C" })).toBe(
      'data: {"type":"assistant","content":"你好，°C"}\n\n',
    );
  });
});
