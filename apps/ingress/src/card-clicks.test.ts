import type { BusyPolicy } from "@larkline/process/config";
import { patientClock } from "@larkline/testkit";
import { afterEach, describe, expect, it } from "vitest";
import { startWorld, testApp, type FeishuWorld, type WorldOptions } from "./feishu.fixture.ts";
import type { OtherEvent } from "./other-events.ts";

const patience = { timeout: 60_000, interval: 10 };

const { appId } = testApp;
const lateMs = 3 * 3_600_000;
const worlds: FeishuWorld[] = [];

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

async function world(options: WorldOptions = {}): Promise<FeishuWorld> {
  const started = await startWorld(options);
  worlds.push(started);
  return started;
}

interface Late {
  here: FeishuWorld;
  session: string;
  /** The person's message. */
  messageId: string;
  /** The message with the question. */
  cardId: string;
}

/** A message in the group that came three hours late, and the question about it. */
async function late(text = "please sum this up", options: WorldOptions = {}): Promise<Late> {
  const here = await world(options);
  const createdAtMs = Date.now() - lateMs;
  const messageId = await here.say(text, { chatId: here.group, mention: true, createdAtMs });
  const { messageId: cardId } = await here.platform.waitForReply(messageId, { timeoutMs: 60_000 });
  return { here, session: `${appId}.${here.group}`, messageId, cardId };
}

function cardText({ here, cardId }: Late): string {
  return here.said(here.group).find(({ messageId }) => messageId === cardId)?.text ?? "";
}

