import type { Message } from "@larkline/protocol/content";
import { errorCodes } from "@larkline/protocol/error";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { describe, expect, it } from "vitest";
import { createAnthropicBackend } from "./anthropic/index.ts";
import { completeModelInfo, type LlmBackend } from "./index.ts";
import { createOpenAiChatBackend, createOpenAiResponsesBackend } from "./openai/index.ts";

// Every field of every event of three complete answers, replaced by every kind of JSON value: an answer ends in a stop
// or in one error that says whether it may be repeated, and all that comes before has the types that it should have.

type Create = (options: { apiKey: string; baseUrl: string; fetch: typeof fetch }) => LlmBackend;

const message = {
  type: "message",
  id: "msg_1",
  role: "assistant",
  status: "in_progress",
  content: [],
};
const call = {
  type: "function_call",
  id: "fc_1",
  call_id: "c1",
  name: "look",
  arguments: "",
  status: "in_progress",
};
const search = {
  type: "web_search_call",
  id: "ws_1",
  status: "completed",
  action: { type: "search", query: "q" },
};
const reasoning = {
  type: "reasoning",
  id: "rs_1",
  summary: [{ type: "summary_text", text: "hm" }],
};
const annotation = {
  type: "url_citation",
  start_index: 0,
  end_index: 2,
  title: "t",
  url: "https://example.com",
};
const said = {
  ...message,
  status: "completed",
  content: [{ type: "output_text", text: "Hello", annotations: [annotation] }],
};
const called = { ...call, arguments: '{"a":1}', status: "completed" };

const answers: [name: string, create: Create, events: unknown[]][] = [
  [
    "Anthropic's Messages",
    createAnthropicBackend,
    [
      {
        type: "message_start",
        message: { id: "msg_1", content: [], usage: { input_tokens: 4, output_tokens: 1 } },
      },
      {
        type: "content_block_start",
        index: 0,
        content_block: { type: "thinking", thinking: "", signature: "" },
      },
      { type: "content_block_delta", index: 0, delta: { type: "thinking_delta", thinking: "hm" } },
      { type: "content_block_delta", index: 0, delta: { type: "signature_delta", signature: "s" } },
      { type: "content_block_stop", index: 0 },
      { type: "content_block_start", index: 1, content_block: { type: "text", text: "" } },
      { type: "content_block_delta", index: 1, delta: { type: "text_delta", text: "Hello" } },
      {
        type: "content_block_delta",
        index: 1,
        delta: { type: "citations_delta", citation: annotation },
      },
      { type: "content_block_stop", index: 1 },
      {
        type: "content_block_start",
        index: 2,
        content_block: { type: "tool_use", id: "c1", name: "look", input: {} },
      },
      {
        type: "content_block_delta",
        index: 2,
        delta: { type: "input_json_delta", partial_json: '{"a":1}' },
      },
      { type: "content_block_stop", index: 2 },
      {
        type: "message_delta",
        delta: { stop_reason: "tool_use", stop_sequence: null },
        usage: { output_tokens: 9 },
      },
      { type: "message_stop" },
    ],
  ],
  [
    "Chat Completions",
    createOpenAiChatBackend,
    [
      {
        id: "chatcmpl-1",
        choices: [{ index: 0, delta: { role: "assistant", content: "", reasoning_content: "hm" } }],
      },
      {
        id: "chatcmpl-1",
        choices: [{ index: 0, delta: { content: "Hello", refusal: null }, finish_reason: null }],
      },
      {
        id: "chatcmpl-1",
        choices: [
          {
            index: 0,
            delta: {
              tool_calls: [
                { index: 0, id: "c1", function: { name: "look", arguments: '{"a":1}' } },
              ],
            },
          },
        ],
      },
      { id: "chatcmpl-1", choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] },
      {
        id: "chatcmpl-1",
        choices: [],
        usage: {
          prompt_tokens: 4,
          completion_tokens: 9,
          prompt_tokens_details: { cached_tokens: 1 },
        },
      },
    ],
  ],
  [
    "Responses",
    createOpenAiResponsesBackend,
    [
      { type: "response.output_item.done", output_index: 0, item: reasoning },
      { type: "response.output_item.done", output_index: 1, item: search },
      { type: "response.output_item.added", output_index: 2, item: message },
      { type: "response.output_text.delta", output_index: 2, content_index: 0, delta: "Hello" },
      { type: "response.output_item.done", output_index: 2, item: said },
      { type: "response.output_item.added", output_index: 3, item: call },
      { type: "response.function_call_arguments.delta", output_index: 3, delta: '{"a":1}' },
      { type: "response.output_item.done", output_index: 3, item: called },
      {
        type: "response.completed",
        response: {
          id: "resp_1",
          status: "completed",
          incomplete_details: null,
          output: [reasoning, search, said, called],
          usage: { input_tokens: 4, output_tokens: 9, input_tokens_details: { cached_tokens: 1 } },
        },
      },
    ],
  ],
];

