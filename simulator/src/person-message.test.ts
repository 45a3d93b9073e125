import { systemClock } from "@larkline/protocol/clock";
import { expect, test } from "vitest";
import type { PersonMessage } from "./index.ts";
import { app, objectOf, otherApp, personWorld, type PersonWorld } from "./person-world.fixture.ts";

const receive = "im.message.receive_v1";

type Written = Omit<PersonMessage, "appId" | "chatId" | "from">;

/** Writes in the p2p chat and tells what the bot received. */
async function write(world: PersonWorld, written: Written, chatId = world.direct) {
  const sent = await world.simulator.sendMessage({
    appId: app.appId,
    chatId,
    from: world.ann,
    ...written,
  });
  const { outcome } = await sent.delivery;
  expect(outcome).toBe("acknowledged");
  const message = objectOf(world.newest(receive).message);
  expect(message.message_id).toBe(sent.messageId);
  return {
    id: sent.messageId,
    message,
    content: JSON.parse(String(message.content)) as Record<string, unknown>,
  };
}

const read = (world: PersonWorld, id: string, query = "") =>
  world.client.call("GET", `/open-apis/im/v1/messages/${id}${query}`);

test.each([
  ["sticker", { file_key: expect.stringMatching(/^file_/) }],
  [
    "interactive",
    { title: "Deployment", elements: [[{ tag: "text" }, { tag: "button", type: "primary" }]] },
  ],
  ["share_chat", { chat_id: expect.stringMatching(/^oc_/) }],
  ["share_user", { user_id: expect.stringMatching(/^ou_/) }],
  ["location", { name: expect.any(String), longitude: "113.944", latitude: "22.516" }],
  ["hongbao", { text: "[红包]" }],
  [
    "share_calendar_event",
    { summary: "Weekly review", start_time: expect.stringMatching(/^\d{13}$/) },
  ],
  ["calendar", { end_time: expect.stringMatching(/^\d{13}$/) }],
  ["general_calendar", { summary: "Weekly review" }],
  ["system", { template: expect.stringContaining("{from_user}"), from_user: ["Ann"] }],
  ["video_chat", { topic: "Stand-up", start_time: expect.any(String) }],
  ["todo", { task_id: expect.any(String), summary: { content: [[{ tag: "text" }]] } }],
  ["vote", { topic: "Lunch?", options: ["Noodles", "Rice"] }],
  ["hologram", {}],
])("%s arrives in its documented form", async (messageType, content) => {
  const world = await personWorld();
  const received = await write(world, { messageType });
  expect(received.message.message_type).toBe(messageType);
  expect(received.content).toMatchObject(content);
});

const bytes = new Uint8Array([1, 2, 3]);

test.each<[string, Written, Record<string, unknown>]>([
  ["image", { image: { bytes } }, { image_key: expect.stringMatching(/^img_/) }],
  [
    "file",
    { file: { bytes, name: "a.txt" } },
    { file_key: expect.stringMatching(/^file_/), file_name: "a.txt" },
  ],
  ["folder", { folder: { name: "Plans" } }, { file_key: expect.any(String), file_name: "Plans" }],
  [
    "audio",
    { audio: { bytes, durationMs: 2000 } },
    { file_key: expect.any(String), duration: 2000 },
  ],
  [
    "media",
    { media: { bytes, name: "b.mp4", durationMs: 9 } },
    {
      file_key: expect.any(String),
      image_key: expect.any(String),
      file_name: "b.mp4",
      duration: 9,
    },
  ],
])("%s brings keys, not bytes", async (messageType, written, content) => {
  const world = await personWorld();
  const received = await write(world, written);
  expect(received.message.message_type).toBe(messageType);
  expect(received.content).toEqual(content);
});

test("content of any kind is sent as given", async () => {
  const world = await personWorld();
  const received = await write(world, {
    messageType: "vote",
    content: { topic: "Now?", options: [] },
  });
  expect(received.content).toEqual({ topic: "Now?", options: [] });
  const raw = await write(world, { messageType: "vote", content: '{"topic":"Raw"}' });
  expect(raw.content).toEqual({ topic: "Raw" });
});

