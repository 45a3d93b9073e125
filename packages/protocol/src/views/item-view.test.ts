import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { EngineEvent, EventRecord } from "../event.ts";
import { textMessageOutput, textMessageOutputs } from "./item-helpers.ts";
import { conversationItems, parseInput, userItemOf } from "./item-input.ts";
import { ItemView, runItems, type RunResult } from "./item-view.ts";
import { parseRunItem, type RunItem } from "./run-items.ts";
import {
  cutAt,
  finalOf,
  plannedRun,
  recordsOf,
  textOfStep,
  type PlannedRun,
} from "./run.fixture.ts";

const run = { runId: "api.s-1", sessionId: "s", agent: "main", startedAtMs: 1_000 };
const start: EngineEvent = {
  type: "turn_start",
  turnNumber: 1,
  model: "m",
  contextWindowTokens: 1_000,
};
const numbers = {
  inputTokens: 10,
  outputTokens: 2,
  cacheReadTokens: 3,
  cacheCreationTokens: 4,
  costUsd: 0,
  maxTokens: 9,
};
const ended = (turnNumber = 1, responseId: string | null = null): EngineEvent => ({
  type: "turn_end",
  turnNumber,
  ...numbers,
  model: "m",
  responseId,
  attempts: 2,
});
const done = (reason = "", final = ""): EngineEvent => ({
  type: "done",
  totalInputTokens: 0,
  totalOutputTokens: 0,
  totalCostUsd: 0,
  turnCount: 1,
  reason,
  final,
});
const text = (words: string): EngineEvent[] => [
  { type: "text_delta", text: words },
  { type: "text", text: words },
];
const use = (id: string, more: object = {}): EngineEvent => ({
  type: "tool_use",
  id,
  toolName: "weather",
  input: { a: 1 },
  ...more,
});
const result = (id: string, more: object = {}): EngineEvent => ({
  type: "tool_result",
  id,
  toolName: "weather",
  output: '{"t":25}',
  isError: false,
  truncated: false,
  storedPath: "",
  result: { t: 25 },
  ...more,
});

function recordsOfEvents(events: readonly EngineEvent[]): EventRecord[] {
  return events.map((event, index) => ({ seq: index + 1, runId: run.runId, event }));
}

function shown(...events: EngineEvent[]): RunItem[] {
  return runItems(run, recordsOfEvents(events));
}

function resultOf(...events: EngineEvent[]): RunResult {
  const view = new ItemView(run, [{ role: "user", content: "hello" }]);
  for (const record of recordsOfEvents(events)) view.push(record);
  return view.result();
}

function resultOfRun({ facts, ...planned }: PlannedRun): RunResult {
  const view = new ItemView(facts, [{ role: "user", content: "hello" }]);
  for (const record of recordsOf({ facts, ...planned })) view.push(record);
  return view.result();
}

const typesOf = (items: readonly RunItem[]) => items.map(({ type }) => type);