const oddValues: unknown[] = [
  null,
  true,
  -1,
  0.5,
  1e300,
  "",
  "constructor",
  [],
  [null, "x", { text: "x" }],
  {},
  { type: "x" },
];

type Path = readonly (string | number)[];

/** The ways to all values in a JSON value, itself included. */
function pathsIn(value: unknown, path: Path = []): Path[] {
  if (typeof value !== "object" || value === null) return [path];
  const inner = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  return [path, ...inner.flatMap(([name, member]) => pathsIn(member, [...path, name]))];
}

function replaced(value: unknown, [name, ...rest]: Path, odd: unknown): unknown {
  if (name === undefined) return odd;
  if (Array.isArray(value)) {
    return value.with(Number(name), replaced(value[Number(name)], rest, odd));
  }
  const object = value as Record<string, unknown>; // the path was made from it
  return { ...object, [name]: replaced(object[name], rest, odd) };
}

const capabilities = completeModelInfo({
  id: "m",
  provider: "p",
  contextWindow: 9_000,
  maxOutputTokens: 900,
});
const messages: Message[] = [{ role: "user", content: [{ type: "text", text: "hi" }] }];

async function chunksOf(create: Create, events: readonly unknown[]): Promise<ModelChunk[]> {
  const body = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  const answer = async () =>
    await Promise.resolve(new Response(body, { headers: { "content-type": "text/event-stream" } }));
  const backend = create({ apiKey: "k", baseUrl: "http://vendor.invalid", fetch: answer });
  const chunks: ModelChunk[] = [];
  for await (const chunk of backend.stream({ model: "m", messages, capabilities })) {
    chunks.push(chunk);
  }
  return chunks;
}

const isText = (value: unknown): boolean => typeof value === "string";
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && Number(value) >= 0;
const isMetadata = (value: unknown): boolean =>
  value === undefined || Object.values(value as object).every(isText);

const isName = (value: unknown): boolean => value === null || (isText(value) && value !== "");

/** Whether a chunk is of the types that it should be of. */
const isRight: Partial<{
  [T in ModelChunk["type"]]: (chunk: Extract<ModelChunk, { type: T }>) => boolean;
}> = {
  text_delta: ({ text, providerMetadata }) => isText(text) && isMetadata(providerMetadata),
  thinking_delta: ({ text, index, providerMetadata }) =>
    isText(text) && isCount(index) && isMetadata(providerMetadata),
  tool_call_delta: ({ id, name, index, arguments: given }) =>
    [id, name].every(isName) && isText(given) && isCount(index),
  usage_so_far: ({ usage }) => Object.values(usage).every(isCount),
  message_stop: ({ stopReason, usage }) =>
    isText(stopReason) && Object.values(usage ?? {}).every(isCount),
  error: ({ code }) => Object.hasOwn(errorCodes, code) && code !== "internal_error",
};

