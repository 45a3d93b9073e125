import { once } from "node:events";
import { systemClock } from "@larkline/protocol/clock";
import { afterEach, expect, test } from "vitest";
import { WebSocket } from "ws";
import {
  button,
  cardApp,
  markdown,
  reference,
  startCardScene,
  stillCard,
  streamingCard,
} from "./card-scene.fixture.ts";
import type { CardScene } from "./card-scene.fixture.ts";
import { decodeFrame, encodeFrame } from "./long-connection.ts";
import type { SimulatorOptions } from "./index.ts";
import { callOpenApi } from "./open-api.fixture.ts";
import {
  startTestWebhook,
  type ReceivedWebhook,
  type TestWebhook,
  type WebhookAnswer,
} from "./webhook.fixture.ts";

const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

interface ClickScene extends CardScene {
  webhook: TestWebhook;
}

/** A scene whose app answers callbacks over its webhook. */
async function scene(
  answer: (request: ReceivedWebhook) => WebhookAnswer = () => ({}),
  options: Partial<SimulatorOptions> = {},
): Promise<ClickScene> {
  const started = await startCardScene(options);
  const isCallback = ({ body }: ReceivedWebhook) =>
    (body.header as { event_type?: string } | undefined)?.event_type === "card.action.trigger";
  const webhook = await startTestWebhook((request) => (isCallback(request) ? answer(request) : {}));
  closing.push(started.simulator.close, webhook.close);
  started.simulator.setWebhookUrl(cardApp.appId, webhook.url);
  return { ...started, webhook };
}

type Callback = { header: Record<string, string>; event: Record<string, unknown> };

function callbacks({ webhook }: ClickScene): Callback[] {
  return webhook.received
    .map(({ body }) => body as Callback)
    .filter(({ header }) => header.event_type === "card.action.trigger");
}

const raw = (card: object): WebhookAnswer => ({ body: { card: { type: "raw", data: card } } });

test("a click sends the button's value in one callback and shows the toast", async () => {
  const told = await scene(() => ({ body: { toast: { type: "success", content: "Saved" } } }));
  const messageId = await told.post(stillCard(button("yes"), button("no")));
  const result = await told.simulator.click({ messageId, openId: told.person, elementId: "yes" });
  expect(result).toEqual({
    code: 0,
    toast: { type: "success", content: "Saved" },
    cardChanged: false,
  });
  const [callback, ...more] = callbacks(told);
  expect(more).toEqual([]);
  expect(callback?.header.create_time).toMatch(/^\d{16}$/);
  expect(callback?.event).toMatchObject({
    operator: { open_id: told.person },
    token: expect.stringMatching(/^c-/),
    action: { tag: "button", value: { pressed: "yes" } },
    host: "im_message",
    context: { open_message_id: messageId, open_chat_id: told.group },
  });
});

test("a button is found by its text, and a given value wins", async () => {
  const told = await scene();
  const messageId = await told.post(stillCard(button("yes")));
  await told.simulator.click({ messageId, openId: told.person, elementId: "YES" });
  await told.simulator.click({ messageId, openId: told.person, value: { old: true } });
  expect(callbacks(told).map(({ event }) => event.action)).toEqual([
    { tag: "button", value: { pressed: "yes" } },
    { tag: "button", value: { old: true } },
  ]);
});

test("a form is submitted with its values", async () => {
  const told = await scene();
  const form = {
    tag: "form",
    name: "form",
    elements: [
      { tag: "input", name: "why", default_value: "because" },
      { tag: "input", name: "note" },
      button("send", { name: "send", form_action_type: "submit" }),
    ],
  };
  const messageId = await told.post(stillCard(form));
  await told.simulator.click({
    messageId,
    openId: told.person,
    elementId: "send",
    formValue: { note: "now" },
  });
  expect(callbacks(told)[0]?.event.action).toEqual({
    tag: "button",
    value: { pressed: "send" },
    name: "send",
    form_value: { why: "because", note: "now" },
  });
});