describe("a message that came late", () => {
  it("is not run but asked about, once, in the language of its writer", async () => {
    const asked = await late();
    const { here, session, messageId } = asked;
    expect(cardText(asked)).toMatch(/came late[^]*3 h ago[^]*please sum this up/);
    await here.platform.redeliver(messageId);
    expect(await here.waiting(session)).toBe(0);
    expect(here.ingress.wakes).toEqual([]);
    const chinese = await here.say("请总结", { createdAtMs: Date.now() - lateMs });
    expect((await here.platform.waitForReply(chinese, { timeoutMs: 60_000 })).text).toContain(
      "来晚了",
    );
    await here.ingress.close();
    expect(here.said(here.group)).toHaveLength(1);
  });

  it("AL-61: is run when its writer says so: as it was written, and the card tells", async () => {
    const asked = await late();
    const { here, session, messageId, cardId } = asked;
    const click = { messageId: cardId, openId: here.ann, elementId: "run" };
    expect(await here.platform.click(click)).toMatchObject({
      code: 0,
      toast: {
        type: "success",
        content: "All right, I am on it.",
        i18n: { zh_cn: "好的，现在处理。" },
      },
      cardChanged: true,
    });
    expect(cardText(asked)).toMatch(/please sum this up[^]*is being run/);
    await expect.poll(() => here.ingress.wakes, patience).toEqual([{ session, gen: 1 }]);
    expect(await here.head(session)).toMatchObject({
      id: messageId,
      sender: { id: here.ann },
      parts: [{ type: "text", text: "please sum this up" }],
      reply: { messageId },
    });
    await here.platform.redeliver(messageId);
    expect(await here.waiting(session)).toBe(1);
  });

  it("is left alone when its writer says so, and cannot be run afterwards", async () => {
    const asked = await late();
    const { here, session, cardId, messageId } = asked;
    const value = { larkline: "late", action: "run", session, message: messageId };
    const ignored = await here.platform.click({
      messageId: cardId,
      openId: here.ann,
      elementId: "ignore",
    });
    expect(ignored).toMatchObject({ code: 0, toast: { type: "info" }, cardChanged: true });
    const again = await here.platform.click({ messageId: cardId, openId: here.ann, value });
    expect(again).toMatchObject({ code: 0, toast: { type: "info" }, cardChanged: false });
    expect(await here.waiting(session)).toBe(0);
  });

  it("is decided by its writer alone", async () => {
    const { here, session, cardId } = await late();
    for (const elementId of ["run", "ignore"]) {
      expect(
        await here.platform.click({ messageId: cardId, openId: here.bob, elementId }),
      ).toMatchObject({
        code: 0,
        toast: { type: "warning", content: "Only the person who wrote this message can decide." },
        cardChanged: false,
      });
    }
    const unnamed = { messageId: cardId, openId: here.ann, elementId: "run", withoutOpenId: true };
    expect(await here.platform.click(unnamed)).toMatchObject({
      code: 0,
      toast: { type: "info", content: expect.stringContaining("does not say who you are") },
      cardChanged: false,
    });
    expect(await here.waiting(session)).toBe(0);
    await here.platform.click({ messageId: cardId, openId: here.ann, elementId: "run" });
    expect(await here.waiting(session)).toBe(1);
  });

  it("clicked twice at once on two replicas, is run once", async () => {
    const { here, session, cardId } = await late();
    const click = async () =>
      await here.platform.click({ messageId: cardId, openId: here.ann, elementId: "run" });
    const first = click();
    const other = await here.replica();
    const results = [await click(), await first];
    expect(results.map(({ toast }) => toast?.type).toSorted()).toEqual(["info", "success"]);
    expect(await here.waiting(session)).toBe(1);
    await expect
      .poll(() => [...here.ingress.wakes, ...other.wakes], patience)
      .toEqual([{ session, gen: 1 }]);
  });

  it("is left to the sweeper when the click could not wake the session", async () => {
    const { here, session, cardId } = await late();
    here.ingress.trouble.wake = true;
    const clicked = await here.platform.click({
      messageId: cardId,
      openId: here.ann,
      elementId: "run",
    });
    expect(clicked).toMatchObject({ toast: { type: "success" } });
    expect(
      (await here.ingress.store.stale(Date.now() + 1, 10)).map((stale) => stale.session),
    ).toEqual([session]);
  });

  it("keeps its order to the session", async () => {
    const { here, session, cardId } = await late("/new");
    await here.platform.click({ messageId: cardId, openId: here.ann, elementId: "run" });
    expect(await here.head(session)).toMatchObject({ command: { name: "new" } });
  });

  it("is not asked about when it only made sense at once", async () => {
    const here = await world();
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    await here.begin(session);
    const stop = await here.say("/stop", { createdAtMs: Date.now() - lateMs });
    const { text, messageType } = await here.platform.waitForReply(stop, { timeoutMs: 60_000 });
    expect([messageType, text]).toEqual(["text", expect.stringContaining("180 minutes after")]);
    expect(await here.told(session)).toEqual([]);
  });

  it("that was stored before it got late is only woken again", async () => {
    const here = await world({ retryDelaysMs: [], settings: { limits: { messageAgeMs: 60_000 } } });
    here.ingress.trouble.wake = true;
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "hi",
    });
    expect(await sent.delivery).toMatchObject({ outcome: "exhausted" });
    here.ingress.trouble.wake = false;
    here.ingress.services.clock = { ...patientClock, now: () => patientClock.now() + 61_000 };
    await here.platform.redeliver(sent.messageId);
    await expect
      .poll(() => here.ingress.wakes, patience)
      .toEqual([{ session: `${appId}.${here.direct}`, gen: 1 }]);
    expect(here.said(here.direct)).toEqual([]);
  });
});

/** A card with a stop button in the group, for the turn that answers Ann. */
async function running(options: WorldOptions = {}) {
  const here = await world(options);
  const session = `${appId}.${here.group}`;
  const question = await here.say("one", { chatId: here.group, mention: true });
  await here.begin(session);
  const { messageId } = await stopCard(here, question, { session, turn: `${session}-1` });
  const click = async (openId: string) =>
    await here.platform.click({ messageId, openId, elementId: "stop" });
  return { here, session, messageId, click };
}

async function stopCard(here: FeishuWorld, question: string, value: Record<string, string>) {
  return await buttonCard(here, question, { larkline: "stop", ...value });
}

