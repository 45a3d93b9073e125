import { afterAll, beforeAll, expect, test } from "vitest";
import {
  button,
  markdown,
  startCardScene,
  stillCard,
  type CardScene,
} from "./card-scene.fixture.ts";
import { tagRules } from "./card-tags.ts";

let told: CardScene;

beforeAll(async () => {
  told = await startCardScene();
});

afterAll(async () => {
  await told.simulator.close();
});

const plain = (content: string): object => ({ tag: "plain_text", content });
const panel = (...elements: object[]): object => ({
  tag: "collapsible_panel",
  header: { title: plain("More") },
  elements,
});
const submit = button("go", { name: "go", form_action_type: "submit" });
const form = (...elements: object[]): object => ({
  tag: "form",
  name: "form",
  elements: [...elements, submit],
});
const nested = (levels: number): object =>
  levels === 0 ? markdown("deep") : panel(nested(levels - 1));
const columns = (...elements: object[]): object => ({
  tag: "column_set",
  columns: [{ tag: "column", elements }],
});
const dataTable = {
  tag: "table",
  columns: [{ name: "a", data_type: "text" }],
  rows: [{ a: "1", tag: "free" }],
};
const textTable = "| a | b |\n|---|:-:|\n| 1 | 2 |\n\n";

async function send(card: object): Promise<{ code: number; subCode: number }> {
  const { code, body } = await told.reply(await told.ask(), card);
  return { code, subCode: Number(/ErrCode: (\d+)/.exec(String(body.msg))?.[1] ?? 0) };
}

async function createCode(card: object): Promise<number> {
  const data = { type: "card_json", data: JSON.stringify(card) };
  return (await told.client.call("POST", "/open-apis/cardkit/v1/cards", data)).code;
}

const named = (tag: string, more: object = {}): object => ({ tag, name: tag, ...more });

test("a card with every component and setting is accepted by both APIs", async () => {
  const card = {
    schema: "2.0",
    config: {
      streaming_mode: true,
      streaming_config: {
        print_frequency_ms: { default: 70, android: 70, ios: 70, pc: 70 },
        print_step: { default: 1 },
        print_strategy: "fast",
      },
      summary: { content: "preview", i18n_content: { zh_cn: "" } },
      locales: ["zh_cn"],
      enable_forward: true,
      update_multi: true,
      width_mode: "fill",
      style: { text_size: {}, color: {} },
    },
    card_link: { url: "https://example.org" },
    header: {
      title: plain("Title"),
      subtitle: plain("Subtitle"),
      template: "blue",
      text_tag_list: [{ tag: "text_tag", text: plain("new"), color: "neutral" }],
      icon: { tag: "standard_icon", token: "chat_outlined", color: "blue" },
      padding: "12px",
    },
    body: {
      direction: "vertical",
      vertical_spacing: "8px",
      elements: [
        {
          ...markdown("md", `hi <at id=${told.person}></at> <at id=all></at>\n\n${textTable}`),
          text_align: "left",
        },
        { tag: "div", text: { tag: "lark_md", content: "**b**", text_size: "normal" } },
        { tag: "hr", margin: "4px" },
        panel(
          markdown("inside"),
          columns(
            button("yes", { type: "primary", confirm: { title: plain("?"), text: plain("!") } }),
          ),
        ),
        {
          tag: "interactive_container",
          behaviors: [{ type: "open_url", default_url: "https://example.org" }],
          elements: [{ tag: "hr" }],
        },
        dataTable,
        { tag: "chart", chart_spec: { type: "line", tag: "free" } },
        { tag: "person", user_id: told.person },
        form(
          {
            tag: "input",
            name: "why",
            label: plain("Why"),
            input_type: "multiline_text",
            max_length: 1000,
            required: true,
          },
          named("select_static", {
            options: [{ text: plain("A"), value: "a" }],
            initial_option: "a",
          }),
          named("multi_select_static", { options: [{ text: plain("A"), value: "a" }] }),
          named("select_person"),
          named("multi_select_person"),
          named("date_picker"),
          named("picker_time"),
          named("picker_datetime"),
          named("checker", { text: plain("sure") }),
        ),
        named("overflow", { options: [{ text: plain("A"), value: "a" }] }),
      ],
    },
  };
  expect(await send(card)).toEqual({ code: 0, subCode: 0 });
  expect(await createCode(card)).toBe(0);
});

