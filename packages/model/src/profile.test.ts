import type { Message } from "@larkline/protocol/content";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import type { ToolSpec } from "@larkline/protocol/tool";
import { startModelServer } from "@larkline/testkit";
import { describe, expect, it } from "vitest";
import { createAnthropicBackend } from "./anthropic/index.ts";
import { failureOfRefusal } from "./failure.ts";
import { createOpenAiChatBackend } from "./openai/index.ts";
import { sentCallIds } from "./openai/chat.ts";
import { TaggedThoughts } from "./openai/tagged-thoughts.ts";
import { profileNames, profileOf, type ProfileInput, type VendorProfile } from "./profile.ts";
import { toolAsSent } from "./tool-schema.ts";

const chatAt = (baseUrl: string | undefined, model: string, given?: ProfileInput) =>
  profileOf({ type: "openai", baseUrl }, model, given);

describe("the profile of a model", () => {
  it.each([
    ["https://api.deepseek.com", "deepseek-reasoner", "deepseek"],
    ["https://dashscope.aliyuncs.com/compatible-mode/v1", "qwen3-max", "qwen"],
    ["https://dashscope.aliyuncs.com/compatible-mode/v1", "deepseek-v3.2", "qwen+deepseek"],
    ["https://api.moonshot.cn/v1", "kimi-k2-thinking", "kimi"],
    ["https://open.bigmodel.cn/api/paas/v4", "glm-4.6", "glm"],
    ["https://api.minimaxi.com/v1", "MiniMax-M2", "minimax"],
    ["https://ark.cn-beijing.volces.com/api/v3", "ep-20250101-abc", "ark"],
    ["https://openrouter.ai/api/v1", "moonshotai/kimi-k2", "openrouter+kimi"],
    ["http://localhost:11434/v1", "qwen3:8b", "ollama+qwen"],
    ["http://10.0.0.7:8000/v1", "Qwen/Qwen3-32B", "qwen"],
    ["http://10.0.0.7:8000/v1", "house-model", "plain"],
    ["https://api.mistral.ai/v1", "mistral-large-latest", "mistral"],
    [undefined, "gpt-5", "openai"],
    // A name that only contains the vendor's is another host.
    ["https://api.deepseek.com.example.net/v1", "house-model", "plain"],
  ])("at %s of %s is %s", (address, model, name) => {
    expect(chatAt(address, model).name).toBe(name);
  });

  it("is the one that a deployment names, with what it adds", () => {
    const address = "http://10.0.0.7:8000/v1";
    expect(chatAt(address, "Qwen/Qwen3-32B", "vllm")).toMatchObject({
      name: "vllm+qwen",
      thoughtsBack: "none",
    });
    const own = chatAt(address, "house-model", {
      like: "glm",
      overflowWords: ["Too Big"],
      pictures: { maxSide: 100 },
    });
    expect(own).toMatchObject({ name: "glm+own", pictures: { maxSide: 100, maxBytes: 5_000_000 } });
    expect(own.overflowWords).toEqual(
      expect.arrayContaining(["Too Big", "exceeds max length", "context length"]),
    );
    expect(() => chatAt(address, "m", "nobody")).toThrow(
      `no profile nobody; there are ${profileNames.join(", ")}`,
    );
  });
});

const of = (name: string): VendorProfile => chatAt("http://localhost:1/v1", "m", name);