test("choices and inputs outside of a form carry what was chosen", async () => {
  const told = await scene();
  const behaviors = [{ type: "callback", value: { field: 1 } }];
  const messageId = await told.post(
    stillCard(
      { tag: "select_static", element_id: "pick", behaviors, options: [{ value: "a" }] },
      { tag: "input", element_id: "note", behaviors },
      { tag: "date_picker", element_id: "day", behaviors },
    ),
  );
  const click = { messageId, openId: told.person };
  await told.simulator.click({ ...click, elementId: "pick", option: "a" });
  await told.simulator.click({ ...click, elementId: "note", inputValue: "words" });
  await told.simulator.click({
    ...click,
    elementId: "day",
    option: "2026-01-01 +0800",
    withoutOpenId: true,
  });
  expect(callbacks(told).map(({ event }) => event.action)).toEqual([
    { tag: "select_static", value: { field: 1 }, option: "a" },
    { tag: "input", value: { field: 1 }, input_value: "words" },
    {
      tag: "date_picker",
      value: { field: 1 },
      option: "2026-01-01 +0800",
      timezone: "Asia/Shanghai",
    },
  ]);
  expect(callbacks(told)[2]?.event.operator).not.toHaveProperty("open_id");
});

test("the card of an answer takes the place of the old one", async () => {
  const told = await scene(() => raw(stillCard(markdown("done", "Approved"))));
  const messageId = await told.post(stillCard(button("yes")));
  const changed = told.simulator.waitUntil(messageId, (message) => message.text === "Approved", {
    timeoutMs: 60_000,
  });
  const result = await told.simulator.click({ messageId, openId: told.person, elementId: "yes" });
  expect(result).toEqual({ code: 0, cardChanged: true });
  expect((await changed).card).toMatchObject({
    version: 2,
    json: stillCard(markdown("done", "Approved")),
  });
});

test("an answer does not change a card that streams", async () => {
  const told = await scene(() => raw(stillCard(markdown("done", "Stopped"))));
  const cardId = await told.create(streamingCard(markdown("md"), button("stop")));
  const messageId = String((await told.reply(await told.ask(), reference(cardId))).data.message_id);
  const result = await told.simulator.click({ messageId, openId: told.person, elementId: "stop" });
  expect(result).toEqual({ code: 0, cardChanged: false });
  expect(told.simulator.card(cardId)?.streaming).toBe(true);
});

const oldCard = { elements: [{ tag: "hr" }] };

test.each<[string, WebhookAnswer, number]>([
  ["a status other than 200", { status: 500 }, 200671],
  ["a redirect", { status: 302 }, 200671],
  ["an answer that is no object", { body: "ok" }, 200672],
  ["a toast without a text", { body: { toast: { type: "info" } } }, 200672],
  ["a toast of an unknown type", { body: { toast: { type: "loud", content: "x" } } }, 200672],
  ["a card without its wrapper", { body: { card: stillCard(markdown("a")) } }, 200673],
  ["a card that is not valid", raw(stillCard({ tag: "hologram" })), 200673],
  ["a card above 30 KB", raw(stillCard(markdown("a", "字".repeat(11_000)))), 200673],
  [
    "a template that does not exist",
    { body: { card: { type: "template", data: { template_id: "A" } } } },
    200673,
  ],
  ["a 1.0 card for a 2.0 card", raw(oldCard), 200830],
])("after %s the person sees an error and the old card", async (_name, answer, code) => {
  const told = await scene(() => answer);
  const messageId = await told.post(stillCard(button("yes")));
  const result = await told.simulator.click({ messageId, openId: told.person, elementId: "yes" });
  expect(result).toEqual({ code, cardChanged: false });
  expect(told.simulator.messages(told.group).at(-1)?.card?.version).toBe(1);
  expect(callbacks(told)).toHaveLength(1);
});

