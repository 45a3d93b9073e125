import { findModelInfo, type ModelRequest } from "../index.ts";
import type { Message } from "@larkline/protocol/content";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { startModelServer, type ModelServer } from "@larkline/testkit";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createAnthropicBackend } from "./index.ts";

let server: ModelServer;
beforeEach(async () => {
  server = await startModelServer({ script: () => ({ text: "ok" }) });
});
afterEach(() => server.close());

const user = (text: string): Message => ({ role: "user", content: [{ type: "text", text }] });
const assistant = (text: string): Message => ({
  role: "assistant",
  content: [{ type: "text", text }],
});

async function ask(request: Partial<ModelRequest>): Promise<ModelChunk[]> {
  const backend = createAnthropicBackend({ apiKey: "k", baseUrl: server.url });
  const chunks: ModelChunk[] = [];
  const full = { model: "claude-sonnet-4-5", messages: [user("hello")], ...request };
  for await (const chunk of backend.stream(full)) {
    if (chunk.type !== "usage_so_far") chunks.push(chunk);
  }
  return chunks;
}

const body = () => server.requests.at(-1)?.body ?? {};
const warnings = (chunks: ModelChunk[]) =>
  chunks.flatMap((chunk) => (chunk.type === "warning" ? [chunk.code] : []));

/** The texts of the request's blocks that carry a cache mark. */
function marked(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(marked);
  if (typeof value !== "object" || value === null) return [];
  const own =
    "cache_control" in value
      ? [String(Reflect.get(value, "text") ?? Reflect.get(value, "content"))]
      : [];
  return [...own, ...Object.values(value).flatMap(marked)];
}

const thinking = (providerMetadata: Record<string, string>) => ({
  type: "thinking" as const,
  text: "t",
  providerMetadata,
});

const image = (mediaType: string, data: string): Message => ({
  role: "user",
  content: [{ type: "image", source: { sourceType: "base64", mediaType, data } }],
});

describe("sampling with thinking", () => {
  it("EE-23: a temperature other than 1 is sent as 1 with one warning", async () => {
    const chunks = await ask({ needsThinking: true, temperature: 0.3 });
    expect(body()["temperature"]).toBe(1);
    expect(warnings(chunks)).toEqual(["temperature_overridden"]);
    expect(chunks.at(-1)?.type).toBe("message_stop");
  });

  it("EE-24: a topP below 0.95 is sent as 1 with one warning, 0.95 is untouched", async () => {
    expect(warnings(await ask({ needsThinking: true, topP: 0.9 }))).toEqual(["top_p_overridden"]);
    expect(body()["top_p"]).toBe(1);
    expect(warnings(await ask({ needsThinking: true, topP: 0.95 }))).toEqual([]);
    expect(body()["top_p"]).toBe(0.95);
  });

  it("EE-25: without thinking nothing is overridden, a null temperature warns of nothing", async () => {
    expect(warnings(await ask({ temperature: 0.3, topP: 0.9 }))).toEqual([]);
    expect(body()).toMatchObject({ temperature: 0.3, top_p: 0.9 });
    expect(warnings(await ask({ needsThinking: true, temperature: null }))).toEqual([]);
    expect(body()).not.toHaveProperty("temperature");
  });

  it("names the API version that still takes sampling values, only when there are some", async () => {
    await ask({ temperature: 0.3 });
    expect(server.requests.at(-1)?.headers["anthropic-version"]).toBe("2023-06-01");
    await ask({});
    expect(server.requests.at(-1)?.headers["anthropic-version"]).not.toBe("2023-06-01");
  });
});

