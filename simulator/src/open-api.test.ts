import { systemClock } from "@larkline/protocol/clock";
import { afterEach, expect, test } from "vitest";
import { startFeishuSimulator, type FeishuSimulator, type SimulatorOptions } from "./index.ts";
import { callOpenApi, connectTestClient, type TestClient } from "./open-api.fixture.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "secret" };
const other = { appId: "cli_fedcba9876543210", appSecret: "other" };
const open: FeishuSimulator[] = [];

afterEach(async () => {
  for (const simulator of open.splice(0)) await simulator.close();
});

interface Scene {
  simulator: FeishuSimulator;
  client: TestClient;
  person: string;
  group: string;
}

/** A group with a person and the bot; `other` is a bot outside of it. */
async function scene(options: Partial<SimulatorOptions> = {}): Promise<Scene> {
  const simulator = await startFeishuSimulator({
    apps: [app, other],
    retryDelaysMs: [],
    ...options,
  });
  open.push(simulator);
  const { openId } = simulator.addUser({ name: "Ann" });
  const { chatId } = simulator.addChat({ type: "group", members: [openId, app.appId] });
  return {
    simulator,
    client: await connectTestClient(simulator.url, app),
    person: openId,
    group: chatId,
  };
}

const text = (value: string) => ({ msg_type: "text", content: JSON.stringify({ text: value }) });
const toChat = "/open-apis/im/v1/messages?receive_id_type=chat_id";

async function personWrites({ simulator, person, group }: Scene, words = "hi"): Promise<string> {
  return (
    await simulator.sendMessage({ appId: app.appId, chatId: group, from: person, text: words })
  ).messageId;
}

test("a token is the same while it has 30 minutes left, then a new one, and the old one lasts to its end", async () => {
  let now = 1_000_000_000;
  const { simulator, client } = await scene({ clock: { ...systemClock, now: () => now } });
  now += 5_399_000;
  const same = await connectTestClient(simulator.url, app);
  now += 2000;
  const renewed = await connectTestClient(simulator.url, app);
  expect(same.token).toBe(client.token);
  expect(renewed.token).not.toBe(client.token);
  expect((await client.call("GET", "/open-apis/bot/v3/info")).code).toBe(0);
  now += 1_800_000;
  expect((await client.call("GET", "/open-apis/bot/v3/info")).code).toBe(99991663);
  expect((await renewed.call("GET", "/open-apis/bot/v3/info")).code).toBe(0);
});

test("token fields stand at the top level", async () => {
  const { simulator } = await scene({ clock: { ...systemClock, now: () => 1_000_000_000 } });
  const path = "/open-apis/auth/v3/tenant_access_token/internal";
  const body = { app_id: app.appId, app_secret: app.appSecret };
  const answer = await callOpenApi(simulator.url, { method: "POST", path, body });
  expect(answer.body).toMatchObject({ code: 0, msg: "ok", expire: 7200 });
});

test.each([
  ["a wrong secret", { app_id: app.appId, app_secret: "wrong" }, 10015],
  ["an unknown app", { app_id: "cli_0000000000000000", app_secret: "secret" }, 10003],
  ["no app id", {}, 99992402],
])("%s gets no token", async (_name, body, code) => {
  const { simulator } = await scene();
  const path = "/open-apis/auth/v3/tenant_access_token/internal";
  expect((await callOpenApi(simulator.url, { method: "POST", path, body })).code).toBe(code);
});

test.each([
  ["no token", undefined, 99991661],
  ["a token of another form", "abc", 99991671],
  ["an unknown token", "t-unknown", 99991663],
])("a call with %s is refused", async (_name, token, code) => {
  const { simulator } = await scene();
  const call = {
    method: "GET",
    path: "/open-apis/bot/v3/info",
    ...(token === undefined ? {} : { token }),
  };
  expect(await callOpenApi(simulator.url, call)).toMatchObject({ status: 400, code });
});

test("expired tokens are refused until a new one is fetched", async () => {
  const { simulator, client } = await scene();
  simulator.expireTokens(app.appId);
  expect((await client.call("GET", "/open-apis/bot/v3/info")).code).toBe(99991663);
  const renewed = await connectTestClient(simulator.url, app);
  expect((await renewed.call("GET", "/open-apis/bot/v3/info")).body.bot).toMatchObject({
    app_name: "Larkline",
  });
});

