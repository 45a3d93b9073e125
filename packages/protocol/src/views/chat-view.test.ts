import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { EngineEvent, EventRecord, PersonMessage } from "../event.ts";
import { parseMessage, StructuredModels, type AnyMessage } from "./chat-messages.ts";
import { toText } from "./chat-texts.ts";
import { MessageView, runMessages } from "./chat-view.ts";
import { problemsOf } from "./conformance.fixture.ts";
import { textMessageOutput } from "./item-helpers.ts";
import { runItems } from "./item-view.ts";
import {
  cutAt,
  finalOf,
  plannedRun,
  recordsOf,
  textOfStep,
  type PlannedRun,
} from "./run.fixture.ts";

const run = { runId: "api.s-1", sessionId: "s", agent: "main", startedAtMs: 1_000 };
const person: PersonMessage = {
  source: "Ann",
  parts: [{ type: "text", text: "hello" }],
  atMs: 500,
};

const start = (turnNumber = 1): EngineEvent => ({
  type: "turn_start",
  turnNumber,
  model: "m",
  contextWindowTokens: 1_000,
});
const use = { inputTokens: 10, outputTokens: 2, cacheReadTokens: 3, cacheCreationTokens: 4 };
const stepUsage = { prompt_tokens: 17, completion_tokens: 2 };
const ended = (turnNumber = 1): EngineEvent => ({
  type: "turn_end",
  turnNumber,
  ...use,
  costUsd: 0,
  maxTokens: 9,
});
const done = (reason = "", more: object = {}): EngineEvent => ({
  type: "done",
  totalInputTokens: 0,
  totalOutputTokens: 0,
  totalCostUsd: 0,
  turnCount: 1,
  reason,
  final: "",
  ...more,
});
const text = (words: string): EngineEvent[] => [
  { type: "text_delta", text: words },
  { type: "text", text: words },
];
const called = (
  id: string,
  toolName: string,
  input: Record<string, unknown> = {},
  more: object = {},
): EngineEvent => ({
  type: "tool_use",
  id,
  toolName,
  input,
  ...more,
});
const result = (id: string, toolName: string, output: string, more: object = {}): EngineEvent => ({
  type: "tool_result",
  id,
  toolName,
  output,
  isError: false,
  truncated: false,
  storedPath: "",
  ...more,
});

function recordsOfEvents(events: readonly EngineEvent[]): EventRecord[] {
  return events.map((event, index) => ({
    seq: index + 1,
    runId: run.runId,
    event,
    atMs: 1_000 + index,
    person,
  }));
}

/** The messages that come after the person's. */
function shown(...events: EngineEvent[]): AnyMessage[] {
  return runMessages(run, recordsOfEvents(events)).slice(1);
}

const brief = (messages: readonly AnyMessage[]) =>
  messages.map((message) => [message.type, toText(message)]);
const typesOf = (messages: readonly AnyMessage[]) => messages.map(({ type }) => type);

/** What the published schema of its class, and our own reader, have against a message. */
function problems(message: AnyMessage): string[] {
  const registry = new StructuredModels();
  registry.register("Note", { type: "object" });
  const parsed = parseMessage(JSON.parse(JSON.stringify(message)), registry);
  expect(parsed).toEqual({ ok: true, value: message });
  return problemsOf(
    message.type.startsWith("StructuredMessage") ? "StructuredMessage" : message.type,
    message,
  );
}

