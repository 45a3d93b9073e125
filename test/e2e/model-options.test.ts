import type { EngineEvent } from "@larkline/protocol/event";
import type { NormalisedRequest } from "@larkline/testkit";
import { afterAll, beforeAll, expect, it } from "vitest";
import { elementOf, waitForAnswer } from "../system/answer.ts";
import { chat } from "../system/chat-stream.ts";
import { writeConfig } from "../system/config-file.ts";
import { eventsOfRun } from "../system/run-events.ts";
import { startSystem, type System } from "../system/system.ts";

const plainFacts = { contextWindow: 64_000, maxOutputTokens: 8_000, supportsThinking: true };
const facts = { ...plainFacts, supportsJsonSchema: true };
const schema = {
  type: "object",
  properties: { verdict: { type: "string" } },
  required: ["verdict"],
  additionalProperties: false,
};
const options = { effort: "high", temperature: 1, topP: 0.95, maxOutputTokens: 3_000 };

/** What the model says: in the form that it is to have, unless the words ask for something else. */
function answerTo(text: string, corrected: boolean): string {
  if (text === "judge") return '```json\n{"verdict":"fine"}\n```';
  if (text === "hello" || (text === "mend" && !corrected)) return `[${text}]`;
  return JSON.stringify(
    text === "fields" ? { verdict: { is: [1, true] } } : { verdict: `[${text}]` },
  );
}

let system: System;
let file: Awaited<ReturnType<typeof writeConfig>>;

beforeAll(async () => {
  const script = (request: NormalisedRequest) => {
    const said = request.messages.filter(({ role }) => role === "user").map(({ text }) => text);
    const text = said.findLast((words) => !words.startsWith("[Your answer")) ?? "";
    const corrected = said.at(-1) !== text;
    if (request.model === "broken") {
      return { fault: { kind: "status", status: 400, message: "no such model" } } as const;
    }
    const responseId = `answer of ${request.model}`;
    return {
      responseId,
      ...(text.includes("think") ? { thinking: { text: "Six times seven." } } : {}),
      text: answerTo(text, corrected),
    };
  };
  const others = { quick: { fast: true }, plain: {} };
  system = await startSystem({ workers: 0, script, config: { agents: others } });
  const { url } = system.model;
  file = await writeConfig({
    agents: {
      default: {
        model: "claude/opus",
        models: ["deepseek/chat", "reasoner/r1", "chained/broken", "claude/worded"],
        thinking: true,
        output: { name: "judgement", schema, format: "{verdict} {{}}" },
        ...options,
      },
      listed: { model: "claude/opus", output: { name: "list", schema: { type: "object" } } },
      ...others,
    },
    providers: {
      claude: { type: "anthropic", baseUrl: url, keyEnv: "CLAUDE_KEY" },
      deepseek: { type: "openai", baseUrl: `${url}/v1`, keyEnv: "DEEPSEEK_KEY" },
      reasoner: { type: "openai-responses", baseUrl: `${url}/v1` },
      chained: { type: "openai", baseUrl: `${url}/v1` },
    },
    models: [
      { provider: "claude", id: "opus", ...facts },
      { provider: "claude", id: "worded", ...plainFacts },
      { provider: "deepseek", id: "chat", ...facts },
      { provider: "reasoner", id: "r1", ...facts },
    ],
  });
  const keys = { CLAUDE_KEY: "c", DEEPSEEK_KEY: "d", LARKLINE_CONFIG: file.path };
  await system.start("agent-worker", keys);
});

afterAll(async () => {
  await system.close();
  await file.remove();
});

const wires = [
  {
    model: "claude/opus",
    body: {
      max_tokens: 3_000,
      thinking: { type: "adaptive" },
      output_config: { effort: "high", format: { type: "json_schema", schema } },
      temperature: 1,
      top_p: 0.95,
    },
  },
  {
    model: "deepseek/chat",
    body: {
      max_tokens: 3_000,
      reasoning_effort: "high",
      temperature: 1,
      top_p: 0.95,
      response_format: {
        type: "json_schema",
        json_schema: { name: "judgement", schema, strict: true },
      },
    },
  },
  {
    model: "reasoner/r1",
    body: {
      max_output_tokens: 3_000,
      reasoning: { effort: "high", summary: "auto" },
      temperature: 1,
      top_p: 0.95,
      text: { format: { type: "json_schema", name: "judgement", schema, strict: true } },
    },
  },
];