test("an error body carries code, msg and the log id of the header", async () => {
  const { client } = await scene();
  const answer = await client.call("GET", "/open-apis/im/v1/messages/om_unknown");
  const logId = answer.headers.get("x-tt-logid");
  expect(answer).toMatchObject({ status: 400, code: 230110, body: { error: { log_id: logId } } });
});

test("refusals come with HTTP 200 when asked", async () => {
  const { client } = await scene({ errorStatus: 200 });
  expect(await client.call("GET", "/open-apis/im/v1/messages/om_unknown")).toMatchObject({
    status: 200,
    code: 230110,
  });
});

test("unknown paths and methods are refused as the gateway does", async () => {
  const { client } = await scene();
  expect(await client.call("POST", "/open-apis/cardkit/v1/decks", {})).toMatchObject({
    status: 404,
    code: 99991201,
  });
  expect(await client.call("PUT", "/open-apis/bot/v3/info", {})).toMatchObject({
    status: 405,
    code: 99991301,
  });
});

test("a sent message is visible in the chat, with mentions resolved", async () => {
  const { simulator, client, person, group } = await scene();
  const body = {
    receive_id: group,
    ...text(`hi <at user_id="${person}">A</at> and <at user_id="all"></at>`),
  };
  const answer = await client.call("POST", toChat, body);
  expect(answer.data).toMatchObject({
    chat_id: group,
    msg_type: "text",
    sender: { id: app.appId, id_type: "app_id", sender_type: "app" },
    body: { content: '{"text":"hi @_user_1 and @_all"}' },
    mentions: [{ key: "@_user_1", id: person, id_type: "open_id", name: "Ann" }],
  });
  expect(simulator.messages(group).map((message) => message.text)).toEqual(["hi @Ann and @所有人"]);
});

test("sending to a person opens the p2p chat once", async () => {
  const { client, person } = await scene();
  const path = "/open-apis/im/v1/messages?receive_id_type=open_id";
  const first = await client.call("POST", path, { receive_id: person, ...text("a") });
  const second = await client.call("POST", path, { receive_id: person, ...text("b") });
  expect(second.data.chat_id).toBe(first.data.chat_id);
});

test("a reply names its parent and root, and a thread stays a thread", async () => {
  const told = await scene();
  const root = await personWrites(told);
  const reply = (id: string, body: object) =>
    told.client.call("POST", `/open-apis/im/v1/messages/${id}/reply`, body);
  const plain = await reply(root, text("plain"));
  expect(plain.data).toMatchObject({ root_id: root, parent_id: root });
  expect(plain.data.thread_id).toBeUndefined();
  const threaded = await reply(root, { ...text("thread"), reply_in_thread: true });
  const inside = await reply(String(threaded.data.message_id), text("inside"));
  expect(inside.data).toMatchObject({ root_id: root, thread_id: threaded.data.thread_id });
});

test("a uuid sends once an hour and answers with the first message", async () => {
  let now = 1_000_000_000;
  const { simulator, client, group } = await scene({ clock: { ...systemClock, now: () => now } });
  const send = (uuid: string) =>
    client.call("POST", toChat, { receive_id: group, ...text("x"), uuid });
  const first = await send("u1");
  const repeated = await send("u1");
  expect(repeated).toMatchObject({ code: 0, data: { message_id: first.data.message_id } });
  expect(simulator.messages(group)).toHaveLength(1);
  now += 3_600_000;
  expect((await send("u1")).data.message_id).not.toBe(first.data.message_id);
  expect((await send("u".repeat(51))).code).toBe(99992402);
});

test("a repeated uuid is still being sent in the other mode", async () => {
  const { client, group } = await scene({ duplicateUuid: "in_progress" });
  const body = { receive_id: group, ...text("x"), uuid: "u1" };
  await client.call("POST", toChat, body);
  expect((await client.call("POST", toChat, body)).code).toBe(230049);
});

