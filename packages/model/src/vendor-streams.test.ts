import type { Message } from "@larkline/protocol/content";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import {
  replyOfStream,
  startModelServer,
  vendorAnswers,
  type ModelDialect,
  type ModelServer,
} from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createAnthropicBackend } from "./anthropic/index.ts";
import { completeModelInfo, type LlmBackend } from "./index.ts";
import { createOpenAiChatBackend, createOpenAiResponsesBackend } from "./openai/index.ts";

// Awkward answers, kept as data in the words of each vendor, through the three adapters.

let server: ModelServer;
beforeAll(async () => {
  server = await startModelServer();
});
afterAll(async () => await server.close());

const dialects: Record<ModelDialect, (url: string) => LlmBackend> = {
  anthropic: (baseUrl) => createAnthropicBackend({ apiKey: "k", baseUrl }),
  "openai-chat": (url) => createOpenAiChatBackend({ apiKey: "k", baseUrl: `${url}/v1` }),
  "openai-responses": (url) => createOpenAiResponsesBackend({ apiKey: "k", baseUrl: `${url}/v1` }),
};

const capabilities = completeModelInfo({
  id: "m",
  provider: "p",
  contextWindow: 9_000,
  maxOutputTokens: 900,
});
const question: Message = { role: "user", content: [{ type: "text", text: "hi" }] };

/** What an answer comes to; parts in their order. */
function saidIn(chunks: readonly ModelChunk[]) {
  const calls = new Map<number, { name: string; arguments: string }>();
  let text = "";
  const kept: Record<string, string>[] = [];
  for (const chunk of chunks) {
    if (chunk.type === "text_delta") text += chunk.text;
    if (chunk.type === "thinking_delta" && chunk.providerMetadata !== undefined) {
      kept.push(chunk.providerMetadata);
    }
    if (chunk.type !== "tool_call_delta") continue;
    const call = calls.get(chunk.index) ?? { name: "", arguments: "" };
    calls.set(chunk.index, {
      name: call.name || (chunk.name ?? ""),
      arguments: call.arguments + chunk.arguments,
    });
  }
  return { text, kept, calls: [...calls.values()], end: chunks.at(-1) };
}

async function chunksOf(backend: LlmBackend, messages: readonly Message[]): Promise<ModelChunk[]> {
  const chunks: ModelChunk[] = [];
  for await (const chunk of backend.stream({ model: "m", messages, capabilities })) {
    chunks.push(chunk);
  }
  return chunks;
}

for (const { name, about, streams, said, returned } of vendorAnswers()) {
  describe(`${name}: ${about}`, () => {
    for (const [dialect, replies] of Object.entries(streams)) {
      const made = dialects[dialect as ModelDialect]; // the names are those of the table
      it(`comes to the same over ${dialect}`, async () => {
        const waiting = [...replies];
        server.setScript(({ dialect: asked }) =>
          replyOfStream(asked, waiting.shift() ?? { events: [] }),
        );
        const backend = made(server.url);
        const { text, calls, kept, end } = saidIn(await chunksOf(backend, [question]));
        expect({ text, calls }).toEqual({ text: said.text, calls: said.calls ?? [] });
        if (said.failure !== undefined) {
          expect(end).toMatchObject({ type: "error", code: said.failure });
        } else expect(end).toMatchObject({ type: "message_stop", stopReason: said.stopReason });
        if (said.usage !== undefined) expect(end).toMatchObject({ usage: said.usage });
        // EE-33, EE-52: what only the vendor understands goes back as it came.
        const answer: Message = {
          role: "assistant",
          content: [
            ...kept.map((providerMetadata) => ({
              type: "thinking" as const,
              text: "",
              providerMetadata,
            })),
            { type: "text", text: "said" },
          ],
        };
        server.setScript(() => ({ text: "ok" }));
        expect((await chunksOf(backend, [question, answer, question])).at(-1)).toMatchObject({
          type: "message_stop",
        });
        const body = JSON.stringify(server.requests.at(-1)?.body);
        const blocks = returned?.[dialect as ModelDialect] ?? [];
        for (const block of blocks) expect(body).toContain(JSON.stringify(block));
      });
    }
  });
}

it("EE-52: a call of the vendor's own tool that was cut off is left out of the next request", async () => {
  const block = { type: "server_tool_use", id: "srvtoolu_9", name: "web_search", input: {} };
  const providerMetadata = { vendor: "anthropic", model: "m", opaque: JSON.stringify(block) };
  const backend = dialects.anthropic(server.url);
  server.setScript(() => ({ text: "ok" }));
  const open: Message = {
    role: "assistant",
    content: [{ type: "thinking", text: "", providerMetadata }],
  };
  const end = (await chunksOf(backend, [question, open, question])).at(-1);
  expect(end).toMatchObject({ type: "message_stop" });
  expect(JSON.stringify(server.requests.at(-1)?.body)).not.toContain("srvtoolu_9");
});

it("EE-52: what a text cites goes back with the text, and to no other vendor", async () => {
  const citation = {
    type: "web_search_result_location",
    url: "https://example.com/",
    title: "E",
    encrypted_index: "Eo8",
  };
  const events = [
    {
      type: "message_start",
      message: { id: "msg_1", usage: { input_tokens: 1, output_tokens: 1 } },
    },
    {
      type: "content_block_start",
      index: 0,
      content_block: { type: "text", text: "", citations: [] },
    },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "It rains." } },
    { type: "content_block_delta", index: 0, delta: { type: "citations_delta", citation } },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 3 } },
    { type: "message_stop" },
  ];
  server.setScript(() => replyOfStream("anthropic", { events }));
  const { text, kept } = saidIn(await chunksOf(dialects.anthropic(server.url), [question]));
  const thinking = kept.map((providerMetadata) => ({
    type: "thinking" as const,
    text: "",
    providerMetadata,
  }));
  const answer: Message = { role: "assistant", content: [{ type: "text", text }, ...thinking] };
  const bodies: string[] = [];
  for (const made of Object.values(dialects)) {
    server.setScript(() => ({ text: "ok" }));
    await chunksOf(made(server.url), [question, answer, question]);
    bodies.push(JSON.stringify(server.requests.at(-1)?.body));
  }
  expect(bodies[0]).toContain(
    JSON.stringify({ type: "text", text: "It rains.", citations: [citation] }),
  );
  expect(bodies.slice(1).join(" ")).not.toContain("Eo8");
});