describe("the view of items", () => {
  it("RI-33: lists text, thinking, calls and outputs in order; a call and its output share call_id", () => {
    const thinking: EngineEvent = { type: "thinking", text: "hm" };
    expect(
      shown(start, thinking, ...text("let me look"), use("c1"), result("c1"), ended()),
    ).toEqual([
      {
        type: "reasoning_item",
        agent: "main",
        rawItem: {
          type: "reasoning",
          id: "rs_api.s-1_2",
          summary: [{ type: "summary_text", text: "hm" }],
        },
      },
      {
        type: "message_output_item",
        agent: "main",
        rawItem: {
          type: "message",
          id: "msg_api.s-1_4",
          role: "assistant",
          status: "completed",
          content: [{ type: "output_text", text: "let me look", annotations: [] }],
        },
      },
      {
        type: "tool_call_item",
        agent: "main",
        rawItem: {
          type: "function_call",
          id: "fc_api.s-1_5",
          call_id: "c1",
          name: "weather",
          arguments: '{"a":1}',
          status: "completed",
        },
      },
      {
        type: "tool_call_output_item",
        agent: "main",
        rawItem: { type: "function_call_output", call_id: "c1", output: '{"t":25}' },
        output: { t: 25 },
      },
    ]);
  });

  it("says of an answer how it ended: whole, cut off at the limit, refused, broken off", () => {
    const end = (reason: string) => {
      const [item] = shown(start, ...text("words"), ended(), done(reason)) as [RunItem];
      return item.type === "message_output_item"
        ? [item.rawItem.status, item.rawItem.content[0]?.type]
        : [];
    };
    expect(["", "max_tokens", "refusal"].map(end)).toEqual([
      ["completed", "output_text"],
      ["incomplete", "output_text"],
      ["completed", "refusal"],
    ]);
    const broken = shown(
      start,
      ...text("one"),
      { type: "text_delta", text: "tw" },
      ended(),
      done("cancelled"),
    );
    expect(textMessageOutputs(broken)).toBe("onetw");
    expect(broken.map(({ rawItem }) => "status" in rawItem && rawItem.status)).toEqual([
      "incomplete",
      "incomplete",
    ]);
  });

  it("makes no item of what a restart has made void, nor of a step that failed", () => {
    const restart: EngineEvent = {
      type: "step_restarted",
      turnNumber: 1,
      model: "m",
      reason: "crash",
    };
    expect(
      textMessageOutputs(
        shown(start, ...text("half"), restart, ...text("whole"), ended(), done("", "whole")),
      ),
    ).toBe("whole");
    const failed: EngineEvent = {
      type: "error",
      code: "api_overloaded",
      message: "",
      suggestion: "",
      retryable: true,
    };
    expect(shown(start, ...text("half"), ended(), failed)).toEqual([]);
  });

  it("RI-30: a hand-over is a call and, once another agent answers, its output with both names", () => {
    const change: EngineEvent = {
      type: "agent_changed",
      from: "main",
      to: "writer",
      reason: "handoff",
      callId: "c1",
    };
    const items = shown(
      start,
      use("c1", { handoff: "writer" }),
      result("c1"),
      ended(),
      change,
      { ...start, turnNumber: 2 },
      ...text("hi"),
      ended(2),
      done("", "hi"),
    );
    expect(typesOf(items)).toEqual([
      "handoff_call_item",
      "handoff_output_item",
      "message_output_item",
    ]);
    expect(items[1]).toMatchObject({
      agent: "main",
      sourceAgent: "main",
      targetAgent: "writer",
      rawItem: { call_id: "c1" },
    });
    expect(items[2]?.agent).toBe("writer");
    const refused = shown(
      start,
      use("c1", { handoff: "x" }),
      result("c1", { isError: true }),
      use("c2", { handoff: "y" }),
      result("c2"),
      ended(),
      done(),
    );
    expect(typesOf(refused)).toEqual([
      "handoff_call_item",
      "tool_call_output_item",
      "handoff_call_item",
      "tool_call_output_item",
    ]);
  });

  it("RI-36: the result of a transfer that no agent has taken up comes before the step that follows", () => {
    const next: EngineEvent = { ...start, turnNumber: 2 };
    const items = shown(
      start,
      use("c1", { handoff: "x" }),
      result("c1"),
      ended(),
      next,
      use("c2"),
      result("c2"),
      done(),
    );
    expect(typesOf(items)).toEqual([
      "handoff_call_item",
      "tool_call_output_item",
      "tool_call_item",
      "tool_call_output_item",
    ]);
  });

  it("RI-34: a call of an MCP server shows its tools, the approval and what was decided", () => {
    const mcp = {
      server: "files",
      tools: [{ name: "weather", description: "d", inputSchema: {} }],
    };
    const asked: EngineEvent = {
      type: "permission_request",
      id: "p1",
      toolName: "weather",
      input: { a: 1 },
      message: "may I?",
    };
    const allowed = shown(start, use("c1", { mcp }), asked, result("c1"), ended());
    expect(typesOf(allowed)).toEqual([
      "mcp_list_tools_item",
      "tool_call_item",
      "mcp_approval_request_item",
      "mcp_approval_response_item",
      "tool_call_output_item",
    ]);
    expect(allowed[2]).toMatchObject({ rawItem: { id: "p1", server_label: "files" } });
    expect(allowed[3]).toMatchObject({ rawItem: { approval_request_id: "p1", approve: true } });
    const refused = shown(
      start,
      use("c1", { mcp }),
      { ...asked, toolCallId: "c1" },
      result("c1", { isError: true, output: "permission_denied: no" }),
    );
    expect(refused[3]).toMatchObject({ rawItem: { approval_request_id: "p1", approve: false } });
  });

  it("RI-31: keeps the vendor's own items where they stood; those of unknown types only in the response", () => {
    const search = {
      type: "web_search_call",
      id: "ws_1",
      status: "completed",
      action: { type: "search", query: "q" },
    };
    const odd = { type: "compaction", id: "cmp_1" };
    const own = { type: "reasoning", id: "rs_9", summary: [], encrypted_content: "gAAA" };
    const thinking: EngineEvent = { type: "thinking", text: "hm", vendorItem: own };
    const answer: EngineEvent = { type: "text", text: "found", vendorItems: [search] };
    const end = { ...ended(), vendorItems: [odd] } as EngineEvent; // as a later step of a vendor ends
    const { newItems, rawResponses } = resultOf(start, thinking, answer, end, done("", "found"));
    expect(newItems.map(({ rawItem }) => "id" in rawItem && rawItem.id)).toEqual([
      "rs_9",
      "ws_1",
      "msg_api.s-1_3",
    ]);
    expect(newItems[0]?.rawItem).toEqual(own);
    expect(rawResponses[0]?.output.map(({ type }) => type)).toEqual([
      "reasoning",
      "web_search_call",
      "message",
      "compaction",
    ]);
  });

  it("RI-37, RI-38: its result names each response, sums up usage and says what waits for people", () => {
    const asked: EngineEvent = {
      type: "permission_request",
      id: "p1",
      toolName: "weather",
      input: { a: 1 },
      message: "may I?",
      toolCallId: "c1",
    };
    const question: EngineEvent = {
      type: "input_requested",
      requestId: "q1",
      callId: "c2",
      question: "which?",
      choices: [],
      expiresAtMs: 5,
    };
    const waiting = resultOf(start, use("c1"), use("c2"), asked, question);
    expect(waiting.interruptions).toEqual([
      {
        type: "approval",
        id: "p1",
        callId: "c1",
        toolName: "weather",
        input: { a: 1 },
        message: "may I?",
      },
      { type: "question", id: "q1", callId: "c2", message: "which?" },
    ]);
    expect(waiting.finalOutput).toBeNull();
    const { interruptions, usage, responseIds, finalOutput, lastAgent } = resultOf(
      start,
      use("c1"),
      asked,
      result("c1"),
      ended(1, "resp_1"),
      { ...start, turnNumber: 2 } as EngineEvent,
      ...text("hi"),
      ended(2),
      done("", "hi"),
    );
    expect({ interruptions, responseIds, finalOutput, lastAgent }).toEqual({
      interruptions: [],
      responseIds: ["resp_1", null],
      finalOutput: "hi",
      lastAgent: "main",
    });
    expect(usage).toEqual({
      requests: 4,
      input_tokens: 20,
      output_tokens: 4,
      total_tokens: 24,
      cache_read_tokens: 6,
      cache_write_tokens: 8,
    });
  });

  it("says how far the run has come, and how it ended", () => {
    const asked: EngineEvent = {
      type: "permission_request",
      id: "p1",
      toolName: "weather",
      input: { a: 1 },
      message: "",
    };
    const failed: EngineEvent = {
      type: "error",
      code: "api_overloaded",
      message: "m",
      suggestion: "s",
      retryable: true,
    };
    const states = [
      [],
      [start],
      [start, use("c1"), asked],
      [start, use("c1"), use("c2", { input: { a: 2 } }), asked],
      [start, done("max_tokens")],
      [start, done("cancelled")],
      [start, { ...ended(), costUsd: 0.5 } as EngineEvent, failed],
    ].map((events) => resultOf(...events));
    expect(states.map(({ state, reason }) => [state, reason])).toEqual([
      ["queued", ""],
      ["running", ""],
      ["waiting", ""],
      ["running", ""],
      ["done", "max_tokens"],
      ["cancelled", "cancelled"],
      ["error", "api_overloaded"],
    ]);
    expect(states.at(-1)).toMatchObject({
      error: { code: "api_overloaded", message: "m", suggestion: "s", retryable: true },
      costUsd: 0.5,
      endedAtMs: 1_000,
      finalOutput: null,
    });
    expect(states[1]).toMatchObject({ error: null, endedAtMs: null });
  });

  it("gives the value of a structured answer", () => {
    const structured = { ...done("", '{"a":1}'), output: { a: 1 } } as EngineEvent; // of an agent with an output
    expect(resultOf(start, ...text('{"a":1}'), ended(), structured).finalOutput).toEqual({ a: 1 });
  });
});