test("a refused send does not use up its uuid", async () => {
  const { client, group } = await scene();
  await client.call("POST", toChat, {
    receive_id: group,
    msg_type: "text",
    content: "no json",
    uuid: "u1",
  });
  expect(
    (await client.call("POST", toChat, { receive_id: group, ...text("x"), uuid: "u1" })).code,
  ).toBe(0);
});

test.each([
  ["a text of 150 KB", "text", { text: "x".repeat(150 * 1024) }, 230025],
  [
    "a post over 30 KB",
    "post",
    { zh_cn: { content: [[{ tag: "md", text: "x".repeat(31_000) }]] } },
    230025,
  ],
  ["a post without a locale", "post", { content: [[{ tag: "md", text: "x" }]] }, 230001],
  [
    "an md element with neighbours",
    "post",
    {
      zh_cn: {
        content: [
          [
            { tag: "md", text: "a" },
            { tag: "text", text: "b" },
          ],
        ],
      },
    },
    230001,
  ],
  ["an unknown post tag", "post", { zh_cn: { content: [[{ tag: "script", text: "a" }]] } }, 230001],
  ["an empty text", "text", { text: "" }, 230001],
  ["an unknown type", "hologram", { text: "x" }, 230001],
  ["an unknown card entity", "interactive", { type: "card", data: { card_id: "1" } }, 230099],
  ["a mention of an unknown person", "text", { text: '<at user_id="ou_nobody"></at>' }, 230001],
])("%s is refused", async (...[, msgType, content, code]) => {
  const { client, group } = await scene();
  const body = { receive_id: group, msg_type: msgType, content: JSON.stringify(content) };
  expect((await client.call("POST", toChat, body)).code).toBe(code);
});

test.each([
  ["a chat id of the wrong form", "chat_id", "om_1", 230034],
  ["an unknown chat", "chat_id", "oc_unknown", 230034],
  ["an open id of the wrong form", "open_id", "12", 99992351],
  ["an open id of another app", "open_id", "ou_unknown", 99992361],
  ["an unknown user id", "user_id", "nobody", 230034],
  ["a thread", "thread_id", "omt_1", 99992402],
])("%s cannot be sent to", async (...[, type, id, code]) => {
  const { client } = await scene();
  const path = `/open-apis/im/v1/messages?receive_id_type=${type}`;
  expect((await client.call("POST", path, { receive_id: id, ...text("x") })).code).toBe(code);
});

test("a bot outside the chat can neither send nor reply", async () => {
  const told = await scene();
  const outside = await connectTestClient(told.simulator.url, other);
  const messageId = await personWrites(told);
  expect((await outside.call("POST", toChat, { receive_id: told.group, ...text("x") })).code).toBe(
    230002,
  );
  expect(
    (await outside.call("POST", `/open-apis/im/v1/messages/${messageId}/reply`, text("x"))).code,
  ).toBe(230002);
});

test("recalled, unknown and wrongly named messages cannot be answered", async () => {
  const told = await scene();
  const messageId = await personWrites(told);
  await told.simulator.recall(messageId);
  const reply = async (id: string) =>
    (await told.client.call("POST", `/open-apis/im/v1/messages/${id}/reply`, text("x"))).code;
  expect([await reply(messageId), await reply("om_unknown"), await reply("omt_1")]).toEqual([
    230011, 230110, 99992354,
  ]);
});

test("replying in a thread is refused in a p2p chat", async () => {
  const { simulator, client, person } = await scene();
  const chat = simulator.addChat({ type: "p2p", members: [person, app.appId] });
  const { messageId } = await simulator.sendMessage({
    appId: app.appId,
    chatId: chat.chatId,
    from: person,
    text: "x",
  });
  const body = { ...text("x"), reply_in_thread: true };
  expect(
    (await client.call("POST", `/open-apis/im/v1/messages/${messageId}/reply`, body)).code,
  ).toBe(230071);
});

test("every message of a topic group opens a thread", async () => {
  const { simulator, client, person } = await scene();
  const topic = simulator.addChat({ type: "group", topic: true, members: [person, app.appId] });
  const sent = await client.call("POST", toChat, { receive_id: topic.chatId, ...text("x") });
  expect(sent.data.thread_id).toMatch(/^omt_/);
  expect((await client.call("GET", `/open-apis/im/v1/chats/${topic.chatId}`)).data.chat_mode).toBe(
    "topic",
  );
});

