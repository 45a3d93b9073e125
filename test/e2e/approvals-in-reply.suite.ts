import { Redis } from "ioredis";
import { describe, expect, it, vi } from "vitest";
import { visibleAnswers } from "../system/answer.ts";
import { write, type Written } from "../system/answers.ts";
import { decide, openQuestions, untilAsked, type AskedCard } from "../system/approvals.ts";
import { namedPerson, submit, theQuestion } from "../system/asking.ts";
import { answerTo, takeBack, type Writer } from "../system/sending.ts";
import { ids, model, system } from "./approvals-deployment.ts";

const approve = { decision: "approve" };
const reject = { decision: "reject" };
const patience = { timeout: 60_000, interval: 20 };

interface Asked {
  person: Writer;
  written: Written;
  card: AskedCard;
}

let alone: Writer | undefined;

/** The person who alone decides about their calls. */
function theirs(): Writer {
  return (alone ??= namedPerson(system, ids.alone, "Ina"));
}

async function ask(key: string, { text = "Let me see.", person = theirs() } = {}): Promise<Asked> {
  const called = { calls: [{ name: "ask_once", arguments: JSON.stringify({ key }) }] };
  model.promptSteps(`act ${key}`, { ...called, text }, { text: " That is all." });
  const written = await write(system, person, `act ${key}`);
  return { person, written, card: await theQuestion(system, person.chatId) };
}

async function runs(key: string): Promise<number> {
  return (await system.recorded()).filter((line) => line.endsWith(` ${key}`)).length;
}

/** Whether an approval of the person's chat is stored and not decided. */
async function isWaiting({ chatId }: Writer): Promise<boolean> {
  const redis = new Redis(system.redis.url);
  try {
    return (await redis.keys(`*:pending:*${chatId}`)).length > 0;
  } finally {
    redis.disconnect();
  }
}

/** The whole answer is on the card that has asked, which asks nothing any more; the bot has sent no other message. */
async function expectOneCard({ person, written, card }: Asked, text: string): Promise<void> {
  expect(await answerTo(system, written)).toContain(text);
  const { messages } = visibleAnswers(system.feishu, written).at(-1) ?? { messages: [] };
  expect(messages.map(({ messageId }) => messageId)).toEqual([card.message.messageId]);
  expect(JSON.stringify(messages[0]?.card?.json)).not.toContain("__approval__");
  expect(messages[0]?.card?.streaming).toBe(false);
  expect(openQuestions(system, person.chatId)).toEqual([]);
  const refused = messages
    .flatMap(({ card: shown }) => shown?.cardId ?? [])
    .map((id) => system.feishu.card(id));
  expect(refused.flatMap((one) => one?.operations ?? []).filter(({ code }) => code !== 0)).toEqual(
    [],
  );
}

async function withoutWorkers(work: () => Promise<void>): Promise<void> {
  const count = system.workers.length;
  for (const worker of system.workers.splice(0)) await worker.kill();
  await work();
  for (let started = 0; started < count; started += 1) {
    system.workers.push(await system.start("agent-worker"));
  }
}