describe("the items of any run", () => {
  const cuts = fc.array(fc.nat(), { maxLength: 5 });

  it("RI-28, RI-35: fit their schemas and are the same on every reading, however often a reader is cut off", () => {
    fc.assert(
      fc.property(plannedRun, cuts, (planned, at) => {
        const records = recordsOf(planned);
        const items = runItems(planned.facts, records);
        for (const item of items) {
          expect(parseRunItem(JSON.parse(JSON.stringify(item)))).toEqual({ ok: true, value: item });
        }
        expect(runItems(planned.facts, cutAt(records, at))).toEqual(items);
        expect(resultOfRun(planned).newItems).toEqual(items);
      }),
    );
  });

  it("say what the run has said: its last texts are `final`, its calls are all there, each before its output", () => {
    fc.assert(
      fc.property(plannedRun, (planned) => {
        const { newItems, finalOutput } = resultOfRun(planned);
        const failed = planned.ending === "error";
        const steps = failed ? planned.steps.slice(0, -1) : planned.steps;
        const texts = newItems.map((item) => {
          if (item.type !== "message_output_item") return "";
          return item.rawItem.content
            .map((part) => (part.type === "refusal" ? part.refusal : textMessageOutput(item)))
            .join("");
        });
        expect(texts.join("")).toBe(steps.map(textOfStep).join(""));
        expect(finalOutput).toBe(failed ? null : finalOf(planned));
        const asked = newItems.flatMap(({ rawItem }) =>
          rawItem.type === "function_call" ? [rawItem.call_id] : [],
        );
        expect(asked).toEqual(planned.steps.flatMap(({ calls }) => calls.map(({ id }) => id)));
        const seen = new Set<string>();
        for (const { rawItem } of newItems) {
          if (rawItem.type === "function_call") seen.add(rawItem.call_id);
          if (rawItem.type === "function_call_output") {
            expect(seen.delete(rawItem.call_id)).toBe(true);
          }
        }
        expect(seen.size).toBe(0);
      }),
    );
  });

  it("RI-38: count what its steps have counted", () => {
    fc.assert(
      fc.property(plannedRun, (planned) => {
        const { usage, responseIds } = resultOfRun(planned);
        const count = planned.steps.length;
        expect(usage.input_tokens).toBe(10 * count);
        expect(usage.total_tokens).toBe(15 * count);
        const requests = planned.steps.reduce((sum, { broken }) => sum + broken.length + 1, 0);
        expect(usage.requests).toBe(planned.former ? count : requests);
        expect(responseIds).toEqual(
          planned.steps.map((_step, index) => (planned.former ? null : `resp_${index}`)),
        );
      }),
    );
  });

  it("RI-36: can be given to another run, which makes the same conversation of it", () => {
    fc.assert(
      fc.property(plannedRun, (planned) => {
        const list = [...resultOfRun(planned).toInputList(), { role: "user", content: "and now?" }];
        const parsed = parseInput(list);
        expect(parsed).toMatchObject({
          ok: true,
          value: { parts: [{ type: "text", text: "and now?" }] },
        });
        if (!parsed.ok) return;
        const { history } = parsed.value;
        const again = parseInput([
          ...conversationItems(history, "x"),
          userItemOf(parsed.value.parts),
        ]);
        expect(again).toEqual(parsed);
      }),
    );
  });
});
