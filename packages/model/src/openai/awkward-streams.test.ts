import type { Message } from "@larkline/protocol/content";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { startModelServer } from "@larkline/testkit";
import { describe, expect, it } from "vitest";
import type { ModelRequest } from "../index.ts";
import { createOpenAiChatBackend, createOpenAiResponsesBackend } from "./index.ts";

type Create = typeof createOpenAiChatBackend;

const hello: Message[] = [{ role: "user", content: [{ type: "text", text: "hi" }] }];

async function read(create: Create, frames: readonly string[], more: Partial<ModelRequest> = {}) {
  const server = await startModelServer({ script: () => ({ frames }) });
  const chunks: ModelChunk[] = [];
  const backend = create({ apiKey: "k", baseUrl: `${server.url}/v1` });
  for await (const chunk of backend.stream({ model: "gpt-4.1", messages: hello, ...more })) {
    chunks.push(chunk);
  }
  const [request] = server.requests;
  await server.close();
  return { chunks, body: request?.body ?? {} };
}

async function collected(stream: AsyncIterable<ModelChunk>): Promise<ModelChunk[]> {
  const chunks: ModelChunk[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const frame = (data: unknown) => `data: ${JSON.stringify(data)}\n\n`;
const delta = (fields: object, finish: string | null = null) =>
  frame({ choices: [{ index: 0, delta: fields, finish_reason: finish }] });
const call = (fields: object) => delta({ tool_calls: [fields] });
const done = "data: [DONE]\n\n";

const chat = async (...frames: string[]) => (await read(createOpenAiChatBackend, frames)).chunks;

const respond = async (...events: { type: string }[]) =>
  (
    await read(
      createOpenAiResponsesBackend,
      events.map((event) => `event: ${event.type}\n${frame(event)}`),
    )
  ).chunks;

describe("Chat Completions", () => {
  it("SA-8: a chunk with text and a call delta yields both", async () => {
    const both = delta({
      content: "Looking",
      tool_calls: [{ index: 0, id: "a", function: { name: "one", arguments: "{}" } }],
    });
    expect((await chat(both, delta({}, "tool_calls"), done)).slice(0, 2)).toEqual([
      { type: "text_delta", text: "Looking" },
      { type: "tool_call_delta", index: 0, id: "a", name: "one", arguments: "{}" },
    ]);
  });

  it("keeps what a text cites with the text, 100 places at most", async () => {
    const cited = (n: number) => ({
      type: "url_citation",
      url_citation: { url: `https://a.example/${n}`, title: `A ${n}` },
    });
    const annotations = Array.from({ length: 101 }, (_, at) => cited(at));
    const chunks = await chat(
      delta({ annotations: [{ type: "other" }, null, cited(0)] }),
      delta({ content: "It rains.", annotations: annotations.slice(1) }),
      delta({}, "stop"),
      done,
    );
    const kept = annotations.slice(0, 100).map(({ url_citation: citation }) => citation);
    expect(chunks.slice(0, 2)).toEqual([
      { type: "text_delta", text: "It rains." },
      {
        type: "text_delta",
        text: "",
        providerMetadata: {
          vendor: "openai-chat",
          signer: expect.any(String),
          citations: JSON.stringify(kept),
        },
      },
    ]);
  });

  it("SA-9: a chunk without choices is skipped, its usage is recorded", async () => {
    const usage = {
      prompt_tokens: 100,
      completion_tokens: 5,
      prompt_tokens_details: { cached_tokens: 60 },
    };
    const chunks = await chat(
      frame({ choices: [] }),
      frame({ object: "odd" }),
      delta({ content: "ok" }),
      delta({}, "stop"),
      frame({ choices: [], usage }),
      done,
    );
    expect(chunks).toEqual([
      { type: "text_delta", text: "ok" },
      {
        type: "message_stop",
        stopReason: "end_turn",
        usage: { inputTokens: 40, outputTokens: 5, cacheReadTokens: 60, cacheCreationTokens: 0 },
      },
    ]);
  });

  it("SA-10: id and name may come late, empty or again; empty ones count as absent", async () => {
    const chunks = await chat(
      call({ index: 0, id: "", function: { name: "", arguments: "" } }),
      call({ index: 0, id: "a", function: { arguments: '{"x"' } }),
      call({ index: 0, id: "a", function: { name: "one", arguments: ":1}" } }),
      call({ index: 0, id: "", function: { name: "", arguments: "" } }),
      delta({}, "tool_calls"),
      done,
    );
    const calls = chunks.filter((chunk) => chunk.type === "tool_call_delta");
    expect(calls.map((item) => item.id)).toEqual([null, "a", "a", null]);
    expect(calls.map((item) => item.name)).toEqual([null, null, "one", null]);
    expect(calls.map((item) => item.arguments).join("")).toBe('{"x":1}');
  });

  it("SA-7: interleaved indexes 1 and 0 keep their numbers", async () => {
    const chunks = await chat(
      call({ index: 1, id: "b", function: { name: "two", arguments: "" } }),
      call({ index: 0, id: "a", function: { name: "one", arguments: "" } }),
      call({ index: 1, function: { arguments: "{}" } }),
      delta({}, "tool_calls"),
      done,
    );
    expect(
      chunks.flatMap((chunk) => (chunk.type === "tool_call_delta" ? [chunk.index] : [])),
    ).toEqual([1, 0, 1]);
  });

  it("numbers calls of servers that send no index, and takes their plain stop for a tool round", async () => {
    const chunks = await chat(
      call({ id: "a", function: { name: "one", arguments: "{" } }),
      call({ function: { arguments: "}" } }),
      call({ id: "b", function: { name: "two", arguments: "{}" } }),
      delta({}, "stop"),
      done,
    );
    expect(
      chunks.flatMap((chunk) => (chunk.type === "tool_call_delta" ? [chunk.index] : [])),
    ).toEqual([0, 0, 1]);
    expect(chunks.at(-1)).toMatchObject({ stopReason: "tool_use" });
  });

  it("reads refusal deltas, content filters and odd stop reasons", async () => {
    const refused = await chat(delta({ refusal: "I cannot." }), delta({}, "stop"), done);
    expect(refused).toMatchObject([
      { type: "text_delta", text: "I cannot." },
      { stopReason: "refusal" },
    ]);
    expect(await chat(delta({}, "content_filter"), done)).toMatchObject([
      { stopReason: "refusal" },
    ]);
    expect(await chat(delta({}, "length"), done)).toMatchObject([{ stopReason: "max_tokens" }]);
    expect(await chat(delta({}, "something_new"), done)).toMatchObject([{ stopReason: "other" }]);
  });

  it("calls a stream without a stop reason truncated, unless the server says that nothing follows", async () => {
    expect(await chat(delta({ content: "half" }))).toMatchObject([
      { type: "text_delta" },
      { type: "error", code: "stream_truncated", partial: true },
    ]);
    expect(await chat(delta({ content: "all" }), done)).toMatchObject([
      { type: "text_delta" },
      { stopReason: "other" },
    ]);
  });

  it("returns the reasoning of compatible servers in the field it came in, to the model that gave it", async () => {
    const frames = [
      delta({ reasoning_content: "hm" }),
      delta({ content: "ok" }),
      delta({}, "stop"),
      done,
    ];
    const server = await startModelServer({ script: () => ({ frames }) });
    const other = await startModelServer({ script: () => ({ frames }) });
    const backend = createOpenAiChatBackend({ apiKey: "k", baseUrl: `${server.url}/v1` });
    const [thinking] = await collected(backend.stream({ model: "gpt-4.1", messages: hello }));
    if (thinking?.type !== "thinking_delta") throw new Error("no thinking");
    const part = {
      type: "thinking" as const,
      text: thinking.text,
      providerMetadata: thinking.providerMetadata ?? {},
    };
    const messages: Message[] = [
      ...hello,
      { role: "assistant", content: [part, { type: "text", text: "ok" }] },
      { role: "user", content: [{ type: "text", text: "and?" }] },
    ];
    await collected(backend.stream({ model: "gpt-4.1", messages }));
    await collected(backend.stream({ model: "gpt-4o", messages }));
    const elsewhere = createOpenAiChatBackend({ apiKey: "k", baseUrl: `${other.url}/v1` });
    await collected(elsewhere.stream({ model: "gpt-4.1", messages }));
    const said = [...server.requests.slice(1), ...other.requests].map(
      ({ body }) => body["messages"],
    );
    await Promise.all([server.close(), other.close()]);
    const without = [{}, { role: "assistant", content: "ok" }, {}];
    expect(said).toMatchObject([
      [{}, { role: "assistant", reasoning_content: "hm" }, {}],
      without,
      without,
    ]);
    expect(JSON.stringify(said.slice(1))).not.toContain("hm");
  });
});

describe("Responses", () => {
  it("takes arguments that come only with the finished call, and skips events it does not know", async () => {
    const item = { type: "function_call", call_id: "a", name: "one", arguments: '{"x":1}' };
    const chunks = await respond(
      { type: "response.future" },
      {
        type: "response.output_item.added",
        output_index: 0,
        item: { ...item, arguments: "" },
      } as never,
      { type: "response.output_item.done", output_index: 0, item } as never,
      { type: "response.completed", response: { usage: null } } as never,
    );
    expect(chunks).toEqual([
      { type: "tool_call_delta", index: 0, id: "a", name: "one", arguments: "" },
      { type: "tool_call_delta", index: 0, id: null, name: null, arguments: '{"x":1}' },
      { type: "message_stop", stopReason: "tool_use", usage: null },
    ]);
  });

  it("maps incomplete and failed responses", async () => {
    const incomplete = (reason: string) =>
      respond({
        type: "response.incomplete",
        response: { incomplete_details: { reason }, usage: null },
      } as never);
    expect(await incomplete("max_output_tokens")).toMatchObject([{ stopReason: "max_tokens" }]);
    expect(await incomplete("content_filter")).toMatchObject([{ stopReason: "refusal" }]);
    const error = { code: "rate_limit_exceeded", message: "slow down" };
    expect(await respond({ type: "response.failed", response: { error } } as never)).toMatchObject([
      { type: "error", code: "api_rate_limit", retryable: true },
    ]);
  });

  it("takes a stream that is closed after its last item for one without a known end", async () => {
    const item = {
      type: "message",
      id: "msg_1",
      role: "assistant",
      status: "completed",
      content: [],
    };
    const begun = { type: "response.output_item.added", output_index: 0, item } as never;
    const text = { type: "response.output_text.delta", output_index: 0, delta: "all" } as never;
    const whole = { type: "response.output_item.done", output_index: 0, item } as never;
    expect((await respond(begun, text, whole)).at(-1)).toMatchObject({
      type: "message_stop",
      stopReason: "other",
    });
    expect((await respond(begun, text)).at(-1)).toMatchObject({
      type: "error",
      code: "stream_truncated",
    });
  });

  it("stores nothing at the vendor", async () => {
    const { body } = await read(createOpenAiResponsesBackend, []);
    expect(body).toMatchObject({ store: false, stream: true });
    expect(body).not.toHaveProperty("previous_response_id");
  });

  it("has the vendor keep the answer, and continues a kept one, where the request says so", async () => {
    const asked = { storeResponses: true, previousResponseId: "resp_1" };
    const { body } = await read(createOpenAiResponsesBackend, [], asked);
    expect(body).toMatchObject({ store: true, previous_response_id: "resp_1" });
  });
});
