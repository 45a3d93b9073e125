import type { SimMessage } from "@larkline/simulator";
import { describe, expect, it, vi } from "vitest";
import { visibleAnswers } from "../system/answer.ts";
import { metricOf, type Written } from "../system/answers.ts";
import { untilShown } from "../system/card-watch.ts";
import { answerTo, groupOf, lastRequest, send, takeBack, type Writer } from "../system/sending.ts";
import type { System } from "../system/system.ts";
import { model, useBot } from "./policies-deployment.ts";

let system: System;

/** The bot of the tests of a block. */
function withBot(): void {
  useBot("events", (its) => (system = its));
}

const hourMs = 3_600_000;

async function answerCard({ messageId }: Written): Promise<SimMessage> {
  return await system.feishu.waitUntil(messageId, ({ senderType }) => senderType === "app", {
    timeoutMs: 60_000,
  });
}

async function late(person: Writer, text: string, mention = false): Promise<Written> {
  return await send(system, person, { text, mention, createdAtMs: Date.now() - hourMs });
}

function textIn({ card, text }: SimMessage): string {
  return card === undefined ? text : JSON.stringify(card.json);
}

/** How often a model was asked for these words. */
function timesAsked(text: string): number {
  return system.model.requests.filter(({ messages }) => messages.at(-1)?.text.includes(text))
    .length;
}

async function hold(person: Writer, key: string): Promise<Written> {
  const written = await send(system, person, {
    text: `hold ${key}\ncall hold_pure ${JSON.stringify({ key })}`,
  });
  await vi.waitUntil(async () => (await system.recorded()).includes(`pure ${key}`), {
    timeout: 60_000,
    interval: 10,
  });
  return written;
}

describe("a message that comes late", () => {
  withBot();

  it("is asked about, run when its writer says so, once, and the buttons go", async () => {
    const person = system.person("Ann");
    const written = await late(person, "order lunch");
    const card = await answerCard(written);
    expect(textIn(card)).toContain("sent 1 h ago");
    expect(textIn(card)).toContain("order lunch");
    expect(timesAsked("order lunch")).toBe(0);
    const { value } = buttonOf(card, "run");
    const { toast, cardChanged } = await system.feishu.click({
      messageId: card.messageId,
      openId: person.openId,
      value,
    });
    expect({ type: toast?.type, cardChanged }).toEqual({ type: "success", cardChanged: true });
    await vi.waitFor(
      () =>
        expect(visibleAnswers(system.feishu, written).map(({ text }) => text)).toContain(
          "[order lunch]",
        ),
      { timeout: 60_000, interval: 10 },
    );
    const again = await system.feishu.click({
      messageId: card.messageId,
      openId: person.openId,
      value,
    });
    expect(again.toast).toMatchObject({ type: "info", content: expect.any(String) });
    await system.ask(person, "done");
    const said = lastRequest(system).messages.filter(({ role }) => role === "user");
    expect(said.filter(({ text }) => text.includes("order lunch"))).toHaveLength(1);
  });

  it("is left alone when its writer says so", async () => {
    const person = system.person("Bob");
    const card = await answerCard(await late(person, "订午饭"));
    expect(textIn(card)).toContain("1 小时前发出");
    const { value } = buttonOf(card, "ignore");
    const { toast, cardChanged } = await system.feishu.click({
      messageId: card.messageId,
      openId: person.openId,
      value,
    });
    expect({ type: toast?.type, cardChanged }).toEqual({ type: "info", cardChanged: true });
    expect(await system.ask(person, "hello")).toBe("[hello]");
    expect(lastRequest(system).messages).toHaveLength(1);
  });

  it("is decided on by no other person", async () => {
    const [cai, dan] = groupOf(system, ["Cai", "Dan"]).people;
    if (cai === undefined || dan === undefined) throw new Error("nobody");
    const card = await answerCard(await late(cai, "order dinner", true));
    const { value } = buttonOf(card, "run");
    const { toast } = await system.feishu.click({
      messageId: card.messageId,
      openId: dan.openId,
      value,
    });
    expect(toast?.type).toBe("warning");
    await send(system, dan, { text: "hello", mention: true });
    await vi.waitFor(() => expect(timesAsked("Dan: hello")).toBe(1), {
      timeout: 60_000,
    });
    expect(timesAsked("order dinner")).toBe(0);
  });

  it("that was answered already is not asked about when it is delivered again", async () => {
    const person = system.person("Eve");
    const written = await send(system, person, { text: "once" });
    expect(await answerTo(system, written)).toBe("[once]");
    await system.feishu.redeliver(written.messageId, { freshEventId: true });
    await system.ask(person, "next");
    expect(visibleAnswers(system.feishu, written)).toHaveLength(1);
  });
});

/** The value of the button that decides so. */
function buttonOf({ card }: SimMessage, action: string): { value: Record<string, unknown> } {
  const found = new RegExp(`\\{[^{}]*"action":"${action}"[^{}]*\\}`).exec(
    JSON.stringify(card?.json),
  );
  if (found === null) throw new Error(`no button to ${action}`);
  return { value: JSON.parse(found[0]) as Record<string, unknown> }; // the expression matches an object
}