test("a kind that needs bytes is not made up", async () => {
  const world = await personWorld();
  await expect(write(world, { messageType: "image" })).rejects.toThrow("needs its own field");
});

test("a post arrives without a locale, with placeholders and keys in it", async () => {
  const world = await personWorld();
  const received = await write(
    world,
    {
      mention: true,
      post: {
        title: "Plan",
        content: [
          [
            { tag: "text", text: "for " },
            { tag: "at", user_id: world.ann },
          ],
          [{ tag: "img", image: { bytes } }],
          [{ tag: "media", file: { bytes }, image: { bytes } }],
        ],
      },
    },
    world.group,
  );
  expect(received.content).toEqual({
    title: "Plan",
    content: [
      [
        { tag: "at", user_id: "@_user_1", user_name: "Larkline", style: [] },
        { tag: "text", text: "for " },
        { tag: "at", user_id: "@_user_2", user_name: "Ann", style: [] },
      ],
      [{ tag: "img", image_key: expect.stringMatching(/^img_/) }],
      [
        {
          tag: "media",
          file_key: expect.stringMatching(/^file_/),
          image_key: expect.stringMatching(/^img_/),
        },
      ],
    ],
  });
  expect(received.message.mentions).toMatchObject([
    { key: "@_user_1", mentioned_type: "bot", name: "Larkline" },
    {
      key: "@_user_2",
      mentioned_type: "user",
      id: { open_id: world.ann, union_id: expect.stringMatching(/^on_/) },
    },
  ]);
  expect(world.simulator.messages(world.group)[0]?.text).toBe(
    "Plan\n@Larklinefor @Ann\n[img]\n[media]",
  );
});

test("mentions are numbered in order, beyond nine", async () => {
  const world = await personWorld();
  const people = Array.from(
    { length: 11 },
    (_, index) => world.simulator.addUser({ name: `P${index + 1}` }).openId,
  );
  const received = await write(world, { mentions: people, text: "all of you" }, world.group);
  expect(received.content.text).toMatch(/^@_user_1 @_user_2 .* @_user_10 @_user_11 all of you$/);
  const mentions = received.message.mentions as Record<string, unknown>[];
  expect(mentions[9]).toMatchObject({ key: "@_user_10", name: "P10" });
  expect(world.simulator.messages(world.group)[0]?.text).toContain("@P10 @P11");
});

test("everybody is mentioned with an entry, or as text only", async () => {
  const world = await personWorld();
  const entry = await write(world, { mentionAll: "mention", text: "hear" }, world.group);
  expect(entry.content.text).toBe("@_all hear");
  expect(entry.message.mentions).toMatchObject([
    { key: "@_all", id: { open_id: "" }, name: "所有人" },
  ]);
  const textOnly = await write(world, { mentionAll: "text", text: "hear" }, world.group);
  expect(textOnly.content.text).toBe("@_all hear");
  expect(textOnly.message.mentions).toBeUndefined();
});

test("mentioning everybody does not reach a bot that wants to be mentioned itself", async () => {
  const world = await personWorld();
  world.simulator.setGroupScope(app.appId, "mentioned");
  const message = { appId: app.appId, chatId: world.group, from: world.ann, text: "x" };
  const all = await world.simulator.sendMessage({ ...message, mentionAll: "mention" });
  expect((await all.delivery).outcome).toBe("not_subscribed");
  const own = await world.simulator.sendMessage({
    ...message,
    mentionAll: "mention",
    mention: true,
  });
  expect((await own.delivery).outcome).toBe("acknowledged");
});

test("an answer to an answer has the first message as root and the answered one as parent", async () => {
  const world = await personWorld();
  const root = await write(world, { text: "a" });
  const middle = await write(world, { text: "b", rootId: root.id });
  const last = await write(world, { text: "c", parentId: middle.id });
  expect(last.message).toMatchObject({ root_id: root.id, parent_id: middle.id });
  expect(last.message.thread_id).toBeUndefined();
});