describe("the messages of a run", () => {
  it("begin with what the person said, and end with the answer", () => {
    const [said, ...rest] = runMessages(
      run,
      recordsOfEvents([start(), ...text("hi"), ended(), done()]),
    );
    expect(said).toStrictEqual({
      source: "Ann",
      models_usage: null,
      metadata: { run_id: "api.s-1", session_id: "s", seq: "1" },
      created_at: "1970-01-01T00:00:00.500Z",
      content: "hello",
      type: "TextMessage",
    });
    expect(rest).toStrictEqual([
      {
        source: "main",
        models_usage: null,
        metadata: { run_id: "api.s-1", session_id: "s", seq: "2" },
        created_at: "1970-01-01T00:00:01.001Z",
        content: "hi",
        type: "ModelClientStreamingChunkEvent",
      },
      {
        source: "main",
        models_usage: stepUsage,
        metadata: { run_id: "api.s-1", session_id: "s", seq: "5" },
        created_at: "1970-01-01T00:00:01.004Z",
        content: "hi",
        type: "TextMessage",
      },
    ]);
  });

  it("name the person as the place does, and hold images", () => {
    const ann: PersonMessage = {
      source: "Ann",
      parts: [
        { type: "text", text: "look" },
        { type: "image", source: { sourceType: "base64", mediaType: "image/png", data: "AAAA" } },
        { type: "image", source: { sourceType: "blob", mediaType: "image/png", blobId: "blob_1" } },
        { type: "file", name: "a.pdf", mediaType: "application/pdf", bytes: 1, state: "ready" },
      ],
      atMs: 500,
    };
    const [first] = recordsOfEvents([start()]);
    const [said] = runMessages(run, [{ ...(first as EventRecord), person: ann }]);
    expect(said).toMatchObject({
      type: "MultiModalMessage",
      content: ["look", { data: "AAAA" }, "[image]", "[file: a.pdf]"],
    });
  });

  it("CM-38: are in order those of the contract, for a run with everything", () => {
    const records = recordsOfEvents([
      start(),
      {
        type: "memory_query",
        query: "hello",
        items: [{ id: "m1", text: "likes tea", owner: "person" }],
        automatic: true,
      },
      { type: "thinking", text: "hm" },
      ...text("let me look"),
      called("c1", "weather", { city: "Paris" }, { step: { calls: 4, ...use } }),
      called("c2", "run_python", { code: "print(1)" }),
      called("c3", "ask_person"),
      called("c4", "research", { task: "t" }, { helper: "researcher" }),
      {
        type: "permission_request",
        id: "p1",
        toolName: "run_python",
        input: {},
        message: "may I?",
        toolCallId: "c2",
      },
      {
        type: "input_requested",
        requestId: "q1",
        callId: "c3",
        question: "which?",
        choices: [],
        expiresAtMs: 5,
      },
      result("c4", "research", "found"),
      result("c2", "run_python", "1\n", { result: { exitCode: 3, stdout: "1\n" } }),
      result("c1", "weather", "sunny"),
      result("c3", "ask_person", '{"answer":"this"}', { isError: true }),
      ended(),
      start(2),
      called(
        "c5",
        "transfer_to_writer",
        { reason: "a text" },
        { handoff: "writer", step: { calls: 1, ...use } },
      ),
      result("c5", "transfer_to_writer", "Transferred to writer."),
      ended(2),
      { type: "agent_changed", from: "main", to: "writer", reason: "handoff", callId: "c5" },
      start(3),
      ...text("a draft"),
      ended(3),
      { type: "agent_changed", from: "writer", to: "critic", reason: "selected", callId: "" },
      start(4),
      ...text('{"note":"good"}'),
      ended(4),
      done("", { output: { note: "good" }, outputName: "Note", outputFormat: "{note}" }),
    ]);
    const messages = runMessages(run, records);
    expect(brief(messages)).toEqual([
      ["TextMessage", "hello"],
      [
        "MemoryQueryEvent",
        '[{"content":"likes tea","mime_type":"text/plain","metadata":{"id":"m1","owner":"person"}}]',
      ],
      ["ThoughtEvent", "hm"],
      ["ModelClientStreamingChunkEvent", "let me look"],
      ["ThoughtEvent", "let me look"],
      [
        "ToolCallRequestEvent",
        '[{"id":"c1","arguments":"{\\"city\\":\\"Paris\\"}","name":"weather"},{"id":"c3","arguments":"{}","name":"ask_person"},{"id":"c4","arguments":"{\\"task\\":\\"t\\"}","name":"research"}]',
      ],
      ["CodeGenerationEvent", "```python\nprint(1)\n```"],
      ["UserInputRequestedEvent", ""],
      ["UserInputRequestedEvent", ""],
      [
        "ToolCallExecutionEvent",
        '[{"content":"sunny","name":"weather","call_id":"c1","is_error":false},{"content":"{\\"answer\\":\\"this\\"}","name":"ask_person","call_id":"c3","is_error":true},{"content":"found","name":"research","call_id":"c4","is_error":false}]',
      ],
      ["CodeExecutionEvent", "1\n"],
      ["ToolCallSummaryMessage", "found"],
      [
        "ToolCallRequestEvent",
        '[{"id":"c5","arguments":"{\\"reason\\":\\"a text\\"}","name":"transfer_to_writer"}]',
      ],
      [
        "ToolCallExecutionEvent",
        '[{"content":"Transferred to writer.","name":"transfer_to_writer","call_id":"c5","is_error":false}]',
      ],
      ["HandoffMessage", "a text"],
      ["ModelClientStreamingChunkEvent", "a draft"],
      ["TextMessage", "a draft"],
      ["SelectSpeakerEvent", '["critic"]'],
      ["ModelClientStreamingChunkEvent", '{"note":"good"}'],
      ["StructuredMessage[Note]", "good"],
    ]);
    expect(messages.flatMap(problems)).toEqual([]);
    const found = (type: string) => messages.filter((message) => message.type === type);
    expect(
      found("UserInputRequestedEvent").map(
        (message) => "request_id" in message && message.request_id,
      ),
    ).toEqual(["p1", "q1"]);
    expect(found("ToolCallSummaryMessage")[0]?.source).toBe("researcher");
    expect(found("CodeExecutionEvent")[0]).toMatchObject({
      retry_attempt: 0,
      result: { exit_code: 3 },
    });
    const [handoff] = found("HandoffMessage");
    expect(handoff).toMatchObject({ source: "main", target: "writer" });
    expect(handoff?.type === "HandoffMessage" && handoff.context.map(({ type }) => type)).toEqual([
      "UserMessage",
      "AssistantMessage",
      "FunctionExecutionResultMessage",
      "AssistantMessage",
      "FunctionExecutionResultMessage",
    ]);
  });

  it("pass nothing on where a hand-over says so, and the latest 20 messages otherwise", () => {
    const steps = Array.from({ length: 12 }, (_, index) => [
      start(index + 1),
      called(`c${index}`, "weather"),
      result(`c${index}`, "weather", `${index}`),
      ended(index + 1),
    ]).flat();
    const change: EngineEvent = {
      type: "agent_changed",
      from: "main",
      to: "b",
      reason: "handoff",
      callId: "",
    };
    const context = (...events: EngineEvent[]) =>
      shown(...steps, ...events).flatMap((message) =>
        "context" in message ? [message.context] : [],
      )[0] ?? [];
    expect(context(change)).toHaveLength(20);
    expect(context({ ...change, context: "last" })).toEqual([]);
  });

  it("count the code calls in a row that failed before", () => {
    const attempt = (index: number, exitCode: number) => [
      start(index),
      called(`c${index}`, "run_shell", { code: "x" }),
      result(`c${index}`, "run_shell", "", { result: { exitCode } }),
      ended(index),
    ];
    const attempts = (...events: EngineEvent[]) =>
      shown(...events).flatMap((message) =>
        message.type === "CodeExecutionEvent"
          ? [[message.retry_attempt, message.result.exit_code]]
          : [],
      );
    expect(
      attempts(...attempt(1, 3), ...attempt(2, 3), ...attempt(3, 0), ...attempt(4, 0)),
    ).toEqual([
      [0, 3],
      [1, 3],
      [2, 0],
      [0, 0],
    ]);
    const cut = '{"exitCode":4,"stdout":"1\\n2 [90 of 99 characters are left out here] 3"}';
    const long = [
      start(),
      called("c", "run_shell", { command: "x" }),
      result("c", "run_shell", cut),
      ended(),
    ];
    expect(attempts(...long)).toEqual([[0, 4]]);
    const between = [start(2), called("w", "weather"), result("w", "weather", ""), ended(2)];
    expect(attempts(...attempt(1, 3), ...between, ...attempt(3, 0))).toEqual([
      [0, 3],
      [0, 0],
    ]);
    const refused = result("c1", "run_shell", "permission_denied: no", { isError: true });
    expect(
      attempts(start(), called("c1", "run_shell", { command: "ls" }), refused, ended()),
    ).toEqual([[0, 1]]);
  });

  it("fence code so that it stays whole", () => {
    const [generated] = shown(start(), called("c", "run_python", { code: "a = '```'" }), ended());
    expect(generated).toMatchObject({
      content: "````python\na = '```'\n````",
      code_blocks: [{ code: "a = '```'", language: "python" }],
    });
  });

  it("end with a StopMessage where the run was stopped, came to a limit, or failed", () => {
    const partial: EngineEvent = { type: "text_delta", text: "half" };
    expect(brief(shown(start(), partial, ended(), done("cancelled")).slice(1))).toEqual([
      ["TextMessage", "half"],
      ["StopMessage", "cancelled"],
    ]);
    const failed: EngineEvent = {
      type: "error",
      code: "budget_exceeded",
      message: "",
      suggestion: "",
      retryable: false,
    };
    const last = (...events: EngineEvent[]) => shown(...events).at(-1);
    expect(last(start(), partial, ended(), failed)).toMatchObject({
      type: "StopMessage",
      content: "budget_exceeded",
      models_usage: stepUsage,
    });
    expect(last(start(), ...text("a"), ended(), done("max_tokens"))).toMatchObject({
      type: "StopMessage",
      content: "max_tokens",
    });
    expect(last(start(), ...text("no"), ended(), done("refusal"))).toMatchObject({
      type: "TextMessage",
      content: "no",
    });
    const looked = [
      start(),
      ...text("let me look"),
      called("c", "weather"),
      result("c", "weather", ""),
      ended(),
    ];
    expect(typesOf(shown(...looked, done("max_turns_reached"))).slice(-2)).toEqual([
      "ToolCallExecutionEvent",
      "StopMessage",
    ]);
  });

  it("say that an attempt was not the first, and nothing of a restart", () => {
    const restart: EngineEvent = {
      type: "step_restarted",
      turnNumber: 1,
      model: "m",
      reason: "crash",
    };
    const messages = shown(start(), ...text("half"), restart, ...text("whole"), ended(), done());
    expect(messages.map(({ type, metadata }) => [type, metadata["attempt"]])).toEqual([
      ["ModelClientStreamingChunkEvent", undefined],
      ["ModelClientStreamingChunkEvent", "2"],
      ["TextMessage", "2"],
    ]);
    expect(brief(messages).at(-1)).toEqual(["TextMessage", "whole"]);
  });

  it("show a structured answer as text where its form is not named", () => {
    expect(brief(shown(start(), ...text("{}"), ended(), done("", { output: {} }))).at(-1)).toEqual([
      "TextMessage",
      "{}",
    ]);
  });
});