test.each<[string, object, number, number]>([
  ["an unknown tag", { tag: "hologram" }, 200861, 200220],
  ["a note, which 2.0 dropped", { tag: "note", elements: [] }, 200861, 200220],
  ["an action, which 2.0 dropped", { tag: "action", actions: [] }, 200861, 200220],
  ["a part in the place of a component", plain("x"), 200861, 200220],
  ["an element without a tag", { content: "x" }, 200861, 200220],
  ["an unknown property", { ...markdown("a"), colour: "red" }, 200621, 200220],
  [
    "an unknown property of a part",
    { tag: "div", text: { ...plain("x"), bold: true } },
    200621,
    200220,
  ],
  ["a missing property", { tag: "markdown" }, 200621, 200220],
  ["a property of another kind", { tag: "markdown", content: 1 }, 200621, 200220],
  ["a word that is not in the list", button("a", { type: "huge" }), 200621, 200220],
  [
    "a text in an unknown language",
    { ...markdown("a"), i18n_content: { xx_yy: "a" } },
    200621,
    200220,
  ],
  [
    "a text in a language that is no text",
    { ...markdown("a"), i18n_content: { zh_cn: 1 } },
    200621,
    200220,
  ],
  [
    "a button with 101 characters in one of its languages",
    { tag: "button", text: { ...plain("a"), i18n_content: { en_us: "a".repeat(101) } } },
    200621,
    200220,
  ],
  ["an element id that starts with a digit", markdown("1a"), 200621, 200220],
  ["an element id of 21 characters", markdown("a".repeat(21)), 200621, 200220],
  ["an element id used twice", columns(markdown("a"), markdown("a")), 300301, 300301],
  [
    "an id of a text that is used twice",
    { tag: "div", element_id: "a", text: { ...plain("x"), element_id: "a" } },
    300301,
    300301,
  ],
  [
    "201 elements and texts",
    panel(...Array.from({ length: 199 }, () => ({ tag: "hr" }))),
    11310,
    300305,
  ],
  ["six levels of containers", nested(6), 11310, 200220],
  [
    "the fourth markdown table of the card",
    columns(markdown("a", textTable.repeat(2)), markdown("b", textTable.repeat(2))),
    11310,
    230099,
  ],
  ["a mention of an unknown person", markdown("a", "<at id=ou_nobody></at>"), 100290, 200220],
  ["an unknown person", { tag: "person", user_id: "ou_nobody" }, 100290, 200220],
  ["an image that was not uploaded", { tag: "img", img_key: "img_v3_none" }, 200570, 200220],
  [
    "a markdown image that was not uploaded",
    markdown("a", "![x](https://example.org/x.png)"),
    200570,
    200220,
  ],
  [
    "a callback value that is a text",
    button("a", { behaviors: [{ type: "callback", value: "x" }] }),
    200621,
    200220,
  ],
  [
    "a callback without a value",
    button("a", { behaviors: [{ type: "callback" }] }),
    200621,
    200220,
  ],
  ["a link without an address", button("a", { behaviors: [{ type: "open_url" }] }), 200621, 200220],
  ["an unknown behaviour", button("a", { behaviors: [{ type: "fly" }] }), 200621, 200220],
  [
    "a button text of 101 characters",
    button("a", { text: plain("x".repeat(101)) }),
    200621,
    200220,
  ],
  ["an input of more than 1000 characters", { tag: "input", max_length: 1001 }, 200621, 200220],
  ["a submit button outside of a form", submit, 200621, 200220],
  ["a form in a panel", panel(form()), 200621, 200220],
  ["a form in a form", form({ tag: "form", name: "in", elements: [] }), 200621, 200220],
  ["a table in a form", form(dataTable), 200621, 200220],
  ["a table in a panel", panel(dataTable), 200621, 200220],
  [
    "a form without a submit button",
    { tag: "form", name: "form", elements: [markdown("a")] },
    200621,
    200220,
  ],
  ["a form field without a name", form({ tag: "input" }), 200530, 200220],
  [
    "two form fields of one name",
    form(named("input"), named("date_picker", { name: "input" })),
    200530,
    200220,
  ],
  ["a multiple choice outside of a form", named("multi_select_static"), 200621, 200220],
  [
    "a table with 51 columns",
    { ...dataTable, columns: Array.from({ length: 51 }, (_unused, at) => ({ name: `c${at}` })) },
    200621,
    200220,
  ],
  ["a table page of 11 rows", { ...dataTable, page_size: 11 }, 200621, 200220],
])("%s is refused", async (...[, element, subCode, cardKitCode]) => {
  const card = stillCard(markdown("first", "x"), element);
  expect(await send(card)).toEqual({ code: 230099, subCode });
  expect(await createCode(card)).toBe(cardKitCode);
});

