import type { Message } from "@larkline/protocol/content";
import type { ModelChunk, ModelFailure, ToolCallDelta } from "@larkline/protocol/model-stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { LlmBackend, ModelRequest } from "./backend.ts";
import { findModelInfo } from "./model-catalog.ts";

/** What the suite makes the vendor's server say. */
export interface SuiteReply {
  thinking?: { text: string; signature?: string };
  text?: string | readonly string[];
  calls?: readonly { id?: string; name: string; arguments: Record<string, unknown> | string }[];
  interleaved?: boolean;
  stopReason?: string;
  usage?: { inputTokens?: number; outputTokens?: number; cacheReadTokens?: number };
  responseId?: string;
  delayMs?: number;
  fault?:
    | {
        kind: "status";
        status: number;
        headers?: Record<string, string>;
        message?: string;
        type?: string;
        body?: string;
      }
    | { kind: "pinging"; afterFrames: number; everyMs: number }
    | { kind: "cut" | "end" | "hang" | "garbage"; afterFrames: number }
    | { kind: "error_event"; afterFrames: number; type: string; message: string };
}

/** A backend of the adapter under test, connected to a server that says what the test sets. */
export interface BackendHarness {
  backend: LlmBackend;
  /** A backend whose key the server does not accept. */
  strangerBackend: LlmBackend;
  provider: string;
  model: string;
  say(reply: SuiteReply): void;
  /** Bodies the server received, oldest first. */
  bodies(): Record<string, unknown>[];
  /** Answers the client broke off so far. */
  aborted(): number;
  close(): Promise<void>;
}

const user = (text: string): Message => ({ role: "user", content: [{ type: "text", text }] });

const toolRound = (isError = false): Message[] => [
  user("what is 6*7?"),
  {
    role: "assistant",
    content: [
      { type: "text", text: "Let me see." },
      { type: "tool_use", id: "c1", name: "calculator", arguments: { expression: "6*7" } },
      { type: "tool_use", id: "c2", name: "clock", arguments: {} },
    ],
  },
  { role: "tool", content: [{ type: "tool_result", toolCallId: "c1", content: "42", isError }] },
  {
    role: "tool",
    content: [{ type: "tool_result", toolCallId: "c2", content: "noon", isError: false }],
  },
];

const tool = (name: string) => ({
  name,
  description: name,
  inputSchema: { type: "object", properties: {} },
});

async function collect(chunks: AsyncIterable<ModelChunk>): Promise<ModelChunk[]> {
  const all: ModelChunk[] = [];
  for await (const chunk of chunks) if (chunk.type !== "usage_so_far") all.push(chunk);
  return all;
}

function textIn(chunks: readonly ModelChunk[]): string {
  return chunks.map((chunk) => (chunk.type === "text_delta" ? chunk.text : "")).join("");
}

/** Calls as the agent assembles them: by index, first id and name that are not empty. */
function callsIn(chunks: readonly ModelChunk[]): { id: string; name: string; arguments: string }[] {
  const deltas = chunks.filter((chunk): chunk is ToolCallDelta => chunk.type === "tool_call_delta");
  const indexes = [...new Set(deltas.map((delta) => delta.index))].sort((a, b) => a - b);
  return indexes.map((index) => {
    const own = deltas.filter((delta) => delta.index === index);
    return {
      id: own.find((delta) => delta.id)?.id ?? "",
      name: own.find((delta) => delta.name)?.name ?? "",
      arguments: own.map((delta) => delta.arguments).join(""),
    };
  });
}

function failureIn(chunks: readonly ModelChunk[]): ModelFailure {
  const last = chunks.at(-1);
  if (last?.type !== "error") throw new Error(`no failure: ${JSON.stringify(chunks)}`);
  return last;
}