test("a sixth message to a chat in one second is refused with 230020", async () => {
  const { client, group } = await scene({ clock: { ...systemClock, now: () => 1_000_000_000 } });
  const codes: number[] = [];
  for (let index = 0; index < 6; index += 1) {
    codes.push((await client.call("POST", toChat, { receive_id: group, ...text("x") })).code);
  }
  expect(codes).toEqual([0, 0, 0, 0, 0, 230020]);
});

test("the 51st call of an API in one second is refused with 429 and the seconds to wait", async () => {
  let now = 1_000_000_000;
  const { client } = await scene({ clock: { ...systemClock, now: () => now } });
  const call = () => client.call("GET", "/open-apis/bot/v3/info");
  const answers = await Promise.all(Array.from({ length: 51 }, call));
  const refused = answers.filter((answer) => answer.status === 429);
  expect(refused).toHaveLength(1);
  expect(refused[0]?.code).toBe(99991400);
  expect(refused[0]?.headers.get("x-ogw-ratelimit-limit")).toBe("50");
  expect(refused[0]?.headers.get("x-ogw-ratelimit-reset")).toBe("1");
  now += 1000;
  expect((await call()).code).toBe(0);
});

test("the 1,001st call of an API in one minute is refused", async () => {
  let now = 1_020_000_000;
  const { client } = await scene({ clock: { ...systemClock, now: () => now } });
  for (let second = 0; second < 20; second += 1) {
    await Promise.all(
      Array.from({ length: 50 }, () => client.call("GET", "/open-apis/bot/v3/info")),
    );
    now += 1000;
  }
  const refused = await client.call("GET", "/open-apis/bot/v3/info");
  expect(refused).toMatchObject({ status: 429, code: 99991400 });
  expect(Number(refused.headers.get("x-ogw-ratelimit-reset"))).toBe(40);
});

test("limits that are off refuse nothing", async () => {
  const { client, group } = await scene({ limits: "off" });
  const send = () => client.call("POST", toChat, { receive_id: group, ...text("x") });
  const answers = await Promise.all(Array.from({ length: 60 }, send));
  expect(answers.every((answer) => answer.code === 0)).toBe(true);
});

test("a text is edited at most 20 times", async () => {
  const { client, simulator, group } = await scene({ limits: "off" });
  const sent = await client.call("POST", toChat, { receive_id: group, ...text("v0") });
  const path = `/open-apis/im/v1/messages/${String(sent.data.message_id)}`;
  for (let version = 1; version <= 20; version += 1) {
    expect((await client.call("PUT", path, text(`v${version}`))).code).toBe(0);
  }
  expect((await client.call("PUT", path, text("v21"))).code).toBe(230072);
  expect(simulator.messages(group)[0]).toMatchObject({ text: "v20", edits: 20 });
});

test("only the sender edits, and only text and posts", async () => {
  const told = await scene();
  const messageId = await personWrites(told);
  const path = `/open-apis/im/v1/messages/${messageId}`;
  expect((await told.client.call("PUT", path, text("x"))).code).toBe(230071);
  expect((await told.client.call("PUT", path, { msg_type: "image", content: "{}" })).code).toBe(
    230054,
  );
});

const card = (title: string, shared = true) =>
  JSON.stringify({
    config: { update_multi: shared },
    header: { title: { tag: "plain_text", content: title } },
    elements: [],
  });

test("a shared card is patched up to 5 times a second and for 14 days", async () => {
  let now = 1_000_000_000;
  const { client, simulator, group } = await scene({ clock: { ...systemClock, now: () => now } });
  const sent = await client.call("POST", toChat, {
    receive_id: group,
    msg_type: "interactive",
    content: card("a"),
  });
  const patch = () =>
    client.call("PATCH", `/open-apis/im/v1/messages/${String(sent.data.message_id)}`, {
      content: card("b"),
    });
  const codes: number[] = [];
  for (let index = 0; index < 6; index += 1) codes.push((await patch()).code);
  expect(codes).toEqual([0, 0, 0, 0, 0, 230020]);
  expect(simulator.messages(group)[0]?.text).toBe("b");
  now += 14 * 86_400_000 + 1;
  const renewed = await connectTestClient(simulator.url, app);
  const path = `/open-apis/im/v1/messages/${String(sent.data.message_id)}`;
  expect((await renewed.call("PATCH", path, { content: card("c") })).code).toBe(230031);
});

