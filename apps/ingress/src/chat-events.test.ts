import { blankTurn } from "@larkline/protocol/turn";
import { patientClock } from "@larkline/testkit";
import { afterEach, describe, expect, it } from "vitest";
import { startWorld, testApp, type FeishuWorld, type WorldOptions } from "./feishu.fixture.ts";

const { appId } = testApp;
const worlds: FeishuWorld[] = [];

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

async function world(options: WorldOptions = {}): Promise<FeishuWorld> {
  const started = await startWorld(options);
  worlds.push(started);
  return started;
}

/** Any event, twice: the platform promises no less than once. */
async function twice(
  here: FeishuWorld,
  eventType: string,
  event: Record<string, unknown>,
): Promise<void> {
  for (let delivery = 0; delivery < 2; delivery += 1) {
    expect(await here.platform.sendEvent({ appId, eventType, event })).toMatchObject({
      outcome: "acknowledged",
    });
  }
}

describe("the bot greets", () => {
  it("a group that it is added to, once, with what it can do", async () => {
    const commands = { standup: { description: "sums up the day", prompt: "p" } };
    const here = await world({ settings: { agents: { default: { commands } } } });
    const { chatId } = here.platform.addChat({ type: "group", members: [here.ann] });
    await here.platform.addBot(chatId, appId).reports;
    await here.platform.addBot(chatId, appId).reports;
    const { text, rootId } = await here.untilSaid(chatId);
    expect(text).toMatch(/\/帮助[^]*\/standup[^]*sums up the day/);
    expect(rootId).toBeUndefined();
    await here.ingress.close();
    expect(here.said(chatId)).toHaveLength(1);
  });

  it("a person who opens its chat for the first time, by whichever event tells first, once", async () => {
    const here = await world({ settings: { agents: { default: { language: "en" } } } });
    const { chatId, reports } = here.platform.enterChat(here.bob, appId);
    expect((await reports).map(({ outcome }) => outcome)).toEqual(["acknowledged", "acknowledged"]);
    expect((await here.untilSaid(chatId)).text).toContain("/help");
    await here.platform.enterChat(here.bob, appId).reports;
    await here.ingress.close();
    expect(here.said(chatId)).toHaveLength(1);
  });

  it("no person who has talked to it before, and no person where that is switched off", async () => {
    const here = await world();
    await here.say("hi");
    await here.platform.enterChat(here.ann, appId).reports;
    const quiet = await world({ settings: { feishu: { welcome: false } } });
    const { chatId, reports } = quiet.platform.enterChat(quiet.bob, appId);
    await reports;
    await Promise.all([here.ingress.close(), quiet.ingress.close()]);
    expect([here.said(here.direct), quiet.said(chatId)]).toEqual([[], []]);
  });
});

describe("a recalled message", () => {
  it("that waits is dropped", async () => {
    const here = await world();
    const session = `${appId}.${here.direct}`;
    const first = await here.say("one");
    await here.begin(session);
    const second = await here.say("two");
    await here.platform.recall(second);
    await expect.poll(async () => await here.waiting(session)).toBe(1);
    expect((await here.head(session))?.id).toBe(first);
    expect(await here.told(session)).toEqual([]);
  });

  it("that is being answered is cancelled by each person who may recall it; once is enough", async () => {
    const here = await world();
    const session = `${appId}.${here.group}`;
    const messageId = await here.say("one", { chatId: here.group, mention: true });
    await here.begin(session);
    await here.platform.recall(messageId, { by: "group_owner" });
    await expect
      .poll(async () => await here.told(session))
      .toEqual([{ type: "cancel", turnId: `${session}-1`, reason: "recalled" }]);
    expect(here.ingress.cancels).toEqual([{ session, turnId: `${session}-1` }]);
  });

  it("in a thread or a person's own conversation is found", async () => {
    const here = await world({ settings: { agents: { default: { sessions: "sender" } } } });
    const messageId = await here.say("one", { chatId: here.topics, mention: true });
    const session = `${appId}.${here.topics}.${messageId}.${here.ann}`;
    expect(await here.waiting(session)).toBe(1);
    await here.begin(session);
    await twice(here, "im.message.recalled_v1", { message_id: messageId, chat_id: here.topics });
    expect((await here.told(session)).map((entry) => entry.type)).toContain("cancel");
  });

  it("that joined a running turn cancels that turn", async () => {
    const here = await world({ settings: { agents: { default: { busy: "steer" } } } });
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    const { epoch, head } = await here.begin(session);
    const second = await here.say("two");
    if (head === undefined) throw new Error("nothing at the head");
    const about = { turnId: `${session}-1`, message: head.message, startedAtMs: 1 };
    const turn = { ...blankTurn(about), absorbed: [`${session}-2`] };
    const write = {
      session,
      epoch,
      history: [],
      events: [],
      consumed: 0,
      open: [],
      mode: "continue" as const,
    };
    await here.ingress.store.save({ ...write, turn, absorbed: [2] });
    await here.platform.recall(second);
    await expect
      .poll(async () => await here.told(session))
      .toMatchObject([{ type: "cancel", reason: "recalled" }]);
  });

  it("that is asked about cannot be run any more", async () => {
    const here = await world();
    const session = `${appId}.${here.direct}`;
    const messageId = await here.say("late", { createdAtMs: Date.now() - 3_600_000 });
    const card = await here.untilSaid(here.direct);
    await twice(here, "im.message.recalled_v1", { message_id: messageId, chat_id: here.direct });
    const clicked = await here.platform.click({
      messageId: card.messageId,
      openId: here.ann,
      elementId: "run",
    });
    expect(clicked).toMatchObject({ toast: { type: "info" }, cardChanged: false });
    expect(await here.waiting(session)).toBe(0);
  });

  it("that is delivered only after that is not taken", async () => {
    const here = await world({ retryDelaysMs: [] });
    here.ingress.trouble.append = true;
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "hi",
    });
    expect(await sent.delivery).toMatchObject({ outcome: "exhausted" });
    here.ingress.trouble.append = false;
    await twice(here, "im.message.recalled_v1", {
      message_id: sent.messageId,
      chat_id: here.direct,
    });
    expect(await here.platform.redeliver(sent.messageId)).toMatchObject({
      outcome: "acknowledged",
    });
    expect(await here.waiting(`${appId}.${here.direct}`)).toBe(0);
    expect(await here.ingress.metrics.text()).toMatch(/outcome="recalled"[^}]*\} 1/);
  });

  it("of which nothing is known, the bot's own among them, is acknowledged", async () => {
    const here = await world();
    await twice(here, "im.message.recalled_v1", { message_id: "om_unknown", chat_id: here.direct });
    expect(here.ingress.cancels).toEqual([]);
  });
});