test("an answer that takes too long is an error to the person", async () => {
  const timeouts = { webhookTimeouts: { totalTimeoutMs: 100 } };
  const never = new Promise<never>(() => undefined);
  const told = await scene(() => ({ after: never }), timeouts);
  const messageId = await told.post(stillCard(button("yes")));
  const result = await told.simulator.click({ messageId, openId: told.person, elementId: "yes" });
  expect(result).toEqual({ code: 200341, cardChanged: false });
});

test("an app that cannot be reached is an error to the person", async () => {
  const told = await scene();
  const messageId = await told.post(stillCard(button("yes")));
  const click = { messageId, openId: told.person, elementId: "yes" };
  await told.webhook.close();
  expect((await told.simulator.click(click)).code).toBe(200342);
  told.simulator.setWebhookUrl(cardApp.appId, "http://nowhere.invalid/");
  expect((await told.simulator.click(click)).code).toBe(200343);
  told.simulator.setWebhookUrl(cardApp.appId, undefined);
  expect((await told.simulator.click(click)).code).toBe(200340);
});

test("an app that did not ask for the callback gets none", async () => {
  const told = await scene(() => ({}), { apps: [{ ...cardApp, callbacks: [] }, otherApp] });
  const messageId = await told.post(stillCard(button("yes")));
  expect(
    (await told.simulator.click({ messageId, openId: told.person, elementId: "yes" })).code,
  ).toBe(200340);
  expect(callbacks(told)).toEqual([]);
});

const otherApp = { appId: "cli_fedcba9876543210", appSecret: "other" };

test("between a click and its answer no card operation is taken", async () => {
  const told = await scene();
  const cardId = await told.create(streamingCard(markdown("md"), button("stop")));
  const messageId = String((await told.reply(await told.ask(), reference(cardId))).data.message_id);
  const during: Promise<number>[] = [];
  const operations = [
    { method: "PATCH", path: "settings", body: { settings: '{"config":{}}' } },
    {
      method: "PUT",
      path: "",
      body: { card: { type: "card_json", data: JSON.stringify(stillCard(markdown("md"))) } },
    },
    { method: "POST", path: "batch_update", body: { actions: "[]" } },
    {
      method: "POST",
      path: "elements",
      body: { type: "append", elements: JSON.stringify([markdown("new")]) },
    },
    { method: "PUT", path: "elements/md", body: { element: JSON.stringify(markdown("md")) } },
    { method: "PATCH", path: "elements/md", body: { partial_element: '{"content":"x"}' } },
    { method: "DELETE", path: "elements/md", body: {} },
    { method: "PUT", path: "elements/md/content", body: { content: "typed" } },
  ];
  const busy = await startTestWebhook(() => {
    for (const operation of operations) {
      during.push(told.operate(cardId, operation).then(({ code }) => code));
    }
    return { after: Promise.all(during) };
  });
  closing.push(busy.close);
  told.simulator.setWebhookUrl(cardApp.appId, busy.url);
  await told.simulator.click({ messageId, openId: told.person, elementId: "stop" });
  expect(await Promise.all(during)).toEqual(operations.map(() => 200810));
  expect((await told.type(cardId, "md", "typed")).code).toBe(0);
});

test("what a person cannot do is refused", async () => {
  const told = await scene();
  const stranger = told.simulator.addUser({ name: "Eve" }).openId;
  const link = button("link", {
    behaviors: [{ type: "open_url", default_url: "https://example.org" }],
  });
  const messageId = await told.post(
    stillCard(link, button("off", { disabled: true }), button("yes")),
  );
  const click = (part: object) => told.simulator.click({ messageId, openId: told.person, ...part });
  await expect(click({ elementId: "link" })).rejects.toThrow("sends no callback");
  await expect(click({ elementId: "off" })).rejects.toThrow("disabled");
  await expect(click({ elementId: "none" })).rejects.toThrow("no component none");
  await expect(click({ openId: stranger, elementId: "yes" })).rejects.toThrow("not a member");
  await expect(click({ messageId: await told.ask(), elementId: "yes" })).rejects.toThrow("No card");
  await told.client.call("DELETE", `/open-apis/im/v1/messages/${messageId}`);
  await expect(click({ elementId: "yes" })).rejects.toThrow("recalled");
});

