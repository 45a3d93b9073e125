import type { Panel, ReplyView, ShownTool } from "@larkline/protocol/reply-view";
import { describe, expect, it } from "vitest";
import { extendCuts, renderCard, summaryOf, type RenderedCard, maxCardBytes } from "./card.ts";
import { viewOf } from "./streams.fixture.ts";

const stop = { session: "app.chat", turnId: "app.chat-1" };
const sum: ShownTool = {
  id: "a",
  name: "sum",
  state: "done",
  startedAtMs: 0,
  elapsedMs: 1_240,
  output: "42",
};
const footer = {
  model: "m-1",
  inputTokens: 1_200,
  outputTokens: 30,
  costUsd: 0.0123,
  seconds: 3.24,
  traceId: "t-9",
};

function rendered(more: Partial<ReplyView>, streaming = false): RenderedCard {
  return renderCard(viewOf(more.answer ?? "", more), { cuts: [], number: 0 }, { streaming });
}

/** The texts of a card, element by element: tag, id, then what a person reads. */
function outlineOf(value: unknown, depth = 0): string {
  if (typeof value !== "object" || value === null) return "";
  if (Array.isArray(value)) return value.map((entry) => outlineOf(entry, depth)).join("");
  if (!("tag" in value)) return "";
  const content = "content" in value ? value.content : "";
  const id = "element_id" in value ? `#${String(value.element_id)}` : "";
  const label =
    "text" in value
      ? textOf(value.text)
      : "header" in value
        ? textOf(value.header)
        : String(content);
  const inner = "elements" in value ? outlineOf(value.elements, depth + 1) : "";
  return `${"  ".repeat(depth)}${String(value.tag)}${id} ${JSON.stringify(label)}\n${inner}`;
}

function textOf(value: unknown): string {
  if (typeof value !== "object" || value === null) return "";
  if ("title" in value) return textOf(value.title);
  return "content" in value ? String(value.content) : "";
}

function outline({ card }: RenderedCard): string {
  const { body } = card;
  return typeof body === "object" && body !== null && "elements" in body
    ? outlineOf(body.elements)
    : "";
}

function expectWithinLimits(answer: string, more: Partial<ReplyView>): void {
  if (more.bilingual === undefined) expectWithinLimits(answer, { ...more, bilingual: true });
  const images = new Map([["a", `img_v3_${"k".repeat(90)}`]]);
  const cuts = extendCuts(answer, []);
  for (let number = 0; number <= cuts.length; number += 1) {
    const card = renderCard(viewOf(answer, more), { cuts, number }, { streaming: false, images });
    expect(card.bytes).toBeLessThan(maxCardBytes);
    expect(card.elements).toBeLessThan(200);
    expect(card.tables).toBeLessThanOrEqual(3);
    expect(JSON.stringify(card.card)).not.toMatch(/<[\s/]*at/i);
  }
}

