import { expect, it } from "vitest";
import { textStream, messageStop } from "./index.ts";

async function textsOf(source: unknown): Promise<string[]> {
  const texts: string[] = [];
  for await (const text of textStream(source)) texts.push(text);
  return texts;
}

async function* later(items: readonly unknown[]): AsyncGenerator {
  yield* items;
}

const openai = [
  { choices: [] },
  { choices: [{ delta: { role: "assistant", content: "" } }] },
  { choices: [{ delta: { content: "Hel" } }] },
  {
    choices: [
      { delta: { content: "lo", tool_calls: [{ index: 0, function: { arguments: "{}" } }] } },
    ],
  },
  { choices: [{ delta: {}, finish_reason: "stop" }] },
  { choices: [], usage: {} },
];
const anthropic = [
  { type: "message_start", message: {} },
  { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Hel" } },
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "lo" } },
  {
    type: "content_block_delta",
    index: 1,
    delta: { type: "input_json_delta", partial_json: "{}" },
  },
  { type: "content_block_delta", index: 2, delta: { type: "thinking_delta", thinking: "hm" } },
  { type: "message_stop" },
];
const normalised = [
  { type: "tool_call_delta", index: 0, id: "c", name: "n", arguments: "{}" },
  { type: "thinking_delta", index: 1, text: "hm" },
  { type: "text_delta", text: "Hel" },
  { type: "text_delta", text: "lo" },
  messageStop("end_turn"),
];

for (const [family, chunks] of Object.entries({ openai, anthropic, normalised })) {
  it(`AL-56: yields only the text of a stream of the ${family} family, async or not, whatever comes first`, async () => {
    expect(await textsOf(later(chunks))).toEqual(["Hel", "lo"]);
    expect(await textsOf(chunks)).toEqual(["Hel", "lo"]);
    expect(await textsOf(chunks.toReversed())).toEqual(["lo", "Hel"]);
  });
}

it("AL-56: an empty stream yields nothing", async () => {
  expect(await textsOf([])).toEqual([]);
});

it("AL-57: a number, null, a string and a plain object fail with a type error when iteration starts", async () => {
  for (const source of [1, null, undefined, "text", {}]) {
    const stream = textStream(source);
    await expect(stream.next()).rejects.toThrow(TypeError);
  }
});