async function until(fact: () => boolean): Promise<void> {
  const deadlineMs = Date.now() + 60_000;
  while (!fact()) {
    if (Date.now() > deadlineMs) throw new Error("the fact did not come true within a minute");
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** The contract of {@link LlmBackend}, for any adapter. */
export function describeBackend(name: string, open: () => Promise<BackendHarness>): void {
  describe(name, () => {
    let harness: BackendHarness;

    beforeEach(async () => {
      harness = await open();
    });
    afterEach(() => harness.close());

    const ask = (request: Partial<ModelRequest> = {}, signal?: AbortSignal) =>
      collect(
        harness.backend.stream(
          { model: harness.model, messages: [user("hello")], ...request },
          signal,
        ),
      );
    const lastBody = () => harness.bodies().at(-1) ?? {};
    const facts = () => findModelInfo(harness.provider, harness.model);

    describe("answers", () => {
      it("EE-10: streams text and ends in one stop with raw token counts", async () => {
        harness.say({
          text: ["你好", ", ", "world"],
          usage: { inputTokens: 12, outputTokens: 3, cacheReadTokens: 5 },
        });
        const chunks = await ask();
        expect(textIn(chunks)).toBe("你好, world");
        expect(chunks.filter((chunk) => chunk.type === "message_stop")).toHaveLength(1);
        expect(chunks.at(-1)).toMatchObject({
          type: "message_stop",
          stopReason: "end_turn",
          usage: { inputTokens: 12, outputTokens: 3, cacheReadTokens: 5, cacheCreationTokens: 0 },
        });
      });

      it.each([
        ["as the vendor says it", "resp-of-vendor", "resp-of-vendor"],
        ["left out where the vendor has none", "", undefined],
        ["left out where it cannot be one", "x".repeat(1_000), undefined],
      ])("the id of the answer is %s", async (_how, responseId, expected) => {
        harness.say({ text: "hello", responseId });
        const stop = (await ask()).at(-1);
        expect(stop).toMatchObject({ type: "message_stop" });
        expect(stop?.type === "message_stop" ? stop.responseId : "none").toBe(expected);
      });

      it("delivers parallel calls with text before them", async () => {
        harness.say({
          text: "Looking.",
          calls: [
            { id: "a", name: "one", arguments: { city: "上海" } },
            { id: "b", name: "two", arguments: {} },
          ],
        });
        const chunks = await ask({ tools: [tool("one"), tool("two")] });
        expect(textIn(chunks)).toBe("Looking.");
        expect(callsIn(chunks)).toEqual([
          { id: "a", name: "one", arguments: '{"city":"上海"}' },
          { id: "b", name: "two", arguments: "{}" },
        ]);
        expect(chunks.at(-1)).toMatchObject({ type: "message_stop", stopReason: "tool_use" });
      });

      it("SA-7: fragments of interleaved calls, the later index first, stay with their calls", async () => {
        harness.say({
          interleaved: true,
          calls: [
            { id: "a", name: "one", arguments: { x: 1 } },
            { id: "b", name: "two", arguments: { y: [2, 3] } },
          ],
        });
        const chunks = await ask({ tools: [tool("one"), tool("two")] });
        expect(callsIn(chunks)).toEqual([
          { id: "a", name: "one", arguments: '{"x":1}' },
          { id: "b", name: "two", arguments: '{"y":[2,3]}' },
        ]);
      });

      it("hands on arguments that are no JSON as they are", async () => {
        harness.say({
          calls: [{ id: "a", name: "one", arguments: '{"x": tru' }],
          stopReason: "max_tokens",
        });
        const chunks = await ask({ tools: [tool("one")] });
        expect(callsIn(chunks)).toEqual([{ id: "a", name: "one", arguments: '{"x": tru' }]);
        expect(chunks.at(-1)).toMatchObject({ stopReason: "max_tokens" });
      });

      it("names a refusal", async () => {
        harness.say({ text: "I cannot help with that.", stopReason: "refusal" });
        expect((await ask()).at(-1)).toMatchObject({ type: "message_stop", stopReason: "refusal" });
      });

      it("ends an empty answer like any other", async () => {
        harness.say({});
        const chunks = await ask();
        expect(textIn(chunks)).toBe("");
        expect(chunks.at(-1)).toMatchObject({ type: "message_stop", stopReason: "end_turn" });
      });
    });

    describe("requests", () => {
      it("sends a history with parallel calls and separate results so that the vendor takes it", async () => {
        harness.say({ text: "42 at noon" });
        expect((await ask({ messages: toolRound() })).at(-1)).toMatchObject({
          type: "message_stop",
        });
      });

      it("sends messages of people that follow one another, also after results, so that the vendor takes them", async () => {
        harness.say({ text: "all of it" });
        const messages = [
          user("first"),
          user("second"),
          ...toolRound(),
          user("third"),
          user("fourth"),
        ];
        expect((await ask({ messages })).at(-1)).toMatchObject({ type: "message_stop" });
        expect(JSON.stringify(lastBody())).toMatch(/first[^]*second[^]*third[^]*fourth/);
      });

      it("lets the model see that a tool failed", async () => {
        harness.say({ text: "sorry" });
        await ask({ messages: toolRound(true) });
        expect(JSON.stringify(lastBody())).toMatch(/"is_error":true|"Error: 42"/);
      });

      it("EE-20: temperature null is absent from the request, 0 is present", async () => {
        harness.say({ text: "ok" });
        await ask({ temperature: null });
        expect(lastBody()).not.toHaveProperty("temperature");
        await ask({ temperature: 0 });
        expect(lastBody()).toHaveProperty("temperature", 0);
      });

      it("EE-21: topP null is absent from the request", async () => {
        harness.say({ text: "ok" });
        await ask({ topP: null });
        expect(lastBody()).not.toHaveProperty("top_p");
        await ask({ topP: 0.5 });
        expect(lastBody()).toHaveProperty("top_p", 0.5);
      });

      it("EE-22: an out-of-range value is sent unchanged and the vendor's refusal is the answer", async () => {
        harness.say({ text: "ok" });
        const chunks = await ask({ temperature: 7 });
        expect(lastBody()).toHaveProperty("temperature", 7);
        expect(failureIn(chunks)).toMatchObject({
          code: "api_bad_request",
          retryable: false,
          partial: false,
        });
      });

      it("SA-39: an unset temperature and an empty tool list are not transmitted", async () => {
        harness.say({ text: "ok" });
        await ask({ tools: [] });
        expect(lastBody()).not.toHaveProperty("temperature");
        expect(lastBody()).not.toHaveProperty("tools");
      });

      it("EE-26: thinking asked of a model without it changes nothing and warns of nothing", async () => {
        harness.say({ text: "ok" });
        const capabilities = { ...facts(), supportsThinking: false };
        const chunks = await ask({ needsThinking: true, capabilities });
        expect(new Set(chunks.map((chunk) => chunk.type))).toEqual(
          new Set(["text_delta", "message_stop"]),
        );
        for (const field of ["thinking", "reasoning", "reasoning_effort"]) {
          expect(lastBody()).not.toHaveProperty(field);
        }
      });

      it("EE-27: systemBlocks beat system when not empty, an empty list falls back to it", async () => {
        harness.say({ text: "ok" });
        await ask({ system: "plain", systemBlocks: [{ text: "in blocks", cacheScope: "" }] });
        expect(JSON.stringify(lastBody())).toContain("in blocks");
        expect(JSON.stringify(lastBody())).not.toContain("plain");
        await ask({ system: "plain", systemBlocks: [] });
        expect(JSON.stringify(lastBody())).toContain("plain");
      });

      it("EE-28: a schema is in the request to a model that takes one, and in no other", async () => {
        harness.say({ text: "{}" });
        const responseFormat = {
          type: "json_schema",
          name: "n",
          jsonSchema: { title: "marker" },
        } as const;
        await ask({ responseFormat, capabilities: { ...facts(), supportsJsonSchema: true } });
        expect(JSON.stringify(lastBody())).toContain("marker");
        await ask({ responseFormat, capabilities: { ...facts(), supportsJsonSchema: false } });
        expect(JSON.stringify(lastBody())).not.toContain("marker");
      });

      it("EE-28: json_schema without a schema is refused before it is sent", async () => {
        const chunks = await ask({ responseFormat: { type: "json_schema" } });
        expect(failureIn(chunks).code).toBe("api_bad_request");
        expect(harness.bodies()).toEqual([]);
      });

      it("EE-29: without capabilities the built-in ones hold, a given snapshot is never changed", async () => {
        harness.say({ text: "ok" });
        expect((await ask({ capabilities: null })).at(-1)).toMatchObject({ type: "message_stop" });
        const snapshot = Object.freeze(facts());
        const messages = toolRound();
        const before = JSON.stringify(messages);
        expect((await ask({ capabilities: snapshot, messages })).at(-1)).toMatchObject({
          type: "message_stop",
        });
        expect(snapshot).toEqual(facts());
        expect(JSON.stringify(messages)).toBe(before);
      });

      it("EE-30: more tools than a proven limit are refused locally, than a known lower bound sent", async () => {
        harness.say({ text: "ok" });
        const tools = Array.from({ length: 21 }, (_, n) => tool(`t${n}`));
        const proven = { ...facts(), maxTools: 20, maxToolsExhaustive: true };
        expect(failureIn(await ask({ tools, capabilities: proven })).code).toBe("api_bad_request");
        expect(harness.bodies()).toEqual([]);
        const bound = { ...proven, maxToolsExhaustive: false };
        expect((await ask({ tools, capabilities: bound })).at(-1)).toMatchObject({
          type: "message_stop",
        });
      });

      it("EE-34: result parts are sent as a list, a text result as a text", async () => {
        harness.say({ text: "ok" });
        const call = { type: "tool_use" as const, id: "c1", name: "look", arguments: {} };
        const parts = [{ type: "text" as const, text: "as a part" }];
        const history = (content: string | typeof parts): Message[] => [
          user("go"),
          { role: "assistant", content: [call] },
          {
            role: "tool",
            content: [{ type: "tool_result", toolCallId: "c1", content, isError: false }],
          },
        ];
        await ask({ messages: history(parts) });
        expect(JSON.stringify(lastBody())).toMatch(
          /"(?:content|output)":\[\{"type":"(?:input_)?text","text":"as a part"/,
        );
        await ask({ messages: history("as a text") });
        expect(JSON.stringify(lastBody())).toMatch(/"(?:content|output)":"as a text"/);
      });

      it("EE-36: an image for a model without vision is an error", async () => {
        const image = {
          type: "image" as const,
          source: { sourceType: "url" as const, url: "https://example.com/a.png" },
        };
        const messages: Message[] = [{ role: "user", content: [image] }];
        const blind = { ...facts(), supportsVision: false };
        expect(failureIn(await ask({ messages, capabilities: blind })).code).toBe(
          "api_bad_request",
        );
        harness.say({ text: "a picture" });
        expect((await ask({ messages })).at(-1)).toMatchObject({ type: "message_stop" });
      });

      it("EE-33: thinking returns to the vendor byte for byte", async () => {
        const signature = "EqQB/+zaAAA==\u2028bytes";
        harness.say({
          thinking: { text: "Let me think 想一想", signature },
          calls: [{ id: "c1", name: "look", arguments: {} }],
        });
        const chunks = await ask({ needsThinking: true, tools: [tool("look")] });
        const deltas = chunks.filter((chunk) => chunk.type === "thinking_delta");
        const thinking = {
          type: "thinking" as const,
          text: deltas.map((delta) => delta.text).join(""),
          providerMetadata: Object.assign(
            {},
            ...deltas.map((delta) => delta.providerMetadata ?? {}),
          ),
        };
        expect(thinking.text).toBe("Let me think 想一想");
        harness.say({ text: "done" });
        const messages: Message[] = [
          user("hello"),
          {
            role: "assistant",
            content: [thinking, { type: "tool_use", id: "c1", name: "look", arguments: {} }],
          },
          {
            role: "tool",
            content: [{ type: "tool_result", toolCallId: "c1", content: "seen", isError: false }],
          },
        ];
        const again = await ask({ needsThinking: true, tools: [tool("look")], messages });
        expect(again.at(-1)).toMatchObject({ type: "message_stop" });
        expect(JSON.stringify(lastBody())).toContain(JSON.stringify("Let me think 想一想"));
        // Chat Completions has no signatures; what it has is the text.
        if (JSON.stringify(thinking.providerMetadata).includes("EqQB")) {
          expect(JSON.stringify(lastBody())).toContain(JSON.stringify(signature));
        }
      });
    });

    describe("failures", () => {
      const refusals = [
        [401, {}, "api_auth_error", false],
        [403, {}, "api_auth_error", false],
        [400, {}, "api_bad_request", false],
        [404, {}, "api_bad_request", false],
        [429, { "retry-after": "3" }, "api_rate_limit", true],
        [500, {}, "api_overloaded", true],
        [503, {}, "api_overloaded", true],
        [529, {}, "api_overloaded", true],
      ] as const;
      for (const [status, headers, code, retryable] of refusals) {
        it(`calls status ${status} ${code}`, async () => {
          harness.say({ fault: { kind: "status", status, headers, message: "no" } });
          const failure = failureIn(await ask());
          expect(failure).toMatchObject({ code, retryable, partial: false });
          expect(failure.retryAfterMs).toBe(status === 429 ? 3_000 : undefined);
        });
      }

      it("asks once: repeating is the chain's work", async () => {
        harness.say({ fault: { kind: "status", status: 503 } });
        await ask();
        expect(harness.bodies()).toHaveLength(1);
      });

      it("calls a prompt that is too long a context overflow", async () => {
        const message = "prompt is too long: 209382 tokens > 200000 maximum";
        harness.say({
          fault: { kind: "status", status: 400, message, type: "invalid_request_error" },
        });
        expect(failureIn(await ask())).toMatchObject({
          code: "context_overflow",
          retryable: false,
        });
      });

      it("EE-57: calls what speaks of the account a matter of it, whatever the status", async () => {
        for (const [status, message] of [
          [400, "Your credit balance is too low to access the API."],
          [429, "You exceeded your current quota, please check your plan and billing details."],
          [500, "Billing hard limit has been reached"],
        ] as const) {
          harness.say({ fault: { kind: "status", status, message } });
          const failure = failureIn(await ask());
          expect(failure).toMatchObject({
            code: "api_auth_error",
            retryable: false,
            vendor: { message },
          });
          expect(failure.suggestion).toContain("account");
        }
      });

      it("EE-57: shows the page of a proxy as its status", async () => {
        const body = "<html><h1>Bad gateway of load balancer 10.0.0.7</h1></html>";
        harness.say({ fault: { kind: "status", status: 502, body } });
        const failure = failureIn(await ask());
        expect(failure).toMatchObject({
          code: "api_overloaded",
          retryable: true,
          vendor: { message: "status 502" },
        });
        expect(failure.message).toContain("status 502");
        expect(JSON.stringify(failure)).not.toContain("10.0.0.7");
      });

      it("EE-51: keeps the vendor's words and its request id apart from ours", async () => {
        const message = `max_tokens: too large for ${"x".repeat(600)}`;
        harness.say({ fault: { kind: "status", status: 400, message } });
        const failure = failureIn(await ask());
        expect(failure.message).not.toContain("too large");
        expect(failure.vendor).toEqual({
          message: message.slice(0, 500),
          requestId: "req_scripted",
        });
      });

      it("takes pings as a sign that the stream is alive", async () => {
        harness.say({ text: "one", fault: { kind: "pinging", afterFrames: 4, everyMs: 10 } });
        const controller = new AbortController();
        let signs = 0;
        const alive = () => {
          signs += 1;
          if (signs === 8) controller.abort();
        };
        expect(await ask({ alive }, controller.signal)).not.toContainEqual({ type: "error" });
        expect(signs).toBeGreaterThanOrEqual(8);
      });

      it("says nothing of the key when it is refused", async () => {
        const chunks = await collect(
          harness.strangerBackend.stream({ model: harness.model, messages: [user("hi")] }),
        );
        expect(failureIn(chunks).code).toBe("api_auth_error");
        expect(JSON.stringify(chunks)).not.toContain("stranger");
      });

      for (const kind of ["cut", "end", "garbage"] as const) {
        it(`calls a stream with a ${kind} in the middle truncated and keeps what came before`, async () => {
          harness.say({
            text: ["one ", "two ", "three ", "four"],
            fault: { kind, afterFrames: 5 },
          });
          const chunks = await ask();
          expect(textIn(chunks)).toMatch(/^one two/);
          expect(failureIn(chunks)).toMatchObject({
            code: "stream_truncated",
            retryable: true,
            partial: true,
          });
        });
      }

      it("calls a stream that was cut before anything came truncated, with nothing partial", async () => {
        harness.say({ text: "never", fault: { kind: "end", afterFrames: 0 } });
        expect(failureIn(await ask())).toMatchObject({ code: "stream_truncated", partial: false });
      });

      it("reads an error inside the stream", async () => {
        const fault = {
          kind: "error_event",
          afterFrames: 5,
          type: "overloaded_error",
          message: "Overloaded",
        } as const;
        harness.say({ text: ["one ", "two ", "three "], fault });
        expect(failureIn(await ask())).toMatchObject({
          code: "api_overloaded",
          retryable: true,
          partial: true,
        });
      });
    });

    describe("cancellation", () => {
      it("EE-43: aborting stops the vendor call and ends the stream without a terminal chunk", async () => {
        harness.say({ text: ["one", "two", "three"], fault: { kind: "hang", afterFrames: 4 } });
        const controller = new AbortController();
        const seen: ModelChunk[] = [];
        const request = { model: harness.model, messages: [user("hello")] };
        for await (const chunk of harness.backend.stream(request, controller.signal)) {
          seen.push(chunk);
          controller.abort();
        }
        expect(
          seen.filter((chunk) => chunk.type === "error" || chunk.type === "message_stop"),
        ).toEqual([]);
        await until(() => harness.aborted() === 1);
      });

      it("EE-43: abandoning the iteration stops the vendor call", async () => {
        harness.say({ text: ["one", "two", "three"], fault: { kind: "hang", afterFrames: 4 } });
        for await (const chunk of harness.backend.stream({
          model: harness.model,
          messages: [user("hello")],
        })) {
          if (chunk.type === "text_delta") break;
        }
        await until(() => harness.aborted() === 1);
      });

      it("asks nothing of the vendor when it is aborted beforehand", async () => {
        expect(await ask({}, AbortSignal.abort())).toEqual([]);
        expect(harness.bodies()).toEqual([]);
      });
    });
  });
}
