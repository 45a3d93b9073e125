import type { RunEvent } from "@larkline/protocol/views/engine-events";
import { defineTool } from "@larkline/tool-kit";
import {
  replyOfStream,
  startModelServer,
  vendorAnswers,
  type ModelServer,
} from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createEngine, openai, type Engine } from "./index.ts";

// RI-36, AT-5: a new session that is given what a run has added sends the vendor what the old one would have sent.

let server: ModelServer;
beforeAll(async () => {
  server = await startModelServer();
});
afterAll(async () => await server.close());

const tool = (name: string) =>
  defineTool({
    name,
    description: "Looks.",
    input: { type: "object" },
    effect: "pure",
    run: () => "sunny",
  });

function engineOn(): Engine {
  const engine = createEngine({
    agents: { default: { model: "gpt/gpt-5.4" } },
    models: { gpt: openai({ apiKey: "k", baseUrl: `${server.url}/v1`, api: "responses" }) },
    tools: [tool("look"), tool("weather")],
  });
  onTestFinished(async () => await engine.close());
  return engine;
}

type Events = readonly Record<string, unknown>[];

/** Answers with the streams, one after the other, then with a text. */
function answerWith(streams: readonly Events[]): void {
  const waiting = [...streams];
  server.setScript(({ dialect }) => {
    const events = waiting.shift();
    return events === undefined ? { text: "ok" } : replyOfStream(dialect, { events });
  });
}

const inputOfLast = (): unknown => server.requests.at(-1)?.body["input"];

/** What the session sends with its next message, what a new one does, and the result of its first run. */
async function bothInputs(streams: readonly Events[]) {
  const engine = engineOn();
  answerWith(streams);
  const result = await engine.run("old", "first").result();
  await engine.run("old", "second").result();
  const before = inputOfLast();
  await engine.run("new", [...result.toInputList(), { role: "user", content: "second" }]).result();
  return { before: before as Record<string, unknown>[], after: inputOfLast(), result };
}

const message = { type: "message", role: "assistant", status: "completed" };
const text = (said: string, annotations: object[] = []) => ({
  type: "output_text",
  text: said,
  annotations,
});
const cited = {
  type: "url_citation",
  start_index: 0,
  end_index: 6,
  title: "Site",
  url: "https://example.com/a",
};
const commentary = {
  ...message,
  id: "msg_a",
  phase: "commentary",
  content: [text("Commentary first.")],
};
const answer = {
  ...message,
  id: "msg_b",
  phase: "final_answer",
  content: [text("Final second.", [cited])],
};
const other = { ...message, id: "msg_c", content: [text("And more.")] };
const reasoning = { type: "reasoning", id: "rs_a", summary: [], encrypted_content: "gAAA" };
const search = {
  type: "web_search_call",
  id: "ws_a",
  status: "completed",
  action: { type: "search", query: "q" },
};
const remote = {
  type: "mcp_call",
  id: "mcp_a",
  server_label: "s",
  name: "n",
  arguments: "{}",
  output: "o",
};
const listed = { type: "mcp_list_tools", id: "mcpl_a", server_label: "s", tools: [] };
const later = { type: "compaction", id: "cmp_a", encrypted_content: "gBBB" };
const call = {
  type: "function_call",
  id: "fc_a",
  call_id: "call_a",
  name: "look",
  arguments: "{}",
  status: "completed",
};
const click = {
  type: "computer_call",
  id: "cu_a",
  call_id: "call_b",
  status: "completed",
  pending_safety_checks: [],
};
const script = {
  type: "custom_tool_call",
  id: "ctc_a",
  call_id: "call_c",
  name: "sh",
  input: "ls",
};

/** The events of an answer, in pieces as the vendor sends them. */
function streamOf(output: readonly Record<string, unknown>[]): Events {
  const items = output.flatMap((item, output_index): Record<string, unknown>[] => {
    const content = Array.isArray(item["content"]) ? (item["content"] as { text: string }[]) : [];
    const deltas = content.map((part) => ({
      type: "response.output_text.delta",
      output_index,
      delta: part.text,
    }));
    const begun = { ...item, content: [], status: "in_progress" };
    return [
      { type: "response.output_item.added", output_index, item: begun },
      ...deltas,
      { type: "response.output_item.done", output_index, item },
    ];
  });
  const usage = { input_tokens: 5, output_tokens: 7 };
  return [
    ...items,
    { type: "response.completed", response: { id: "resp_a", status: "completed", output, usage } },
  ];
}