describe("the bot's menu", () => {
  const settings = { feishu: { menu: { summary: "Sum up this week." } } };

  it("says in the person's own chat what the entry stands for, once", async () => {
    const here = await world({ settings });
    const session = `${appId}.${here.direct}`;
    await here.say("hi");
    await here.finish(await here.begin(session));
    here.platform.setDeliveryNoise({ duplicates: true });
    await here.platform.pressMenu(here.ann, appId, "summary").reports;
    expect(await here.head(session)).toMatchObject({
      id: expect.stringMatching(/^menu-/),
      sender: { id: here.ann },
      parts: [{ type: "text", text: "Sum up this week." }],
      reply: { chatId: here.direct, messageId: "", inThread: false },
    });
    await expect
      .poll(async () => await here.ingress.metrics.text())
      .toMatch(/menu_v6",outcome="acknowledged"[^}]*\} 2/);
    expect(await here.waiting(session)).toBe(1);
  });

  it("runs commands, answered into the chat", async () => {
    const here = await world();
    const { chatId, reports } = here.platform.enterChat(here.bob, appId);
    await reports;
    await here.untilSaid(chatId);
    await here.platform.pressMenu(here.bob, appId, "/help").reports;
    const { text, rootId } = await here.untilSaid(chatId, 2);
    expect([text, rootId]).toEqual([expect.stringContaining("/new"), undefined]);
  });

  it("answers the person when their chat is not known", async () => {
    const here = await world({ settings });
    await here.platform.pressMenu(here.bob, appId, "/whoami").reports;
    const chatId = here.platform.enterChat(here.bob, appId).chatId;
    expect((await here.untilSaid(chatId)).text).toContain(here.bob);
  });

  it("does nothing for an entry without a meaning", async () => {
    const here = await world({ settings });
    await here.say("hi");
    await here.platform.pressMenu(here.ann, appId, "something").reports;
    expect(await here.waiting(`${appId}.${here.direct}`)).toBe(1);
  });

  it("does nothing when the press came late", async () => {
    const here = await world({
      retryDelaysMs: [10],
      settings: { ...settings, limits: { messageAgeMs: 60_000 } },
    });
    here.ingress.trouble.append = true;
    // It is stored neither when it comes, nor when it comes again after its time.
    here.platform.on("delivery", () => {
      here.ingress.trouble.append = false;
      here.ingress.services.clock = { ...patientClock, now: () => patientClock.now() + 61_000 };
    });
    const { reports } = here.platform.pressMenu(here.bob, appId, "summary");
    expect(await reports).toMatchObject([
      { outcome: "acknowledged", attempts: [{ status: 500 }, { status: 200 }] },
    ]);
    expect(here.ingress.wakes).toEqual([]);
  });
});

describe("other events", () => {
  it.each([
    "im.chat.member.bot.deleted_v1",
    "im.chat.disbanded_v1",
    "im.message.reaction.created_v1",
    "im.message.reaction.deleted_v1",
    "im.message.message_read_v1",
  ])("%s is acknowledged, counted by its name and answered with nothing", async (eventType) => {
    const here = await world();
    await twice(here, eventType, { chat_id: here.group, message_id: "om_1" });
    expect(await here.ingress.metrics.text()).toContain(`type="${eventType}"`);
    await here.ingress.close();
    expect(here.ingress.wakes).toEqual([]);
  });

  it("with an unexpected body are acknowledged too", async () => {
    const here = await world();
    for (const eventType of [
      "im.chat.member.bot.added_v1",
      "im.chat.access_event.bot_p2p_chat_entered_v1",
      "im.message.recalled_v1",
      "application.bot.menu_v6",
      "im.chat.updated_v1",
    ]) {
      for (const event of [
        {},
        { chat_id: 7 },
        { chat_id: "../x", message_id: null },
        { event_key: {} },
      ]) {
        await twice(here, eventType, event);
      }
    }
    expect(here.ingress.wakes).toEqual([]);
  });
});

it("hands ends of grants to workers, and not those of access tokens alone", async () => {
  const here = await world();
  const revoked = { open_id: "ou_ann", revoke_reason: "user" };
  const eventType = "auth.user_access_token.revoked_v4";
  await twice(here, eventType, { ...revoked, revoke_token_type: "user_access_token" });
  await twice(here, eventType, {
    ...revoked,
    revoke_token_type: "user_access_token,refresh_token",
  });
  await twice(here, "contact.user.deleted_v3", { object: { open_id: "ou_bob" } });
  const ends = new Set<string>();
  await here.ingress.services.grantEnds.each(async ({ app, openId, reason }) => {
    ends.add(`${app} ${openId} ${reason}`);
    await Promise.resolve();
  });
  expect(ends).toEqual(new Set([`${appId} ou_ann user`, `${appId} ou_bob person_left`]));
});
