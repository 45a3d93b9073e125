import type { Message } from "@larkline/protocol/content";
import { startModelServer, type ModelServer } from "@larkline/testkit";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createAnthropicBackend } from "./anthropic/index.ts";
import {
  bodyWith,
  createModelChain,
  extraProblem,
  findModelInfo,
  headersWith,
  hostedToolProblem,
  joinedExtra,
  type LlmBackend,
} from "./index.ts";
import {
  createOpenAiChatBackend,
  createOpenAiResponsesBackend,
  type OpenAiBackendOptions,
} from "./openai/index.ts";

const messages: Message[] = [{ role: "user", content: [{ type: "text", text: "hi" }] }];

describe("what an operator adds to requests", () => {
  it.each([
    [{ body: { messages: [] } }, "body.messages belongs to Larkline"],
    [{ body: { tools: [] } }, "body.tools belongs to Larkline"],
    [{ body: { stream: false } }, "body.stream belongs to Larkline"],
    [{ body: { model: "other" } }, "body.model belongs to Larkline"],
    [{ body: { previous_response_id: "r" } }, "body.previous_response_id belongs to Larkline"],
    [{ headers: { Authorization: "Bearer x" } }, "headers.Authorization belongs to Larkline"],
    [{ headers: { "X-Api-Key": "x" } }, "headers.X-Api-Key belongs to Larkline"],
    [{ headers: { "content-length": "0" } }, "headers.content-length belongs to Larkline"],
    [{ body: { big: 1n } }, "body is not JSON"],
    [{ body: { long: "x".repeat(100_000) } }, "body has 100011 characters"],
  ])("is refused where it belongs to the loop: %#", (extra, problem) => {
    expect(extraProblem(extra)).toContain(problem);
  });

  it("changes nothing that a request says itself: objects and lists are joined", () => {
    const body = { model: "m", include: ["a"], text: { format: 1 }, temperature: 0 };
    const extra = {
      body: {
        model: "n",
        tools: [1],
        include: ["a", "b"],
        text: { format: 2, verbosity: "low" },
        user: "u",
      },
    };
    expect(bodyWith(body, extra)).toEqual({
      model: "m",
      include: ["a", "b"],
      text: { format: 1, verbosity: "low" },
      temperature: 0,
      user: "u",
    });
    expect(
      headersWith(
        { "anthropic-version": "1" },
        { "Anthropic-Version": "2", "X-API-Key": "k", "X-A": "b" },
      ),
    ).toEqual({
      "anthropic-version": "1",
      "x-a": "b",
    });
  });

  it("of an agent wins over that of the provider", () => {
    const provider = {
      body: { service_tier: "flex", provider: { sort: "price" } },
      headers: { "X-A": "1", "x-b": "1" },
    };
    const agent = { body: { service_tier: "auto" }, headers: { "x-a": "2" } };
    expect(joinedExtra(provider, agent)).toEqual({
      body: { service_tier: "auto", provider: { sort: "price" } },
      headers: { "x-a": "2", "x-b": "1" },
    });
  });
});

const adapters: [string, "anthropic" | "openai", (options: OpenAiBackendOptions) => LlmBackend][] =
  [
    ["Anthropic Messages", "anthropic", createAnthropicBackend],
    ["Chat Completions", "openai", createOpenAiChatBackend],
    ["Responses", "openai", createOpenAiResponsesBackend],
  ];

describe.each(adapters)("a request of %s", (name, provider, create) => {
  let server: ModelServer;
  beforeEach(async () => {
    server = await startModelServer({ apiKey: "right", script: () => ({ text: "ok" }) });
  });
  afterEach(() => server.close());

  const path = provider === "anthropic" ? "" : "/v1";
  const backend = () => create({ apiKey: "right", baseUrl: `${server.url}${path}` });
  const ask = async (more: object) => {
    const chunks = [];
    for await (const chunk of backend().stream({ model: "m", messages, ...more })) {
      chunks.push(chunk);
    }
    return chunks.at(-1);
  };

  it("carries what is added, and keeps the loop's own and its key", async () => {
    const extra = {
      body: {
        service_tier: "flex",
        stream: false,
        model: "other",
        messages: [],
        input: [],
        tools: [{}],
      },
      headers: {
        "x-title": "Larkline",
        "anthropic-beta": "a-1",
        authorization: "Bearer wrong",
        "x-api-key": "wrong",
      },
    };
    expect(await ask({ extra })).toMatchObject({ type: "message_stop" });
    const { body, headers } = server.requests.at(-1) ?? expect.fail();
    expect(body).toMatchObject({ service_tier: "flex", stream: true, model: "m" });
    expect(body).not.toHaveProperty("tools");
    expect(body[name === "Responses" ? "input" : "messages"]).toHaveLength(1);
    expect(body).not.toHaveProperty(name === "Responses" ? "messages" : "input");
    expect(headers).toMatchObject({ "x-title": "Larkline", "anthropic-beta": "a-1" });
  });

  it("offers tools that the vendor runs beside ours, where the vendor has any", async () => {
    const tools = [{ name: "clock", description: "time", inputSchema: { type: "object" } }];
    const hostedTools = [{ type: "web_search", search_context_size: "low" }];
    const end = await ask({ tools, hostedTools });
    if (name === "Chat Completions") {
      expect(end).toMatchObject({ type: "error", code: "api_bad_request" });
      expect(server.requests).toHaveLength(0);
    } else {
      expect(server.requests.at(-1)?.body["tools"]).toMatchObject([
        { name: "clock" },
        hostedTools[0],
      ]);
    }
  });
});

describe("hosted tools", () => {
  it.each([
    ["openai", "web_search", "Chat Completions has no hosted tools"],
    ["openai-responses", "function", "'function' is run by the client"],
    ["openai-responses", "computer_use_preview", "'computer_use_preview' is run by the client"],
    ["anthropic", "bash_20250124", "'bash_20250124' is run by the client"],
    ["anthropic", "", "needs its `type`"],
  ] as const)("are refused where the vendor runs none: %s %s", (provider, type, problem) => {
    expect(hostedToolProblem(provider, { type })).toContain(problem);
  });

  it.each([
    ["openai-responses", "web_search"],
    ["openai-responses", "code_interpreter"],
    ["anthropic", "web_search_20250305"],
    ["anthropic", "code_execution_20250522"],
  ] as const)("of %s may be %s", (provider, type) => {
    expect(hostedToolProblem(provider, { type })).toBeUndefined();
  });

  it("go with answers alone, each model's own with it; what is added goes with every request", async () => {
    const seen: unknown[] = [];
    const backend: LlmBackend = {
      async *stream({ model, extra, hostedTools = [] }) {
        seen.push({ model, extra, hosted: hostedTools.length });
        yield {
          type: "error",
          code: "api_bad_request",
          message: "no",
          suggestion: "",
          retryable: false,
          partial: false,
        };
      },
    };
    const extra = { body: { user: "u" } };
    const models = [
      { backend, info: findModelInfo("openai", "a"), extra, hostedTools: [{ type: "web_search" }] },
      { backend, info: findModelInfo("openai", "b") },
    ];
    const chain = createModelChain({ models });
    for (const hosted of [true, false]) {
      for await (const chunk of chain.stream({ messages, hosted })) {
        expect(chunk.type).not.toBe("message_stop");
      }
    }
    expect(seen).toEqual([
      { model: "a", extra, hosted: 1 },
      { model: "b", extra: {}, hosted: 0 },
      { model: "a", extra, hosted: 0 },
      { model: "b", extra: {}, hosted: 0 },
    ]);
  });
});