describe("a call about which its requester alone decides", () => {
  it("is asked below the text of the reply, on a card that does not stream; then the answer continues there", async () => {
    const asked = await ask("inside");
    const { person, card } = asked;
    expect(card.title).toBe("Approve ask_once?");
    expect(card.message).toMatchObject({
      parentId: asked.written.messageId,
      card: { streaming: false },
    });
    const shown = JSON.stringify(card.message.card?.json);
    for (const text of ["Let me see.", "It is yours.", '\\"inside\\"', "waiting for a person"]) {
      expect(shown).toContain(text);
    }
    const { toast, cardChanged } = await decide(system, card, {
      openId: person.openId,
      wanted: approve,
    });
    expect(toast).toMatchObject({ type: "success", content: "Approved" });
    expect(cardChanged).toBe(false); // its one writer draws it
    await expectOneCard(asked, "That is all.");
    expect(await runs("inside")).toBe(1);
    const again = await decide(system, card, { openId: person.openId, wanted: approve });
    expect(again).toMatchObject({ toast: { content: "no pending approval" }, cardChanged: false });
  });

  it("is rejected with a reason by a form at the root of that card", async () => {
    const asked = await ask("why");
    const { person, card } = asked;
    const { cardChanged } = await decide(system, card, {
      openId: person.openId,
      wanted: { ask: "reason" },
    });
    expect(cardChanged).toBe(true);
    const form = JSON.stringify(openQuestions(system, person.chatId)[0]?.message.card?.json);
    expect(form).toContain("Let me see.");
    expect(form).toContain('"name":"reject_form"');
    const answer = {
      openId: person.openId,
      button: "reject_form_submit",
      form: { reason: "Not on a Friday." },
    };
    const clicked = await submit(system, card, answer);
    expect(clicked).toMatchObject({ toast: { content: "Rejected" }, cardChanged: false });
    await expectOneCard(asked, "That is all.");
    const results = system.model.requests.flatMap(({ messages }) =>
      messages.flatMap((one) => one.results),
    );
    expect(JSON.stringify(results)).toContain("Not on a Friday.");
    expect(await runs("why")).toBe(0);
  });

  it("is decided while no worker lives, and the next one continues on the same card", async () => {
    const asked = await ask("killed");
    const { person, card } = asked;
    await withoutWorkers(async () => {
      const form = await decide(system, card, { openId: person.openId, wanted: { ask: "reason" } });
      expect(form.cardChanged).toBe(true);
      const { toast } = await decide(system, card, { openId: person.openId, wanted: approve });
      expect(toast?.content).toBe("Approved");
    });
    await expectOneCard(asked, "That is all.");
    expect(await runs("killed")).toBe(1);
  });

  it("is asked on a card of its own when the card of the reply cannot be written, and when its worker dies before", async () => {
    const person = theirs();
    const allow = system.feishu.faults.add({
      match: { path: /cardkit/ },
      action: { kind: "respond", status: 503 },
    });
    const asked = await ask("own");
    expect(asked.card.message.card?.json).toMatchObject({
      header: { title: { content: "Approve ask_once?" } },
    });
    allow();
    await decide(system, asked.card, { openId: person.openId, wanted: approve });
    expect(await answerTo(system, asked.written)).toContain("That is all.");
    expect(openQuestions(system, person.chatId)).toEqual([]);
    expect(await runs("own")).toBe(1);
    const hang = system.feishu.faults.add({ match: { path: /cardkit/ }, action: { kind: "hang" } });
    model.promptSteps(
      "act orphaned",
      { calls: [{ name: "ask_once", arguments: '{"key":"orphaned"}' }] },
      { text: "Over." },
    );
    const written = await write(system, person, "act orphaned");
    await vi.waitUntil(async () => await isWaiting(person), patience);
    await withoutWorkers(async () => hang());
    const [card] = await untilAsked(system, person.chatId);
    if (card === undefined) throw new Error("unreachable: a card was waited for");
    await decide(system, card, { openId: person.openId, wanted: reject });
    expect(await answerTo(system, written)).toContain("Over.");
    await vi.waitUntil(() => openQuestions(system, person.chatId).length === 0, patience);
  });

  it("loses its buttons with /stop, with a recall, and when its time is over", async () => {
    const stopped = await ask("stopped inside");
    await write(system, stopped.person, "/stop");
    await answerTo(system, stopped.written);
    expect(openQuestions(system, stopped.person.chatId)).toEqual([]);
    const recalled = await ask("recalled inside");
    await takeBack(system, recalled.written);
    await vi.waitUntil(() => openQuestions(system, recalled.person.chatId).length === 0, patience);
    const hasty = await ask("late inside", { person: namedPerson(system, ids.aloneHasty, "Ivo") });
    await expectOneCard(hasty, "That is all.");
    for (const key of ["stopped inside", "recalled inside", "late inside"]) {
      expect(await runs(key)).toBe(0);
    }
  });

  it("stands beside another one on the same card, and each goes when it is decided", async () => {
    const person = theirs();
    const calls = ["left", "right"].map((key) => ({
      name: "ask_once",
      arguments: JSON.stringify({ key }),
    }));
    model.promptSteps("act twice", { calls, text: "Two things." }, { text: " Both are done." });
    const written = await write(system, person, "act twice");
    const [left, right] = await untilAsked(system, person.chatId, 2);
    if (left === undefined || right === undefined) {
      throw new Error("unreachable: two questions were waited for");
    }
    expect(right.message.messageId).toBe(left.message.messageId);
    await decide(system, left, { openId: person.openId, wanted: approve });
    await vi.waitUntil(() => openQuestions(system, person.chatId).length === 1, patience);
    const [card = left] = openQuestions(system, person.chatId);
    expect(card.values[0]?.["__approval__"]).toBe(right.values[0]?.["__approval__"]);
    await decide(system, card, { openId: person.openId, wanted: reject });
    await expectOneCard({ person, written, card }, "Both are done.");
    expect([await runs("left"), await runs("right")]).toEqual([1, 0]);
  });
});
