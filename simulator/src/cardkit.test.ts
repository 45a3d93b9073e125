import { systemClock } from "@larkline/protocol/clock";
import { afterEach, expect, test } from "vitest";
import {
  button,
  cardApp,
  markdown,
  reference,
  startCardScene,
  stillCard,
  streamingCard,
  type CardScene,
  type Operation,
} from "./card-scene.fixture.ts";
import { parseSnapshot, startFeishuSimulator, type SimulatorOptions } from "./index.ts";
import { connectTestClient } from "./open-api.fixture.ts";

const cards = "/open-apis/cardkit/v1/cards";
const open: CardScene[] = [];

afterEach(async () => {
  for (const { simulator } of open.splice(0)) await simulator.close();
});

async function scene(options: Partial<SimulatorOptions> = {}): Promise<CardScene> {
  const started = await startCardScene(options);
  open.push(started);
  return started;
}

const text = (value: unknown): string => JSON.stringify(value);
const settings = (config: object): Operation => ({
  method: "PATCH",
  path: "settings",
  body: { settings: text({ config }) },
});
const replaceCard = (card: object): Operation => ({
  method: "PUT",
  path: "",
  body: { card: { type: "card_json", data: text(card) } },
});
const add = (elements: unknown, more: object = { type: "append" }): Operation => ({
  method: "POST",
  path: "elements",
  body: { elements: text(elements), ...more },
});
const replaceElement = (id: string, element: object): Operation => ({
  method: "PUT",
  path: `elements/${id}`,
  body: { element: text(element) },
});
const patchElement = (id: string, partial: object): Operation => ({
  method: "PATCH",
  path: `elements/${id}`,
  body: { partial_element: text(partial) },
});
const deleteElement = (id: string): Operation => ({
  method: "DELETE",
  path: `elements/${id}`,
  body: {},
});
const content = (id: string, value: string): Operation => ({
  method: "PUT",
  path: `elements/${id}/content`,
  body: { content: value },
});
const batch = (...actions: object[]): Operation => ({
  method: "POST",
  path: "batch_update",
  body: { actions: text(actions) },
});
const addAction = (elements: object[]): object => ({
  action: "add_elements",
  params: { type: "append", elements },
});

/** One good request of every operation, for a streaming card with `md` and `more`. */
const operations: [string, Operation][] = [
  ["settings", settings({ summary: { content: "s" } })],
  ["update", replaceCard(streamingCard(markdown("md"), markdown("more")))],
  ["batch update", batch(addAction([markdown("added")]))],
  ["adding elements", add([markdown("added")])],
  ["replacing an element", replaceElement("more", markdown("more", "new"))],
  ["patching an element", patchElement("more", { content: "new" })],
  ["deleting an element", deleteElement("more")],
  ["content", content("md", "text")],
];
const twoTexts = streamingCard(markdown("md"), markdown("more"));

test("a card types, is announced with every change, and is final when streaming is closed", async () => {
  const told = await scene();
  const { simulator } = told;
  const cardId = await told.create(streamingCard(markdown("md")));
  expect(cardId).toMatch(/^\w{1,20}$/);
  const question = await told.ask();
  const shown: string[] = [];
  simulator.on("message", (message) => shown.push(`${message.card?.version}:${message.text}`));
  const final = simulator.waitForCard(question, { timeoutMs: 60_000 });
  const world = simulator.waitUntil(question, (message) => message.text.includes("world"), {
    timeoutMs: 60_000,
  });
  await told.reply(question, reference(cardId));
  for (const words of ["Hello", "Hello world", "Bye"]) await told.type(cardId, "md", words);
  expect((await simulator.waitForReply(question, { timeoutMs: 1 })).card?.streaming).toBe(true);
  await told.operate(cardId, settings({ streaming_mode: false, summary: { content: "done" } }));
  expect(await final).toMatchObject({
    text: "Bye",
    parentId: question,
    card: { cardId, streaming: false },
  });
  expect((await world).text).toBe("Hello world");
  expect(shown).toEqual(["1:[card]", "2:Hello", "3:Hello world", "4:Bye", "5:Bye"]);
  expect(simulator.card(cardId)).toMatchObject({
    streaming: false,
    sequence: 4,
    json: { config: { streaming_mode: false, summary: { content: "done" } } },
    frames: [
      { elementId: "md", text: "Hello", mode: "typewriter" },
      { elementId: "md", text: "Hello world", mode: "typewriter" },
      { elementId: "md", text: "Bye", mode: "replace" },
    ],
    operations: [
      { op: "create", code: 0 },
      { op: "send", code: 0 },
      { op: "content", sequence: 1, code: 0 },
      { op: "content", sequence: 2, code: 0 },
      { op: "content", sequence: 3, code: 0 },
      { op: "settings", sequence: 4, code: 0 },
    ],
  });
});