async function buttonCard(here: FeishuWorld, question: string, value: Record<string, unknown>) {
  const button = {
    tag: "button",
    element_id: "stop",
    text: { tag: "plain_text", content: "Stop" },
    behaviors: [{ type: "callback", value }],
  };
  const content = JSON.stringify({
    schema: "2.0",
    config: { update_multi: true },
    body: { elements: [button] },
  });
  return await here.api.messages.reply({
    messageId: question,
    messageType: "interactive",
    content,
    uuid: "stop-card",
    inThread: false,
  });
}

describe("the button below an answer that has failed", () => {
  async function failed({ busy = "queue", ...options }: WorldOptions & { busy?: BusyPolicy } = {}) {
    const here = await world({
      ...options,
      settings: { agents: { default: { language: "en", busy } } },
    });
    const session = `${appId}.${here.group}`;
    // A question that is not for the bot: nothing of it waits in the session.
    const messageId = await here.say("one", { chatId: here.group });
    const turnId = `${session}-1`;
    const place = {
      session,
      turnId,
      messageId,
      chatId: here.group,
      chatType: "group",
      inThread: false,
    };
    const value = { larkline: "again", wish: "retry", ...place, person: here.ann };
    const card = await buttonCard(here, messageId, value);
    const click = async (openId: string) =>
      await here.platform.click({ messageId: card.messageId, openId, elementId: "stop" });
    return { here, session, messageId, click };
  }

  it("says once in the words of its person that it is to be tried again", async () => {
    const { here, session, messageId, click } = await failed();
    expect(await click(here.ann)).toMatchObject({
      toast: { type: "success", content: "All right." },
    });
    expect(await here.head(session)).toMatchObject({
      sender: { id: here.ann },
      parts: [{ text: "Please try again." }],
      reply: { chatId: here.group, messageId },
    });
    expect(await click(here.ann)).toMatchObject({
      toast: { type: "info", content: "That is under way already." },
    });
    expect(await here.waiting(session)).toBe(1);
  });

  it.each([
    ["full", { maxWaiting: 1 }],
    ["busy", { busy: "reject" }],
  ] as const)("can be clicked again when the session was %s", async (_, options) => {
    const { here, session, messageId, click } = await failed(options);
    await here.say("two", { chatId: here.group, from: here.bob, mention: true });
    const claim = await here.begin(session);
    expect(await click(here.ann)).toMatchObject({
      toast: { type: "warning", content: "Not now, please try later." },
    });
    await here.finish(claim);
    expect(await click(here.ann)).toMatchObject({
      toast: { type: "success", content: "All right." },
    });
    expect(await here.head(session)).toMatchObject({
      sender: { id: here.ann },
      reply: { messageId },
    });
    await here.ingress.close();
    // The card with the button: the toast was the only answer.
    expect(here.said(here.group)).toHaveLength(1);
  });

  it("does nothing for other people", async () => {
    const { here, session, click } = await failed();
    expect(await click(here.bob)).toMatchObject({ toast: { type: "warning" } });
    expect(await here.waiting(session)).toBe(0);
  });
});

describe("a click that wakes a session or stops its turn", () => {
  it.each(["late", "stop"])("is answered before workers may change its card (%s)", async (kind) => {
    const { here, click } = kind === "stop" ? await running() : await lateClick();
    const { services } = here.ingress;
    const { clock } = services;
    const yields: (() => void)[] = [];
    const after: typeof clock.after = (ms, work) => {
      if (ms !== 0) return clock.after(ms, work);
      yields.push(work);
      return () => undefined;
    };
    services.clock = { ...clock, after };
    expect(await click(here.ann)).toMatchObject({ code: 0, toast: { type: "success" } });
    expect([here.ingress.wakes.length, here.ingress.cancels.length]).toEqual(
      kind === "stop" ? [1, 0] : [0, 0],
    );
    for (const work of yields) work();
    const told = () => (kind === "stop" ? here.ingress.cancels : here.ingress.wakes);
    await expect.poll(told, patience).toHaveLength(1);
  });

  async function lateClick() {
    const { here, cardId } = await late();
    const click = async (openId: string) =>
      await here.platform.click({ messageId: cardId, openId, elementId: "run" });
    return { here, click };
  }
});