for (const { model, body } of wires) {
  it(`EE-46, EE-47: what an agent asks for arrives at ${model}, and its thinking on the card`, async () => {
    const person = system.person("Ann");
    await system.ask(person, `/model ${model}`);
    const { feishu, appId } = system;
    const { messageId } = await feishu.sendMessage({
      appId,
      ...person,
      from: person.openId,
      text: "think",
    });
    const answer = await waitForAnswer(feishu, messageId, { timeoutMs: 60_000 });
    expect(answer.text).toBe("[think] {}");
    const [card] = answer.messages;
    expect(JSON.stringify(card && elementOf(card, "thinking"))).toContain("Six times seven.");
    expect(system.model.requests.at(-1)?.body).toMatchObject({
      model: model.split("/")[1],
      ...body,
    });
    const end = (await eventsOfRun(system, person)).find(({ type }) => type === "turn_end");
    expect(end).toMatchObject({ maxTokens: 3_000, responseId: `answer of ${model.split("/")[1]}` });
  });
}

it("EE-46: a model without support is asked for the schema in words, and the value of its answer is in done", async () => {
  const person = system.person("Dee");
  await system.ask(person, "/model claude/worded");
  await system.ask(person, "judge");
  const { body = {}, system: asked = "" } = system.model.requests.at(-1) ?? {};
  expect(body["output_config"]).toEqual({ effort: "high" });
  expect(asked).toContain(JSON.stringify(schema));
  const ends = (await eventsOfRun(system, person)).filter(({ type }) => type === "done");
  expect(ends.at(-1)).toMatchObject({ reason: "", output: { verdict: "fine" } });
});

it("AT-21: the model reads why its answer does not fit, and its second one counts", async () => {
  const person = system.person("Fil");
  expect(await system.ask(person, "mend")).toBe("[mend] {}");
  const events = await eventsOfRun(system, person);
  expect(events.filter(({ type }) => type === "turn_end")).toHaveLength(2);
  expect(events.find(({ type }) => type === "done")).toMatchObject({
    reason: "",
    output: { verdict: "[mend]" },
    outputName: "judgement",
    outputFormat: "{verdict} {{}}",
  });
  expect(system.model.requests.at(-1)?.messages.at(-1)?.text).toContain("not valid JSON");
});

it("AT-21: an answer that never fits is sent as such after two more tries, with its text", async () => {
  const person = system.person("Eli");
  expect(await system.ask(person, "hello")).toBe(
    `[hello]\n\nThe answer did not come in the form that it should have.`,
  );
  const events = await eventsOfRun(system, person);
  expect(events.filter(({ type }) => type === "turn_end")).toHaveLength(3);
  const done = events.find(({ type }) => type === "done");
  expect(done).toMatchObject({ reason: "output_invalid", final: "[hello]" });
  expect(done).not.toHaveProperty("output");
  expect(events).toContainEqual(
    expect.objectContaining({ type: "warning", code: "output_invalid" }),
  );
});

/** What another agent is asked, and how its step ended. */
async function askedOf(
  agent: string,
): Promise<{ body: Record<string, unknown>; end: EngineEvent | undefined }> {
  const frames = await (
    await chat(system.ingresses[0]?.url ?? "", agent, { message: "hello", agent })
  ).end();
  expect(frames.at(-1)).toMatchObject({ type: "done", final: "[hello]" });
  const events = await eventsOfRun(system, { app: "api", chatId: agent });
  return {
    body: system.model.requests.at(-1)?.body ?? {},
    end: events.find(({ type }) => type === "turn_end"),
  };
}

it("EE-46: `fast` lowers the limit of the request", async () => {
  const { body, end } = await askedOf("quick");
  expect(body["max_tokens"]).toBe(4_096);
  expect(end).toMatchObject({ maxTokens: 4_096 });
});

it("a provider falls back to the model of another one", async () => {
  const person = system.person("Bob");
  await system.ask(person, "/model chained/broken");
  expect(await system.ask(person, "greet")).toBe("[greet] {}");
  expect(system.model.requests.slice(-2).map(({ dialect, model }) => [dialect, model])).toEqual([
    ["openai-chat", "broken"],
    ["anthropic", "opus"],
  ]);
});

it("EE-47: an agent that asks for nothing sends nothing but the limit of its model", async () => {
  const { body, end } = await askedOf("plain");
  expect(Object.keys(body).toSorted()).toEqual([
    "max_tokens",
    "messages",
    "model",
    "stream",
    "system",
    "tools",
  ]);
  expect(body["max_tokens"]).toBe(32_000);
  expect(end).toMatchObject({ maxTokens: 32_000 });
});
