import { systemClock } from "@larkline/protocol/clock";
import { expect, test } from "vitest";
import {
  app,
  objectOf,
  otherApp,
  personWorld,
  typeOf,
  type PersonWorld,
} from "./person-world.fixture.ts";

const toChat = "/open-apis/im/v1/messages?receive_id_type=chat_id";
const text = { msg_type: "text", content: '{"text":"x"}' };

const sendTo = async ({ client }: PersonWorld, chatId: string): Promise<number> =>
  (await client.call("POST", toChat, { receive_id: chatId, ...text })).code;

const chatOf = async ({ client }: PersonWorld, chatId: string) =>
  (await client.call("GET", `/open-apis/im/v1/chats/${chatId}`)).data;

async function write({ simulator, ann, direct }: PersonWorld, chatId = direct): Promise<string> {
  return (await simulator.sendMessage({ appId: app.appId, chatId, from: ann, text: "x" }))
    .messageId;
}

test("a group that changes its form tells its bots, and its facts", async () => {
  const world = await personWorld();
  expect(await chatOf(world, world.group)).toMatchObject({
    chat_mode: "group",
    group_message_type: "chat",
    external: false,
    chat_status: "normal",
    user_count: "1",
    bot_count: "2",
    restricted_mode_setting: { status: false },
  });
  const reports = await world.simulator.updateChat(world.group, { groupMessageType: "thread" })
    .reports;
  expect(reports.map(({ outcome }) => outcome)).toContain("acknowledged");
  expect(world.newest("im.chat.updated_v1")).toMatchObject({
    chat_id: world.group,
    before_change: { group_message_type: "chat" },
    after_change: { group_message_type: "thread" },
  });
  world.simulator.updateChat(world.group, { external: true, restricted: true, name: "New" });
  expect(await chatOf(world, world.group)).toMatchObject({
    name: "New",
    group_message_type: "thread",
    external: true,
    restricted_mode_setting: { status: true },
  });
});

test("a dissolved chat answers 232009, and still tells its status", async () => {
  const world = await personWorld();
  const messageId = await write(world, world.group);
  await world.simulator.dissolveChat(world.group).reports;
  expect(world.newest("im.chat.disbanded_v1")).toMatchObject({ chat_id: world.group });
  const reply = await world.client.call(
    "POST",
    `/open-apis/im/v1/messages/${messageId}/reply`,
    text,
  );
  const members = await world.client.call("GET", `/open-apis/im/v1/chats/${world.group}/members`);
  expect([await sendTo(world, world.group), reply.code, members.code]).toEqual([
    232009, 232009, 232009,
  ]);
  expect((await chatOf(world, world.group)).chat_status).toBe("dissolved");
});

test("a removed bot gets an event, cannot send, and knows little of the chat until it is added again", async () => {
  const world = await personWorld();
  const bot = { appId: app.appId, operator: world.ann };
  await world.simulator.removeBot(world.group, bot).reports;
  expect(world.newest("im.chat.member.bot.deleted_v1")).toMatchObject({
    chat_id: world.group,
    operator_id: { open_id: world.ann },
    external: false,
  });
  expect(await sendTo(world, world.group)).toBe(230002);
  expect((await chatOf(world, world.group)).chat_mode).toBeUndefined();
  const path = `/open-apis/im/v1/chats/${world.group}/members/is_in_chat`;
  expect((await world.client.call("GET", path)).data.is_in_chat).toBe(false);
  await world.simulator.addBot(world.group, app.appId).reports;
  expect(world.newest("im.chat.member.bot.added_v1")).toMatchObject({
    chat_id: world.group,
    operator_id: { open_id: world.ann },
    i18n_names: { zh_cn: "" },
  });
  expect(await sendTo(world, world.group)).toBe(0);
});

test("removing without a name removes every bot; the others learn of the added one only by its own messages", async () => {
  const world = await personWorld();
  world.simulator.removeBot(world.group);
  expect((await chatOf(world, world.group)).bot_count).toBe("0");
  const reports = await world.simulator.addBot(world.group, otherApp.appId).reports;
  expect(reports).toHaveLength(1);
});

