import { afterEach, describe, expect, it, vi } from "vitest";
import { startWorld, testApp, type FeishuWorld, type WorldOptions } from "./feishu.fixture.ts";

const { appId } = testApp;
const worlds: FeishuWorld[] = [];

async function world(options: WorldOptions = {}): Promise<FeishuWorld> {
  const started = await startWorld(options);
  worlds.push(started);
  return started;
}

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

async function waitingIn({ ingress }: FeishuWorld, session: string): Promise<number> {
  return (await ingress.store.summary(session)).waiting;
}

/** Until the bot has asked who it is. */
async function untilKnown({ platform }: FeishuWorld): Promise<void> {
  await vi.waitFor(
    () => expect(platform.apiCalls.some(({ path }) => path.includes("bot/v3/info"))).toBe(true),
    {
      timeout: 60_000,
    },
  );
}

/** Events of messages that mention the bot in the group. */
function mentionIn({ platform, group }: FeishuWorld) {
  const own = platform.apps[0]?.openId ?? "";
  return (openId: string, senderType: string, { id = `om_${openId}`, text = "hi" } = {}) => ({
    sender: { sender_id: { open_id: openId }, sender_type: senderType, tenant_key: "t" },
    message: {
      message_id: id,
      create_time: String(Date.now()),
      chat_id: group,
      chat_type: "group",
      message_type: "text",
      content: JSON.stringify({ text: `@_user_1 ${text}` }),
      mentions: [
        { key: "@_user_1", id: { open_id: own }, mentioned_type: "bot", name: "Larkline" },
      ],
    },
  });
}

describe("a message by webhook", () => {
  it("is stored, its session woken, and only then acknowledged", async () => {
    const here = await world();
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "你好",
    });
    const report = await sent.delivery;
    expect(report).toMatchObject({
      outcome: "acknowledged",
      attempts: [{ transport: "webhook", status: 200 }],
    });
    const session = `${appId}.${here.direct}`;
    expect(here.ingress.wakes).toEqual([{ session, gen: 1 }]);
    expect(await here.head(session)).toEqual({
      v: 1,
      session,
      id: sent.messageId,
      app: appId,
      tenant: expect.stringMatching(/^\w{16}$/),
      sender: { id: here.ann },
      chatType: "p2p",
      parts: [{ type: "text", text: "你好" }],
      language: "zh",
      createdAtMs: expect.any(Number),
      reply: {
        channel: "feishu",
        app: appId,
        chatId: here.direct,
        messageId: sent.messageId,
        inThread: false,
      },
    });
  });

  it("may also come to the address of card callbacks", async () => {
    const here = await world({ path: "/feishu/cards" });
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "hi",
    });
    expect(await sent.delivery).toMatchObject({ outcome: "acknowledged" });
    expect(await waitingIn(here, `${appId}.${here.direct}`)).toBe(1);
  });

  it("AL-46: delivered twice, it is processed once", async () => {
    const here = await world();
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "hi",
    });
    await sent.delivery;
    expect(await here.platform.redeliver(sent.messageId)).toMatchObject({
      outcome: "acknowledged",
    });
    expect(await waitingIn(here, `${appId}.${here.direct}`)).toBe(1);
    expect(await here.ingress.metrics.text()).toMatch(/outcome="duplicate"[^}]*\} 1/);
  });

  it("AL-46: a redelivery heals a wake-up that was lost", async () => {
    const here = await world({ retryDelaysMs: [] });
    here.ingress.trouble.wake = true;
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "hi",
    });
    expect(await sent.delivery).toMatchObject({
      outcome: "exhausted",
      attempts: [{ status: 500 }],
    });
    here.ingress.trouble.wake = false;
    expect(await here.platform.redeliver(sent.messageId)).toMatchObject({
      outcome: "acknowledged",
    });
    const session = `${appId}.${here.direct}`;
    expect(here.ingress.wakes).toEqual([{ session, gen: 1 }]);
    expect(await waitingIn(here, session)).toBe(1);
  });

  it("is not acknowledged while it cannot be stored, and nothing is lost", async () => {
    const here = await world();
    here.ingress.trouble.append = true;
    const failed = vi.waitFor(
      () => expect(here.platform.deliveries).toMatchObject([{ status: 500 }]),
      {
        timeout: 60_000,
      },
    );
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "hi",
    });
    await failed;
    here.ingress.trouble.append = false;
    expect(await sent.delivery).toMatchObject({ outcome: "acknowledged" });
    expect(await waitingIn(here, `${appId}.${here.direct}`)).toBe(1);
  });

  it("is given back before the platform's own deadline when the store hangs", async () => {
    const here = await world({ retryDelaysMs: [] });
    here.ingress.trouble.hang = true;
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "hi",
    });
    const report = await sent.delivery;
    expect(report).toMatchObject({ outcome: "exhausted", attempts: [{ status: 500 }] });
  });

  it("AL-52: an event without a message is acknowledged, and nothing is stored", async () => {
    const here = await world();
    for (const event of [{}, { message: null }, { message: {}, sender: {} }]) {
      const report = await here.platform.sendEvent({
        appId,
        eventType: "im.message.receive_v1",
        event,
      });
      expect(report).toMatchObject({ outcome: "acknowledged" });
    }
    expect(here.ingress.wakes).toEqual([]);
    expect(await here.ingress.metrics.text()).toMatch(/outcome="unreadable"[^}]*\} 3/);
  });

  it("a type without a handler is acknowledged and counted", async () => {
    const here = await world();
    const eventType = "im.chat.member.user.added_v1";
    expect(await here.platform.sendEvent({ appId, eventType, event: {} })).toMatchObject({
      outcome: "acknowledged",
    });
    const click = {
      appId,
      eventType: "card.action.trigger",
      event: { token: "c-1" },
      callback: true,
    };
    expect(await here.platform.sendEvent(click)).toMatchObject({
      outcome: "acknowledged",
      attempts: [{ response: {} }],
    });
    expect(await here.ingress.metrics.text()).toMatch(
      /larkline_ingress_events_total\{[^}]*type="unknown"[^}]*\} 1/,
    );
  });
});

