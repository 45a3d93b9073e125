import { describe, expect, it } from "vitest";
import { failureOf, simulatedApi } from "./simulated-api.fixture.ts";

describe("a message", () => {
  it("is fetched with its sender, mentions and place", async () => {
    const { api, simulator, appId, chatId, person, say } = await simulatedApi();
    const rootId = await say("root");
    const at = { appId, chatId, from: person.openId, rootId };
    const { messageId } = await simulator.sendMessage({ ...at, text: "hi", mention: true });
    const [message, ...more] = await api.messages.fetch(messageId);
    expect(more).toEqual([]);
    expect(message).toMatchObject({
      messageId,
      messageType: "text",
      senderId: person.openId,
      senderType: "user",
      mentions: [{ key: "@_user_1", openId: simulator.apps[0]?.openId, name: "Larkline" }],
      deleted: false,
      rootId,
      parentId: rootId,
      threadId: "",
      upperMessageId: "",
      chatId,
    });
    expect(JSON.parse(message?.content ?? "")).toHaveProperty("text");
    expect(Math.abs((message?.createdAtMs ?? 0) - Date.now())).toBeLessThan(60_000);
  });

  it("of a forwarded bundle comes with those in it", async () => {
    const { api, simulator, appId, chatId, person, say } = await simulatedApi();
    const forward = [await say("one"), await say("two")];
    const { messageId } = await simulator.sendMessage({
      appId,
      chatId,
      from: person.openId,
      forward,
    });
    const [bundle, ...inside] = await api.messages.fetch(messageId);
    expect(bundle).toMatchObject({ messageId, messageType: "merge_forward" });
    expect(inside.map(({ upperMessageId }) => upperMessageId)).toEqual([messageId, messageId]);
    expect(inside.map(({ content }) => JSON.parse(content).text)).toEqual(["one", "two"]);
  });

  it("of the bot itself is recognised, and a recalled one is deleted without content", async () => {
    const { api, simulator, appId, chatId, say } = await simulatedApi();
    const sent = await api.messages.send({
      receiveIdType: "chat_id",
      receiveId: chatId,
      text: "x",
      uuid: "u",
    });
    expect(await api.messages.fetch(sent.messageId)).toMatchObject([
      { senderId: appId, senderType: "app" },
    ]);
    const messageId = await say("gone");
    await simulator.recall(messageId);
    expect(await api.messages.fetch(messageId)).toMatchObject([{ deleted: true, content: "" }]);
  });

  it("that is unknown is a gone target, and a made-up id is never sent", async () => {
    const { api } = await simulatedApi();
    expect(await failureOf(api.messages.fetch("om_nobody"))).toMatchObject({ kind: "target_gone" });
    expect(await failureOf(api.messages.fetch("../chats/oc_1"))).toMatchObject({
      kind: "bad_request",
      httpStatus: 0,
    });
  });
});

describe("a chat", () => {
  it("tells its mode and name", async () => {
    const { api, simulator, chatId, person } = await simulatedApi();
    expect(await api.chat(chatId)).toEqual({
      mode: "group",
      groupMessageType: "chat",
      onlyBot: true,
      name: "Team",
      external: false,
      active: true,
    });
    const topic = simulator.addChat({ type: "group", topic: true, members: [person.openId] });
    expect(await api.chat(topic.chatId)).toMatchObject({ mode: "topic" });
    const direct = simulator.addChat({ type: "p2p", members: [person.openId] });
    expect(await api.chat(direct.chatId)).toMatchObject({ mode: "p2p" });
  });

  it("that the bot is not in tells no more than its name", async () => {
    const { api, simulator, person } = await simulatedApi();
    const { chatId, bots } = simulator.addChat({
      type: "group",
      name: "Others",
      members: [person.openId],
    });
    bots.clear();
    const chat = await api.chat(chatId);
    expect(chat).toMatchObject({ name: "Others", active: true });
    expect(chat).not.toHaveProperty("mode");
  });

  it("that does not exist is a bad request, and a made-up id never leaves", async () => {
    const { api } = await simulatedApi();
    expect(await failureOf(api.chat("oc_nobody"))).toMatchObject({
      kind: "bad_request",
      code: 232006,
    });
    expect(await failureOf(api.chat("x/../y"))).toMatchObject({
      kind: "bad_request",
      httpStatus: 0,
    });
  });
});

describe("names of people", () => {
  it("come ten at a time, each person once", async () => {
    const { api, simulator } = await simulatedApi();
    const people = Array.from({ length: 12 }, (_, index) =>
      simulator.addUser({ name: `P${index}` }),
    );
    const openIds = people.map(({ openId }) => openId);
    const names = await api.userNames([...openIds, ...openIds]);
    expect(names).toEqual(new Map(people.map(({ openId, name }) => [openId, name])));
    expect(simulator.apiCalls.filter(({ path }) => path.endsWith("/basic_batch"))).toHaveLength(2);
  });

  it("come one by one where the app lacks the right to batches", async () => {
    const { api, simulator, person } = await simulatedApi();
    const body = { code: 99991672, msg: "Access denied." };
    simulator.faults.add({
      match: { path: /basic_batch$/ },
      action: { kind: "respond", status: 400, body },
    });
    expect(await api.userNames([person.openId])).toEqual(new Map([[person.openId, "Ann"]]));
  });

  it("that the app may not see are missing; an outage is no missing name", async () => {
    const { api, simulator, person } = await simulatedApi();
    expect(await api.userNames([person.openId, "ou_nobody"])).toEqual(
      new Map([[person.openId, "Ann"]]),
    );
    expect(await api.userNames([])).toEqual(new Map());
    simulator.faults.add({ match: { path: /users/ }, action: { kind: "respond", status: 503 } });
    expect(await failureOf(api.userNames([person.openId]))).toMatchObject({ kind: "unavailable" });
  });

  it("are asked for with well-formed ids only", async () => {
    const { api, simulator } = await simulatedApi();
    const before = simulator.apiCalls.length;
    expect(await failureOf(api.userNames(["../../x"]))).toMatchObject({ kind: "bad_request" });
    expect(simulator.apiCalls).toHaveLength(before);
  });
});

describe("a reaction", () => {
  it("is added and taken back", async () => {
    const { api, say } = await simulatedApi();
    const messageId = await say("hi");
    const reactionId = await api.messages.addReaction(messageId, "Typing");
    await api.messages.removeReaction(messageId, reactionId);
    expect(await failureOf(api.messages.removeReaction(messageId, reactionId))).toMatchObject({
      kind: "bad_request",
    });
  });

  it("is refused as an unknown emoji, on a recalled message, and with a made-up id", async () => {
    const { api, simulator, say } = await simulatedApi();
    const messageId = await say("hi");
    expect(await failureOf(api.messages.addReaction(messageId, "no such emoji"))).toMatchObject({
      code: 231001,
    });
    expect(await failureOf(api.messages.addReaction("a/b", "Typing"))).toMatchObject({
      kind: "bad_request",
      httpStatus: 0,
    });
    expect(await failureOf(api.messages.removeReaction(messageId, "../x"))).toMatchObject({
      httpStatus: 0,
    });
    await simulator.recall(messageId);
    expect(await failureOf(api.messages.addReaction(messageId, "Typing"))).toMatchObject({
      kind: "target_gone",
    });
  });
});
