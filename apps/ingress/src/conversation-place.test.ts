import { afterEach, describe, expect, it } from "vitest";
import type { ConfigInput } from "@larkline/process/config";
import { startWorld, testApp, type FeishuWorld } from "./feishu.fixture.ts";

const { appId } = testApp;
const worlds: FeishuWorld[] = [];

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

async function world(agent: NonNullable<ConfigInput["agents"]>[string] = {}): Promise<FeishuWorld> {
  const started = await startWorld({ settings: { agents: { default: agent } } });
  worlds.push(started);
  return started;
}

function chatCalls({ platform }: FeishuWorld): number {
  return platform.apiCalls.filter(({ path }) => path.startsWith("/open-apis/im/v1/chats/")).length;
}

describe("a conversation", () => {
  it("in a topic group is the topic, also when replies name only its root, and the group is asked about once", async () => {
    const here = await world();
    here.platform.updateChat(here.topics, { eventLinks: "root_only" });
    const first = await here.say("one", { chatId: here.topics, mention: true });
    await here.say("two", { chatId: here.topics, from: here.bob, mention: true, rootId: first });
    await here.say("three", { chatId: here.topics, mention: true, rootId: first });
    const session = `${appId}.${here.topics}.${first}`;
    expect(await here.waiting(session)).toBe(3);
    expect((await here.head(session))?.reply).toMatchObject({ inThread: true });
    expect(chatCalls(here)).toBe(1);
  });

  it("in a group switched to topic form is the topic from the switch on", async () => {
    const here = await world();
    here.platform.updateChat(here.group, { eventLinks: "root_only" });
    const first = await here.say("one", { chatId: here.group, mention: true });
    await here.say("two", { chatId: here.group, mention: true, rootId: first });
    expect(await here.waiting(`${appId}.${here.group}`)).toBe(2);
    await here.platform.updateChat(here.group, { groupMessageType: "thread" }).reports;
    await here.say("three", { chatId: here.group, mention: true, rootId: first });
    expect(await here.waiting(`${appId}.${here.group}.${first}`)).toBe(1);
  });

  it("in a group whose kind the platform does not tell in time is the group, and nothing is lost", async () => {
    const here = await world();
    here.platform.updateChat(here.topics, { eventLinks: "root_only" });
    const first = await here.say("one", { chatId: here.topics, mention: true });
    here.platform.faults.add({
      match: { path: "/open-apis/im/v1/chats/" },
      action: { kind: "hang" },
    });
    await here.say("two", { chatId: here.topics, mention: true, rootId: first });
    expect(await here.waiting(`${appId}.${here.topics}`)).toBe(1);
  });

  it("stays the one in which a message was stored, also when the group is another kind by the time it is delivered again", async () => {
    const here = await world();
    here.platform.updateChat(here.group, { eventLinks: "root_only" });
    const first = await here.say("one", { chatId: here.group, mention: true });
    const second = await here.say("two", { chatId: here.group, mention: true, rootId: first });
    await here.platform.updateChat(here.group, { groupMessageType: "thread" }).reports;
    expect(await here.platform.redeliver(second)).toMatchObject({ outcome: "acknowledged" });
    expect(await here.waiting(`${appId}.${here.group}.${first}`)).toBe(0);
    const third = await here.say("three", { chatId: here.group, mention: true, rootId: first });
    await here.platform.updateChat(here.group, { groupMessageType: "chat" }).reports;
    expect(await here.platform.redeliver(third)).toMatchObject({ outcome: "acknowledged" });
    expect(await here.waiting(`${appId}.${here.group}`)).toBe(2);
    expect(await here.waiting(`${appId}.${here.group}.${first}`)).toBe(1);
  });

  it("can be each person's own in groups, and stays one in a direct chat", async () => {
    const here = await world({ sessions: "sender" });
    await here.say("one", { chatId: here.group, mention: true });
    await here.say("two", { chatId: here.group, from: here.bob, mention: true });
    await here.say("three", { chatId: here.group, mention: true });
    await here.say("four");
    expect(await here.waiting(`${appId}.${here.group}.${here.ann}`)).toBe(2);
    expect(await here.waiting(`${appId}.${here.group}.${here.bob}`)).toBe(1);
    expect(await here.waiting(`${appId}.${here.direct}`)).toBe(1);
  });
});