test.each<[string, object, number, number]>([
  ["an unknown schema", { schema: "3.0", body: { elements: [markdown("a")] } }, 200621, 300303],
  ["a body without a schema", { body: { elements: [markdown("a")] } }, 200621, 300303],
  [
    "elements at the top of a 2.0 card",
    { ...stillCard(markdown("a")), elements: [] },
    200621,
    200220,
  ],
  [
    "an unknown setting",
    { ...stillCard(markdown("a")), config: { wide_screen_mode: true } },
    200621,
    200220,
  ],
  [
    "an unknown header colour",
    { ...stillCard(markdown("a")), header: { title: plain("x"), template: "mauve" } },
    200621,
    200220,
  ],
  [
    "a header without a title",
    { ...stillCard(markdown("a")), header: { template: "blue" } },
    200621,
    200220,
  ],
  [
    "a card that is not shared",
    { ...stillCard(markdown("a")), config: { update_multi: false } },
    200621,
    300302,
  ],
  ["six tables", stillCard(...Array.from({ length: 6 }, () => dataTable)), 11310, 230099],
])("%s is refused", async (...[, card, subCode, cardKitCode]) => {
  expect(await send(card)).toEqual({ code: 230099, subCode });
  expect(await createCode(card)).toBe(cardKitCode);
});

test.each<[string, object]>([
  ["the limits of elements", stillCard(...Array.from({ length: 200 }, () => ({ tag: "hr" })))],
  ["five levels of containers", stillCard(nested(5))],
  ["three markdown tables", stillCard(markdown("a", textTable.repeat(3)))],
  ["tables in code", stillCard(markdown("a", `${textTable.repeat(3)}\`\`\`\n${textTable}\`\`\``))],
  [
    "a table in code that is still open",
    stillCard(markdown("a", `${textTable.repeat(3)}\`\`\`\n${textTable}`)),
  ],
  [
    "a row of dashes within a table",
    stillCard(markdown("a", `${textTable.repeat(2)}| a |\n|---|\n| b |\n|---|`)),
  ],
  [
    "a fence that is not closed by marks with a word behind them",
    stillCard(markdown("a", `${textTable.repeat(3)}\`\`\`\n\`\`\`js\n${textTable}`)),
  ],
  ["an image in code of several backticks", stillCard(markdown("a", "``![x](img_none)``"))],
  ["a mention in code", stillCard(markdown("a", "`<at id=ou_nobody></at>`"))],
  ["five tables", stillCard(...Array.from({ length: 5 }, () => dataTable))],
  ["an empty card", {}],
  [
    "a 1.0 card with things that only 1.0 has",
    { elements: [{ tag: "note", elements: [] }], colour: "red" },
  ],
])("%s are accepted in a message", async (_name, card) => {
  expect(await send(card)).toEqual({ code: 0, subCode: 0 });
});

test("a 1.0 card whose elements are no elements is refused", async () => {
  expect(await send({ elements: "none" })).toEqual({ code: 230099, subCode: 200621 });
  expect(await send({ elements: [{ content: "x" }] })).toEqual({ code: 230099, subCode: 200621 });
});

test("a card above 30 KB is refused as too long", async () => {
  expect((await send(stillCard(markdown("a", "字".repeat(11_000))))).code).toBe(230025);
});

test("an image counts as known once it was uploaded", async () => {
  const body = new FormData();
  body.set("image_type", "message");
  body.set("image", new Blob([pixel], { type: "image/png" }), "x.png");
  const headers = { authorization: `Bearer ${told.client.token}` };
  const response = await fetch(`${told.simulator.url}/open-apis/im/v1/images`, {
    method: "POST",
    headers,
    body,
  });
  const { data } = (await response.json()) as { data: { image_key: string } };
  expect(
    await send(
      stillCard({ tag: "img", img_key: data.image_key }, markdown("a", `![x](${data.image_key})`)),
    ),
  ).toEqual({
    code: 0,
    subCode: 0,
  });
});

const pixel = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);

test("no tag takes a property that it does not list", async () => {
  const question = await told.ask();
  const components = Object.entries(tagRules).filter(([, { place }]) => place !== "part");
  expect(components.length).toBeGreaterThan(20);
  for (const [tag] of components) {
    const card = stillCard({ tag, made_up: true });
    await expect(told.reply(question, card)).resolves.toMatchObject({
      body: { msg: expect.stringContaining("unknown property made_up") },
    });
  }
});