describe("thinking", () => {
  it("asks earlier models with a budget below the output limit, later ones to decide themselves", async () => {
    await ask({ needsThinking: true, effort: "high", maxTokens: 100 });
    expect(body()).toMatchObject({ max_tokens: 100 });
    expect(body()).not.toHaveProperty("thinking");
    await ask({ needsThinking: true, effort: "high", maxTokens: 4_096 });
    expect(body()).toMatchObject({
      max_tokens: 4_096,
      thinking: { type: "enabled", budget_tokens: 3_072 },
    });
    await ask({ needsThinking: true, effort: "high" });
    expect(body()).toMatchObject({
      max_tokens: 32_000,
      thinking: { type: "enabled", budget_tokens: 16_384 },
    });
    await ask({ model: "claude-opus-5-5", needsThinking: true, effort: "high" });
    expect(body()).toMatchObject({
      thinking: { type: "adaptive" },
      output_config: { effort: "high" },
    });
  });

  it("returns redacted thinking, and no thinking of another model or vendor", async () => {
    const messages: Message[] = [
      user("a"),
      {
        role: "assistant",
        content: [
          thinking({ vendor: "anthropic", model: "claude-sonnet-4-5", redacted: "secret==" }),
          thinking({ vendor: "anthropic", model: "claude-opus-4-6", signature: "theirs" }),
          thinking({ vendor: "openai-responses", item: "{}" }),
          { type: "text", text: "b" },
        ],
      },
      user("c"),
    ];
    expect((await ask({ messages })).at(-1)?.type).toBe("message_stop");
    expect(body()["messages"]).toMatchObject([
      {},
      { content: [{ type: "redacted_thinking", data: "secret==" }, { text: "b" }] },
      {},
    ]);
  });

  it("hands on redacted thinking so that it can return", async () => {
    server.setScript(() => ({ thinking: { redacted: "secret==" }, text: "ok" }));
    const chunks = await ask({ needsThinking: true });
    expect(chunks[0]).toMatchObject({
      type: "thinking_delta",
      providerMetadata: { redacted: "secret==" },
    });
  });
});

describe("messages", () => {
  it("merges neighbours of one role, tool results first", async () => {
    const messages: Message[] = [
      user("a"),
      { role: "assistant", content: [{ type: "tool_use", id: "c1", name: "x", arguments: {} }] },
      user("meanwhile"),
      {
        role: "tool",
        content: [{ type: "tool_result", toolCallId: "c1", content: "r", isError: false }],
      },
    ];
    expect((await ask({ messages })).at(-1)?.type).toBe("message_stop");
    expect(body()["messages"]).toMatchObject([
      { role: "user" },
      { role: "assistant" },
      { role: "user", content: [{ type: "tool_result" }, { type: "text", text: "meanwhile" }] },
    ]);
  });

  it("leaves out empty texts, which the vendor refuses", async () => {
    const messages: Message[] = [
      user("a"),
      { role: "assistant", content: [{ type: "text", text: "" }] },
      {
        role: "user",
        content: [
          { type: "text", text: " " },
          { type: "text", text: "b" },
        ],
      },
    ];
    expect((await ask({ messages })).at(-1)?.type).toBe("message_stop");
  });

  it("EE-35: image data with a data-URL prefix and an image without media type are refused", async () => {
    for (const message of [image("image/png", "data:image/png;base64,AAAA"), image("", "AAAA")]) {
      expect((await ask({ messages: [message] })).at(-1)).toMatchObject({
        type: "error",
        code: "api_bad_request",
      });
    }
    expect(server.requests).toEqual([]);
    expect((await ask({ messages: [image("image/png", "AAAA")] })).at(-1)?.type).toBe(
      "message_stop",
    );
  });

  it("EE-28: a schema is not sent to a provider without support", async () => {
    const responseFormat = { type: "json_schema", jsonSchema: { title: "marker" } } as const;
    const capabilities = {
      ...findModelInfo("anthropic", "claude-sonnet-4-5"),
      supportsJsonSchema: false,
    };
    await ask({ responseFormat, capabilities });
    expect(JSON.stringify(body())).not.toContain("marker");
  });
});

describe("caching", () => {
  const info = findModelInfo("anthropic", "claude-sonnet-4-5");
  const long = "word ".repeat(1_200); // 1,500 tokens by our estimate, the threshold is 1,024

  it("EE-32: the system prompt is marked only with support, a threshold above 0 and a size above it", async () => {
    await ask({ system: long });
    expect(marked(body()["system"])).toEqual([long]);
    await ask({ system: "short" });
    expect(marked(body())).toEqual([]);
    await ask({ system: long, capabilities: { ...info, supportsCaching: false } });
    expect(marked(body())).toEqual([]);
    await ask({ system: long, capabilities: { ...info, cachingMinTokens: 0 } });
    expect(marked(body())).toEqual([]);
    await ask({ system: long, capabilities: { ...info, cachingMinTokens: 4_096 } });
    expect(marked(body())).toEqual([]);
  });

  it("marks the end of the history and the user turn before, at most four marks in all", async () => {
    const systemBlocks = ["a", "b", "c", "d"].map((name) => ({
      text: name + long,
      cacheScope: "session" as const,
    }));
    const messages = [user("1"), assistant("2"), user("3"), assistant("4"), user("5")];
    expect((await ask({ systemBlocks, messages })).at(-1)?.type).toBe("message_stop");
    expect(marked(body()["messages"])).toEqual(["3", "5"]);
    expect(marked(body())).toHaveLength(4);
  });
});