test("a thread of an ordinary group has its first message as root and parent, and belongs to it", async () => {
  const world = await personWorld();
  const root = await write(world, { text: "a" }, world.group);
  const first = await write(world, { text: "b", parentId: root.id, threadId: "new" }, world.group);
  const second = await write(world, { text: "c", parentId: first.id }, world.group);
  const { thread_id: threadId } = first.message;
  expect(threadId).toMatch(/^omt_/);
  expect(second.message).toMatchObject({
    root_id: root.id,
    parent_id: root.id,
    thread_id: threadId,
  });
  expect((await read(world, root.id)).data.items).toMatchObject([{ thread_id: threadId }]);
  const history = await world.client.call(
    "GET",
    `/open-apis/im/v1/messages?container_id_type=chat&container_id=${world.group}`,
  );
  expect(history.data.items).toMatchObject([{ message_id: root.id }]);
  const thread = await world.client.call(
    "GET",
    `/open-apis/im/v1/messages?container_id_type=thread&container_id=${String(threadId)}`,
  );
  expect(thread.data.items).toHaveLength(3);
});

test("a group in topic form opens a thread for each message, also of bots, and for answers to older ones", async () => {
  const world = await personWorld();
  const before = await write(world, { text: "a" }, world.group);
  world.simulator.updateChat(world.group, { groupMessageType: "thread" });
  const after = await write(world, { text: "b" }, world.group);
  expect(after.message.thread_id).toMatch(/^omt_/);
  const body = { msg_type: "text", content: '{"text":"x"}' };
  const sent = await world.client.call(
    "POST",
    "/open-apis/im/v1/messages?receive_id_type=chat_id",
    {
      ...body,
      receive_id: world.group,
    },
  );
  expect(sent.data.thread_id).toMatch(/^omt_/);
  const reply = await world.client.call(
    "POST",
    `/open-apis/im/v1/messages/${before.id}/reply`,
    body,
  );
  expect(reply.data).toMatchObject({
    root_id: before.id,
    thread_id: expect.stringMatching(/^omt_/),
  });
});

test("answers in a topic group may carry only the root", async () => {
  const world = await personWorld();
  const members = [world.ann, app.appId];
  const chat = world.simulator.addChat({
    type: "group",
    topic: true,
    members,
    eventLinks: "root_only",
  });
  const root = await write(world, { text: "a" }, chat.chatId);
  expect(root.message.thread_id).toMatch(/^omt_/);
  const bare = await write(world, { text: "b", parentId: root.id }, chat.chatId);
  expect(bare.message).toMatchObject({ root_id: root.id, chat_type: "group" });
  expect([bare.message.parent_id, bare.message.thread_id]).toEqual([undefined, undefined]);
  const full = await write(
    world,
    { text: "c", parentId: root.id, eventLinks: "full" },
    chat.chatId,
  );
  expect(full.message.thread_id).toBe(root.message.thread_id);
});

test("forwarded messages are read with the message that holds them, nested ones too", async () => {
  const world = await personWorld();
  const first = await write(world, { text: "one" });
  const picture = await write(world, { image: { bytes } });
  const inner = await write(world, { forward: [first.id, picture.id] });
  expect(inner.content).toEqual({ content: "Merged and Forwarded Message" });
  const outer = await write(world, { forward: [inner.id] });
  const items = (await read(world, outer.id)).data.items as Record<string, unknown>[];
  const [top, held, ...deepest] = items;
  expect(items).toHaveLength(4);
  expect(top?.upper_message_id).toBeUndefined();
  expect(held).toMatchObject({ msg_type: "merge_forward", upper_message_id: outer.id });
  expect(deepest).toMatchObject([
    { msg_type: "text", upper_message_id: held?.message_id },
    { msg_type: "image", upper_message_id: held?.message_id },
  ]);
  expect(world.simulator.messages(world.direct)).toHaveLength(4);
});