test("people who join and leave are announced, counted and listed in pages", async () => {
  const world = await personWorld();
  const joined = Array.from(
    { length: 3 },
    (_, index) => world.simulator.addUser({ name: `P${index}` }).openId,
  );
  await world.simulator.addMembers(world.group, joined).reports;
  expect(world.newest("im.chat.member.user.added_v1")).toMatchObject({
    users: [{ name: "P0", user_id: { open_id: joined[0] } }, { name: "P1" }, { name: "P2" }],
  });
  const path = `/open-apis/im/v1/chats/${world.group}/members?page_size=3`;
  const first = (await world.client.call("GET", path)).data;
  expect(first).toMatchObject({ member_total: 4, has_more: true });
  const rest = (await world.client.call("GET", `${path}&page_token=${String(first.page_token)}`))
    .data;
  expect(rest).toMatchObject({
    has_more: false,
    items: [{ name: "P2", member_id_type: "open_id" }],
  });
  const byUnion = (await world.client.call("GET", `${path}&member_id_type=union_id`)).data.items;
  expect(byUnion).toMatchObject([{ member_id: expect.stringMatching(/^on_/) }, {}, {}]);
  await world.simulator.removeMember(world.group, joined[0] ?? "").reports;
  expect(world.newest("im.chat.member.user.deleted_v1")).toMatchObject({ users: [{ name: "P0" }] });
  expect((await chatOf(world, world.group)).user_count).toBe("3");
});

test("the first time a person opens the chat, the 1.0 event comes before the other, later only the other", async () => {
  const world = await personWorld();
  const bob = world.simulator.addUser({ name: "Bob" });
  const { chatId, reports } = world.simulator.enterChat(bob.openId, app.appId);
  await reports;
  const types = () => world.received.map(({ body }) => typeOf(body)).toSorted();
  expect(types()).toEqual(["im.chat.access_event.bot_p2p_chat_entered_v1", "p2p_chat_create"]);
  const legacy = world.received.find(({ body }) => body.schema === undefined)?.body ?? {};
  expect(legacy).toMatchObject({
    type: "event_callback",
    uuid: expect.stringMatching(/^\w{32}$/),
    ts: expect.stringMatching(/^\d{10}\.\d{7}$/),
    event: {
      type: "p2p_chat_create",
      app_id: app.appId,
      chat_id: chatId,
      user: { name: "Bob", open_id: bob.openId },
    },
  });
  const messageId = await write({ ...world, ann: bob.openId }, chatId);
  await world.simulator.enterChat(bob.openId, app.appId).reports;
  expect(world.newest("im.chat.access_event.bot_p2p_chat_entered_v1")).toMatchObject({
    chat_id: chatId,
    operator_id: { open_id: bob.openId },
    last_message_id: messageId,
  });
  expect(types().filter((type) => type === "p2p_chat_create")).toHaveLength(1);
});

test("a menu entry comes with its key and a time in seconds, and without a chat", async () => {
  const world = await personWorld({ clock: { ...systemClock, now: () => 1_700_000_000_999 } });
  await world.simulator.pressMenu(world.ann, app.appId, "status").reports;
  const event = world.newest("application.bot.menu_v6");
  expect(event).toEqual({
    operator: {
      operator_name: "Ann",
      operator_id: expect.objectContaining({ open_id: world.ann }),
    },
    event_key: "status",
    timestamp: 1_700_000_000,
  });
});