describe("what a vendor has made", () => {
  it.each([
    ["two messages with phases and a citation", [commentary, answer]],
    ["two messages without phases", [answer, other]],
    [
      "reasoning and calls of the vendor's own tools",
      [listed, reasoning, search, remote, answer, later],
    ],
    ["a commentary alone", [commentary]],
  ])("RI-36: comes back to it as it was: %s", async (_about, output) => {
    const { before, after, result } = await bothInputs([streamOf(output)]);
    expect(after).toEqual(before);
    expect(before.slice(1, 1 + output.length)).toEqual(output);
    expect(result.rawResponses[0]?.output.slice(0, output.length)).toEqual(output);
  });

  it("RI-36: comes back with its ids before the output of its call", async () => {
    const { before, after } = await bothInputs([
      streamOf([reasoning, commentary, call]),
      streamOf([search, answer]),
    ]);
    const output = { type: "function_call_output", call_id: "call_a", output: "sunny" };
    expect(before.slice(1, -1)).toEqual([reasoning, commentary, call, output, search, answer]);
    expect(after).toEqual(before);
  });

  it("RI-36: comes back in the order of the vendor, where calls stand between its other items", async () => {
    const second = { ...call, id: "fc_b", call_id: "call_b", name: "weather" };
    const thought = { ...reasoning, id: "rs_b" };
    const first = [reasoning, call, search, commentary, thought, second, answer];
    const { before, after, result } = await bothInputs([streamOf(first), streamOf([other])]);
    const outputs = ["call_a", "call_b"].map((call_id) => ({
      type: "function_call_output",
      call_id,
      output: "sunny",
    }));
    expect(before.slice(1, -1)).toEqual([...first, ...outputs, other]);
    expect(after).toEqual(before);
    expect(result.rawResponses[0]?.output).toEqual(first);
  });

  it("RI-33: a call without an output is left out, with the reasoning that led to it", async () => {
    const { before, after } = await bothInputs([streamOf([reasoning, click, script, answer])]);
    expect(before.slice(1, -1)).toEqual([answer]);
    expect(after).toEqual(before);
  });

  it.each(
    vendorAnswers().flatMap(({ name, streams }) =>
      streams["openai-responses"] ? [[name, streams] as const] : [],
    ),
  )("RI-36, AT-5: is sent alike by a new session: %s", async (_name, streams) => {
    const { before, after } = await bothInputs(
      (streams["openai-responses"] ?? []).map(({ events }) => events),
    );
    expect(after).toEqual(before);
  });
});

describe("the messages of an answer", () => {
  it("RI-36: are an item each, and people read the final one, the commentary as thoughts", async () => {
    const engine = engineOn();
    answerWith([streamOf([commentary, answer])]);
    const { newItems, finalOutput } = await engine.run("s", "hi").result();
    expect(finalOutput).toBe("Final second.");
    expect(newItems).toEqual([
      { type: "message_output_item", agent: "default", rawItem: commentary },
      { type: "message_output_item", agent: "default", rawItem: answer },
    ]);
  });

  it("name what they cite as links below the answer, except what it links to itself", async () => {
    const engine = engineOn();
    const linked = { ...cited, title: "Linked", url: "https://example.com/b" };
    const odd = { ...cited, title: "Odd](x", url: "javascript:alert(1)" };
    const said = text("See https://example.com/b", [
      cited,
      linked,
      odd,
      { ...cited, title: "a [b](c)", url: "https://x.com/(d)" },
    ]);
    answerWith([streamOf([{ ...answer, content: [said] }])]);
    const ends: RunEvent[] = [];
    for await (const { event } of engine.run("s", "hi")) {
      if (event.type === "done") ends.push(event);
    }
    expect(ends[0]).toMatchObject({
      final: "See https://example.com/b",
      reply:
        "See https://example.com/b\n\nSources: [Site](https://example.com/a) · [a b c](https://x.com/%28d%29)",
    });
  });

  it("of Chat Completions name what they cite alike, which the vendor does not get back", async () => {
    const engine = createEngine({
      agents: { default: { model: "gpt/gpt-5.4" } },
      models: { gpt: openai({ apiKey: "k", baseUrl: `${server.url}/v1`, api: "chat" }) },
    });
    onTestFinished(async () => await engine.close());
    const annotations = [
      { type: "url_citation", url_citation: { url: cited.url, title: cited.title } },
    ];
    const delta = (fields: object, finish_reason: string | null) => ({
      choices: [{ index: 0, delta: fields, finish_reason }],
    });
    const events = [delta({ content: "It rains." }, null), delta({ annotations }, "stop")];
    server.setScript(({ dialect }) => replyOfStream(dialect, { events }));
    const ends: RunEvent[] = [];
    for await (const { event } of engine.run("cited", "hi")) {
      if (event.type === "done") ends.push(event);
    }
    expect(ends[0]).toMatchObject({
      final: "It rains.",
      reply: "It rains.\n\nSources: [Site](https://example.com/a)",
    });
    await engine.run("cited", "again").result();
    expect(server.requests.at(-1)?.body["messages"]).toMatchObject([
      { role: "user", content: "hi" },
      { role: "assistant", content: "It rains." },
      { role: "user", content: "again" },
    ]);
  });

  it("are read one below the other where the vendor names no phases", async () => {
    const engine = engineOn();
    answerWith([streamOf([other, { ...other, id: "msg_d" }])]);
    const { newItems, finalOutput } = await engine.run("s", "hi").result();
    expect(finalOutput).toBe("And more.\n\nAnd more.");
    expect(newItems.map(({ rawItem }) => "id" in rawItem && rawItem.id)).toEqual([
      "msg_c",
      "msg_d",
    ]);
  });
});
