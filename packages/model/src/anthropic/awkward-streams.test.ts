import type { ModelChunk } from "@larkline/protocol/model-stream";
import { startModelServer } from "@larkline/testkit";
import { expect, it } from "vitest";
import { createAnthropicBackend } from "./index.ts";

async function read(events: readonly Record<string, unknown>[]): Promise<ModelChunk[]> {
  const frames = events.map(
    (event) => `event: ${String(event["type"])}\ndata: ${JSON.stringify(event)}\n\n`,
  );
  const server = await startModelServer({ script: () => ({ frames }) });
  const chunks: ModelChunk[] = [];
  const backend = createAnthropicBackend({ apiKey: "k", baseUrl: server.url });
  const messages = [{ role: "user" as const, content: [{ type: "text" as const, text: "hi" }] }];
  for await (const chunk of backend.stream({ model: "claude-opus-5-5", messages })) {
    if (chunk.type !== "usage_so_far") chunks.push(chunk);
  }
  await server.close();
  return chunks;
}

const start = { type: "message_start", message: { usage: { input_tokens: 3, output_tokens: 1 } } };
const end = (reason: string) => [
  { type: "message_delta", delta: { stop_reason: reason }, usage: { output_tokens: 9 } },
  { type: "message_stop" },
];
const open = (index: number, content_block: object) => ({
  type: "content_block_start",
  index,
  content_block,
});
const json = (index: number, partial_json: string) => ({
  type: "content_block_delta",
  index,
  delta: { type: "input_json_delta", partial_json },
});

it("skips pings, empty deltas and kinds of events that are not known yet", async () => {
  const chunks = await read([
    start,
    { type: "ping" },
    open(0, { type: "text", text: "" }),
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "" } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "yes" } },
    { type: "content_block_delta", index: 0, delta: { type: "future_delta", x: 1 } },
    { type: "content_block_stop", index: 0 },
    { type: "future_event" },
    ...end("end_turn"),
  ]);
  expect(chunks).toEqual([
    { type: "text_delta", text: "yes" },
    {
      type: "message_stop",
      stopReason: "end_turn",
      usage: { inputTokens: 3, outputTokens: 9, cacheReadTokens: 0, cacheCreationTokens: 0 },
    },
  ]);
});

it("takes the input of a call that comes whole at its start", async () => {
  const chunks = await read([
    start,
    open(0, { type: "tool_use", id: "a", name: "one", input: { x: 1 } }),
    { type: "content_block_stop", index: 0 },
    open(1, { type: "tool_use", id: "b", name: "two", input: {} }),
    json(1, '{"y"'),
    json(1, ":2}"),
    { type: "content_block_stop", index: 1 },
    ...end("tool_use"),
  ]);
  expect(chunks.slice(0, 5)).toEqual([
    { type: "tool_call_delta", index: 0, id: "a", name: "one", arguments: "" },
    { type: "tool_call_delta", index: 0, id: null, name: null, arguments: '{"x":1}' },
    { type: "tool_call_delta", index: 1, id: "b", name: "two", arguments: "" },
    { type: "tool_call_delta", index: 1, id: null, name: null, arguments: '{"y"' },
    { type: "tool_call_delta", index: 1, id: null, name: null, arguments: ":2}" },
  ]);
});

it.each([
  [
    "citations",
    {
      type: "citations_delta",
      citation: { url: "https://a.example", cited_text: "x".repeat(40_000) },
    },
  ],
  ["a signature", { type: "signature_delta", signature: "x".repeat(40_000) }],
])("ends a stream with %s without end", async (_what, delta) => {
  const pieces = Array.from({ length: 120 }, () => ({
    type: "content_block_delta",
    index: 0,
    delta,
  }));
  const chunks = await read([
    start,
    open(0, { type: "text", text: "" }),
    ...pieces,
    ...end("end_turn"),
  ]);
  expect(chunks).toMatchObject([{ type: "error", code: "stream_truncated" }]);
});

it("ends a stream of blocks without end that say nothing", async () => {
  const blocks = Array.from({ length: 101 }, (_, index) =>
    open(index, { type: "server_tool_use", x: "x".repeat(40_000) }),
  );
  const chunks = await read([start, ...blocks, ...end("end_turn")]);
  expect(chunks).toMatchObject([{ type: "error", code: "stream_truncated" }]);
});

for (const [reason, ours] of [
  ["stop_sequence", "end_turn"],
  ["max_tokens", "max_tokens"],
  ["model_context_window_exceeded", "max_tokens"],
  ["refusal", "refusal"],
  ["pause_turn", "other"],
  ["something_new", "other"],
]) {
  it(`maps the stop reason ${reason} to ${ours}`, async () => {
    expect((await read([start, ...end(reason ?? "")])).at(-1)).toMatchObject({ stopReason: ours });
  });
}

it("takes a stream that is closed after its last block for one without a known end", async () => {
  const block = [
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "all" } },
    { type: "content_block_stop", index: 0 },
  ];
  for (const rest of [[], end("end_turn").slice(0, 1)]) {
    expect((await read([start, ...block, ...rest])).at(-1)).toMatchObject({
      type: "message_stop",
      stopReason: "other",
    });
  }
  expect((await read([start, ...block.slice(0, 1)])).at(-1)).toMatchObject({
    type: "error",
    code: "stream_truncated",
  });
});

it("calls a stream without message_stop truncated, even when a stop reason came", async () => {
  const chunks = await read([start, ...end("end_turn").slice(0, 1)]);
  expect(chunks).toMatchObject([
    { type: "error", code: "stream_truncated", retryable: true, partial: false },
  ]);
});