test("reactions of people and of the bot itself are events, without a chat or reaction id", async () => {
  const world = await personWorld();
  const messageId = await write(world);
  const reaction = { messageId, from: world.ann, emojiType: "THUMBSUP" };
  await world.simulator.react(reaction).reports;
  expect(world.newest("im.message.reaction.created_v1")).toEqual({
    message_id: messageId,
    reaction_type: { emoji_type: "THUMBSUP" },
    operator_type: "user",
    user_id: expect.objectContaining({ open_id: world.ann }),
    action_time: expect.stringMatching(/^\d{13}$/),
  });
  await world.simulator.unreact(reaction).reports;
  expect(world.newest("im.message.reaction.deleted_v1")).toMatchObject({ operator_type: "user" });
  expect(() => world.simulator.unreact(reaction)).toThrow("has not reacted");
  const path = `/open-apis/im/v1/messages/${messageId}/reactions`;
  const added = await world.client.call("POST", path, { reaction_type: { emoji_type: "Typing" } });
  await expect
    .poll(() => world.newest("im.message.reaction.created_v1"))
    .toMatchObject({
      operator_type: "app",
      app_id: app.appId,
      reaction_type: { emoji_type: "Typing" },
    });
  await world.client.call("DELETE", `${path}/${String(added.data.reaction_id)}`);
  await expect
    .poll(() => world.newest("im.message.reaction.deleted_v1"))
    .toMatchObject({ operator_type: "app" });
});

test("a system message and a recalled one take no reaction, and a person's is not the bot's to remove", async () => {
  const world = await personWorld();
  const written = { appId: app.appId, chatId: world.direct, from: world.ann };
  const system = await world.simulator.sendMessage({ ...written, messageType: "system" });
  const react = async (messageId: string) => {
    const body = { reaction_type: { emoji_type: "OK" } };
    return (
      await world.client.call("POST", `/open-apis/im/v1/messages/${messageId}/reactions`, body)
    ).code;
  };
  const recalled = await write(world);
  await world.simulator.recall(recalled);
  expect([await react(system.messageId), await react(recalled)]).toEqual([231017, 231003]);
  const messageId = await write(world);
  await world.simulator.react({ messageId, from: world.ann, emojiType: "OK" }).reports;
  const path = `/open-apis/im/v1/messages/${messageId}/reactions`;
  const [theirs] = (await world.client.call("GET", path)).data.items as [Record<string, unknown>];
  expect((await world.client.call("DELETE", `${path}/${String(theirs.reaction_id)}`)).code).toBe(
    231007,
  );
});

test("read messages of a p2p chat are events; those of a group are not", async () => {
  const world = await personWorld();
  const sent = await world.client.call("POST", toChat, { receive_id: world.direct, ...text });
  const messageId = String(sent.data.message_id);
  await world.simulator.markRead(world.ann, [messageId]).reports;
  expect(world.newest("im.message.message_read_v1")).toMatchObject({
    reader: { reader_id: { open_id: world.ann }, read_time: expect.stringMatching(/^\d{13}$/) },
    message_id_list: [messageId],
  });
  const inGroup = await write(world, world.group);
  expect(() => world.simulator.markRead(world.ann, [inGroup])).toThrow("Only p2p chats");
});

test("a recall tells who did it", async () => {
  const world = await personWorld();
  const messageId = await write(world);
  await world.simulator.recall(messageId, { by: "group_owner" });
  await expect
    .poll(() => world.received.some(({ body }) => typeOf(body) === "im.message.recalled_v1"))
    .toBe(true);
  expect(world.newest("im.message.recalled_v1")).toMatchObject({
    message_id: messageId,
    chat_id: world.direct,
    recall_type: "group_owner",
  });
});

test.each([230006, 230013, 230018, 230022, 230028, 230029, 230035, 230053, 230027])(
  "a chat refuses sends and replies with %i until the test lifts that",
  async (code) => {
    const world = await personWorld();
    const messageId = await write(world);
    const reply = async () =>
      (await world.client.call("POST", `/open-apis/im/v1/messages/${messageId}/reply`, text)).code;
    world.simulator.refuseSends(world.direct, code);
    expect([
      await sendTo(world, world.direct),
      await reply(),
      await sendTo(world, world.group),
    ]).toEqual([code, code, 0]);
    world.simulator.refuseSends(world.direct, undefined);
    expect([await sendTo(world, world.direct), await reply()]).toEqual([0, 0]);
  },
);

