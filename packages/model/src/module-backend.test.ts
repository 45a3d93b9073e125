import type { ModelChunk } from "@larkline/protocol/model-stream";
import { describe, expect, it } from "vitest";
import { checkedBackend, type LlmBackend } from "./index.ts";

async function said(...chunks: unknown[]): Promise<ModelChunk[]> {
  const own = {
    stream: async function* () {
      yield* chunks;
    },
  } as unknown as LlmBackend; // what a module may give
  const all: ModelChunk[] = [];
  for await (const chunk of checkedBackend(own, "mine").stream({ model: "m", messages: [] })) {
    all.push(chunk);
  }
  return all;
}

const noUsage = { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheCreationTokens: 0 };

describe("the backend of a module", () => {
  it("may leave out what has a default", async () => {
    const chunks = await said(
      { type: "thinking_delta", text: "hm" },
      { type: "text_delta", text: "a" },
      { type: "tool_call_delta", name: "clock" },
      {
        type: "message_stop",
        stopReason: "tool_use",
        usage: { outputTokens: 3 },
        responseId: "r1",
      },
      { type: "text_delta", text: "after the end" },
    );
    expect(chunks).toEqual([
      { type: "thinking_delta", index: 0, text: "hm" },
      { type: "text_delta", text: "a" },
      { type: "tool_call_delta", index: 0, id: null, name: "clock", arguments: "" },
      {
        type: "message_stop",
        stopReason: "tool_use",
        usage: { ...noUsage, outputTokens: 3 },
        responseId: "r1",
      },
    ]);
  });

  it("fails with the code that it gives, or else with internal_error", async () => {
    expect(
      await said({ type: "error", code: "api_overloaded", message: "busy", retryAfterMs: 5 }),
    ).toMatchObject([
      {
        type: "error",
        code: "api_overloaded",
        message: "busy",
        retryable: true,
        retryAfterMs: 5,
        partial: false,
      },
    ]);
    expect(await said({ type: "error", code: "mine", message: "no" })).toMatchObject([
      { code: "internal_error" },
    ]);
  });

  it.each([
    [null],
    ["text"],
    [{}],
    [{ type: "audio" }],
    [{ type: "text_delta" }],
    [{ type: "text_delta", text: 5 }],
    [{ type: "tool_call_delta", index: -1 }],
    [{ type: "message_stop", stopReason: "done" }],
    [{ type: "usage_so_far" }],
    [{ type: "error" }],
  ])("ends in one error that names it after the chunk %j", async (chunk) => {
    const chunks = await said(chunk, { type: "text_delta", text: "a" });
    expect(chunks).toHaveLength(1);
    expect(chunks[0]).toMatchObject({
      type: "error",
      code: "internal_error",
      message: expect.stringContaining("providers.mine"),
    });
  });
});
