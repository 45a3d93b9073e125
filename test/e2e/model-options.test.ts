import type { NormalisedRequest } from "@larkline/testkit";
import { afterAll, beforeAll, expect, it } from "vitest";
import { elementOf, waitForAnswer } from "../system/answer.ts";
import { writeConfig } from "../system/config-file.ts";
import { eventsOfRun } from "../system/run-events.ts";
import { startSystem, type System } from "../system/system.ts";

const facts = { contextWindow: 64_000, maxOutputTokens: 8_000, supportsThinking: true };
const options = { effort: "high", temperature: 1, topP: 0.95, maxOutputTokens: 3_000 };

let system: System;
let file: Awaited<ReturnType<typeof writeConfig>>;

beforeAll(async () => {
  const script = (request: NormalisedRequest) => {
    const text = request.messages.at(-1)?.text ?? "";
    if (request.model === "broken") {
      return { fault: { kind: "status", status: 400, message: "no such model" } } as const;
    }
    const responseId = `answer of ${request.model}`;
    return {
      responseId,
      ...(text.includes("think") ? { thinking: { text: "Six times seven." } } : {}),
      text: `[${text}]`,
    };
  };
  system = await startSystem({ workers: 0, script });
  const { url } = system.model;
  file = await writeConfig({
    agents: {
      default: {
        model: "claude/opus",
        models: ["deepseek/chat", "reasoner/r1", "chained/broken"],
        thinking: true,
        ...options,
      },
      plain: {},
    },
    providers: {
      claude: { type: "anthropic", baseUrl: url, keyEnv: "CLAUDE_KEY" },
      deepseek: { type: "openai", baseUrl: `${url}/v1`, keyEnv: "DEEPSEEK_KEY" },
      reasoner: { type: "openai-responses", baseUrl: `${url}/v1` },
      chained: { type: "openai", baseUrl: `${url}/v1` },
    },
    models: [
      { provider: "claude", id: "opus", ...facts },
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
      output_config: { effort: "high" },
      temperature: 1,
      top_p: 0.95,
    },
  },
  { model: "deepseek/chat", body: { max_tokens: 3_000, reasoning_effort: "high", temperature: 1, top_p: 0.95 } },
  {
    model: "reasoner/r1",
    body: { max_output_tokens: 3_000, reasoning: { effort: "high", summary: "auto" }, temperature: 1, top_p: 0.95 },
  },
];

for (const { model, body } of wires) {
  it(`EE-47: what an agent asks for arrives at ${model}, and its thinking on the card`, async () => {
    const person = system.person("Ann");
    await system.ask(person, `/model ${model}`);
    const { feishu, appId } = system;
    const { messageId } = await feishu.sendMessage({ appId, ...person, from: person.openId, text: "think" });
    const answer = await waitForAnswer(feishu, messageId, { timeoutMs: 10_000 });
    expect(answer.text).toBe("[think]");
    const [card] = answer.messages;
    expect(JSON.stringify(card && elementOf(card, "thinking"))).toContain("Six times seven.");
    expect(system.model.requests.at(-1)?.body).toMatchObject({ model: model.split("/")[1], ...body });
    const end = (await eventsOfRun(system, person)).find(({ type }) => type === "turn_end");
    expect(end).toMatchObject({ maxTokens: 3_000, responseId: `answer of ${model.split("/")[1]}` });
  });
}

it("a provider falls back to the model of another one", async () => {
  const person = system.person("Bob");
  await system.ask(person, "/model chained/broken");
  expect(await system.ask(person, "hello")).toBe("[hello]");
  expect(system.model.requests.slice(-2).map(({ dialect, model }) => [dialect, model])).toEqual([
    ["openai-chat", "broken"],
    ["anthropic", "opus"],
  ]);
});

it("EE-47: an agent that asks for nothing sends nothing but the limit of its model", async () => {
  const usual = await startSystem({ script: ({ messages }) => ({ text: `[${messages.at(-1)?.text}]` }) });
  try {
    const person = usual.person("Cai");
    expect(await usual.ask(person, "hello")).toBe("[hello]");
    const body = usual.model.requests.at(-1)?.body ?? {};
    expect(Object.keys(body).toSorted()).toEqual(["max_tokens", "messages", "model", "stream", "system", "tools"]);
    expect(body["max_tokens"]).toBe(32_000);
    const end = (await eventsOfRun(usual, person)).find(({ type }) => type === "turn_end");
    expect(end).toMatchObject({ maxTokens: 32_000 });
  } finally {
    await usual.close();
  }
});
