import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { startCardBot, type CardBot, type CardBotOptions } from "./card-bot.fixture.ts";
import {
  app,
  launchBrowser,
  openChat,
  openTab,
  openTestPage,
  panel,
  say,
  startTestPlayground,
} from "./page-test.fixture.ts";
import type { Playground } from "@larkline/simulator/playground";

type CardJson = Record<string, unknown>;

let browser: Browser;
const closing: (() => Promise<void>)[] = [];

beforeAll(async () => {
  browser = await launchBrowser(process.env.CHROMIUM_PATH ?? "/usr/bin/chromium");
});

afterAll(async () => {
  await browser?.close();
});

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

interface Scene {
  playground: Playground;
  page: Page;
  bot: CardBot;
}

async function start(
  options: Omit<CardBotOptions, "appId" | "appSecret" | "domain">,
): Promise<Scene> {
  const playground = await startTestPlayground();
  closing.push(playground.close);
  const bot = await startCardBot({ ...app, domain: playground.url, ...options });
  closing.push(bot.close);
  return { playground, bot, page: await openPage(playground) };
}

async function openPage(playground: Playground): Promise<Page> {
  const { page, errors, close } = await openTestPage(browser, playground.url);
  closing.push(close, async () => expect(errors).toEqual([]));
  return page;
}

const plain = (content: string) => ({ tag: "plain_text", content });

const foldedPanel = (title: string, content: string) => ({
  tag: "collapsible_panel",
  element_id: "thinking",
  expanded: false,
  header: { title: plain(title) },
  elements: [{ tag: "markdown", element_id: "thinking_text", content }],
});

const stopButton = {
  tag: "button",
  element_id: "stop",
  text: plain("停止"),
  behaviors: [{ type: "callback", value: { larkline: "stop" } }],
};

/** Types so slowly that a test cannot miss it. */
const slowly = {
  print_frequency_ms: { default: 100 },
  print_step: { default: 1 },
  print_strategy: "fast",
};

function card(elements: readonly CardJson[], config: CardJson = {}): CardJson {
  return { schema: "2.0", config: { update_multi: true, ...config }, body: { elements } };
}

const answerOf = (page: Page) =>
  panel(page, "Alice")
    .locator(".from-bot .feishu-card .caret, .from-bot .card-body > .content")
    .last();

test("a streaming card types towards its latest text, and a new frame shows at once what was still to be typed", async () => {
  const first = "好的，";
  const second = `${first}${"一".repeat(200)}`;
  const third = `${second}${"二".repeat(200)}`;
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  const { page, bot } = await start({
    card: () =>
      card([{ tag: "markdown", element_id: "answer", content: first }], {
        streaming_mode: true,
        streaming_config: slowly,
      }),
    async script(open) {
      await gates[0].promise;
      await open.content("answer", second);
      await gates[1].promise;
      await open.content("answer", third);
    },
  });
  await say(page, "Alice", "说点什么");
  await panel(page, "Alice").getByText("生成中…").waitFor();
  expect(await answerOf(page).textContent()).toBe(first);
  gates[0].resolve();
  const length = async (): Promise<number> => (await answerOf(page).textContent())?.length ?? 0;
  await expect.poll(length, { timeout: 60_000 }).toBeGreaterThan(first.length);
  expect(await length()).toBeLessThan(second.length);
  gates[1].resolve();
  await expect.poll(length, { timeout: 60_000 }).toBeGreaterThan(second.length);
  expect(await length()).toBeLessThan(third.length);
  await bot.idle();
});