describe("the card of a reply", () => {
  it("is JSON 2.0 that types, with the stop button from the first moment", () => {
    expect(rendered({ stop, language: "zh" }, true).card).toMatchInlineSnapshot(`
      {
        "body": {
          "direction": "vertical",
          "elements": [
            {
              "content": "…",
              "element_id": "answer",
              "tag": "markdown",
            },
            {
              "behaviors": [
                {
                  "type": "callback",
                  "value": {
                    "larkline": "stop",
                    "session": "app.chat",
                    "turn": "app.chat-1",
                  },
                },
              ],
              "element_id": "stop",
              "size": "small",
              "tag": "button",
              "text": {
                "content": "停止",
                "tag": "plain_text",
              },
              "type": "default",
            },
          ],
        },
        "config": {
          "streaming_config": {
            "print_frequency_ms": {
              "default": 30,
            },
            "print_step": {
              "default": 5,
            },
            "print_strategy": "fast",
          },
          "streaming_mode": true,
          "update_multi": true,
        },
        "schema": "2.0",
      }
    `);
  });

  it.each(["zh", "en"] as const)(
    "shows everything while the answer is written (%s)",
    (language) => {
      const running: ShownTool = { id: "b", name: "fetch_page", state: "running", startedAtMs: 0 };
      const view = {
        language,
        thinking: "Let me think.",
        tools: [sum, running],
        earlierTools: 2,
        answer: "So far",
        stop,
      };
      expect(outline(rendered(view, true))).toMatchSnapshot();
    },
  );

  const called = (tool: Partial<ShownTool> & { name: string }): ShownTool => ({
    id: tool.name,
    state: "running",
    startedAtMs: 0,
    ...tool,
  });
  const titleOf = (tools: ShownTool[], more: Partial<ReplyView> = {}) =>
    textOf((rendered({ tools, ...more }, true).parts["tools"] as { header: unknown }).header);

  it("has a line for each helper while one works: who, on what, its state, how long", () => {
    const helper = (agent: string, task: string, more: Partial<ShownTool>): ShownTool => ({
      id: task,
      name: "research",
      state: "running",
      startedAtMs: 0,
      helper: { agent, task },
      ...more,
    });
    const tools = [
      sum,
      helper("researcher", "find <at id=all></at> the\npages", { elapsedMs: 12_400 }),
      helper("panel", "discuss", { elapsedMs: 300 }),
      helper("reader", "read it", { state: "done", elapsedMs: 3_000 }),
    ];
    const [en, zh] = (["en", "zh"] as const).map((language) =>
      rendered({ tools, language, state: "running" }, true),
    );
    expect(JSON.stringify(en?.parts["helpers"])).toContain(
      String.raw`⏳ researcher: find <at id=all></at> the pages · 12 s\n⏳ panel: discuss\n✅ reader: read it · 3 s`,
    );
    expect(JSON.stringify(zh?.parts["helpers"])).toContain("pages · 12 秒");
    expect(outline(en ?? rendered({}))).toContain("#helpers");
    expect(outline(en ?? rendered({}))).toContain('"sum 1 s · researcher · panel · 1 more"');
    const asking = (["approval", "question"] as const).map((about) =>
      helper("payer", about, {
        state: "waiting",
        helper: { agent: "payer", task: about, wait: { about, tool: "pay" } },
      }),
    );
    const waits = (language: "zh" | "en") =>
      JSON.stringify(
        rendered({ tools: asking, language, state: "running" }, true).parts["helpers"],
      );
    expect(waits("en")).toContain(
      String.raw`✋ payer: approval · waiting for a person: approval of pay\n✋ payer: question · waiting for a person: a question`,
    );
    expect(waits("zh")).toContain(String.raw`等待批准：pay\n✋ payer: question · 等待回答问题`);
    const ended = tools.map((tool): ShownTool => ({ ...tool, state: "done" }));
    expect(rendered({ tools: ended, state: "running" }, true).parts["helpers"]).toBeUndefined();
    expect(rendered({ tools, state: "stopped" }).parts["helpers"]).toBeUndefined();
    const many = Array.from({ length: 16 }, (_, at) =>
      helper("助手".repeat(40), `任务${at}`.repeat(80), {}),
    );
    expectWithinLimits("答".repeat(30_000), { tools: many, state: "running" });
    expect(
      JSON.stringify(rendered({ tools: many, state: "running" }, true).parts["helpers"]),
    ).toContain("… 8 earlier");
  });

  it("names the call that runs on the title of the fold, with seconds, progress and how many others run", () => {
    const search = called({ name: "search" });
    expect(titleOf([search])).toBe("⏳ search");
    expect(titleOf([{ ...search, elapsedMs: 3_900 }])).toBe("⏳ search · 3 s");
    const progress = { fraction: 0.419, detail: " page 2\n of 5 " };
    const told = { ...search, elapsedMs: 12_000, progress };
    expect(titleOf([sum, told])).toBe("⏳ search · 12 s · 41% · page 2 of 5");
    expect(titleOf([told, called({ name: "b" }), called({ name: "c" })])).toMatch(
      /page 2 of 5 · 2 more$/,
    );
    expect(titleOf([told, called({ name: "b" })], { language: "zh" })).toBe(
      "⏳ search · 12 秒 · 41% · page 2 of 5 · 另有 1 个",
    );
    expect(titleOf([{ ...told, progress: { fraction: 0, detail: "x".repeat(500) } }])).toBe(
      `⏳ search · 12 s · ${"x".repeat(60)}…`,
    );
    expect(titleOf([{ ...told, isAway: true }])).toBe(
      "search · 💤 its runner is away; waiting for it",
    );
    expect(titleOf([told], { state: "answered" })).toBe("search");
  });

  it("calls a call by its sentence, else by the title of its tool, in the reader's language", () => {
    const words = { title: { zh: "记笔记", en: "Add a note" }, summary: "Add: {x}\n**bold**" };
    const titled = called({ name: "add_note", words: { title: words.title } });
    expect(titleOf([titled])).toBe("⏳ Add a note");
    expect(titleOf([titled], { language: "zh" })).toBe("⏳ 记笔记");
    expect(titleOf([{ ...titled, words }])).toBe("⏳ Add: {x} **bold**");
    const both = JSON.stringify(
      rendered({ tools: [titled], bilingual: true }, true).parts["tools"],
    );
    expect(both).toContain('"i18n_content":{"zh_cn":"⏳ 记笔记","en_us":"⏳ Add a note"}');
  });

  it("names on the title of the finished fold what was called, how long it took and what did not end well", () => {
    const title = { zh: "查库存", en: "Look up stock" };
    const stock = called({
      name: "stock",
      words: { title, summary: "Stock of tea" },
      state: "failed",
      output: "503",
    });
    const report = called({ name: "report", state: "done", elapsedMs: 9_400 });
    const page = called({ name: "page", state: "done", elapsedMs: 300 });
    expect(titleOf([stock, report])).toBe("Look up stock ❌ · report 9 s");
    expect(titleOf([stock, report], { language: "zh" })).toBe("查库存 ❌ · report 9 秒");
    const calls = [page, report, report, sum, called({ name: "stop", state: "stopped" }), stock];
    expect(titleOf(calls, { earlierTools: 2 })).toBe("page · stop ⏹️ · Look up stock ❌ · 5 more");
  });

  it("tells a call that a person has rejected from one that has failed", () => {
    const rejected = called({
      name: "pay",
      state: "failed",
      output: "User rejected this action.\nReason: no",
    });
    expect(titleOf([rejected])).toBe("pay 🚫");
    expect(titleOf([rejected, called({ name: "search" })])).toBe("⏳ search");
    const { tools } = rendered({ tools: [rejected] }).parts;
    expect(tools).toMatchObject({ border: { color: "grey" } });
    expect(outline(rendered({ tools: [rejected] }))).toContain("🚫 pay · rejected");
    expect(outline(rendered({ language: "zh", tools: [rejected] }))).toContain("🚫 pay · 已拒绝");
  });

  it("shows a failed call on the title and the border of the fold", () => {
    const failed = called({ name: "pay", state: "failed", output: "no money" });
    expect(titleOf([sum, failed])).toBe("sum 1 s · pay ❌");
    expect(titleOf([failed, failed, called({ name: "search" })])).toBe("⏳ search · ❌ 2 failed");
    const { tools } = rendered({ tools: [sum, failed] }).parts;
    expect(tools).toMatchObject({ border: { color: "red" } });
    expect((tools as { elements: unknown[] }).elements).toMatchObject([
      { border: { color: "grey" } },
      { border: { color: "red" } },
    ]);
    expect(rendered({ tools: [sum] }).parts["tools"]).toMatchObject({ border: { color: "grey" } });
  });

  it("says how long the model thought, once it has", () => {
    const thoughtsOf = (fields: Partial<ReplyView>) =>
      JSON.stringify(rendered({ thinking: "Hm.", ...fields }).parts["thinking"]);
    expect(thoughtsOf({ thinkingMs: 12_400, answer: "x" })).toContain("Thought for 12 s");
    expect(thoughtsOf({ thinkingMs: 12_400, answer: "x", language: "zh" })).toContain(
      "思考了 12 秒",
    );
    expect(thoughtsOf({ thinkingMs: 400, answer: "x" })).toContain('"Thoughts"');
    expect(thoughtsOf({ thinkingMs: 12_400 })).not.toContain("12");
  });

  it.each(["zh", "en"] as const)("ends with what it took (%s)", (language) => {
    const view = {
      language,
      state: "answered",
      thinking: "Hm.",
      tools: [sum],
      answer: "# Done\n\nIt is **42**.",
      footer,
    } satisfies Partial<ReplyView>;
    expect(outline(rendered(view))).toMatchSnapshot();
    expect(rendered(view).card["config"]).toMatchObject({
      streaming_mode: false,
      summary: { content: "Done It is 42." },
    });
  });

  it.each(
    (["zh", "en"] as const).flatMap((language) =>
      (["stopped", "failed", "interrupted"] as const).map((state) => ({ language, state })),
    ),
  )("says honestly that it is $state ($language)", ({ language, state }) => {
    const stopped: ShownTool = { ...sum, state: "stopped" };
    const failed: ShownTool = { ...sum, id: "c", state: "failed", output: "no route" };
    expect(outline(rendered({ language, state, tools: [stopped, failed] }))).toMatchSnapshot();
    const half = rendered({ language, state, answer: "Half an answ" });
    expect(outline(half)).toMatchSnapshot();
    expect(summaryOf(viewOf("Half an answ", { language, state }))).toMatchSnapshot();
  });

  it("is never without an answer element that has text", () => {
    expect(rendered({}, true).answer).toBe("…");
    expect(rendered({ state: "answered" }).answer).toBe("(no answer)");
    expect(rendered({ state: "stopped", answer: "\n \u0000 \n" }).answer).toBe("⏹️ Stopped");
  });

  it("AT-24: lists what was made once it is complete, each with its button", () => {
    const value = { larkline: "memory", session: "cli_a.oc_1", memory: "0a1b2c", about: "me" };
    const items = [
      { text: "likes\ntea", buttons: [{ text: { zh: "撤回", en: "Take back" }, value }] },
      { text: "plain" },
    ];
    const panels: Panel[] = [
      { kind: "list", name: "memories", title: { zh: "已记住", en: "Remembered" }, items },
    ];
    expect(rendered({ state: "running", panels }, true).parts).not.toHaveProperty("list_memories");
    const { list_memories: panel } = rendered({
      state: "answered",
      answer: "Noted.",
      panels,
    }).parts;
    expect(panel).toMatchObject({ expanded: true, header: { title: { content: "Remembered" } } });
    expect(panel?.["elements"]).toMatchObject([
      { text: { content: "likes tea" } },
      { tag: "button", text: { content: "Take back" }, behaviors: [{ type: "callback", value }] },
      { text: { content: "plain" } },
    ]);
  });

  it("shows progress between the calls and the answer, ticked off as far as it is done", () => {
    const items = [
      { text: "read the\nminutes", state: "done" as const },
      { text: "write", state: "in_progress" as const },
      { text: "send", state: "pending" as const },
    ];
    const panels: Panel[] = [
      { kind: "progress", name: "todos", title: { zh: "待办", en: "To-do" }, items },
    ];
    const shown = (language: "zh" | "en") =>
      rendered({ state: "running", panels, tools: [sum], language }, true);
    expect(Object.keys(shown("en").parts)).toEqual(["tools", "progress_todos"]);
    expect(shown("en").parts["progress_todos"]).toMatchObject({
      element_id: "progress_todos",
      expanded: true,
      header: { title: { content: "To-do" } },
      elements: [
        { text: { tag: "plain_text", content: "✅ read the minutes\n▶️ write\n⬜ send" } },
      ],
    });
    expect(shown("zh").parts["progress_todos"]).toMatchObject({
      header: { title: { content: "待办" } },
    });
  });

  it("says in the footer how long it took, and the rest when it is unfolded", () => {
    const shownOf = (more: Partial<ReplyView["footer"]>, language: ReplyView["language"] = "en") =>
      rendered({ state: "answered", language, footer: { ...footer, ...more } }).parts["footer"] as {
        expanded: boolean;
        header: { title: { content: string } };
        elements: { content: string }[];
      };
    const plain = shownOf({ line: { zh: "由 AI 生成", en: "generated by AI" }, note: "84% used" });
    expect(plain).toMatchObject({ tag: "collapsible_panel", expanded: false });
    expect(plain.header.title.content).toBe(
      "<font color='grey'>3.2 s · 84% used · generated by AI</font>",
    );
    expect(plain.elements[0]?.content).toBe("m-1 · 1,200 in · 30 out tokens · $0.0123 · trace t-9");
    const linked = shownOf({ traceId: "0123456789abcdef", consoleUrl: "https://c.example" });
    expect(linked.elements[0]?.content).toContain(
      "[trace 01234567](https://c.example/why?q=0123456789abcdef)",
    );
    const yuan = { currency: { code: "CNY", perUsd: 100 } };
    expect(shownOf(yuan).elements[0]?.content).toContain("CN¥1.23".replace("CN", ""));
    expect(shownOf({ ...yuan, costUsd: 1e-9 }, "zh").elements[0]?.content).toContain("<¥0.0001");
    expect(shownOf({ model: "<at id=all></at> *m*" }).elements[0]?.content).not.toMatch(
      /<at|[^\u200b]\*m/,
    );
    const { tag } = rendered({ state: "answered", footer: { seconds: 1 } }).parts["footer"] ?? {};
    expect(tag).toBe("div");
  });

  it("has a button below an answer that has failed or that a limit has ended", () => {
    const place = {
      session: "app.chat",
      turnId: "app.chat-1",
      person: "ou_1",
      messageId: "om_1",
      chatId: "oc_1",
    };
    const again = { ...place, chatType: "p2p", inThread: false, wish: "retry" } as const;
    expect(rendered({ state: "failed", answer: "Sorry.", again }).parts["again"]).toMatchObject({
      text: { content: "Try again" },
      behaviors: [{ type: "callback", value: { larkline: "again", ...again } }],
    });
    const more = rendered({
      state: "answered",
      language: "zh",
      again: { ...again, wish: "continue" },
    });
    expect(more.parts["again"]).toMatchObject({ text: { content: "继续" } });
  });

  it("has thumbs, seconds and the fold in one line below an answer that people may rate", () => {
    const rated = { turn: "app.chat-1", agent: "default", model: "m", tools: [] };
    const lineOf = (more: Partial<ReplyView>) => {
      const { parts } = rendered({ state: "answered", answer: "Well.", rated, ...more });
      expect(Object.keys(parts)).toEqual(["footer"]);
      const { columns } = parts["footer"] as {
        columns: { elements: { tag: string; element_id: string }[] }[];
      };
      return columns.flatMap(({ elements }) => elements);
    };
    const line = lineOf({ footer });
    expect(line.map(({ tag, element_id: id }) => [tag, id])).toEqual([
      ["button", "rate_up"],
      ["button", "rate_down"],
      ["collapsible_panel", "facts"],
    ]);
    const values = [...JSON.stringify(line).matchAll(/"value":(\{[^}]*\})/g)].map(
      ([, value = ""]) => value,
    );
    expect(values.map((value) => JSON.parse(value) as unknown)).toEqual([
      { larkline: "rate", turn: "app.chat-1", rating: "up" },
      { larkline: "rate", turn: "app.chat-1", rating: "down" },
    ]);
    expect(lineOf({ footer: {} })).toHaveLength(2);
    expectWithinLimits("x".repeat(60_000), { state: "answered", rated, footer });
  });

  it("AT-18: shows each contribution of a team folded with its name, and names the one that the answer is", () => {
    const list = [
      { agent: "writer", text: "A **draft**." },
      { agent: "critic", text: "Too long." },
    ];
    const contributions = { list, earlier: 3, speaker: "writer" };
    const shown = (fields: Partial<ReplyView>) =>
      rendered({ contributions, ...fields }, fields.state === "running");
    const { parts } = shown({ state: "running", answer: "Short" });
    expect(Object.keys(parts)).toEqual(["said_1", "said_2", "speaker"]);
    expect(parts["said_1"]).toMatchObject({
      element_id: "said_1",
      expanded: false,
      header: { title: { content: "✅ writer · 3 before" } },
      elements: [{ content: "A **draft**." }],
    });
    expect(parts["said_2"]).toMatchObject({ header: { title: { content: "✅ critic" } } });
    expect(parts["speaker"]).toMatchObject({ text: { content: "⏳ writer · speaking" } });
    const body = shown({ state: "running", answer: "Short" }).card["body"] as {
      elements: { element_id: string }[];
    };
    expect(body.elements.map(({ element_id: id }) => id)).toEqual([
      "said_1",
      "said_2",
      "speaker",
      "answer",
    ]);
    expect(shown({ state: "answered", answer: "x" }).parts["speaker"]).toMatchObject({
      text: { content: "✅ writer" },
    });
    expect(shown({ state: "stopped", answer: "x" }).parts["speaker"]).toMatchObject({
      text: { content: "⏹️ writer" },
    });
    const title = { zh: "写作助手", en: "Writer" };
    const titled = { list: [{ agent: title, text: "x" }], earlier: 0, speaker: title };
    expect(
      rendered({ state: "running", language: "zh", contributions: titled }, true).parts,
    ).toMatchObject({
      said_1: { header: { title: { content: "✅ 写作助手" } } },
      speaker: { text: { content: "⏳ 写作助手 · 正在发言" } },
    });
    const choosing = { list: [], earlier: 0 };
    const inChinese = rendered({ state: "running", language: "zh", contributions: choosing }, true);
    expect(inChinese.parts).toMatchObject({
      speaker: { text: { content: "⏳ 正在选择下一位发言者" } },
    });
  });

  it("leaves unknown facts out of the footer", () => {
    expect(rendered({ state: "answered", footer: { model: "m-1" } }).parts["footer"]).toMatchObject(
      {
        header: { title: { content: "<font color='grey'>Details</font>" } },
        elements: [{ content: "m-1" }],
      },
    );
    expect(rendered({ state: "answered" }).parts).toEqual({});
  });

  it("has thinking and tools on the first of its cards, footer and button on the last", () => {
    const answer = "A paragraph of some words.\n\n".repeat(1_500);
    const cuts = extendCuts(answer, []);
    const view = viewOf(answer, { thinking: "Hm.", tools: [sum], footer, stop });
    const ids = [0, 1, cuts.length].map((number) =>
      Object.keys(renderCard(view, { cuts, number }, { streaming: true }).parts),
    );
    expect(cuts.length).toBeGreaterThan(1);
    expect(ids).toEqual([["thinking", "tools"], [], ["stop", "footer"]]);
  });

  describe("stays within the limits however much a model thinks and its tools say", () => {
    const tools = Array.from({ length: 300 }, (_, index) => ({
      ...sum,
      id: `${index}`,
      name: '长"'.repeat(200),
      output: '"\u0000\uD83D```\n<at id=all>'.repeat(1_000),
    }));
    const view = {
      thinking: '"思考\n```\n| a |\n|---|\n<at id=all>'.repeat(2_000),
      tools,
      earlierTools: 1_000,
      panels: [
        {
          kind: "list" as const,
          name: "memories",
          title: "已记住",
          items: Array.from({ length: 5 }, () => ({
            text: "模".repeat(1_000),
            buttons: [
              {
                text: "撤回",
                value: { larkline: "memory", session: "cli_a.oc_1", memory: "0", about: "me" },
              },
            ],
          })),
        },
        {
          kind: "progress" as const,
          name: "todos",
          title: "待办",
          items: Array.from({ length: 20 }, () => ({
            text: "模".repeat(200),
            state: "done" as const,
          })),
        },
      ],
      contributions: {
        list: Array.from({ length: 12 }, () => ({
          agent: "名".repeat(500),
          text: '"| a |\n|---|\n```模'.repeat(60),
        })),
        earlier: 99,
        speaker: "名".repeat(500),
      },
      footer: { ...footer, model: "模".repeat(5_000), traceId: "t".repeat(5_000) },
      stop: { session: "s".repeat(240), turnId: "t".repeat(250) },
    };
    const units = [
      "答",
      "<",
      "&lt;",
      "]:",
      "](",
      '"',
      "\\",
      "\t",
      "![](a)",
      "![",
      "`",
      "a\n",
      "> a\n",
      "- a\n",
      "| a\n",
      "\uD83D",
      "\u0000",
    ];
    const wholes = ["```\n", "| a |\n|---|\n", "<at id=all>\n\n", "          a\n", "# \n"];
    it.each([...units, ...wholes])("with an answer of %j only", (unit) => {
      for (const count of [3_700, 12_000]) {
        const start = wholes.includes(unit) ? "" : "```\n";
        for (const answer of [unit.repeat(count), start + unit.repeat(count)]) {
          expectWithinLimits(answer, view);
        }
      }
    });
  });

  it("says that a call waits for a person, and how long one waited for its runner", () => {
    const waiting: ShownTool = { id: "b", name: "deploy", state: "waiting", startedAtMs: 0 };
    const queued: ShownTool = { ...sum, queuedMs: 12_300 };
    const briefly: ShownTool = { ...sum, queuedMs: 900 };
    const inEnglish = outline(rendered({ tools: [waiting, queued, briefly] }));
    expect(inEnglish).toContain("✋ deploy · waiting for a person");
    expect(inEnglish).toContain("deploy · sum ×2 2 s · ✋ waiting for a person");
    expect(inEnglish).toContain("✅ sum · 1.2 s · queued 12 s");
    expect(inEnglish.match(/queued/g)).toHaveLength(1);
    const asked = { ...waiting, permissionOf: "Ann" };
    const named = outline(rendered({ tools: [asked] }));
    expect(named).toContain("✋ deploy · waiting for the permission of Ann");
    expect(named.match(/waiting for the permission of Ann/g)).toHaveLength(2);
    expect(outline(rendered({ language: "zh", tools: [asked] }))).toContain("等待 Ann 授权");
    const both = outline(rendered({ tools: [asked, waiting] }));
    expect(both).toContain("deploy ×2 · ✋ waiting for a person");
    const inChinese = outline(rendered({ language: "zh", tools: [waiting, queued] }));
    expect(inChinese).toContain("✋ deploy · 等待处理");
    expect(inChinese).toContain("✅ sum · 1.2 秒 · 排队 12 秒");
  });

  it("lets no tool output out of its code block", () => {
    const card = rendered({ tools: [{ ...sum, output: "````\n<button>\n```\n# not a heading" }] });
    expect(outline(card)).toContain(
      String.raw`"${"`".repeat(5)}\n${"`".repeat(4)}\n<button>\n${"`".repeat(3)}\n# not a heading\n${"`".repeat(5)}"`,
    );
  });

  it("names every element at most once, by ids the platform takes", () => {
    const card = rendered({ thinking: "Hm.", tools: [sum, sum], answer: "x", footer, stop }, true);
    const ids = [...JSON.stringify(card.card).matchAll(/"element_id":"([^"]*)"/g)].map(
      ([, id]) => id,
    );
    expect(ids).toEqual(["thinking", "thinking_text", "tools", "answer", "stop", "footer"]);
  });
});