test("a card can be used for 14 days, one of JSON 1.0 for 30", async () => {
  let now = 1_000_000_000;
  const told = await scene(() => ({}), { clock: { ...systemClock, now: () => now } });
  const action = {
    tag: "action",
    actions: [{ tag: "button", text: { content: "yes" }, value: { pressed: "old" } }],
  };
  const old = {
    messageId: await told.post({ elements: [action] }),
    openId: told.person,
    elementId: "yes",
  };
  const young = { ...old, messageId: await told.post(stillCard(button("yes"))) };
  now += 14 * 86_400_000 + 1;
  await expect(told.simulator.click(young)).rejects.toThrow("too old");
  expect((await told.simulator.click(old)).code).toBe(0);
  now += 16 * 86_400_000;
  await expect(told.simulator.click(old)).rejects.toThrow("too old");
});

test("over a long connection the answer comes in the ack, encoded", async () => {
  const told = await startCardScene();
  closing.push(told.simulator.close);
  const socket = await connect(told, { toast: { type: "info", content: "Got it" } });
  const messageId = await told.post(stillCard(button("yes")));
  const result = await told.simulator.click({ messageId, openId: told.person, elementId: "yes" });
  expect(result).toEqual({
    code: 0,
    toast: { type: "info", content: "Got it" },
    cardChanged: false,
  });
  socket.terminate();
});

/** Connects like the official client and answers every frame with this data. */
async function connect({ simulator }: CardScene, answer: object): Promise<WebSocket> {
  const { data } = await callOpenApi(simulator.url, {
    method: "POST",
    path: "/callback/ws/endpoint",
    body: { AppID: cardApp.appId, AppSecret: cardApp.appSecret },
  });
  const socket = new WebSocket(String(data.URL));
  const ready = new Promise<void>((resolve) => {
    simulator.on("connection", ({ connections }) => {
      if (connections > 0) resolve();
    });
  });
  socket.on("message", (bytes: Buffer) => {
    const frame = decodeFrame(bytes);
    if (frame === undefined || frame.method !== 1) return;
    const body = { code: 200, data: Buffer.from(JSON.stringify(answer)).toString("base64") };
    socket.send(encodeFrame({ ...frame, payload: Buffer.from(JSON.stringify(body)) }));
  });
  await once(socket, "open");
  socket.send(
    encodeFrame({ seqId: 0, logId: 0, service: 33, method: 0, headers: [["type", "ping"]] }),
  );
  await ready;
  return socket;
}

const update = "/open-apis/interactive/v1/card/update";

/** Clicks and gives the update token of the callback. */
async function clickedToken(told: ClickScene, messageId: string): Promise<string> {
  await told.simulator.click({ messageId, openId: told.person, elementId: "yes" });
  return String(callbacks(told).at(-1)?.event.token);
}

test("a used card is updated later with its token, twice within 30 minutes", async () => {
  let now = 1_000_000_000;
  const told = await scene(() => ({}), { clock: { ...systemClock, now: () => now } });
  const messageId = await told.post(stillCard(button("yes")));
  const token = await clickedToken(told, messageId);
  const late = await clickedToken(told, messageId);
  const card = stillCard(markdown("a", "Later"));
  const codes = [];
  for (let use = 0; use < 3; use += 1) {
    codes.push((await told.client.call("POST", update, { token, card })).code);
  }
  expect(codes).toEqual([0, 0, 300040]);
  expect(told.simulator.messages(told.group).at(-1)).toMatchObject({
    text: "Later",
    card: { version: 3 },
  });
  now += 30 * 60_000 + 1;
  expect((await told.client.call("POST", update, { token: late, card })).code).toBe(300030);
});