describe("the messages of any run", () => {
  const told = (planned: PlannedRun): EventRecord[] =>
    recordsOf(planned).map((record) => ({ ...record, person }));
  const messagesOf = (planned: PlannedRun, records = told(planned)) =>
    runMessages(planned.facts, records);

  it("CM-1, CM-39, CM-43: fit their schemas and are the same for every follower, wherever it was cut off", () => {
    fc.assert(
      fc.property(
        plannedRun,
        fc.array(fc.nat(), { maxLength: 5 }),
        fc.nat(60),
        (planned, cuts, seen) => {
          const records = told(planned);
          const messages = messagesOf(planned);
          expect(messages.flatMap(problems)).toEqual([]);
          expect(messagesOf(planned, cutAt(records, cuts))).toEqual(messages);
          // One from the middle has seen what is up to a position.
          const isNew = ({ metadata }: AnyMessage) => Number(metadata["seq"]) > seen;
          const view = new MessageView(planned.facts);
          const later = records.flatMap((record) => view.push(record)).filter(isNew);
          expect(later).toEqual(messages.filter(isNew));
          const positions = messages.map(({ metadata }) => Number(metadata["seq"]));
          expect(positions).toEqual(positions.toSorted((left, right) => left - right));
        },
      ),
    );
  });

  it("CM-40: have chunks that add up to the message after them, without those before a restart", () => {
    fc.assert(
      fc.property(plannedRun, (planned) => {
        let chunks = { attempt: "", text: "" };
        let thoughts = 0;
        for (const message of messagesOf(planned).slice(1)) {
          const attempt = message.metadata["attempt"] ?? "1";
          if (message.type === "ModelClientStreamingChunkEvent") {
            chunks = {
              attempt,
              text: (chunks.attempt === attempt ? chunks.text : "") + message.content,
            };
          } else if (message.type === "TextMessage") {
            expect(message.content).toBe(chunks.attempt === attempt ? chunks.text : "");
            chunks = { attempt: "", text: "" };
          } else if (
            message.type === "ToolCallRequestEvent" ||
            message.type === "CodeGenerationEvent"
          ) {
            chunks = { attempt: "", text: "" };
          } else if (message.type === "ThoughtEvent" && message.content === chunks.text) {
            thoughts += 1;
          }
        }
        expect(thoughts).toBeGreaterThanOrEqual(
          planned.steps.filter((step) => step.calls.length > 0 && textOfStep(step) !== "").length,
        );
      }),
    );
  });

  it("CM-41: carry every token that the run has used", () => {
    fc.assert(
      fc.property(plannedRun, (planned) => {
        const usages = messagesOf(planned).flatMap(({ models_usage }) => models_usage ?? []);
        const sum = (numbers: number[]) => numbers.reduce((total, one) => total + one, 0);
        const count = planned.steps.length;
        // The version before has not stored what caches served.
        expect(sum(usages.map(({ prompt_tokens }) => prompt_tokens))).toBe(
          (planned.former ? 10 : 15) * count,
        );
        expect(sum(usages.map(({ completion_tokens }) => completion_tokens))).toBe(5 * count);
      }),
    );
  });

  it("say the same texts and calls as its items, in the same order", () => {
    fc.assert(
      fc.property(plannedRun, (planned) => {
        const messages = messagesOf(planned);
        const items = runItems(planned.facts, recordsOf(planned));
        const asked = messages.flatMap((message) =>
          message.type === "ToolCallRequestEvent" ? message.content.map(({ id }) => id) : [],
        );
        const code = planned.steps.flatMap(({ calls }) =>
          calls.flatMap(({ id, kind }) => (kind === "code" ? [id] : [])),
        );
        const wanted = items.flatMap(({ rawItem }) =>
          rawItem.type === "function_call" ? [rawItem.call_id] : [],
        );
        expect(asked).toEqual(wanted.filter((id) => !code.includes(id)));
        const last = messages.findLast(
          (message, index) => index > 0 && message.type === "TextMessage",
        );
        const lastTexts = items.flatMap((item) =>
          item.type === "message_output_item" ? [textMessageOutput(item)] : [],
        );
        const isAnswer =
          planned.ending !== "error" &&
          planned.ending !== "refusal" &&
          (planned.steps.at(-1)?.calls.length ?? 0) === 0;
        if (isAnswer && last !== undefined && finalOf(planned) !== "") {
          expect(toText(last)).toBe(finalOf(planned));
          expect(lastTexts.join("").endsWith(toText(last))).toBe(true);
        }
      }),
    );
  });
});
