import { InboundMessage, Message } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import { addressContextOf } from "./context.ts";
import { userMessageOf } from "./messages.ts";
import { promptSources } from "./prompt-sources.ts";
import { queued } from "./turn.fixture.ts";

/** The constants that a schema names in a field, at any depth: roles, and types of parts. */
function wordsOf(schema: unknown, field: string): string[] {
  if (typeof schema !== "object" || schema === null) return [];
  const { properties = {} } = schema as { properties?: Record<string, { const?: string }> };
  const own = properties[field]?.const;
  return [
    ...(own === undefined ? [] : [own]),
    ...Object.values(schema).flatMap((inner) => wordsOf(inner, field)),
  ];
}

function leadsOut(said: Message, readsNotes = false): boolean {
  return addressContextOf([said], queued().message, readsNotes).foreign;
}

describe("the sources of what a model reads", () => {
  it("have every role and every part that a message may have", () => {
    const sorted = (words: readonly string[]) => [...new Set(words)].toSorted();
    expect(sorted(Object.keys(promptSources.role))).toEqual(sorted(wordsOf(Message, "role")));
    expect(sorted(Object.keys(promptSources.part))).toEqual(sorted(wordsOf(Message, "type")));
    expect(sorted(wordsOf(InboundMessage.properties.parts, "type"))).toEqual([
      "file",
      "image",
      "text",
    ]);
  });

  it("lead out where others wrote them: results, files, images, what says so, summaries and notes", () => {
    const plain: Message = { role: "user", content: [{ type: "text", text: "hello" }] };
    const image = {
      type: "image",
      source: { kind: "url", url: "https://a.example/b.png" },
    } as never;
    const file = {
      type: "file",
      name: "a",
      mediaType: "text/plain",
      bytes: 1,
      state: "failed",
    } as const;
    const result = { type: "tool_result", toolCallId: "c", content: "", isError: false } as const;
    expect(leadsOut(plain)).toBe(false);
    expect(leadsOut({ role: "assistant", content: [{ type: "text", text: "hello" }] })).toBe(false);
    expect(leadsOut({ role: "tool", content: [result] })).toBe(true);
    expect(leadsOut({ ...plain, foreign: true })).toBe(true);
    expect(leadsOut({ role: "user", content: [image] })).toBe(true);
    expect(leadsOut({ role: "user", content: [file] })).toBe(true);
    expect(leadsOut(plain, true)).toBe(true);
    const continuing = { ...queued().message, previousResponseId: "resp_1" };
    expect(addressContextOf([plain], continuing, false).foreign).toBe(true);
    expect(leadsOut(userMessageOf(continuing))).toBe(true);
    const thought = {
      type: "thinking",
      text: "",
      providerMetadata: { vendor: "anthropic", signature: "s" },
    } as const;
    const search = { ...thought, providerMetadata: { ...thought.providerMetadata, opaque: "{}" } };
    expect(leadsOut({ role: "assistant", content: [thought] })).toBe(false);
    expect(leadsOut({ role: "assistant", content: [search] })).toBe(true);
  });
});