test("a delayed update before the callback was answered is refused", async () => {
  const codes: Promise<number>[] = [];
  const told = await scene((request) => {
    const { token } = (request.body as Callback).event;
    const card = stillCard(markdown("a", "Early"));
    codes.push(told.client.call("POST", update, { token, card }).then(({ code }) => code));
    return { after: Promise.all(codes) };
  });
  const messageId = await told.post(stillCard(button("yes")));
  await told.simulator.click({ messageId, openId: told.person, elementId: "yes" });
  expect(await Promise.all(codes)).toEqual([300020]);
});

test("delayed updates are refused with the documented codes", async () => {
  const told = await scene();
  const messageId = await told.post(stillCard(button("yes")));
  const token = await clickedToken(told, messageId);
  const send = async (card: unknown, value: unknown = token) =>
    (await told.client.call("POST", update, { token: value, card })).code;
  const good = stillCard(markdown("a", "x"));
  expect(await send(good, "c-unknown")).toBe(300020);
  expect(await send(good, 1)).toBe(10002);
  expect(await send("card")).toBe(10002);
  expect(await send({ type: "template", data: { template_id: "A" } })).toBe(10002);
  expect(await send(stillCard({ tag: "hologram" }))).toBe(11311);
  expect(await send(stillCard(markdown("a", "字".repeat(11_000))))).toBe(100000);
  expect(await send(oldCard)).toBe(200830);
  expect((await told.other.call("POST", update, { token, card: good })).code).toBe(200310);
  expect(await send(good)).toBe(0);
  await told.client.call("DELETE", `/open-apis/im/v1/messages/${messageId}`);
  expect(await send(good)).toBe(200000);
});

test("a 1.0 card that is not shared is updated for named people only", async () => {
  const told = await scene();
  const action = {
    tag: "action",
    actions: [{ tag: "button", text: { content: "yes" }, value: { pressed: "old" } }],
  };
  const messageId = await told.post({ elements: [action] });
  const token = await clickedToken(told, messageId);
  expect(callbacks(told)[0]?.event.action).toMatchObject({ value: { pressed: "old" } });
  expect((await told.client.call("POST", update, { token, card: oldCard })).code).toBe(300090);
  const card = { ...oldCard, open_ids: [told.person] };
  expect((await told.client.call("POST", update, { token, card })).code).toBe(0);
});

test("a patched card is shown to all and never becomes a 1.0 card", async () => {
  const told = await scene();
  const messageId = await told.post(stillCard(markdown("a", "before")));
  const patch = (card: object) =>
    told.client.call("PATCH", `/open-apis/im/v1/messages/${messageId}`, {
      content: JSON.stringify(card),
    });
  expect((await patch(stillCard(markdown("a", "after")))).code).toBe(0);
  expect(told.simulator.messages(told.group).at(-1)).toMatchObject({
    text: "after",
    card: { version: 2 },
  });
  const downgrade = await patch({ config: { update_multi: true }, elements: [] });
  expect(downgrade).toMatchObject({
    code: 230099,
    body: { msg: expect.stringContaining("ErrCode: 200830") },
  });
  expect((await patch(stillCard({ tag: "hologram" }))).code).toBe(230099);
});

test("people read titles, texts and open panels, not buttons and folded panels", async () => {
  const told = await scene();
  const panel = (title: string, expanded: boolean): object => ({
    tag: "collapsible_panel",
    expanded,
    header: { title: { tag: "plain_text", content: title } },
    elements: [{ tag: "markdown", content: `in ${title}` }],
  });
  const columns = {
    tag: "column_set",
    columns: [{ tag: "column", elements: [markdown("left", "left")] }],
  };
  const table = {
    tag: "table",
    columns: [{ name: "n", display_name: "Name" }],
    rows: [{ n: "Ann" }],
  };
  await told.post({
    ...stillCard(
      markdown("a", "text"),
      panel("folded", false),
      panel("open", true),
      columns,
      table,
      button("yes"),
    ),
    header: { title: { tag: "plain_text", content: "Title" } },
  });
  expect(told.simulator.messages(told.group).at(-1)?.text.split("\n")).toEqual([
    "Title",
    "text",
    "folded",
    "open",
    "in open",
    "left",
    "Name",
    "Ann",
  ]);
});