describe("a message that is taken back", () => {
  withBot();

  it("is not answered when it waits", async () => {
    const person = system.person("Fay");
    const held = await hold(person, "before");
    const waiting = await send(system, person, { text: "never mind" });
    await takeBack(system, waiting);
    await system.release("before");
    expect(await answerTo(system, held)).toContain("ok:released");
    expect(await system.ask(person, "after")).toBe("[after]");
    expect(timesAsked("never mind")).toBe(0);
    expect(visibleAnswers(system.feishu, waiting)).toEqual([]);
  });

  it("stops the model when it is being answered, and the card says so", async () => {
    const person = system.person("Gus");
    model.promptSteps("oops", {
      text: Array.from({ length: 500 }, (_, index) => `word ${index}, `),
      delayMs: 30,
    });
    const written = await send(system, person, { text: "oops" });
    await untilShown(system, written, "word 5,");
    const { aborted } = system.model;
    await takeBack(system, written);
    await vi.waitUntil(() => system.model.aborted > aborted, { timeout: 60_000, interval: 5 });
    await vi.waitFor(
      () => {
        const [answer] = visibleAnswers(system.feishu, written);
        expect(answer).toMatchObject({
          finished: true,
          text: expect.stringContaining("The message was recalled"),
        });
      },
      { timeout: 60_000, interval: 20 },
    );
    expect(await system.ask(person, "next")).toBe("[next]");
  });

  it("stops running tools", async () => {
    const person = system.person("Hal");
    const written = await hold(person, "taken-back");
    await takeBack(system, written);
    await vi.waitFor(async () => expect(await system.recorded()).toContain("stopped taken-back"), {
      timeout: 60_000,
    });
    expect(await system.ask(person, "next")).toBe("[next]");
  });

  it("cannot be run any more when it was parked", async () => {
    const person = system.person("Ida");
    const written = await late(person, "transfer money");
    const card = await answerCard(written);
    await takeBack(system, written);
    const { value } = buttonOf(card, "run");
    const { toast } = await system.feishu.click({
      messageId: card.messageId,
      openId: person.openId,
      value,
    });
    expect(toast?.type).toBe("info");
    expect(await system.ask(person, "next")).toBe("[next]");
    expect(timesAsked("transfer money")).toBe(0);
  });
});

describe("what is no message", () => {
  withBot();

  it("a chat that the bot comes to is greeted once, with what it can do", async () => {
    const { chatId } = groupOf(system, ["Jo"]);
    await system.feishu.removeBot(chatId).reports;
    await system.feishu.addBot(chatId, system.appId).reports;
    const greetings = () =>
      system.feishu.messages(chatId).filter(({ senderType }) => senderType === "app");
    await vi.waitUntil(() => greetings().length > 0, { timeout: 60_000, interval: 10 });
    expect(textIn(greetings()[0] ?? failed())).toContain("/新对话");
    await system.feishu.addBot(chatId, system.appId).reports;
    const person = system.feishu.addUser({ name: "Kim" });
    const entered = system.feishu.enterChat(person.openId, system.appId);
    await entered.reports;
    await vi.waitUntil(() => system.feishu.messages(entered.chatId).length === 1, {
      timeout: 60_000,
      interval: 10,
    });
    await system.feishu.enterChat(person.openId, system.appId).reports;
    expect(await system.ask({ openId: person.openId, chatId: entered.chatId }, "hello")).toBe(
      "[hello]",
    );
    expect(
      system.feishu.messages(entered.chatId).filter(({ senderType }) => senderType === "app"),
    ).toHaveLength(2);
    expect(greetings()).toHaveLength(1);
  });

  it("an entry of the menu says its words in the person's chat, and one with a slash is an order", async () => {
    const { openId } = system.feishu.addUser({ name: "Lea" });
    const { chatId, reports } = system.feishu.enterChat(openId, system.appId);
    await reports;
    const said = () => system.feishu.messages(chatId).map(textIn).join("\n");
    await system.feishu.pressMenu(openId, system.appId, "report").reports;
    await vi.waitUntil(() => said().includes("[write the report]"), {
      timeout: 60_000,
      interval: 10,
    });
    await system.feishu.pressMenu(openId, system.appId, "/whoami").reports;
    await vi.waitUntil(() => said().includes(openId), { timeout: 60_000, interval: 10 });
    await system.feishu.pressMenu(openId, system.appId, "unknown").reports;
    expect(timesAsked("unknown")).toBe(0);
  });

  it("reactions, readings and unknown events are acknowledged and counted, and start nothing", async () => {
    const person = system.person("Max");
    const written = await send(system, person, { text: "hello" });
    await answerTo(system, written);
    const before = system.model.requests.length;
    const [report] = await system.feishu.react({
      messageId: written.messageId,
      from: person.openId,
      emojiType: "OK",
    }).reports;
    expect(report?.outcome).toBe("acknowledged");
    const unknown = { appId: system.appId, eventType: "calendar.changed_v9", event: { a: 1 } };
    expect((await system.feishu.sendEvent(unknown)).outcome).toBe("acknowledged");
    const [ingress] = system.ingresses;
    if (ingress === undefined) failed();
    expect(await metricOf(ingress, "larkline_ingress_events_total", "unknown")).toBeGreaterThan(0);
    expect(system.model.requests.length).toBe(before);
  });
});

describe("a message that is worked on", () => {
  withBot();

  it("carries a sign of it, which goes with the answer", async () => {
    const person = system.person("Nia");
    const held = await hold(person, "typing");
    const emojis = () =>
      system.feishu.messages(person.chatId).find(({ messageId }) => messageId === held.messageId)
        ?.reactions ?? [];
    await vi.waitUntil(() => emojis().some(({ emojiType }) => emojiType === "Typing"), {
      timeout: 60_000,
      interval: 10,
    });
    await system.release("typing");
    await answerTo(system, held);
    await vi.waitUntil(() => emojis().length === 0, { timeout: 60_000, interval: 10 });
  });
});

function failed(): never {
  throw new Error("not there");
}