test("waiting for a card ends with the time given", async () => {
  const told = await scene();
  const question = await told.ask();
  await told.reply(question, reference(await told.create(twoTexts)));
  await expect(told.simulator.waitForCard(question, { timeoutMs: 20 })).rejects.toThrow(
    "No finished card",
  );
});

test("a card that was announced keeps its text when the card changes", async () => {
  const told = await scene();
  const cardId = await told.create(streamingCard(markdown("md")));
  const question = await told.ask();
  await told.reply(question, reference(cardId));
  const before = await told.simulator.waitForReply(question, { timeoutMs: 1 });
  await told.type(cardId, "md", "later");
  expect(JSON.stringify(before.card?.json)).not.toContain("later");
});

test("an entity is sent once, by the app that made it", async () => {
  const told = await scene();
  const cardId = await told.create(twoTexts);
  const question = await told.ask();
  const path = `/open-apis/im/v1/messages/${question}/reply`;
  const body = { msg_type: "interactive", content: text(reference(cardId)) };
  const stranger = await told.other.call("POST", path, body);
  expect(stranger).toMatchObject({
    code: 230099,
    body: { msg: expect.stringContaining("cardid is invalid") },
  });
  expect((await told.reply(question, reference(cardId))).code).toBe(0);
  const again = await told.reply(question, reference(cardId));
  expect(again).toMatchObject({
    code: 230099,
    body: { msg: expect.stringContaining("ErrCode: 11310") },
  });
});

test("a repeated send with the same uuid answers with the message of the entity", async () => {
  const told = await scene();
  const cardId = await told.create(twoTexts);
  const path = `/open-apis/im/v1/messages/${await told.ask()}/reply`;
  const body = { msg_type: "interactive", content: text(reference(cardId)), uuid: "u1" };
  const first = await told.client.call("POST", path, body);
  expect(await told.client.call("POST", path, body)).toMatchObject({ code: 0, data: first.data });
});

test.each([
  [
    "an unknown entity",
    reference("7000000000000000000"),
    /ErrCode: 11310; ErrMsg: cardid is invalid/,
  ],
  ["an entity without the wrapper", { data: { card_id: "7" } }, /ErrCode: 200621/],
  ["a bare card id", { card_id: "7" }, /ErrCode: 200621/],
  ["a template", { type: "template", data: { template_id: "AAq" } }, /ErrCode: 200380/],
])("%s cannot be sent", async (_name, sent, reason) => {
  const told = await scene();
  const answer = await told.reply(await told.ask(), sent);
  expect(answer).toMatchObject({ code: 230099, body: { msg: expect.stringMatching(reason) } });
});

test("an entity can be unknown to the first send after its creation", async () => {
  const told = await scene({ cardInvalidOnce: true });
  const cardId = await told.create(twoTexts);
  const question = await told.ask();
  const first = await told.reply(question, reference(cardId));
  expect(first).toMatchObject({
    code: 230099,
    body: { msg: expect.stringContaining("cardid is invalid") },
  });
  expect((await told.reply(question, reference(cardId))).code).toBe(0);
});

test.each(operations)(
  "%s works on an own, living card with a sequence that grows",
  async (_name, operation) => {
    const told = await scene();
    const cardId = await told.create(twoTexts);
    expect(await told.operate(cardId, operation)).toMatchObject({
      status: 200,
      body: { code: 0, data: {} },
    });
    expect(told.simulator.card(cardId)?.sequence).toBe(1);
  },
);