/** A form with a reason that has to be given, and one that has not. */
function reasons(): object {
  return {
    tag: "form",
    name: "form",
    elements: [
      { tag: "input", name: "why", max_length: 5, required: true },
      { tag: "input", name: "more", max_length: 5 },
      button("send", { name: "send", form_action_type: "submit" }),
    ],
  };
}

test("the client sends no form that lacks something, holds too much, or has fields of its own", async () => {
  const told = await scene();
  const messageId = await told.post(stillCard(reasons()));
  const send = (formValue: Record<string, string>) =>
    told.simulator.click({ messageId, openId: told.person, elementId: "send", formValue });
  await expect(send({})).rejects.toThrow("why has to be filled in");
  await expect(send({ why: "x", more: "sixsix" })).rejects.toThrow("more takes 5 characters");
  await expect(send({ why: "x", other: "y" })).rejects.toThrow("no field other");
  expect(callbacks(told)).toEqual([]);
  expect(await send({ why: "right" })).toMatchObject({ code: 0 });
  expect(callbacks(told)[0]?.event.action).toMatchObject({ form_value: { why: "right" } });
});

test("every member of the chat can click, and the value of a click can be another value than the card's", async () => {
  const told = await scene();
  const other = told.simulator.addUser({ name: "Bob" }).openId;
  await told.simulator.addMembers(told.group, [other]).reports;
  const messageId = await told.post(stillCard(button("yes")));
  await told.simulator.click({
    messageId,
    openId: other,
    elementId: "yes",
    value: { pressed: "forged" },
  });
  expect(callbacks(told)[0]?.event).toMatchObject({
    operator: { open_id: other },
    action: { value: { pressed: "forged" } },
  });
});

test("a callback that is replayed has the same ids and the same content", async () => {
  const told = await scene(() => raw(stillCard(markdown("done", "Approved"))));
  const messageId = await told.post(stillCard(button("yes")));
  await expect(told.simulator.replayClick(messageId)).rejects.toThrow("No person has used");
  await told.simulator.click({ messageId, openId: told.person, elementId: "yes" });
  // The card has lost its button by then.
  expect(await told.simulator.replayClick(messageId)).toMatchObject({ code: 0 });
  const [first, second, ...more] = callbacks(told);
  expect(second).toEqual(first);
  expect(more).toEqual([]);
});

test("a toast has its text in several languages", async () => {
  const toast = {
    type: "info",
    content: "no pending approval",
    i18n: { zh_cn: "没有待批准的操作" },
  };
  const told = await scene(({ body }) => {
    const { value } = (body as { event: { action: { value: { i18n?: unknown } } } }).event.action;
    return { body: { toast: { ...toast, ...value } } };
  });
  const messageId = await told.post(stillCard(button("yes")));
  const click = (value: Record<string, unknown>) =>
    told.simulator.click({ messageId, openId: told.person, elementId: "yes", value });
  expect(await click({})).toEqual({ code: 0, toast, cardChanged: false });
  for (const i18n of ["text", { zh_cn: 1 }, { Chinese: "x" }]) {
    expect(await click({ i18n })).toMatchObject({ code: 200672 });
  }
});

test("a message counts how often its card was replaced", async () => {
  const told = await scene();
  const messageId = await told.post(stillCard(markdown("a", "one")));
  const path = `/open-apis/im/v1/messages/${messageId}`;
  const patch = (card: object) =>
    told.client.call("PATCH", path, { content: JSON.stringify(card) });
  for (const content of ["two", "three"]) await patch(stillCard(markdown("a", content)));
  expect((await patch(stillCard({ tag: "hologram" }))).code).toBe(230099);
  expect(told.simulator.messages(told.group).at(-1)).toMatchObject({ patches: 2, text: "three" });
});
