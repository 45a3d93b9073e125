import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  agentChanges,
  engineEventTypes,
  type EngineEvent,
  type EngineEventType,
  type EventRecord,
} from "../event.ts";
import { parseMessage, StructuredModels } from "./chat-messages.ts";
import { toText } from "./chat-texts.ts";
import { runMessages } from "./chat-view.ts";
import { problemsOf } from "./conformance.fixture.ts";
import { parseRunRecord } from "./engine-events.ts";
import { engineRecords } from "./engine-view.ts";
import { ItemView, runItems } from "./item-view.ts";
import { parseRunItem } from "./run-items.ts";
import { cutAt } from "./run.fixture.ts";

// Events that fit their schemas, in any order: no worker writes them so, but no view may fail because of it.

const text = fc.constantFrom("", "a", "你好", "permission_denied: no", "`", "transfer_to_b");
const id = fc.constantFrom("c1", "c2", "c3");
const agent = fc.constantFrom("main", "writer", "");
const count = fc.nat(1_000);
const input = fc.constantFrom<Record<string, unknown>>(
  {},
  { code: "1" },
  { reason: "r" },
  { code: 5 },
);
const turnNumber = fc.integer({ min: 1, max: 3 });
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined, freq: 2 });
const toolName = fc.constantFrom("weather", "run_python", "run_shell", "transfer_to_b");
const use = {
  inputTokens: count,
  outputTokens: count,
  cacheReadTokens: count,
  cacheCreationTokens: count,
};
const vendorItems = optional(
  fc.constant([{ type: "compaction" }, { type: "web_search_call", id: "w", status: "completed" }]),
);

const vendorMessage = {
  type: "message",
  id: "msg_1",
  role: "assistant",
  status: "completed",
  content: [],
};

const fields: { [T in EngineEventType]: Record<string, fc.Arbitrary<unknown>> } = {
  text_delta: { text },
  text: {
    text,
    vendorItems,
    vendorItem: optional(fc.constantFrom(vendorMessage, { type: "message" })),
  },
  thinking_delta: { text },
  thinking: {
    text,
    vendorItems,
    vendorItem: optional(fc.constant({ type: "reasoning", id: "rs_1", summary: [] })),
  },
  tool_use: {
    id,
    toolName,
    input,
    vendorItems,
    step: optional(fc.record({ calls: fc.integer({ min: 1, max: 3 }), ...use })),
    handoff: optional(agent),
    helper: optional(agent),
    mcp: optional(
      fc.constantFrom(
        { server: "s" },
        { server: "s", tools: [{ name: "n", description: "", inputSchema: {} }] },
      ),
    ),
  },
  tool_progress: { id, toolName, progress: fc.double({ noNaN: true }), detail: text },
  tool_result: {
    id,
    toolName,
    output: text,
    isError: fc.boolean(),
    truncated: fc.boolean(),
    storedPath: fc.constantFrom("", "res_1"),
    result: optional(fc.oneof(fc.constantFrom({ exitCode: 3 }, { exitCode: 0.5 }), fc.jsonValue())),
    code: optional(text),
  },
  tool_summary: { id, toolName, summary: text.filter((one) => one.length <= 20) },
  turn_start: { turnNumber, model: text, contextWindowTokens: count },
  turn_end: {
    turnNumber,
    ...use,
    costUsd: fc.double({ min: 0, max: 1, noNaN: true }),
    maxTokens: count,
    vendorItems,
    attempts: optional(count),
    responseId: optional(fc.constantFrom(null, "resp_1")),
  },
  usage: { ...use, stopReason: text },
  compact: { summary: text, tokensBefore: count, tokensAfter: count },
  checkpoint: { toolCallId: id, toolName, input, message: text },
  checkpoint_suggested: { toolCallId: id, toolName, input, riskReason: text, riskPattern: text },
  permission_request: { id: text, toolName, input, message: text, toolCallId: optional(id) },
  permission_learn: { rules: fc.constant([]) },
  session_info: {
    sessionId: text,
    title: text,
    turnCount: count,
    inputTokens: count,
    outputTokens: count,
    costUsd: fc.constant(0),
  },
  slash_command: { name: text, args: text },
  warning: {
    code: fc.constantFrom("budget_near_limit", "token_usage_high"),
    message: text,
    detail: text,
  },
  error: { message: text, code: text, suggestion: text, retryable: fc.boolean() },
  done: {
    totalInputTokens: count,
    totalOutputTokens: count,
    totalCostUsd: fc.constant(0),
    turnCount: count,
    reason: fc.constantFrom("", "cancelled", "refusal", "max_tokens", "joined"),
    final: text,
    output: optional(fc.constantFrom<unknown>({ a: 1 }, null, [])),
    outputName: optional(fc.constant("Note")),
    outputFormat: optional(fc.constant("x")),
  },
  inbox_message: {
    messageType: fc.constantFrom("progress", "log", "result"),
    toolUseId: id,
    data: text,
    meta: text,
  },
  teammate_message_received: {
    from: agent,
    to: agent,
    messageType: text,
    messageId: text,
    payloadSize: count,
  },
  step_restarted: { turnNumber, model: text, reason: text },
  agent_changed: {
    from: agent,
    to: agent,
    reason: fc.constantFrom(...agentChanges),
    callId: id,
    context: optional(fc.constantFrom("all", "last")),
  },
  input_requested: {
    requestId: text,
    callId: id,
    question: text,
    choices: fc.constant([]),
    expiresAtMs: count,
  },
  memory_query: {
    query: text,
    items: fc.constantFrom([], [{ id: "m", text: "t", owner: "chat" }]),
    automatic: fc.boolean(),
  },
};

