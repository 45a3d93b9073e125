import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { visibleAnswers } from "../system/answer.ts";
import type { Written } from "../system/answers.ts";
import { decide, untilRetired, type AskedCard } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { createPromptedModel } from "../system/model-script.ts";
import { answerTo, lastRequest, send, type Writer } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

const model = createPromptedModel();
const approve = { decision: "approve" };
let system: System;

/** One system with this policy for the tests of a block. */
function withPolicy(busy: string): void {
  beforeAll(async () => {
    system = await startSystem({
      script: model.script,
      env: { RUNNER_TOOLS: fileURLToPath(new URL("../fixtures/approval-tools.ts", import.meta.url)) },
      config: { agents: { default: { busy } } },
    });
  });
  afterAll(async () => await system.close());
}

async function ask(person: Writer, key: string): Promise<{ written: Written; card: AskedCard }> {
  const text = `act ${key}\ncall ask_once ${JSON.stringify({ key })}`;
  const written = await send(system, person, { text });
  return { written, card: await theQuestion(system, person.chatId) };
}

function roles(): string[] {
  return lastRequest(system).messages.map(({ role }) => role);
}

/** Calls in all requests so far that are not followed by their result at once. */
function separatedCalls(): string[] {
  return system.model.requests.flatMap(({ messages }) =>
    messages.flatMap(({ calls }, index) => {
      const answered = messages[index + 1]?.results.map(({ id }) => id) ?? [];
      return calls.flatMap(({ id, name }) => (answered.includes(id) ? [] : [name]));
    }),
  );
}

describe("while people are asked, under the policy queue", () => {
  withPolicy("queue");

  it("AL-44: a message waits for its own turn, and never stands between a call and its result", async () => {
    const person = system.person("Ann");
    const { written, card } = await ask(person, "first");
    const meanwhile = await send(system, person, { text: "and this" });
    expect(visibleAnswers(system.feishu, meanwhile)).toEqual([]);
    await decide(system, card, { openId: person.openId, wanted: approve });
    expect(await answerTo(system, written)).toBe('[act first] ok:{"key":"first"}');
    expect(await answerTo(system, meanwhile)).toBe("[and this]");
    expect(roles()).toEqual(["user", "assistant", "tool", "assistant", "user"]);
    expect(separatedCalls()).toEqual([]);
  });
});

describe("while people are asked, under the policy steer", () => {
  withPolicy("steer");

  it("AL-44: a message joins the turn behind the result, and the question stays open until it is answered", async () => {
    const person = system.person("Bob");
    const { written, card } = await ask(person, "joined");
    const joining = await send(system, person, { text: "also this" });
    const marked = (): boolean =>
      system.feishu
        .messages(person.chatId)
        .some(({ messageId, reactions }) => messageId === joining.messageId && reactions.length > 0);
    await vi.waitUntil(marked, { timeout: 60_000, interval: 10 });
    expect(system.model.requests).toHaveLength(1);
    const { toast } = await decide(system, card, { openId: person.openId, wanted: approve });
    expect(toast?.content).toBe("Approved");
    await answerTo(system, written);
    const { messages } = lastRequest(system);
    expect(messages.flatMap(({ results }) => results.map(({ content }) => content))).toEqual(['{"key":"joined"}']);
    expect(messages.at(-1)?.text).toContain("also this");
    expect(separatedCalls()).toEqual([]);
    expect(visibleAnswers(system.feishu, joining)).toEqual([]);
    expect(await system.recorded()).toEqual(["once joined"]);
  });
});

describe("while people are asked, under the policy interrupt", () => {
  withPolicy("interrupt");

  it("the person's next message ends the turn: the buttons go, a late click does nothing, and the call never runs", async () => {
    const person = system.person("Cai");
    const { written, card } = await ask(person, "dropped");
    const next = await send(system, person, { text: "no, this" });
    expect(await answerTo(system, written)).toContain("A newer message arrived");
    expect(await answerTo(system, next)).toBe("[no, this]");
    expect((await untilRetired(system, person.chatId)).map(({ title }) => title)).toEqual(["ask_once cancelled"]);
    const { toast } = await decide(system, card, { openId: person.openId, wanted: approve });
    expect(toast).toMatchObject({ type: "info", content: "no pending approval" });
    expect(await system.ask(person, "still there")).toBe("[still there]");
    expect(await system.recorded()).toEqual([]);
  });

  it("a click at the moment of that message runs the call once or never, as its toast says", async () => {
    for (let round = 0; round < 4; round += 1) {
      const person = system.person(`Dan ${round}`);
      const { card } = await ask(person, `race${round}`);
      const [next, { toast }] = await Promise.all([
        send(system, person, { text: "no, this" }),
        decide(system, card, { openId: person.openId, wanted: approve }),
      ]);
      expect(["Approved", "no pending approval"]).toContain(toast?.content);
      expect(await answerTo(system, next)).toBe("[no, this]");
      await untilRetired(system, person.chatId);
      const runs = (await system.recorded()).filter((line) => line === `once race${round}`).length;
      expect(runs).toBeLessThanOrEqual(toast?.content === "Approved" ? 1 : 0);
    }
    expect(separatedCalls()).toEqual([]);
  });
});