test("a person refuses what comes to them, and a message refuses replies only", async () => {
  const world = await personWorld();
  const messageId = await write(world);
  const reply = async () =>
    (await world.client.call("POST", `/open-apis/im/v1/messages/${messageId}/reply`, text)).code;
  world.simulator.refuseSends(messageId, 230111);
  expect([await reply(), await sendTo(world, world.direct)]).toEqual([230111, 0]);
  world.simulator.refuseSends(world.ann, 230053);
  const path = "/open-apis/im/v1/messages?receive_id_type=open_id";
  const toPerson = await world.client.call("POST", path, { receive_id: world.ann, ...text });
  expect([toPerson.code, await sendTo(world, world.group)]).toEqual([230053, 0]);
});

test("a hidden message is invisible to every call", async () => {
  const world = await personWorld();
  const messageId = await write(world);
  world.simulator.hideMessage(messageId);
  const path = `/open-apis/im/v1/messages/${messageId}`;
  const codes = [
    (await world.client.call("GET", path)).code,
    (await world.client.call("POST", `${path}/reply`, text)).code,
    (await world.client.call("POST", `${path}/reactions`, { reaction_type: { emoji_type: "OK" } }))
      .code,
  ];
  expect(codes).toEqual([230050, 230050, 231018]);
  const list = `/open-apis/im/v1/messages?container_id_type=chat&container_id=${world.direct}`;
  expect((await world.client.call("GET", list)).data.items).toEqual([]);
});

test("names are returned, left out beyond the contact range, or refused without the scope", async () => {
  const world = await personWorld();
  const one = () => world.client.call("GET", `/open-apis/contact/v3/users/${world.ann}`);
  const batch = () =>
    world.client.call("POST", "/open-apis/contact/v3/users/basic_batch", { user_ids: [world.ann] });
  world.simulator.setNameScope(app.appId, "hidden");
  const { user } = (await one()).data;
  expect(objectOf(user)).toMatchObject({ open_id: world.ann });
  expect(objectOf(user).name).toBeUndefined();
  expect((await batch()).data.users).toMatchObject([{ name: "Ann" }]);
  world.simulator.setNameScope(app.appId, "refused");
  expect([(await one()).code, (await batch()).code]).toEqual([99991672, 99991672]);
  world.simulator.setNameScope(app.appId, "granted");
  world.simulator.setConsole(app.appId, { scopes: ["contact:user.basic_profile:readonly"] });
  expect([(await one()).code, (await batch()).code]).toEqual([99991672, 0]);
});

test("calls without any of their scopes are refused with their names; each scope that allows a call will do", async () => {
  const world = await personWorld();
  const messageId = await write(world);
  const codes = async (): Promise<number[]> => {
    const calls = [
      world.client.call("POST", `/open-apis/im/v1/messages/${messageId}/reply`, text),
      world.client.call("GET", `/open-apis/im/v1/messages/${messageId}`),
      world.client.call("GET", `/open-apis/im/v1/chats/${world.direct}`),
      world.client.call("POST", "/open-apis/im/v1/images", {}),
      world.client.call("POST", "/open-apis/cardkit/v1/cards", {}),
    ];
    return (await Promise.all(calls)).map(({ code }) => code);
  };
  world.simulator.setConsole(app.appId, { scopes: ["im:message:send_as_bot", "im:chat:readonly"] });
  expect(await codes()).toEqual([0, 99991672, 0, 99991672, 99991672]);
  world.simulator.setConsole(app.appId, { scopes: ["im:message:readonly"] });
  const refused = await world.client.call("POST", toChat, { receive_id: world.direct, ...text });
  expect(refused).toMatchObject({
    code: 99991672,
    body: { msg: expect.stringContaining("im:message:send_as_bot") },
  });
});

test("a thread's history takes no time filter", async () => {
  const { client } = await personWorld();
  const path = "/open-apis/im/v1/messages?container_id_type=thread&container_id=omt_1&start_time=1";
  expect((await client.call("GET", path)).code).toBe(230001);
});