describe("the stop button", () => {
  it("cancels the turn of the card for the person whose message it answers", async () => {
    const { here, session, click } = await running();
    expect(await click(here.ann)).toMatchObject({
      code: 0,
      toast: { type: "success", content: "Stopping." },
    });
    expect(await here.told(session)).toEqual([
      { type: "cancel", turnId: `${session}-1`, reason: "stopped" },
    ]);
    await expect
      .poll(() => here.ingress.cancels, patience)
      .toEqual([{ session, turnId: `${session}-1` }]);
  });

  it("does nothing for other people in a group", async () => {
    const { here, session, click } = await running();
    expect(await click(here.bob)).toMatchObject({
      code: 0,
      toast: { type: "warning", content: "Only the person who asked can stop this one." },
      cardChanged: false,
    });
    expect(await here.told(session)).toEqual([]);
  });

  it("does nothing for a person to whom a card of a direct chat was forwarded", async () => {
    const here = await world();
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    await here.begin(session);
    const elsewhere = await here.say("two", { chatId: here.group, from: here.bob, mention: true });
    const { messageId } = await stopCard(here, elsewhere, { session, turn: `${session}-1` });
    const clicked = await here.platform.click({ messageId, openId: here.bob, elementId: "stop" });
    expect(clicked).toMatchObject({ toast: { type: "warning" } });
    expect(await here.told(session)).toEqual([]);
  });

  it("of an answered turn does not stop the next one", async () => {
    const { here, session, click } = await running();
    await here.say("two", { chatId: here.group, mention: true });
    await here.finish(await here.begin(session));
    expect(await click(here.ann)).toMatchObject({ toast: { type: "info" } });
    expect(await here.told(session)).toEqual([]);
  });

  it("pressed twice, on two replicas, stops the same turn", async () => {
    const { here, session, click } = await running();
    await Promise.all([click(here.ann), here.replica().then(async () => await click(here.ann))]);
    const told = await here.told(session);
    expect(new Set(told.map((entry) => entry.type === "cancel" && entry.turnId))).toEqual(
      new Set([`${session}-1`]),
    );
  });

  it("reports a failure when the store cannot be reached, because the platform does not repeat clicks", async () => {
    const { here, click } = await running();
    here.ingress.trouble.cancel = true;
    expect(await click(here.ann)).toMatchObject({ code: 200_671 });
  });
});

describe("a click that is not ours", () => {
  it.each([
    ["without a value of ours", { other: "thing" }],
    ["of an unknown kind", { larkline: "approve", id: "1" }],
    [
      "with a session of another app",
      { larkline: "stop", session: "cli_other.oc_1", turn: "cli_other.oc_1-1" },
    ],
    ["with a broken value", { larkline: "late", action: "delete", session: "x" }],
    ["with a text in its place", "stop"],
  ])("AL-30, AL-62: %s is no pending approval and changes nothing", async (_, value) => {
    const { here, session, messageId } = await running();
    const clicked = await here.platform.click({ messageId, openId: here.ann, value });
    expect(clicked).toMatchObject({
      code: 0,
      toast: { type: "info", content: "no pending approval" },
    });
    expect(clicked.cardChanged).toBe(false);
    expect(await here.told(session)).toEqual([]);
  });

  it("AL-62: is offered to other programs, ours is not", async () => {
    const offered: unknown[] = [];
    const consumers = [
      { click: () => undefined },
      {
        click: ({ event }: OtherEvent) => {
          offered.push(event["action"]);
          return { toast: { type: "info", content: "approved" } };
        },
      },
    ];
    const { here, session, messageId } = await running({ consumers });
    const click = async (value: Record<string, unknown>) =>
      await here.platform.click({ messageId, openId: here.ann, value });
    expect(await click({ approval: "1" })).toMatchObject({ toast: { content: "approved" } });
    const stop = { larkline: "stop", session, turn: `${session}-9` };
    expect(await click(stop)).toMatchObject({
      toast: { content: "Nothing is running right now." },
    });
    expect(offered).toMatchObject([{ value: { approval: "1" } }]);
  });
});