test("a text, and a card that is not shared, cannot be patched", async () => {
  const { client, group } = await scene();
  const sent = await client.call("POST", toChat, { receive_id: group, ...text("x") });
  const own = await client.call("POST", toChat, {
    receive_id: group,
    msg_type: "interactive",
    content: card("a", false),
  });
  for (const id of [sent.data.message_id, own.data.message_id]) {
    const answer = await client.call("PATCH", `/open-apis/im/v1/messages/${String(id)}`, {
      content: card("b"),
    });
    expect(answer.code).toBe(230001);
  }
});

test("a bot recalls its own messages only; a recalled one has no content", async () => {
  const told = await scene();
  const theirs = await personWrites(told);
  const sent = await told.client.call("POST", toChat, { receive_id: told.group, ...text("x") });
  const path = `/open-apis/im/v1/messages/${String(sent.data.message_id)}`;
  expect((await told.client.call("DELETE", `/open-apis/im/v1/messages/${theirs}`)).code).toBe(
    230026,
  );
  expect((await told.client.call("DELETE", path)).code).toBe(0);
  const [item] = (await told.client.call("GET", path)).data.items as [Record<string, unknown>];
  expect(item.deleted).toBe(true);
  expect(item.body).toBeUndefined();
});

test("history is listed in pages, in both orders", async () => {
  let now = 1_000_000_000;
  const told = await scene({ clock: { ...systemClock, now: () => now }, limits: "off" });
  for (const words of ["a", "b", "c"]) {
    now += 1000;
    await personWrites(told, words);
  }
  const base = `/open-apis/im/v1/messages?container_id_type=chat&container_id=${told.group}&page_size=2`;
  const first = await told.client.call("GET", `${base}&sort_type=ByCreateTimeDesc`);
  const rest = await told.client.call(
    "GET",
    `${base}&sort_type=ByCreateTimeDesc&page_token=${String(first.data.page_token)}`,
  );
  expect(first.data.has_more).toBe(true);
  expect([...contents(first.data.items), ...contents(rest.data.items)]).toEqual(["c", "b", "a"]);
  const since = await told.client.call("GET", `${base}&start_time=${now / 1000}`);
  expect(contents(since.data.items)).toEqual(["c"]);
});

function contents(items: unknown): unknown[] {
  return (items as { body: { content: string } }[]).map(
    (item) => (JSON.parse(item.body.content) as { text: string }).text,
  );
}

test("reactions are added, listed and removed", async () => {
  const told = await scene();
  const messageId = await personWrites(told);
  const path = `/open-apis/im/v1/messages/${messageId}/reactions`;
  const added = await told.client.call("POST", path, { reaction_type: { emoji_type: "Typing" } });
  expect(added.data).toMatchObject({ operator: { operator_id: app.appId, operator_type: "app" } });
  expect((await told.client.call("GET", path)).data.items).toHaveLength(1);
  const one = `${path}/${String(added.data.reaction_id)}`;
  expect((await told.client.call("DELETE", one)).code).toBe(0);
  expect((await told.client.call("DELETE", one)).code).toBe(231010);
  expect(
    (await told.client.call("POST", path, { reaction_type: { emoji_type: "Nonsense" } })).code,
  ).toBe(231001);
  expect(
    (await told.client.call("POST", "/open-apis/im/v1/messages/om_1/reactions", {})).code,
  ).toBe(231003);
});

test("chat facts, members and names are returned; an outsider sees little", async () => {
  const { simulator, client, person, group } = await scene();
  const outside = await connectTestClient(simulator.url, other);
  const path = `/open-apis/im/v1/chats/${group}`;
  expect((await client.call("GET", path)).data).toMatchObject({
    chat_mode: "group",
    group_message_type: "chat",
  });
  expect((await outside.call("GET", path)).data.chat_mode).toBeUndefined();
  expect((await client.call("GET", `${path}/members`)).data).toMatchObject({
    member_total: 1,
    items: [{ name: "Ann" }],
  });
  expect((await outside.call("GET", `${path}/members`)).code).toBe(232011);
  expect((await outside.call("GET", `${path}/members/is_in_chat`)).data.is_in_chat).toBe(false);
  expect((await client.call("GET", `/open-apis/contact/v3/users/${person}`)).data).toMatchObject({
    user: { name: "Ann" },
  });
});