describe("a refusal because of the size", () => {
  it.each([
    [
      "deepseek",
      undefined,
      "This model's maximum context length is 65536 tokens. However, you requested 69648 tokens",
    ],
    [
      "qwen",
      "invalid_parameter_error",
      "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    ],
    [
      "kimi",
      "invalid_request_error",
      "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
    ],
    ["kimi", undefined, "model max length exceeded, max length:8192"],
    ["glm", "1261", "Prompt exceeds max length"],
    ["glm", "1261", "输入过长"],
    ["minimax", "2013", "invalid params, context window exceeds limit (2013)"],
    ["minimax", "1039", "token"],
    ["ark", "InvalidParameter", "Total tokens of image and text exceed max message tokens"],
    ["ark", "OutofContextError", ""],
    ["openrouter", undefined, "This endpoint's maximum context length is 524288 tokens."],
    [
      "vllm",
      undefined,
      "The decoder prompt (length 163840) is longer than the maximum model length of 131072.",
    ],
    [
      "ollama",
      "exceed_context_size_error",
      "the request exceeds the available context size, try increasing it",
    ],
  ])("is known of %s: %s %s", (name, kind, message) => {
    expect(failureOfRefusal({ status: 400, kind, message, profile: of(name) })).toMatchObject({
      code: "context_overflow",
    });
  });

  it.each(["Range of input length should be [1, 5]", "Prompt exceeds max length"])(
    "of another vendor is none by %s",
    (message) => {
      expect(failureOfRefusal({ status: 400, message })).toMatchObject({
        code: "api_bad_request",
        blames: "request",
      });
    },
  );
});

describe("a refusal by the filter of contents", () => {
  it.each([
    ["qwen", "data_inspection_failed"],
    ["glm", "1301"],
    ["minimax", "1026"],
    ["ark", "SensitiveContentDetected"],
    ["deepseek", "content_filter"],
  ])("blames the content: %s", (name, kind) => {
    expect(failureOfRefusal({ status: 400, kind, message: "no", profile: of(name) })).toMatchObject(
      {
        code: "api_bad_request",
        blames: "content",
      },
    );
  });
});

const frame = (data: unknown) => `data: ${JSON.stringify(data)}\n\n`;
const delta = (fields: object, finish: string | null = null) =>
  frame({ choices: [{ index: 0, delta: fields, finish_reason: finish }] });
const hello: Message[] = [{ role: "user", content: [{ type: "text", text: "hi" }] }];

async function collected(stream: AsyncIterable<ModelChunk>): Promise<ModelChunk[]> {
  const chunks: ModelChunk[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** What a model with this profile says by these frames, and what it is sent. */
async function chat(
  profile: ProfileInput,
  frames: readonly string[],
  messages: readonly Message[] = hello,
) {
  const server = await startModelServer({
    script: () => ({ frames: [...frames, "data: [DONE]\n\n"] }),
  });
  const backend = createOpenAiChatBackend({ apiKey: "k", baseUrl: `${server.url}/v1`, profile });
  const chunks: ModelChunk[] = await collected(backend.stream({ model: "m", messages }));
  const [request] = server.requests;
  await server.close();
  return { chunks, sent: request?.body["messages"] };
}

describe("the end of an answer", () => {
  it.each([
    [
      "glm",
      "network_error",
      { type: "error", code: "api_overloaded", retryable: true, partial: true },
    ],
    [
      "glm",
      "model_context_window_exceeded",
      { type: "error", code: "context_overflow", partial: true },
    ],
    ["glm", "sensitive", { type: "message_stop", stopReason: "refusal" }],
    ["deepseek", "insufficient_system_resource", { type: "error", code: "api_overloaded" }],
    ["openrouter", "error", { type: "error", code: "api_overloaded" }],
    ["vllm", "abort", { type: "error", code: "api_overloaded" }],
    ["vllm", "content_filter", { type: "message_stop", stopReason: "refusal" }],
    ["vllm", "constructor", { type: "message_stop", stopReason: "other" }],
  ])("of %s by the word %s", async (profile, word, end) => {
    const { chunks } = await chat(profile, [delta({ content: "half" }), delta({}, word)]);
    expect(chunks.at(-1)).toMatchObject(end);
  });

  it("of MiniMax may be a refusal in a chunk", async () => {
    const refusal = { base_resp: { status_code: 1039, status_msg: "token limit" } };
    const fine = { base_resp: { status_code: 0, status_msg: "" } };
    expect((await chat("minimax", [frame(fine), frame(refusal)])).chunks).toMatchObject([
      { type: "error", code: "context_overflow" },
    ]);
  });

  it("of Anthropic's models is a full answer where the window is full", async () => {
    const server = await startModelServer({
      script: () => ({ text: "a", stopReason: "model_context_window_exceeded" }),
    });
    const backend = createAnthropicBackend({ apiKey: "k", baseUrl: server.url });
    const chunks = await collected(backend.stream({ model: "claude-opus-4-6", messages: hello }));
    await server.close();
    expect(chunks.at(-1)).toMatchObject({ type: "message_stop", stopReason: "max_tokens" });
  });
});

/** A text in pieces of `size` characters, read as an answer. */
function parted(text: string, size: number, tags = of("kimi").thoughtTags) {
  const reader = new TaggedThoughts(tags);
  const said = { thought: "", text: "" };
  const add = (more: { thought: string; text: string }): void => {
    said.thought += more.thought;
    said.text += more.text;
  };
  for (let at = 0; at < text.length; at += size) add(reader.read(text.slice(at, at + size)));
  add(reader.end());
  return said;
}

describe("thoughts within the text", () => {
  it.each([
    ["<think>\nhm</think>\n\nok", { thought: "\nhm", text: "ok" }],
    ["\n <think>a</think><think>b</think>c", { thought: "ab", text: "c" }],
    ["◁think▷hm◁/think▷ok", { thought: "hm", text: "ok" }],
    ["<think>a </thin b</think>c", { thought: "a </thin b", text: "c" }],
    ["<think>never ended", { thought: "never ended", text: "" }],
    ["<think", { thought: "", text: "<think" }],
    ["  <b>no</b>", { thought: "", text: "  <b>no</b>" }],
    [
      "The tag <think> is text here.</think>",
      { thought: "", text: "The tag <think> is text here.</think>" },
    ],
    ["", { thought: "", text: "" }],
  ])("are parted wherever %j is cut", (text, expected) => {
    for (let size = 1; size <= text.length + 1; size += 1) {
      expect(parted(text, size)).toEqual(expected);
    }
  });

  it("are not looked for where no family is known to write them", () => {
    expect(parted("<think>a</think>b", 3, of("openai").thoughtTags)).toEqual({
      thought: "",
      text: "<think>a</think>b",
    });
  });

  it.each(["deepseek", "qwen", "kimi", "glm", "minimax"])("are known of %s", (name) => {
    expect(parted("<think>a</think>b", 4, of(name).thoughtTags)).toEqual({
      thought: "a",
      text: "b",
    });
  });

  it("wait no longer than a thousand blanks", () => {
    const reader = new TaggedThoughts(of("qwen").thoughtTags);
    expect(reader.read(" ".repeat(999))).toEqual({ thought: "", text: "" });
    expect(reader.read("  ")).toEqual({ thought: "", text: " ".repeat(1_001) });
  });
});

/** Its first thought and call, as a history keeps them, and the calls that follow it. */
function history(chunks: readonly ModelChunk[]): Message[] {
  const thought = chunks.find((chunk) => chunk.type === "thinking_delta");
  const call = chunks.find((chunk) => chunk.type === "tool_call_delta");
  const metadata = <Chunk extends ModelChunk>(chunk: Chunk | undefined) =>
    chunk !== undefined && "providerMetadata" in chunk
      ? { providerMetadata: chunk.providerMetadata }
      : {};
  return [
    ...hello,
    {
      role: "assistant",
      content: [
        ...(thought === undefined
          ? []
          : [{ type: "thinking" as const, text: thought.text, ...metadata(thought) }]),
        { type: "tool_use", id: "call_1_1_0", name: "lookup", arguments: {}, ...metadata(call) },
      ],
    },
    {
      role: "tool",
      content: [{ type: "tool_result", toolCallId: "call_1_1_0", content: "42", isError: false }],
    },
  ];
}

/** Answers once, then gets its own answer back, and last that of another model. */
async function sentBack(
  profile: ProfileInput,
  first: object,
  { id = "call_1_1_0", needsThinking = false } = {},
) {
  const call = { index: 0, id, function: { name: "lookup", arguments: "{}" } };
  const frames = [
    delta(first),
    delta({ tool_calls: [call] }),
    delta({}, "tool_calls"),
    "data: [DONE]\n\n",
  ];
  const server = await startModelServer({ script: () => ({ frames }) });
  const backend = createOpenAiChatBackend({ apiKey: "k", baseUrl: `${server.url}/v1`, profile });
  const said = await collected(backend.stream({ model: "m", messages: hello }));
  await collected(backend.stream({ model: "m", messages: history(said) }));
  await collected(backend.stream({ model: "other", messages: history(said), needsThinking }));
  const [, own, foreign] = server.requests.map(({ body }) => body["messages"]);
  await server.close();
  return { own, foreign };
}

describe("what a model gets back", () => {
  const called = (id: string) => [
    { id, type: "function", function: { name: "lookup", arguments: "{}" } },
  ];

  it.each([
    ["deepseek", { reasoning_content: "hm" }, { reasoning_content: "hm" }],
    ["qwen", { reasoning_content: "hm" }, { reasoning_content: "hm" }],
    ["kimi", { reasoning_content: "hm" }, { reasoning_content: "hm" }],
    ["glm", { reasoning_content: "hm" }, { reasoning_content: "hm" }],
    ["ark", { reasoning_content: "hm" }, { reasoning_content: "hm" }],
    ["minimax", { content: "<think>hm</think>" }, { content: "<think>hm</think>\n" }],
    ["openrouter", { reasoning: "hm" }, { reasoning: "hm" }],
    ["vllm", { reasoning: "hm" }, { content: null }],
    ["ollama", { reasoning: "hm" }, { content: null }],
  ])(
    "are its own thoughts alone, in the place where %s wants them",
    async (profile, first, back) => {
      const { own, foreign } = await sentBack(profile, first);
      expect(own).toMatchObject([{}, back, {}]);
      if ("content" in back && back.content === null) {
        expect(JSON.stringify(own)).not.toContain("hm");
      }
      expect(JSON.stringify(foreign)).not.toContain("hm");
    },
  );

  it.each(["deepseek", "kimi"])(
    "of another model is a call with a word for its thoughts, where %s demands them",
    async (name) => {
      const hm = { reasoning_content: "hm" };
      expect((await sentBack(name, hm, { needsThinking: true })).foreign).toMatchObject([
        {},
        { reasoning_content: "(none kept)" },
        {},
      ]);
      // A model that does not think may refuse the field.
      expect(JSON.stringify((await sentBack(name, hm)).foreign)).not.toContain("reasoning_content");
    },
  );

  it("are the ids of its calls as it gave them", async () => {
    const { own, foreign } = await sentBack("openrouter", {}, { id: "functions.lookup:0" });
    expect(own).toMatchObject([
      {},
      { tool_calls: called("functions.lookup:0") },
      { tool_call_id: "functions.lookup:0" },
    ]);
    expect(foreign).toMatchObject([
      {},
      { tool_calls: called("call_1_1_0") },
      { tool_call_id: "call_1_1_0" },
    ]);
  });

  it.each([
    ["kimi", "functions.lookup:0"],
    ["mistral", expect.stringMatching(/^[a-f0-9]{9}$/)],
    ["openai", "call_1_1_0"],
  ])("are the ids of others in the form that %s demands", async (profile, id) => {
    const { foreign } = await sentBack(profile, {});
    expect(foreign).toMatchObject([{}, { tool_calls: called(id) }, { tool_call_id: id }]);
  });

  it("has no id twice, and every call its own result", () => {
    const call = (id: string, callId?: string) => ({
      type: "tool_use" as const,
      id,
      name: "f",
      arguments: {},
      ...(callId === undefined
        ? {}
        : { providerMetadata: { vendor: "openai-chat", signer: "s", callId } }),
    });
    const messages: Message[] = [
      {
        role: "assistant",
        content: [call("a"), call("b", "functions.f:0"), call("c", "functions.f:0")],
      },
    ];
    const ids = sentCallIds(messages, { signer: "s", callIds: "functions.name:index" });
    expect([...ids]).toEqual([
      ["a", "functions.f:1"],
      ["b", "functions.f:0"],
      ["c", "functions.f:2"],
    ]);
  });
});

describe("how a server is asked to think", () => {
  it.each([
    ["openai", { reasoning_effort: "high", max_completion_tokens: 10 }],
    ["deepseek", { thinking: { type: "enabled" }, max_tokens: 10 }],
    ["qwen", { enable_thinking: true }],
    ["kimi", { thinking: { type: "enabled" } }],
    ["glm", { thinking: { type: "enabled" } }],
    ["ark", { thinking: { type: "enabled" } }],
    ["openrouter", { reasoning: { effort: "high" } }],
    ["vllm", { chat_template_kwargs: { enable_thinking: true } }],
    ["ollama", { reasoning_effort: "high" }],
    ["minimax", {}],
  ])("%s", async (profile, fields) => {
    const server = await startModelServer({ script: () => ({ text: "ok" }) });
    const backend = createOpenAiChatBackend({ apiKey: "k", baseUrl: `${server.url}/v1`, profile });
    const capabilities = { ...thinking, id: "m" };
    await collected(
      backend.stream({ model: "m", messages: hello, effort: "high", maxTokens: 10, capabilities }),
    );
    const [request] = server.requests;
    await server.close();
    expect(request?.body).toMatchObject(fields);
    const all = [
      "reasoning_effort",
      "thinking",
      "enable_thinking",
      "reasoning",
      "chat_template_kwargs",
    ];
    const asked = Object.keys(request?.body ?? {}).filter((name) => all.includes(name));
    expect(asked).toEqual(Object.keys(fields).filter((name) => all.includes(name)));
  });
});

const thinking = {
  displayName: "m",
  provider: "openai",
  contextWindow: 1_000,
  maxOutputTokens: 100,
  inputPricePer1M: 0,
  outputPricePer1M: 0,
  cacheReadPricePer1M: 0,
  cacheWritePricePer1M: 0,
  supportsCaching: false,
  supportsBatch: false,
  supportsThinking: true,
  supportsVision: false,
  supportsJsonSchema: false,
  cachingMinTokens: 0,
  maxTools: 0,
  maxToolsExhaustive: false,
};

const text = { type: "string" };
const number = { type: "number" };

describe("the schema of a tool as vendors take it", () => {
  const sent = (
    inputSchema: ToolSpec["inputSchema"],
    rules: { schemaWithout?: string[]; isPlain?: boolean } = {},
  ) => {
    const made = toolAsSent(
      { name: "t", description: "", inputSchema },
      { schemaWithout: [], isPlain: false, ...rules },
    );
    return "tool" in made ? made.tool.inputSchema : made.problem;
  };

  it("is the tool's own where nothing stands against it", () => {
    const spec = {
      name: "t",
      description: "",
      inputSchema: { type: "object", properties: { a: { anyOf: [text, number] } } },
    };
    expect(toolAsSent(spec, { schemaWithout: [], isPlain: false })).toEqual({ tool: spec });
  });

  it.each([
    [
      "allOf",
      {
        allOf: [
          { type: "object", properties: { a: text }, required: ["a"] },
          { properties: { b: number }, required: ["b"] },
        ],
      },
      { type: "object", properties: { a: text, b: number }, required: ["a", "b"] },
    ],
    [
      "anyOf",
      {
        type: "object",
        description: "d",
        properties: { c: text },
        anyOf: [
          { properties: { a: text }, required: ["a"] },
          { properties: { a: number, b: text }, required: ["a", "b"] },
        ],
      },
      {
        type: "object",
        description: "d",
        properties: { c: text, a: { anyOf: [text, number] }, b: text },
        required: ["a"],
      },
    ],
    [
      "a reference",
      { $ref: "#/$defs/In", $defs: { In: { type: "object", properties: { a: text } } } },
      {
        $defs: { In: { type: "object", properties: { a: text } } },
        type: "object",
        properties: { a: text },
      },
    ],
    ["no type", { properties: { a: text } }, { type: "object", properties: { a: text } }],
    ["nothing", {}, { type: "object", properties: {} }],
    ["a reference to itself", { $ref: "#" }, { type: "object", properties: {} }],
  ])("has no combination at its top: %s", (_what, given, expected) => {
    expect(sent(given)).toEqual(expected);
  });

  it.each([
    [{ type: "string" }],
    [{ allOf: [{ type: "object" }, { type: "array" }] }],
    [{ oneOf: [{ type: "string" }, { type: "number" }] }],
  ])("is none where the arguments are no object: %j", (given) => {
    expect(sent(given)).toBe("its arguments are no object");
  });

  it("does without the keywords that a vendor refuses, at every depth, and keeps properties of such names", () => {
    const given = {
      type: "object",
      properties: {
        pattern: { type: "string", pattern: "^a" },
        list: { type: "array", items: { pattern: "b" } },
      },
    };
    expect(sent(given, { schemaWithout: ["pattern"] })).toEqual({
      type: "object",
      properties: { pattern: text, list: { type: "array", items: {} } },
    });
  });

  it("says only what must be said in its plainest form", () => {
    const given = {
      type: "object",
      properties: { a: { type: "string", format: "uri", description: "d", default: "x" } },
      required: ["a"],
      additionalProperties: false,
    };
    const plain = {
      type: "object",
      properties: { a: { type: "string", description: "d" } },
      required: ["a"],
    };
    expect(sent(given, { isPlain: true })).toEqual(plain);
  });
});