test.each(operations)(
  "%s is refused for an unknown card, another app and an old card",
  async (_name, operation) => {
    let now = 1_000_000_000;
    const told = await scene({ clock: { ...systemClock, now: () => now } });
    const cardId = await told.create(twoTexts);
    const { method, path, body } = operation;
    const below = path === "" ? "" : `/${path}`;
    expect((await told.operate("7000000000000000000", operation)).code).toBe(200740);
    const stranger = await told.other.call(method, `${cards}/${cardId}${below}`, {
      ...body,
      sequence: 1,
    });
    expect(stranger.code).toBe(300311);
    now += 14 * 86_400_000 + 1;
    const renewed = await connectTestClient(told.simulator.url, cardApp);
    const late = await renewed.call(method, `${cards}/${cardId}${below}`, { ...body, sequence: 1 });
    expect(late.code).toBe(200750);
  },
);

test.each(operations)(
  "%s needs a sequence above the last accepted one, before anything else",
  async (_name, operation) => {
    const told = await scene();
    const cardId = await told.create(twoTexts);
    await told.operate(cardId, { ...settings({}), body: { settings: "{}", sequence: 10 } });
    for (const sequence of [9, 10]) {
      const answer = await told.operate(cardId, {
        ...operation,
        body: { ...operation.body, sequence },
      });
      expect(answer.code).toBe(300317);
    }
    const broken = await told.operate(cardId, { ...operation, body: { sequence: 10 } });
    expect(broken.code).toBe(300317);
    expect(
      (await told.operate(cardId, { ...operation, body: { ...operation.body, sequence: 15 } }))
        .code,
    ).toBe(0);
  },
);

test.each(operations)(
  "%s refuses wrong sequences, uuids and bodies with 10002",
  async (_name, operation) => {
    const told = await scene();
    const cardId = await told.create(twoTexts);
    const wrong = [
      { sequence: 0 },
      { sequence: 1.5 },
      { sequence: 2_147_483_648 },
      { sequence: "1" },
      { uuid: "u".repeat(65) },
    ];
    for (const part of wrong) {
      const answer = await told.operate(cardId, {
        ...operation,
        body: { ...operation.body, ...part },
      });
      expect(answer.code).toBe(10002);
    }
    if (operation.method === "DELETE") return;
    expect((await told.operate(cardId, { ...operation, body: {} })).code).toBe(10002);
  },
);

test("a refused operation does not use up its sequence", async () => {
  const told = await scene();
  const cardId = await told.create(twoTexts);
  expect(
    (await told.operate(cardId, { ...deleteElement("none"), body: { sequence: 5 } })).code,
  ).toBe(300314);
  expect(
    (await told.operate(cardId, { ...deleteElement("more"), body: { sequence: 5 } })).code,
  ).toBe(0);
});

test("a repeated uuid is applied once; with another request it is a conflict", async () => {
  const told = await scene();
  const cardId = await told.create(twoTexts);
  const once = {
    ...add([markdown("added")]),
    body: { ...add([markdown("added")]).body, sequence: 3, uuid: "u1" },
  };
  expect((await told.operate(cardId, once)).code).toBe(0);
  expect((await told.operate(cardId, once)).code).toBe(0);
  expect(told.simulator.card(cardId)?.sequence).toBe(3);
  const another = { ...deleteElement("more"), body: { sequence: 4, uuid: "u1" } };
  expect((await told.operate(cardId, another)).code).toBe(200770);
});

test.each([
  ["conflict", 200770],
  ["behind", 300317],
] as const)("a repeated uuid can be answered as %s", async (duplicateCardUuid, code) => {
  const told = await scene({ duplicateCardUuid });
  const cardId = await told.create(twoTexts);
  const once = { ...deleteElement("more"), body: { sequence: 1, uuid: "u1" } };
  expect((await told.operate(cardId, once)).code).toBe(0);
  expect((await told.operate(cardId, once)).code).toBe(code);
});

test("streaming ends 10 minutes after it was last enabled: 200850 once, then 300309", async () => {
  let now = 1_000_000_000;
  const told = await scene({ clock: { ...systemClock, now: () => now } });
  const cardId = await told.create(twoTexts);
  now += 599_999;
  expect((await told.type(cardId, "md", "a")).code).toBe(0);
  await told.operate(cardId, settings({ streaming_mode: true }));
  now += 599_999;
  expect((await told.type(cardId, "md", "ab")).code).toBe(0);
  now += 1;
  expect(told.simulator.card(cardId)?.streaming).toBe(false);
  expect((await told.type(cardId, "md", "abc")).code).toBe(200850);
  expect(told.simulator.card(cardId)?.json).toMatchObject({ config: { streaming_mode: false } });
  expect((await told.type(cardId, "md", "abc")).code).toBe(300309);
  expect((await told.operate(cardId, patchElement("md", { content: "abc" }))).code).toBe(0);
  await told.operate(cardId, settings({ streaming_mode: true }));
  expect((await told.type(cardId, "md", "abcd")).code).toBe(0);
  expect(told.simulator.card(cardId)?.frames.map((frame) => frame.mode)).toEqual([
    "typewriter",
    "typewriter",
    "typewriter",
  ]);
});