test("names come in batches of up to 10, five calls a second", async () => {
  const { client, person } = await scene({ clock: { ...systemClock, now: () => 1_000_000_000 } });
  const path = "/open-apis/contact/v3/users/basic_batch?user_id_type=open_id";
  const batch = (ids: string[]) => client.call("POST", path, { user_ids: ids });
  expect((await batch([person, "ou_unknown"])).data.users).toEqual([
    { user_id: person, name: "Ann" },
  ]);
  expect((await batch(Array.from({ length: 11 }, () => person))).code).toBe(99992402);
  for (let index = 0; index < 3; index += 1) await batch([person]);
  expect((await batch([person])).code).toBe(99991400);
});

test("faults answer, delay, or lose the response after applying, as often as asked", async () => {
  const { simulator, client, group } = await scene();
  const body = { receive_id: group, ...text("x") };
  const match = { method: "POST", path: "/open-apis/im/v1/messages" };
  simulator.faults.add({
    match,
    times: 1,
    action: { kind: "respond", status: 500, body: { code: 2200, msg: "internal" } },
  });
  expect(await client.call("POST", toChat, body)).toMatchObject({ status: 500, code: 2200 });
  expect(simulator.messages(group)).toHaveLength(0);
  simulator.faults.add({ match, times: 1, action: { kind: "lose_response" } });
  await expect(client.call("POST", toChat, body)).rejects.toThrow("fetch failed");
  expect(simulator.messages(group)).toHaveLength(1);
  simulator.faults.add({ match, times: 1, action: { kind: "delay", delayMs: 60 } });
  const startedAt = performance.now();
  expect((await client.call("POST", toChat, body)).code).toBe(0);
  expect(performance.now() - startedAt).toBeGreaterThan(55);
  expect(simulator.faults.size).toBe(0);
});

test("a hanging call ends with the simulator, and removed faults do nothing", async () => {
  const { simulator, client } = await scene();
  const remove = simulator.faults.add({ action: { kind: "drop" } });
  await expect(client.call("GET", "/open-apis/bot/v3/info")).rejects.toThrow("fetch failed");
  remove();
  expect((await client.call("GET", "/open-apis/bot/v3/info")).code).toBe(0);
  simulator.faults.add({ match: { path: /info$/ }, action: { kind: "hang" } });
  const hanging = expect(client.call("GET", "/open-apis/bot/v3/info")).rejects.toThrow(
    "fetch failed",
  );
  await simulator.close();
  await hanging;
});

test("the call log tells method, path, status and code", async () => {
  const { simulator, client } = await scene({ logCapacity: 3 });
  for (let index = 0; index < 5; index += 1) await client.call("GET", "/open-apis/bot/v3/info");
  await client.call("GET", "/open-apis/im/v1/messages/om_unknown");
  expect(simulator.apiCalls).toHaveLength(3);
  expect(simulator.apiCalls.at(-1)).toMatchObject({
    method: "GET",
    path: "/open-apis/im/v1/messages/om_unknown",
    status: 400,
    code: 230110,
    appId: app.appId,
  });
});

test("an oversized body is refused", async () => {
  const { client } = await scene();
  const answer = await client.call("POST", toChat, { content: "x".repeat(1024 * 1024) });
  expect(answer.status).toBe(413);
});

test("a person outside the chat cannot write, and a wrong app id is refused at the start", async () => {
  const { simulator, group } = await scene();
  const stranger = simulator.addUser({ name: "Eve" });
  const message = { appId: app.appId, chatId: group, from: stranger.openId, text: "x" };
  await expect(simulator.sendMessage(message)).rejects.toThrow("not a member");
  await expect(
    startFeishuSimulator({ apps: [{ appId: "cli_x", appSecret: "s" }] }),
  ).rejects.toThrow("16 hex digits");
});