/** An event of any type, without the fields that came out as undefined. */
const anyEvent: fc.Arbitrary<EngineEvent> = fc
  .constantFrom(...engineEventTypes)
  .chain((type) => fc.record({ type: fc.constant(type), ...fields[type] }))
  .map(
    (event) =>
      Object.fromEntries(
        Object.entries(event).filter(([, value]) => value !== undefined),
      ) as unknown as EngineEvent,
  ); // by its table

const run = { runId: "api.s-1", sessionId: "s", agent: "main", startedAtMs: 0 };
const person = { source: "Ann", parts: [{ type: "text", text: "hello" } as const], atMs: 0 };

const anyRecords: fc.Arbitrary<EventRecord[]> = fc
  .array(
    fc.record({
      event: anyEvent,
      atMs: optional(fc.nat(4_000_000_000_000)),
      agent: optional(agent),
    }),
    {
      maxLength: 40,
    },
  )
  .map((records) =>
    records.map(({ event, atMs, agent: speaker }, index) => ({
      seq: index + 1,
      runId: run.runId,
      event,
      person,
      ...(atMs === undefined ? {} : { atMs }),
      ...(speaker === undefined ? {} : { agent: speaker }),
    })),
  );

const registry = new StructuredModels();
registry.register("Note", { type: "object" });

describe("events in any order", () => {
  it("are shown in every view, as its schemas say, and the same to a reader that is cut off", () => {
    fc.assert(
      fc.property(anyRecords, fc.array(fc.nat(), { maxLength: 3 }), (records, cuts) => {
        const again = cutAt(records, cuts);
        const shown = engineRecords(run, records);
        for (const record of shown) {
          expect(parseRunRecord(record)).toEqual({ ok: true, value: record });
        }
        expect(engineRecords(run, again)).toEqual(shown);

        const items = runItems(run, records);
        for (const item of items) expect(parseRunItem(item)).toEqual({ ok: true, value: item });
        expect(runItems(run, again)).toEqual(items);

        const messages = runMessages(run, records);
        for (const message of messages) {
          const name = message.type.startsWith("StructuredMessage")
            ? "StructuredMessage"
            : message.type;
          expect(problemsOf(name, message)).toEqual([]);
          expect(parseMessage(message, registry)).toEqual({ ok: true, value: message });
          expect(typeof toText(message)).toBe("string");
        }
        expect(runMessages(run, again)).toEqual(messages);
      }),
      { numRuns: 300 },
    );
  });

  it("have a result that can be asked for at any time, and that JSON holds", () => {
    fc.assert(
      fc.property(anyRecords, (records) => {
        const view = new ItemView(run, [{ role: "user", content: "hello" }]);
        for (const record of records) {
          view.push(record);
          const { toInputList, ...result } = view.result();
          expect(JSON.parse(JSON.stringify(result))).toEqual(result);
          const shown = new Set(result.newItems.map(({ rawItem }) => JSON.stringify(rawItem)));
          const unshown = result.rawResponses.flatMap(({ output }) =>
            output.filter((raw) => !shown.has(JSON.stringify(raw))),
          );
          expect(toInputList()).toHaveLength(1 + result.newItems.length + unshown.length);
        }
      }),
      { numRuns: 50 },
    );
  });
});