test("settings that say nothing about streaming do not prolong it", async () => {
  let now = 1_000_000_000;
  const told = await scene({ clock: { ...systemClock, now: () => now } });
  const cardId = await told.create(twoTexts);
  now += 300_000;
  await told.operate(cardId, settings({ summary: { content: "half" } }));
  now += 300_000;
  expect((await told.type(cardId, "md", "a")).code).toBe(200850);
});

test("a bare streaming mode in the settings is understood", async () => {
  const told = await scene();
  const cardId = await told.create(stillCard(markdown("md")));
  const bare = { method: "PATCH", path: "settings", body: { settings: '{"streaming_mode":true}' } };
  expect((await told.operate(cardId, bare)).code).toBe(0);
  expect((await told.type(cardId, "md", "a")).code).toBe(0);
});

test("content goes to texts of a streaming card only", async () => {
  const told = await scene();
  const div = { tag: "div", text: { tag: "plain_text", element_id: "plain", content: "" } };
  const cardId = await told.create(streamingCard(div, button("yes"), markdown("md")));
  expect((await told.type(cardId, "plain", "typed")).code).toBe(0);
  expect((await told.type(cardId, "yes", "typed")).code).toBe(300310);
  expect((await told.type(cardId, "none", "typed")).code).toBe(300313);
  expect((await told.type(cardId, "md", "")).code).toBe(10002);
  expect((await told.type(cardId, "md", "x".repeat(100_001))).code).toBe(10002);
  expect((await told.type(cardId, "md", "| a |\n|---|\n\n".repeat(4))).code).toBe(230099);
  const still = await told.create(stillCard(markdown("md")));
  expect((await told.type(still, "md", "typed")).code).toBe(300309);
});

const huge = "字".repeat(11_000);
const many = Array.from({ length: 200 }, (_unused, index) => ({
  tag: "hr",
  element_id: `e${index}`,
}));

