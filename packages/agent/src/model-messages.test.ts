import { attachmentStates, toolResultPart, type Message, type ToolUsePart } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import { modelMessagesOf } from "./index.ts";

const hello: Message = { role: "user", content: [{ type: "text", text: "hello" }] };

const spoken: Message[] = [{ role: "assistant", content: [{ type: "text", text: "yes" }] }];

function use(id: string): ToolUsePart {
  return { type: "tool_use", id, name: "weather", arguments: {} };
}

function asked(...ids: string[]): Message {
  return { role: "assistant", content: ids.map(use) };
}

function answered(...ids: string[]): Message {
  return { role: "tool", content: ids.map((id) => toolResultPart(id, `result of ${id}`)) };
}

describe("the history as sent to a vendor", () => {
  it("a valid history comes back as the same array", () => {
    const history: Message[] = [
      hello,
      {
        role: "assistant",
        content: [{ type: "thinking", text: "hm" }, { type: "text", text: "look" }, use("c1"), use("c2")],
      },
      answered("c2", "c1"),
      {
        role: "assistant",
        content: [
          { type: "thinking", text: "", providerMetadata: { data: "x" } },
          { type: "text", text: "sunny" },
        ],
      },
      hello,
    ];
    expect(modelMessagesOf(history)).toBe(history);
  });

  it("keeps files of a user message in every state, for whoever puts their text in", () => {
    const file = { type: "file" as const, name: "a.pdf", mediaType: "application/pdf", bytes: 0 };
    const content = attachmentStates.map((state) => ({ ...file, state }));
    const history: Message[] = [{ role: "user", content: [...content, { type: "text", text: " " }] }, ...spoken];
    expect(modelMessagesOf(history)).toEqual([{ role: "user", content }, ...spoken]);
  });

  it("a call without a result gets one that says so, also at the end", () => {
    expect(modelMessagesOf([hello, asked("c1", "c2"), answered("c2"), hello])).toEqual([
      hello,
      asked("c1", "c2"),
      {
        role: "tool",
        content: [expect.objectContaining({ toolCallId: "c1", isError: true }), toolResultPart("c2", "result of c2")],
      },
      hello,
    ]);
    expect(modelMessagesOf([hello, asked("c1")]).at(-1)).toMatchObject({
      role: "tool",
      content: [{ toolCallId: "c1", isError: true }],
    });
  });

  it("results of several messages are joined; second ones and strangers are dropped", () => {
    const history = [hello, asked("c1", "c2"), answered("c1"), answered("c1", "c2", "x")];
    expect(modelMessagesOf(history)).toEqual([hello, asked("c1", "c2"), answered("c1", "c2")]);
  });

  it("results without a call are dropped", () => {
    expect(modelMessagesOf([hello, answered("c1"), hello])).toEqual([hello, hello]);
  });

  it("an id used before is renamed together with its result", () => {
    const history = [hello, asked("c1"), answered("c1"), hello, asked("c1"), answered("c1")];
    expect(modelMessagesOf(history)).toEqual([
      ...history.slice(0, 4),
      asked("c1_2"),
      { role: "tool", content: [toolResultPart("c1_2", "result of c1")] },
    ]);
    expect(modelMessagesOf([hello, asked("c1", "c1"), answered("c1", "c1")]).at(1)).toEqual(asked("c1", "c1_2"));
  });

  it("blank parts, empty thinking and thinking at the end go, and messages left with nothing", () => {
    const history: Message[] = [
      {
        role: "user",
        content: [
          { type: "text", text: " " },
          { type: "text", text: "hello" },
        ],
      },
      { role: "assistant", content: [{ type: "text", text: "" }] },
      { role: "assistant", content: [{ type: "thinking", text: "hm" }] },
      {
        role: "assistant",
        content: [
          { type: "thinking", text: "" },
          { type: "text", text: "hi" },
          { type: "thinking", text: "x" },
        ],
      },
      { role: "user", content: [] },
    ];
    expect(modelMessagesOf(history)).toEqual([hello, { role: "assistant", content: [{ type: "text", text: "hi" }] }]);
  });

  it("the conversation begins with a user message", () => {
    expect(modelMessagesOf([asked("c1"), answered("c1"), hello])).toEqual([hello]);
  });

  it("the stored history is never changed", () => {
    const history = [hello, asked("c1"), hello, asked("c1", "c1")];
    const before = structuredClone(history);
    modelMessagesOf(history);
    expect(history).toEqual(before);
  });
});