describe("a message in a group", () => {
  it("is taken when it mentions the bot, not when it mentions others or everybody", async () => {
    const here = await world();
    await untilKnown(here);
    const bob = here.platform.addUser({ name: "Bob" });
    here.platform.chats.get(here.group)?.members.add(bob.openId);
    const say = async (text: string, mention = false) => {
      const sent = await here.platform.sendMessage({
        appId,
        chatId: here.group,
        from: here.ann,
        text,
        mention,
      });
      expect(await sent.delivery).toMatchObject({ outcome: "acknowledged" });
    };
    await say("nobody");
    await say(`<at user_id="${bob.openId}"></at> you`);
    await say("@_all everybody");
    await say('<at user_id="all"></at> everybody');
    expect(here.ingress.wakes).toEqual([]);
    await say("what time is it?", true);
    const session = `${appId}.${here.group}`;
    expect(here.ingress.wakes).toEqual([{ session, gen: 1 }]);
    expect(await here.head(session)).toMatchObject({
      chatType: "group",
      parts: [{ type: "text", text: "what time is it?" }],
    });
  });

  it("waits with the platform while the bot does not know its own open_id, and is not lost", async () => {
    const here = await world({
      retryDelaysMs: [300, 300, 300, 300],
      prepare: (platform) =>
        platform.faults.add({
          match: { path: "/open-apis/bot/v3/info" },
          action: { kind: "respond", status: 400, body: { code: 10_012, msg: "no" } },
        }),
    });
    const ordinary = await here.platform.sendMessage({
      appId,
      chatId: here.group,
      from: here.ann,
      text: "to nobody",
    });
    expect((await ordinary.delivery).attempts).toHaveLength(1);
    const direct = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "direct",
    });
    expect((await direct.delivery).attempts).toHaveLength(1);

    const refused = vi.waitFor(
      () => expect(here.platform.deliveries.some(({ status }) => status === 500)).toBe(true),
      {
        timeout: 60_000,
      },
    );
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.group,
      from: here.ann,
      text: "hi",
      mention: true,
    });
    await refused;
    expect(await waitingIn(here, `${appId}.${here.group}`)).toBe(0);
    here.platform.faults.clear();
    expect(await sent.delivery).toMatchObject({ outcome: "acknowledged" });
    expect(await waitingIn(here, `${appId}.${here.group}`)).toBe(1);
  });

  it("from a bot is ignored, also when it mentions this one", async () => {
    const here = await world();
    await untilKnown(here);
    const own = here.platform.apps[0]?.openId ?? "";
    const event = mentionIn(here);
    for (const sender of [
      event("ou_other", "bot"),
      event("ou_another", "app"),
      event(own, "user"),
    ]) {
      await here.platform.sendEvent({ appId, eventType: "im.message.receive_v1", event: sender });
    }
    expect(here.ingress.wakes).toEqual([]);
    const text = await here.ingress.metrics.text();
    expect(text).toMatch(/outcome="bot_message"[^}]*\} 2/);
    expect(text).toMatch(/outcome="own_message"[^}]*\} 1/);
  });

  it("from a bot causes a turn where that is allowed, so many of a chat and hour, and is no order", async () => {
    const here = await world({ settings: { feishu: { botTurnsPerHour: 2 } } });
    await untilKnown(here);
    const event = mentionIn(here);
    const repeated = event("ou_other", "bot", { id: "om_1", text: "/new" });
    const more = ["om_2", "om_3", "om_4"].map((id) =>
      event("ou_another", "app", { id, text: "hi" }),
    );
    for (const sent of [repeated, repeated, ...more]) {
      await here.platform.sendEvent({ appId, eventType: "im.message.receive_v1", event: sent });
    }
    expect(await waitingIn(here, `${appId}.${here.group}`)).toBe(2);
    const text = await here.ingress.metrics.text();
    expect(text).toMatch(/outcome="accepted"[^}]*\} 2/);
    expect(text).toMatch(/outcome="duplicate"[^}]*\} 1/);
    expect(text).toMatch(/outcome="bot_limit"[^}]*\} 2/);
  });

  it("belongs to its thread, whose first message has the same session; a quotation does not make one", async () => {
    const here = await world();
    await untilKnown(here);
    const say = async (chatId: string, rootId?: string) => {
      const root = rootId === undefined ? {} : { rootId };
      const sent = await here.platform.sendMessage({
        appId,
        chatId,
        from: here.ann,
        text: "hi",
        mention: true,
        ...root,
      });
      await sent.delivery;
      return sent.messageId;
    };
    const first = await say(here.topics);
    await say(here.topics, first);
    expect(await waitingIn(here, `${appId}.${here.topics}.${first}`)).toBe(2);
    expect((await here.head(`${appId}.${here.topics}.${first}`))?.reply).toMatchObject({
      inThread: true,
    });
    const quoted = await say(here.group);
    await say(here.group, quoted);
    expect(await waitingIn(here, `${appId}.${here.group}`)).toBe(2);
  });
});