describe("what a message refers to", () => {
  it("is the message that it quotes, not the root of its own thread", async () => {
    const here = await world({ groups: "all" });
    const first = await here.say("one", { chatId: here.group, from: here.bob, mention: true });
    const quoted = `${appId}.${here.group}`;
    await here.begin(quoted);
    await here.say("two", { chatId: here.group, mention: true, rootId: first });
    const [waiting] = await here.ingress.store.waiting(quoted, 1);
    expect(waiting?.message.references).toEqual({ quotedId: first });

    const root = await here.say("three", { chatId: here.topics, mention: true });
    const topic = `${appId}.${here.topics}.${root}`;
    expect(await here.begin(topic)).not.toHaveProperty("head.message.references");
    await here.say("four", { chatId: here.topics, mention: true, rootId: root });
    const [second] = await here.ingress.store.waiting(topic, 1);
    expect(second?.message.references).toEqual({ threadRootId: root });
  });

  it("are the messages that it forwards, and its files", async () => {
    const here = await world();
    const session = `${appId}.${here.direct}`;
    const first = await here.say("", { image: { bytes: new Uint8Array([1, 2, 3]) } });
    expect(await here.begin(session)).toMatchObject({
      head: {
        message: {
          parts: [{ type: "text", text: "[image]" }],
          references: {
            attachments: [{ kind: "image", messageId: first, key: expect.stringMatching(/^img_/) }],
          },
        },
      },
    });
    const second = await here.say("", { file: { bytes: new Uint8Array([1]), name: "a.pdf" } });
    const third = await here.say("", { forward: [first] });
    const waiting = await here.ingress.store.waiting(session, 2);
    expect(waiting.map(({ message }) => message.references)).toEqual([
      {
        attachments: [expect.objectContaining({ kind: "file", messageId: second, name: "a.pdf" })],
      },
      { forwardedId: third },
    ]);
  });
});

describe("messages of every kind are taken, none is run as a command", () => {
  it.each([
    "sticker",
    "interactive",
    "share_chat",
    "share_user",
    "location",
    "hongbao",
    "share_calendar_event",
    "calendar",
    "general_calendar",
    "system",
    "video_chat",
    "todo",
    "vote",
    "something_new",
  ])("%s", async (messageType) => {
    const here = await world();
    const id = await here.say("", { messageType });
    const head = await here.head(`${appId}.${here.direct}`);
    expect(head).toMatchObject({
      id,
      parts: [{ type: "text", text: expect.stringMatching(/\S/) }],
    });
  });

  it("posts, recordings, videos and folders", async () => {
    const here = await world();
    const file = { bytes: new Uint8Array([1]) };
    await here.say("", {
      post: {
        title: "",
        content: [
          [
            { tag: "text", text: "/new" },
            { tag: "img", image: file },
          ],
        ],
      },
    });
    await here.say("", { audio: { ...file, durationMs: 2_000 } });
    await here.say("", { media: { ...file, durationMs: 2_000, name: "a.mp4" } });
    await here.say("", { folder: { name: "plans" } });
    const session = `${appId}.${here.direct}`;
    const head = await here.head(session);
    expect(head).not.toHaveProperty("command");
    expect(head).toMatchObject({ references: { attachments: [{ kind: "image" }] } });
    const waiting = await here.ingress.store.waiting(session, 10);
    expect(waiting.map(({ message }) => message.references?.attachments?.[0]?.kind)).toEqual([
      "audio",
      "video",
      undefined,
    ]);
  });
});
