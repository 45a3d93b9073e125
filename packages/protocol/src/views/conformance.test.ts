import { describe, expect, it } from "vitest";
import { problemsOf, publishedSchemas } from "./conformance.fixture.ts";

describe("the published schemas of chat messages", () => {
  it("CM-37: all 19 compile", () => {
    expect(publishedSchemas.size).toBe(19);
  });

  it("judge: a text message with a source is one, without it is none", () => {
    expect(problemsOf("TextMessage", { source: "a", content: "b" })).toEqual([]);
    expect(problemsOf("TextMessage", { content: "b" })).toEqual([
      " must have required property 'source'",
    ]);
    const dated = { source: "a", content: "b", created_at: "2025-05-23T10:00:00" };
    expect(problemsOf("TextMessage", dated)).toEqual(['/created_at must match format "date-time"']);
  });
});