describe("a message that starts no run", () => {
  const lateMs = 11 * 60_000;

  it("late: gets a polite reply in its own language, once, where late messages are not asked about", async () => {
    const here = await world({ settings: { feishu: { lateMessages: "line" } } });
    const createdAtMs = Date.now() - lateMs;
    for (const [text, answer] of [
      ["请帮我查一下 weather", /11 分钟前发出/],
      ["look this up", /11 minutes after it was written/],
    ] as const) {
      const sent = await here.platform.sendMessage({
        appId,
        chatId: here.direct,
        from: here.ann,
        text,
        createdAtMs,
      });
      expect(await sent.delivery).toMatchObject({ outcome: "acknowledged" });
      const reply = await here.platform.waitForReply(sent.messageId, { timeoutMs: 60_000 });
      expect(reply.text).toMatch(answer);
      expect(await here.platform.redeliver(sent.messageId)).toMatchObject({
        outcome: "acknowledged",
      });
    }
    expect(await waitingIn(here, `${appId}.${here.direct}`)).toBe(0);
    await here.ingress.close();
    const replies = here.platform
      .messages(here.direct)
      .filter(({ senderType }) => senderType === "app");
    expect(replies).toHaveLength(2);
  });

  it("one too many: gets a polite reply", async () => {
    const here = await world({ maxWaiting: 1 });
    const say = async (text: string) =>
      await here.platform.sendMessage({ appId, chatId: here.direct, from: here.ann, text });
    await (
      await say("first")
    ).delivery;
    const second = await say("second");
    expect(await second.delivery).toMatchObject({ outcome: "acknowledged" });
    const reply = await here.platform.waitForReply(second.messageId, { timeoutMs: 60_000 });
    expect(reply.text).toContain("Too many messages");
  });

  it("a mention without words is answered with a question", async () => {
    const here = await world();
    await untilKnown(here);
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.group,
      from: here.ann,
      text: "",
      mention: true,
    });
    const reply = await here.platform.waitForReply(sent.messageId, { timeoutMs: 60_000 });
    expect(reply.text).toBe("我在。请写下你的问题。");
    expect(here.ingress.wakes).toEqual([]);
  });

  it("too long: gets a polite reply", async () => {
    const here = await world();
    const text = "long ".repeat(12_000);
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text,
    });
    const reply = await here.platform.waitForReply(sent.messageId, { timeoutMs: 60_000 });
    expect(reply.text).toContain("too long");
    expect(here.ingress.wakes).toEqual([]);
  });
});