test("a card in several languages is shown in that of the page, and in English where it has no such one", async () => {
  const both = (chinese: string, english: string) => ({
    ...plain(chinese),
    i18n_content: { zh_cn: chinese, en_us: english },
  });
  const { page } = await start({
    card: () => ({
      ...card(
        [
          { tag: "markdown", content: "正文", i18n_content: { zh_cn: "正文", en_us: "Body" } },
          { ...foldedPanel("折叠", "里面"), header: { title: both("折叠", "Folded") } },
          { ...stopButton, text: both("停止", "Stop") },
          { tag: "div", text: { ...plain("只有一种"), i18n_content: { ja_jp: "一つだけ" } } },
        ],
        { summary: { content: "摘要", i18n_content: { zh_cn: "摘要", en_us: "Summary" } } },
      ),
      header: { title: both("标题", "Title") },
    }),
  });
  await say(page, "Alice", "两种语言");
  const shown = page.locator(".from-bot .feishu-card");
  await shown.getByText("标题").waitFor();
  expect(await shown.innerText()).toMatch(/标题\s+正文\s+折叠\s+停止\s+只有一种/);
  await page.getByRole("navigation", { name: "会话" }).getByText("摘要").waitFor();
  await page.getByRole("button", { name: "English" }).click();
  await shown.getByText("Title").waitFor();
  expect(await shown.innerText()).toMatch(/Title\s+Body\s+Folded\s+Stop\s+只有一种/);
  await page.getByRole("navigation").getByText("Summary").waitFor();
});

test("when streaming ends the whole text is there, the sign of typing is gone, and the list shows the summary", async () => {
  const { page } = await start({
    card: () =>
      card([{ tag: "markdown", element_id: "answer", content: "…" }], {
        streaming_mode: true,
        streaming_config: slowly,
      }),
    async script(open) {
      await open.content("answer", "开始");
      await open.content("answer", `开始${"。".repeat(500)}结束`);
      await open.finish("回答的摘要");
    },
  });
  await say(page, "Alice", "说完");
  await panel(page, "Alice").getByText("结束").waitFor();
  await panel(page, "Alice").getByText("生成中…").waitFor({ state: "detached" });
  await page.getByRole("navigation", { name: "会话" }).getByText("回答的摘要").waitFor();
});

test("folding, focus and what was typed survive the frames of a card", async () => {
  const gate = Promise.withResolvers<void>();
  const { page } = await start({
    card: () =>
      card(
        [
          foldedPanel("思考中…", "第一步"),
          { tag: "markdown", element_id: "answer", content: "…" },
          { tag: "input", element_id: "note", name: "note", placeholder: plain("备注") },
          stopButton,
        ],
        { streaming_mode: true },
      ),
    async script(open) {
      await gate.promise;
      const notice = { tag: "markdown", element_id: "notice", content: "上面多了一行" };
      await open.batch([
        {
          action: "add_elements",
          params: { type: "insert_before", target_element_id: "thinking", elements: [notice] },
        },
        {
          action: "update_element",
          params: { element_id: "thinking", element: foldedPanel("思考过程", "第一步，第二步") },
        },
      ]);
      await open.content("answer", "结论");
    },
  });
  await say(page, "Alice", "想一想");
  const bot = panel(page, "Alice").locator(".from-bot");
  expect(await bot.getByText("第一步").isVisible()).toBe(false);
  await bot.getByText("思考中…").click();
  await bot.getByRole("textbox", { name: "备注" }).fill("还没有发送");
  await bot.getByRole("button", { name: "停止" }).focus();
  gate.resolve();
  await bot.getByText("结论").waitFor();
  await bot.getByText("上面多了一行").waitFor();
  await bot.getByText("第一步，第二步").waitFor({ state: "visible" });
  await bot.getByText("思考过程").waitFor({ state: "visible" });
  expect(await bot.getByRole("textbox", { name: "备注" }).inputValue()).toBe("还没有发送");
  expect(await page.evaluate("document.activeElement?.textContent")).toBe("停止");
});