test("an old message arrives with its own time, and a person of another tenant with theirs", async () => {
  const world = await personWorld();
  const guest = world.simulator.addUser({ name: "Guest", tenantKey: "elsewhere" });
  const { chatId } = world.simulator.addChat({ type: "p2p", members: [guest.openId, app.appId] });
  const createdAtMs = Date.now() - 6 * 3_600_000;
  const written = {
    appId: app.appId,
    chatId,
    from: guest.openId,
    text: "x",
    createdAtMs,
    userAgent: "Lark/7",
  };
  await (
    await world.simulator.sendMessage(written)
  ).delivery;
  expect(world.newest(receive)).toMatchObject({
    sender: { tenant_key: "elsewhere", sender_type: "user" },
    message: { create_time: String(createdAtMs), user_agent: "Lark/7" },
  });
});

test("another bot's message arrives only where it mentions the bot and the scope asks for bots", async () => {
  const world = await personWorld();
  const bot = world.simulator.apps.find(({ appId }) => appId === app.appId);
  const body = {
    receive_id: world.group,
    msg_type: "text",
    content: JSON.stringify({ text: `<at user_id="${bot?.openId ?? ""}"></at> hi` }),
  };
  const send = () =>
    world.other.call("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", body);
  await send();
  world.simulator.setGroupScope(app.appId, "mentioned_with_bots");
  const second = await send();
  await expect.poll(() => world.received.length).toBe(1);
  const sender = world.simulator.apps.find(({ appId }) => appId === otherApp.appId);
  expect(world.newest(receive)).toMatchObject({
    sender: { sender_type: "bot", sender_id: { open_id: sender?.openId } },
    message: { message_id: second.data.message_id, mentions: [{ mentioned_type: "bot" }] },
  });
});

test("a bot's card is read simplified, or as sent when asked", async () => {
  const world = await personWorld();
  const card = {
    schema: "2.0",
    header: { title: { tag: "plain_text", content: "T" } },
    body: {
      elements: [
        { tag: "markdown", content: "**m**" },
        {
          tag: "button",
          text: { tag: "plain_text", content: "Go" },
          type: "primary",
          behaviors: [],
        },
      ],
    },
  };
  const sent = await world.client.call(
    "POST",
    "/open-apis/im/v1/messages?receive_id_type=chat_id",
    {
      receive_id: world.group,
      msg_type: "interactive",
      content: JSON.stringify(card),
    },
  );
  const contentOf = async (query: string) => {
    const [item] = (await read(world, String(sent.data.message_id), query)).data.items as [
      Record<string, unknown>,
    ];
    return JSON.parse(String(objectOf(item.body).content)) as unknown;
  };
  expect(await contentOf("")).toEqual({
    title: "",
    elements: [[{ tag: "text", text: "请升级至最新版本客户端，以查看内容" }]],
  });
  expect(await contentOf("?card_msg_content_type=user_card_content")).toEqual(card);
});

test("a recalled message has no content when read, and a fixed text in lists", async () => {
  const world = await personWorld();
  const { id } = await write(world, { text: "secret" });
  await world.simulator.recall(id);
  const [got] = (await read(world, id)).data.items as [Record<string, unknown>];
  expect([got.deleted, got.body]).toEqual([true, undefined]);
  const path = `/open-apis/im/v1/messages?container_id_type=chat&container_id=${world.direct}`;
  const [listed] = (await world.client.call("GET", path)).data.items as [Record<string, unknown>];
  expect(listed).toMatchObject({
    deleted: true,
    body: { content: '{"text":"This message was recalled"}' },
  });
});

test("an edited message is read with its new text and time, and no event tells of it", async () => {
  let now = 1_700_000_000_000;
  const world = await personWorld({ clock: { ...systemClock, now: () => now } });
  const { id } = await write(world, { text: "before" });
  now += 5000;
  world.simulator.editMessage(id, "after");
  const items = (await read(world, id)).data.items;
  expect(items).toMatchObject([
    {
      updated: true,
      create_time: "1700000000000",
      update_time: "1700000005000",
      body: { content: '{"text":"after"}' },
    },
  ]);
  await write(world, { text: "next" });
  expect(world.received).toHaveLength(2);
});