function isWrong(chunk: ModelChunk): boolean {
  const check = isRight[chunk.type] as ((chunk: ModelChunk) => boolean) | undefined; // that of its own type
  return check?.(chunk) !== true;
}

describe("an odd chunk of a vendor", () => {
  it.each(answers)(
    "%s: breaks no answer, whatever field holds which kind of value",
    async (_name, create, events) => {
      const problems: string[] = [];
      let streams = 0;
      for (const [at, event] of events.entries()) {
        for (const path of pathsIn(event)) {
          for (const odd of oddValues) {
            streams += 1;
            const chunks = await chunksOf(create, events.with(at, replaced(event, path, odd)));
            const ends = chunks.filter(({ type }) => type === "message_stop" || type === "error");
            const isEnded = ends.length === 1 && ends[0] === chunks.at(-1);
            const wrong = isEnded ? chunks.find(isWrong) : chunks.at(-1);
            if (wrong === undefined) continue;
            problems.push(
              `event ${at} ${path.join(".")} = ${JSON.stringify(odd)}: ${JSON.stringify(wrong)}`,
            );
          }
        }
      }
      expect(problems.slice(0, 5)).toEqual([]);
      expect(streams).toBeGreaterThan(200);
    },
  );
});

const textOf = (chunks: readonly ModelChunk[]): string =>
  chunks.map((chunk) => (chunk.type === "text_delta" ? chunk.text : "")).join("");
const argumentsOf = (chunks: readonly ModelChunk[]): string =>
  chunks.map((chunk) => (chunk.type === "tool_call_delta" ? chunk.arguments : "")).join("");

describe("what some servers send in other forms is read all the same", () => {
  it("Chat Completions: content as parts, arguments as an object, the answer as one message", async () => {
    const parts = [
      { type: "text", text: "Hel" },
      { type: "text", text: "lo" },
    ];
    const look = { name: "look", arguments: { a: 1 } };
    const chunks = await chunksOf(createOpenAiChatBackend, [
      {
        choices: [
          { delta: { content: parts, tool_calls: [{ index: 0, id: "c1", function: look }] } },
        ],
      },
      { choices: [{ delta: {}, finish_reason: "tool_calls" }] },
    ]);
    expect([textOf(chunks), argumentsOf(chunks)]).toEqual(["Hello", '{"a":1}']);
    const whole = [
      { choices: [{ message: { role: "assistant", content: "Hello" }, finish_reason: "stop" }] },
    ];
    expect(textOf(await chunksOf(createOpenAiChatBackend, whole))).toBe("Hello");
  });

  it("Responses: an answer that comes only with the end, or in whole items", async () => {
    const output = [reasoning, search, said, called];
    const completed = {
      type: "response.completed",
      response: { id: "resp_1", status: "completed", output },
    };
    const atOnce = await chunksOf(createOpenAiResponsesBackend, [completed]);
    expect([textOf(atOnce), argumentsOf(atOnce)]).toEqual(["Hello", '{"a":1}']);
    expect(atOnce.at(-1)).toMatchObject({
      type: "message_stop",
      stopReason: "tool_use",
      responseId: "resp_1",
    });
    const items = output.map((item) => ({ type: "response.output_item.done", item }));
    expect(await chunksOf(createOpenAiResponsesBackend, [...items, completed])).toEqual(atOnce);
  });

  it("Anthropic's Messages: an answer that comes with its beginning, an input as text", async () => {
    const input = '{"a":1}';
    const content = [
      { type: "text", text: "Hello" },
      { type: "tool_use", id: "c1", name: "look", input },
    ];
    const chunks = await chunksOf(createAnthropicBackend, [
      { type: "message_start", message: { id: "msg_1", content, stop_reason: "tool_use" } },
      { type: "message_stop" },
    ]);
    expect([textOf(chunks), argumentsOf(chunks)]).toEqual(["Hello", input]);
    expect(chunks.at(-1)).toMatchObject({ stopReason: "tool_use", responseId: "msg_1" });
  });
});