test.each<[string, Operation, number]>([
  ["content above 30 KB", content("md", huge), 200860],
  ["settings above 30 KB", settings({ summary: { content: huge } }), 200860],
  ["a card above 30 KB", replaceCard(stillCard(markdown("md", huge))), 200860],
  ["an element above 30 KB", add([markdown("big", huge)]), 200860],
  ["a replaced element above 30 KB", replaceElement("md", markdown("md", huge)), 200860],
  ["a patched element above 30 KB", patchElement("md", { content: huge }), 200860],
  ["a batch above 30 KB", batch(addAction([markdown("big", huge)])), 200860],
  ["a card with an id twice", replaceCard(stillCard(markdown("a"), markdown("a"))), 300301],
  ["a batch with an id twice", batch(addAction([markdown("md")])), 300301],
  ["an added element with a used id", add([markdown("md")]), 300301],
  ["a replaced element with a used id", replaceElement("more", markdown("md")), 300301],
  ["a patched element with a used id", patchElement("more", { element_id: "md" }), 300301],
  [
    "a card that is not shared",
    replaceCard({ ...streamingCard(markdown("md")), config: { update_multi: false } }),
    300302,
  ],
  ["settings that do not share the card", settings({ update_multi: false }), 300302],
  [
    "a batch that does not share the card",
    batch({
      action: "partial_update_setting",
      params: { settings: { config: { update_multi: false } } },
    }),
    300302,
  ],
  [
    "a 1.0 card",
    replaceCard({
      elements: [markdown("md")],
      header: { title: { tag: "plain_text", content: "x" } },
    }),
    300303,
  ],
  ["a card with 201 elements", replaceCard(stillCard(markdown("md"), ...many)), 300305],
  ["the 201st element", add(many), 300305],
  ["a batch with the 201st element", batch(addAction(many)), 300305],
  [
    "a replacement with the 201st element",
    replaceElement("md", {
      tag: "collapsible_panel",
      header: { title: { tag: "plain_text", content: "x" } },
      elements: many,
    }),
    300305,
  ],
  ["an empty card", replaceCard(stillCard()), 300307],
  [
    "a batch that leaves nothing",
    batch({ action: "delete_elements", params: { element_ids: ["md", "more"] } }),
    300307,
  ],
  ["another tag", patchElement("md", { tag: "hr" }), 300312],
  [
    "another tag in a batch",
    batch({
      action: "partial_update_element",
      params: { element_id: "md", partial_element: { tag: "hr" } },
    }),
    300312,
  ],
  ["a patch of an unknown element", patchElement("none", { content: "x" }), 300313],
  [
    "a batch that patches an unknown element",
    batch({
      action: "partial_update_element",
      params: { element_id: "none", partial_element: {} },
    }),
    300313,
  ],
  ["a replacement of an unknown element", replaceElement("none", markdown("none")), 300121],
  [
    "a batch that replaces an unknown element",
    batch({ action: "update_element", params: { element_id: "none", element: markdown("none") } }),
    300121,
  ],
  [
    "settings of another form",
    {
      method: "PATCH",
      path: "settings",
      body: { settings: '{"config":{"streaming_mode":"yes"}}' },
    },
    300122,
  ],
  ["settings with an unknown key", settings({ colour: "red" }), 300122],
  [
    "a batch with unknown settings",
    batch({
      action: "partial_update_setting",
      params: { settings: { config: { colour: "red" } } },
    }),
    300122,
  ],
  ["a deletion of an unknown element", deleteElement("none"), 300314],
  [
    "a batch that deletes an unknown element",
    batch({ action: "delete_elements", params: { element_ids: ["none"] } }),
    300314,
  ],
  [
    "an element before an unknown one",
    add([markdown("new")], { type: "insert_before", target_element_id: "none" }),
    300315,
  ],
  [
    "an element inside of a text",
    add([markdown("new")], { type: "append", target_element_id: "md" }),
    300315,
  ],
  [
    "a batch that adds after an unknown element",
    batch({
      action: "add_elements",
      params: { type: "insert_after", target_element_id: "none", elements: [markdown("new")] },
    }),
    300315,
  ],
  ["an unknown way to add", add([markdown("new")], { type: "prepend" }), 10002],
  ["an unknown action", batch({ action: "dance", params: {} }), 10002],
  [
    "elements that are no list",
    { method: "POST", path: "elements", body: { type: "append", elements: "{}" } },
    10002,
  ],
  [
    "an element that is no JSON",
    { method: "PUT", path: "elements/md", body: { element: "{" } },
    10002,
  ],
  ["an unknown tag", add([{ tag: "hologram" }]), 200220],
  ["an unknown property", patchElement("md", { colour: "red" }), 200220],
])("%s is refused and changes nothing", async (_name, operation, code) => {
  const told = await scene();
  const cardId = await told.create(twoTexts);
  const before = told.simulator.card(cardId)?.json;
  expect(await told.operate(cardId, operation)).toMatchObject({ status: 400, code });
  expect(told.simulator.card(cardId)).toMatchObject({ json: before, sequence: 0 });
  expect(told.simulator.card(cardId)?.operations.at(-1)?.code).toBe(code);
});

test.each([
  ["another type", { type: "card", data: "{}" }, 10002],
  ["no JSON", { type: "card_json", data: "{" }, 10002],
  ["an empty card", { type: "card_json", data: "{}" }, 300307],
  ["a 1.0 card", { type: "card_json", data: text({ elements: [], header: {} }) }, 300303],
  ["an unknown tag", { type: "card_json", data: text(stillCard({ tag: "note" })) }, 200220],
  [
    "an id twice",
    { type: "card_json", data: text(stillCard(markdown("a"), markdown("a"))) },
    300301,
  ],
  ["201 elements", { type: "card_json", data: text(stillCard(markdown("a"), ...many)) }, 300305],
  ["more than 30 KB", { type: "card_json", data: text(stillCard(markdown("a", huge))) }, 200860],
  [
    "update_multi false",
    {
      type: "card_json",
      data: text({ ...stillCard(markdown("a")), config: { update_multi: false } }),
    },
    300302,
  ],
  ["a template", { type: "template", data: text({ template_id: "AAq" }) }, 200220],
])("a card of %s is not created", async (_name, body, code) => {
  const { client } = await scene();
  expect((await client.call("POST", cards, body)).code).toBe(code);
});