test("an answer is rated by drawn thumbs, and by a reason that is written behind a fold", async () => {
  const acted: CardJson[] = [];
  const turn = "cli_1.oc_1-1";
  const thumb = (rating: string, sign: string) => ({
    tag: "button",
    element_id: `rate_${rating}`,
    text: plain(sign),
    type: "text",
    behaviors: [{ type: "callback", value: { larkline: "rate", turn, rating } }],
  });
  const reason = {
    tag: "input",
    element_id: "rate_reason",
    name: "rate_reason",
    placeholder: plain("哪里需要改进？"),
    behaviors: [{ type: "callback", value: { larkline: "rate", turn } }],
  };
  const why = {
    tag: "collapsible_panel",
    expanded: false,
    header: { title: plain("说说原因") },
    elements: [reason],
  };
  const { page } = await start({
    card: () =>
      card([{ tag: "markdown", content: "好" }, thumb("up", "👍"), thumb("down", "👎"), why]),
    async onClick(action) {
      acted.push(action);
      return { toast: { type: "success", content: `已记下 ${acted.length}` } };
    },
  });
  await say(page, "Alice", "你好");
  const shown = panel(page, "Alice");
  await shown.locator(".feishu-card .icon-thumb").waitFor();
  await shown.locator(".feishu-card").getByRole("button", { name: "👎" }).click();
  await page.locator(".toast-success", { hasText: "已记下 1" }).waitFor();
  await shown.getByText("说说原因").click();
  await shown.getByLabel("哪里需要改进？").fill("太短了");
  await shown.getByLabel("哪里需要改进？").press("Enter");
  await page.locator(".toast-success", { hasText: "已记下 2" }).waitFor();
  expect(acted).toMatchObject([
    { tag: "button", value: { larkline: "rate", turn, rating: "down" } },
    { tag: "input", value: { larkline: "rate", turn }, input_value: "太短了" },
  ]);
});

test("a click shows the bot's toast, and the client's error with its meaning when the app has no callback", async () => {
  const clicked: CardJson[] = [];
  const { page, playground } = await start({
    card: () => card([stopButton]),
    async onClick(action) {
      clicked.push(action);
      return { toast: { type: "success", content: "已停止，工具没有运行完" } };
    },
  });
  await say(page, "Alice", "开始");
  const stop = panel(page, "Alice").locator(".from-bot").getByRole("button", { name: "停止" });
  await stop.click();
  await page.locator(".toast-success", { hasText: "已停止，工具没有运行完" }).waitFor();
  expect(clicked).toMatchObject([{ tag: "button", value: { larkline: "stop" } }]);
  playground.simulator.setConsole(app.appId, { callbacks: [] });
  await stop.click();
  await page.locator(".toast-error", { hasText: "应用没有配置卡片回调 (200340)" }).waitFor();
});

test("a form asks for what is required, sends its values under their names, and gives way to the bot's card", async () => {
  const answers: unknown[] = [];
  const options = [
    { text: plain("生产"), value: "prod" },
    { text: plain("测试"), value: "test" },
  ];
  const { page } = await start({
    card: () =>
      card([
        {
          tag: "form",
          name: "deploy",
          elements: [
            { tag: "input", name: "reason", label: plain("原因"), required: true },
            { tag: "select_static", name: "stage", placeholder: plain("环境"), options },
            { tag: "date_picker", name: "day", placeholder: plain("日期") },
            { tag: "checker", name: "sure", text: plain("我确认") },
            {
              tag: "button",
              name: "go",
              text: plain("提交"),
              type: "primary_filled",
              form_action_type: "submit",
            },
          ],
        },
      ]),
    async onClick({ form_value, name }) {
      answers.push(name, form_value);
      return { card: { type: "raw", data: card([{ tag: "markdown", content: "**收到表单**" }]) } };
    },
  });
  await say(page, "Alice", "部署");
  const bot = panel(page, "Alice").locator(".from-bot");
  await bot.getByRole("button", { name: "提交" }).click();
  expect(
    await bot.getByRole("textbox", { name: "原因" }).evaluate((field) => field.matches(":invalid")),
  ).toBe(true);
  await bot.getByRole("textbox", { name: "原因" }).fill("发布 1.2");
  await bot.getByRole("combobox", { name: "环境" }).selectOption("prod");
  await bot.getByLabel("日期").fill("2026-03-01");
  await bot.getByRole("checkbox").check();
  await bot.getByRole("button", { name: "提交" }).click();
  await bot.getByText("收到表单").waitFor();
  const day: unknown = expect.stringMatching(/^2026-03-01 [+-]\d{4}$/);
  expect(answers).toEqual(["go", { reason: "发布 1.2", stage: "prod", day, sure: true }]);
});