test("events that the app is not subscribed to do not come", async () => {
  const world = await personWorld();
  world.simulator.setConsole(app.appId, { events: ["im.message.receive_v1"] });
  const [report] = await world.simulator.pressMenu(world.ann, app.appId, "status").reports;
  expect(report?.outcome).toBe("not_subscribed");
  await write(world);
  await expect
    .poll(() => world.received.map(({ body }) => typeOf(body)))
    .toEqual(["im.message.receive_v1"]);
});

test("the monthly quota counts messaging calls of all apps, not contact and auth calls, and starts anew", async () => {
  let now = Date.UTC(2026, 0, 31, 15, 59, 0);
  const world = await personWorld({ monthlyQuota: 2, clock: { ...systemClock, now: () => now } });
  expect((await world.client.call("GET", `/open-apis/contact/v3/users/${world.ann}`)).code).toBe(0);
  expect(await sendTo(world, world.group)).toBe(0);
  expect((await world.other.call("POST", toChat, { receive_id: world.group, ...text })).code).toBe(
    0,
  );
  expect(await sendTo(world, world.group)).toBe(99991403);
  expect((await world.client.call("POST", "/open-apis/cardkit/v1/cards", {})).code).toBe(99991403);
  expect((await world.client.call("GET", `/open-apis/contact/v3/users/${world.ann}`)).code).toBe(0);
  now += 60_000;
  expect(await sendTo(world, world.group)).toBe(0);
});

test("follow-ups stand once below the newest message of the bot in a p2p chat, within ten minutes", async () => {
  let now = Date.UTC(2026, 0, 1);
  const world = await personWorld({ clock: { ...systemClock, now: () => now } });
  const send = async (chatId: string): Promise<string> =>
    String(
      (await world.client.call("POST", toChat, { receive_id: chatId, ...text })).data.message_id,
    );
  const push = async (messageId: string, items: object[] = [{ content: "More?" }]) =>
    (
      await world.client.call("POST", `/open-apis/im/v1/messages/${messageId}/push_follow_up`, {
        follow_ups: items,
      })
    ).code;
  const first = await send(world.direct);
  const second = await send(world.direct);
  expect(await push(first)).toBe(230006);
  expect(await push(await send(world.group))).toBe(230003);
  expect([await push(second, []), await push(second, [{ content: "x".repeat(201) }])]).toEqual([
    99992402, 99992402,
  ]);
  expect([await push(second), await push(second)]).toEqual([0, 230008]);
  expect(world.simulator.messages(world.direct).at(-1)?.followUps).toEqual(["More?"]);
  const third = await send(world.direct);
  now += 600_001;
  expect(await push(third)).toBe(230002);
});

test("a lost acknowledgement is followed by the next retry, and a good one may be followed by a duplicate", async () => {
  const world = await personWorld({ retryDelaysMs: [1, 1] });
  world.simulator.setDeliveryNoise({ lostAcks: 1, duplicates: true });
  const sent = await world.simulator.sendMessage({
    appId: app.appId,
    chatId: world.direct,
    from: world.ann,
    text: "x",
  });
  const { outcome, attempts } = await sent.delivery;
  expect(outcome).toBe("acknowledged");
  expect(attempts.map(({ acknowledged }) => acknowledged)).toEqual([false, true, true]);
  const ids = world.received.map(({ body }) => objectOf(body.header).event_id);
  expect(ids).toEqual([sent.eventId, sent.eventId, sent.eventId]);
});

test("shuffled events all arrive, in another order than they were written", async () => {
  const world = await personWorld();
  world.simulator.setDeliveryNoise({ shuffleMs: 60 });
  const written = { appId: app.appId, chatId: world.direct, from: world.ann, text: "x" };
  const sent = await Promise.all(
    Array.from({ length: 30 }, () => world.simulator.sendMessage(written)),
  );
  await Promise.all(sent.map(({ delivery }) => delivery));
  const ids = sent.map(({ eventId }) => eventId);
  const arrived = world.received.map(({ body }) => objectOf(body.header).event_id);
  expect(arrived).not.toEqual(ids);
  expect(arrived.toSorted()).toEqual(ids.toSorted());
});