describe("the long connection", () => {
  async function connected(options: WorldOptions): Promise<FeishuWorld> {
    const here = await world(options);
    await vi.waitFor(() => expect(here.platform.apps[0]?.connections).toBe(1), 60_000);
    return here;
  }

  it("takes messages; one that was not stored is delivered again", async () => {
    const here = await connected({ transport: "websocket" });
    here.ingress.trouble.append = true;
    const failed = vi.waitFor(
      () => expect(here.platform.deliveries).toMatchObject([{ acknowledged: false }]),
      {
        timeout: 60_000,
      },
    );
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "hi",
    });
    await failed;
    here.ingress.trouble.append = false;
    const report = await sent.delivery;
    expect(report).toMatchObject({ outcome: "acknowledged" });
    expect(report.attempts.at(-1)).toMatchObject({ transport: "websocket", status: 200 });
    expect(await waitingIn(here, `${appId}.${here.direct}`)).toBe(1);
  });

  it("alone, leaves the webhook paths closed; readiness tells whether it stands", async () => {
    const here = await connected({ transport: "websocket" });
    expect(
      (await fetch(`${here.ingress.url}/feishu/events`, { method: "POST", body: "{}" })).status,
    ).toBe(404);
    await vi.waitFor(
      async () => expect((await fetch(`${here.ingress.url}/ready`)).status).toBe(200),
      60_000,
    );
  });

  it("and the webhook work at once: one message by both is processed once", async () => {
    const here = await connected({ transport: "both" });
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "hi",
    });
    expect(await sent.delivery).toMatchObject({ attempts: [{ transport: "websocket" }] });
    here.platform.setTransport(appId, "webhook");
    expect(await here.platform.redeliver(sent.messageId)).toMatchObject({
      attempts: [{ transport: "webhook" }],
    });
    expect(await waitingIn(here, `${appId}.${here.direct}`)).toBe(1);
  });
});