test("headers, columns, tables, notes and unknown parts are shown, and no markup of a card becomes markup of the page", async () => {
  const evil = '<img src=x onerror="window.hacked=true"><script>window.hacked=true</script>';
  const { page, playground } = await start({
    card: () => ({
      ...card([
        {
          tag: "markdown",
          content: `<font color='red'>红字</font> <at id=all></at> [坏](javascript:alert(1)) ${evil}`,
        },
        {
          tag: "column_set",
          columns: [
            {
              tag: "column",
              width: "weighted",
              weight: 2,
              elements: [{ tag: "markdown", content: "左" }],
            },
            {
              tag: "column",
              width: "weighted",
              weight: 1,
              elements: [{ tag: "markdown", content: "右" }],
            },
          ],
        },
        {
          tag: "table",
          columns: [
            { name: "k", display_name: "键" },
            { name: "v", data_type: "lark_md" },
          ],
          rows: [{ k: "a", v: "**粗**" }],
        },
        { tag: "chart", chart_spec: { type: "pie" } },
        { tag: "hr" },
      ]),
      header: {
        title: plain("标题"),
        subtitle: plain("副标题"),
        template: "orange",
        text_tag_list: [{ tag: "text_tag", text: plain("待审批"), color: "red" }],
      },
    }),
  });
  await say(page, "Alice", "看看");
  const shown = panel(page, "Alice").locator(".feishu-card");
  await shown.locator(".template-orange", { hasText: "副标题" }).getByText("待审批").waitFor();
  expect(await shown.locator(".ink-red").first().textContent()).toBe("待审批");
  expect(await shown.getByText("@所有人").count()).toBe(1);
  expect(await shown.locator("td strong").textContent()).toBe("粗");
  expect(await shown.locator("img, script, a").count()).toBe(0);
  expect(await shown.getByText("图表 pie").count()).toBe(1);
  expect(await page.evaluate("'hacked' in globalThis")).toBe(false);
  const [chat] = [...playground.simulator.chats.values()].filter(({ name }) => name === "Alice");
  expect(playground.simulator.messages(chat?.chatId ?? "")).toHaveLength(2);
});

test("calls are counted as they come, and a refusal is shown on the strip, in a toast and beside the card", async () => {
  const { page, playground, bot } = await start({
    card: () =>
      card([{ tag: "markdown", element_id: "answer", content: "…" }], { streaming_mode: true }),
    async script(open) {
      // At once: one after the other a slow machine makes fewer than the limit of a second.
      while (playground.simulator.refusals.length === 0) {
        await Promise.allSettled(
          Array.from({ length: 20 }, (_, at) => open.content("answer", "字".repeat(at + 1))),
        );
      }
    },
  });
  await openTab(page, "限额");
  await say(page, "Alice", "快一点");
  await page.locator(".toast-warning", { hasText: "触发限额: card (230020)" }).first().waitFor();
  await page.locator(".refusals .bad", { hasText: "业务限流 230020" }).first().waitFor();
  await page.locator(".strip .warns", { hasText: "被拒" }).waitFor();
  await page.locator(".card-facts", { hasText: /序号 \d+帧 \d+操作 \d+被拒 \d+/ }).waitFor();
  await page
    .getByRole("region", { name: "最近一分钟的接口" })
    .getByText("/cardkit/v1/cards/:id/elements/:id/content")
    .waitFor();
  await bot.idle();
});