test("elements are added before, after, at the end and into containers, and go with their children", async () => {
  const told = await scene();
  const panel = {
    tag: "collapsible_panel",
    element_id: "panel",
    header: { title: { tag: "plain_text", content: "Steps" } },
    elements: [markdown("inside", "1")],
  };
  const cardId = await told.create(stillCard(markdown("md"), panel));
  await told.operate(
    cardId,
    add([markdown("before")], { type: "insert_before", target_element_id: "md" }),
  );
  await told.operate(
    cardId,
    add([markdown("after")], { type: "insert_after", target_element_id: "md" }),
  );
  await told.operate(cardId, add([markdown("last")]));
  await told.operate(
    cardId,
    add([markdown("second")], { type: "append", target_element_id: "panel" }),
  );
  const ids = () => text(told.simulator.card(cardId)?.json).match(/(?<="element_id":")\w+/g);
  expect(ids()).toEqual(["before", "md", "after", "panel", "inside", "second", "last"]);
  expect((await told.operate(cardId, deleteElement("panel"))).code).toBe(0);
  expect(ids()).toEqual(["before", "md", "after", "last"]);
});

test("a batch applies all of its actions in order, or none", async () => {
  const told = await scene();
  const cardId = await told.create(twoTexts);
  const good = batch(
    {
      action: "partial_update_setting",
      params: { settings: { config: { streaming_mode: false } } },
    },
    addAction([markdown("added", "new")]),
    { action: "update_element", params: { element_id: "md", element: markdown("renamed", "old") } },
    {
      action: "partial_update_element",
      params: { element_id: "renamed", partial_element: { content: "newer" } },
    },
    { action: "delete_elements", params: { element_ids: ["more"] } },
  );
  expect((await told.operate(cardId, good)).code).toBe(0);
  const after = told.simulator.card(cardId);
  expect(after).toMatchObject({
    streaming: false,
    json: { body: { elements: [markdown("renamed", "newer"), markdown("added", "new")] } },
  });
  const half = batch(addAction([markdown("third")]), {
    action: "delete_elements",
    params: { element_ids: ["none"] },
  });
  expect((await told.operate(cardId, half)).code).toBe(300314);
  expect(told.simulator.card(cardId)?.json).toEqual(after?.json);
});

test("the eleventh operation on a card within any second is refused with 230020", async () => {
  let now = 1_000_000_500;
  const told = await scene({ limits: "enforced", clock: { ...systemClock, now: () => now } });
  const cardId = await told.create(twoTexts);
  const heard: string[] = [];
  told.simulator.on("refusal", ({ api }) => heard.push(api));
  const codes: number[] = [];
  for (let index = 1; index <= 11; index += 1) {
    codes.push((await told.type(cardId, "md", "x".repeat(index))).code);
  }
  expect(codes).toEqual([...Array.from({ length: 10 }, () => 0), 230020]);
  now += 999;
  expect((await told.type(cardId, "md", "late")).code).toBe(230020);
  expect(told.simulator.refusals).toEqual([
    { api: "card", key: cardId, code: 230020, at: now - 999 },
    { api: "card", key: cardId, code: 230020, at: now },
  ]);
  expect(heard).toEqual(["card", "card"]);
  now += 1;
  expect((await told.type(cardId, "md", "late")).code).toBe(0);
});

test("each card operation is limited to 50 a second over all cards", async () => {
  const told = await scene({
    limits: "enforced",
    clock: { ...systemClock, now: () => 1_000_000_000 },
  });
  const create = () => told.client.call("POST", cards, { type: "card_json", data: text(twoTexts) });
  const answers = await Promise.all(Array.from({ length: 51 }, create));
  expect(answers.filter((answer) => answer.status === 429)).toHaveLength(1);
  expect(told.simulator.refusals).toMatchObject([
    { api: `POST ${cards}`, key: cardApp.appId, code: 99991400 },
  ]);
});

test("a burst over the boundary of two seconds is refused like one within", async () => {
  let now = 1_000_000_900;
  const told = await scene({ limits: "enforced", clock: { ...systemClock, now: () => now } });
  const { chatId } = told.simulator.addChat({
    type: "group",
    members: [told.person, cardApp.appId],
  });
  const path = "/open-apis/im/v1/messages?receive_id_type=chat_id";
  const send = () =>
    told.client.call("POST", path, {
      receive_id: chatId,
      msg_type: "text",
      content: '{"text":"x"}',
    });
  for (let index = 0; index < 5; index += 1) expect((await send()).code).toBe(0);
  now += 200;
  expect((await send()).code).toBe(230020);
  now += 800;
  expect((await send()).code).toBe(0);
});

test("an entity ends with its message", async () => {
  const told = await scene();
  const cardId = await told.create(twoTexts);
  const messageId = String((await told.reply(await told.ask(), reference(cardId))).data.message_id);
  expect((await told.type(cardId, "md", "a")).code).toBe(0);
  await told.client.call("DELETE", `/open-apis/im/v1/messages/${messageId}`);
  expect((await told.type(cardId, "md", "ab")).code).toBe(200740);
});

test("the card of a message can be converted into an entity and then streamed", async () => {
  const told = await scene();
  const messageId = await told.post(stillCard(markdown("md", "old")));
  const convert = (id: string) =>
    told.client.call("POST", `${cards}/id_convert`, { message_id: id });
  const { data } = await convert(messageId);
  const cardId = String(data.card_id);
  expect((await convert(messageId)).data.card_id).toBe(cardId);
  expect((await told.operate(cardId, settings({ streaming_mode: true }))).code).toBe(0);
  expect((await told.type(cardId, "md", "old and new")).code).toBe(0);
  expect(told.simulator.messages(told.group).at(-1)?.text).toBe("old and new");
  expect((await convert(await told.ask())).code).toBe(10002);
  const old = await told.post({ elements: [{ tag: "hr" }] });
  expect((await convert(old)).code).toBe(300303);
  expect(
    (await told.other.call("POST", `${cards}/id_convert`, { message_id: messageId })).code,
  ).toBe(300311);
});

test("the card of a message is no entity until it is converted", async () => {
  const told = await scene();
  await told.post(stillCard(markdown("md")));
  const unnamed = told.simulator.messages(told.group).at(-1)?.card;
  expect(unnamed).toMatchObject({ streaming: false, version: 1 });
  expect(unnamed?.cardId).toBeUndefined();
});

test("refusals come with HTTP 200 when asked", async () => {
  const told = await scene({ errorStatus: 200 });
  expect(await told.operate("7000000000000000000", settings({}))).toMatchObject({
    status: 200,
    code: 200740,
  });
});

test("a lost response has been applied, and its repetition gets that answer", async () => {
  const told = await scene();
  const cardId = await told.create(twoTexts);
  told.simulator.faults.add({
    match: { path: `${cards}/` },
    times: 1,
    action: { kind: "lose_response" },
  });
  const operation = {
    ...content("md", "once"),
    body: { content: "once", sequence: 1, uuid: "u1" },
  };
  await expect(told.operate(cardId, operation)).rejects.toThrow("fetch failed");
  expect((await told.operate(cardId, operation)).code).toBe(0);
  expect(
    (await told.operate(cardId, { ...operation, body: { content: "once", sequence: 1 } })).code,
  ).toBe(300317);
  expect(told.simulator.card(cardId)?.frames).toHaveLength(1);
});

test("a card that types continues in a later process, with its people, chats and ids", async () => {
  const before = await scene();
  const cardId = await before.create(streamingCard(markdown("md")));
  const messageId = await before.post(reference(cardId));
  await before.type(cardId, "md", "Hello");
  const kept = parseSnapshot(JSON.parse(JSON.stringify(before.simulator.snapshot(10))));
  if (!kept.ok) throw new Error(kept.error);
  const after = await startFeishuSimulator({
    apps: [cardApp],
    retryDelaysMs: [],
    restore: kept.value,
  });
  try {
    expect(after.apps[0]?.openId).toBe(before.simulator.apps[0]?.openId);
    expect(after.messages(before.group)).toEqual(before.simulator.messages(before.group));
    const client = await connectTestClient(after.url, cardApp);
    const typed = (sequence: number, said: string) =>
      client.call("PUT", `${cards}/${cardId}/elements/md/content`, { sequence, content: said });
    expect((await typed(1, "an old one")).code).not.toBe(0);
    expect((await typed(2, "Hello, world")).code).toBe(0);
    expect(after.messages(before.group).find((one) => one.messageId === messageId)?.text).toBe(
      "Hello, world",
    );
  } finally {
    await after.close();
  }
});