test("pictures, files, other kinds, late messages and answers in threads go out from the menu beside the input", async () => {
  const { page, playground } = await start({
    card: () => card([{ tag: "markdown", content: "好" }]),
  });
  await say(page, "Alice", "第一条");
  const alice = panel(page, "Alice");
  const picture = { name: "dot.png", mimeType: "image/png", buffer: Buffer.from(dotPng, "base64") };
  const report = { name: "report.txt", mimeType: "text/plain", buffer: Buffer.from("hello") };
  await alice.locator('input[type="file"][accept]').setInputFiles(picture);
  await alice.locator('input[type="file"]:not([accept])').setInputFiles(report);
  await alice.locator("img.picture").waitFor();
  await expect
    .poll(() =>
      alice
        .locator("img.picture")
        .evaluate((image) => "naturalWidth" in image && image.naturalWidth),
    )
    .toBe(1);
  await alice.getByText("report.txt").waitFor();
  const plus = async (name: string): Promise<void> => {
    await alice.getByLabel("发送其他内容").first().click();
    await alice.getByRole("menuitem", { name }).click();
  };
  await plus("位置");
  await alice.getByText("Shenzhen Bay Park").waitFor();
  await plus("合并转发消息");
  await page.getByRole("dialog").getByRole("checkbox").first().check();
  await page.getByRole("dialog").getByRole("button", { name: "发送" }).click();
  await alice.getByText("合并转发的消息").waitFor();
  await plus("下一条迟到 3 小时");
  await say(page, "Alice", "迟到的");
  const asked = alice.locator(".message", { hasText: "第一条" }).first();
  await asked.hover();
  await asked.getByRole("button", { name: "话题回复" }).click();
  await say(page, "Alice", "在话题里");
  await alice
    .locator(".message", { hasText: "在话题里" })
    .getByText("话题", { exact: true })
    .first()
    .waitFor();
  const chat = [...playground.simulator.chats.values()].find(({ name }) => name === "Alice");
  const written = playground.simulator
    .messages(chat?.chatId ?? "")
    .filter(({ senderType }) => senderType === "user");
  expect(written.map(({ messageType }) => messageType)).toEqual([
    "text",
    "image",
    "file",
    "location",
    "merge_forward",
    "text",
    "text",
  ]);
  const late = written.find(({ text }) => text === "迟到的");
  expect(Date.now() - (late?.createdAt ?? 0)).toBeGreaterThan(2.9 * 3_600_000);
  expect(written.at(-1)).toMatchObject({
    parentId: written[0]?.messageId,
    threadId: expect.any(String),
  });
});

const dotPng =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

test("entering a chat, pressing the menu and adding the bot to a topic group tell the bot", async () => {
  const { page, playground } = await start({ card: () => card([]) });
  await openChat(page, "Alice");
  const plus = panel(page, "Alice").getByLabel("发送其他内容").first();
  await plus.click();
  await page.getByRole("menuitem", { name: "进入会话" }).click();
  await plus.focus();
  for (const key of ["Enter", "ArrowUp", "Enter"]) await page.keyboard.press(key);
  await page.getByRole("dialog").getByRole("button", { name: "点击" }).click();
  await page.getByRole("button", { name: "新建会话" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("类型").selectOption({ label: "话题群" });
  await dialog.getByLabel("会话名称").fill("值班");
  await dialog.getByLabel("Alice").check();
  await dialog.getByRole("button", { name: "创建" }).click();
  await panel(page, "值班").waitFor();
  const told = (): string[] => playground.simulator.deliveries.map(({ eventType }) => eventType);
  for (const event of [
    "bot_p2p_chat_entered_v1",
    "application.bot.menu_v6",
    "member.bot.added_v1",
  ]) {
    await expect.poll(told, { timeout: 60_000 }).toContainEqual(expect.stringContaining(event));
  }
});

test("a person edits a text of theirs, and it is marked as edited", async () => {
  const { page, playground } = await start({
    card: () => card([{ tag: "markdown", content: "好" }]),
  });
  await say(page, "Alice", "错字");
  const asked = panel(page, "Alice").locator(".message", { hasText: "错字" }).first();
  await asked.hover();
  page.once("dialog", (dialog) => void dialog.accept("改好了"));
  await asked.getByRole("button", { name: "编辑" }).click();
  const edited = panel(page, "Alice").locator(".message", { hasText: "已编辑" });
  await edited.getByText("改好了").waitFor();
  const chat = [...playground.simulator.chats.values()].find(({ name }) => name === "Alice");
  expect(playground.simulator.messages(chat?.chatId ?? "")[0]).toMatchObject({
    text: "改好了",
    edits: 1,
  });
});

test("reactions of the bot come and go as chips on the message", async () => {
  const gate = Promise.withResolvers<void>();
  const { page, playground, bot } = await start({
    card: () => card([{ tag: "markdown", content: "轮到你了" }]),
    async script() {
      const asked = [...playground.simulator.chats.values()].flatMap(({ chatId }) =>
        playground.simulator.messages(chatId),
      )[0];
      const reaction = await bot.api.messages.addReaction(asked?.messageId ?? "", "OneSecond");
      await gate.promise;
      await bot.api.messages.removeReaction(asked?.messageId ?? "", reaction);
    },
  });
  await say(page, "Alice", "排队");
  const chip = panel(page, "Alice").locator(".chip", { hasText: "OneSecond" });
  await chip.waitFor();
  gate.resolve();
  await chip.waitFor({ state: "detached" });
});
