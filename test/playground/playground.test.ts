import {
  copyFile,
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadConfigFile } from "@larkline/process/config";
import { freePort } from "@larkline/testkit";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { accessibilityProblems } from "../system/accessibility.ts";
import { startBot, type TestBot } from "./bot.fixture.ts";
import type { PlaygroundConfig } from "@larkline/simulator/playground";
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

const answer = (text: string) =>
  `### 收到 ${text}\n\n- **粗体** 和 \`code\`\n- <img src=x onerror="window.hacked=true">\n\n| 工具 | 状态 |\n|---|---|\n| 时间 | 完成 |`;

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

async function start(changes: Partial<PlaygroundConfig> = {}): Promise<Playground> {
  const playground = await startTestPlayground(changes);
  closing.push(playground.close);
  return playground;
}

async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "larkline-playground-"));
  closing.push(async () => await rm(folder, { recursive: true, force: true, maxRetries: 5 }));
  return folder;
}

async function openPage(playground: Playground): Promise<Page> {
  const { page, errors, close } = await openTestPage(browser, playground.url);
  closing.push(close, async () => expect(errors).toEqual([]));
  return page;
}

async function startWithBot(): Promise<{ playground: Playground; page: Page; bot: TestBot }> {
  const playground = await start();
  const bot = await startBot({ ...app, domain: playground.url, answer });
  closing.push(bot.close);
  return { playground, page: await openPage(playground), bot };
}

test("a person writes, the bot's reply appears quoted and formatted, and the platform's view shows both ways", async () => {
  const { page } = await startWithBot();
  await page.getByText("机器人已通过长连接接入").waitFor();
  await say(page, "Alice", "现在几点？");
  const reply = panel(page, "Alice").locator(".from-bot");
  await reply.getByRole("heading", { name: "收到 现在几点？" }).waitFor();
  expect(await reply.locator("blockquote.quote").textContent()).toBe("Alice: 现在几点？");
  expect(await reply.locator("td").allTextContents()).toEqual(["时间", "完成"]);
  expect(await reply.getByText("<img src=x").count()).toBe(1);
  expect(await page.evaluate(() => "hacked" in globalThis)).toBe(false);
  await page.locator(".log .good", { hasText: "im.message.receive_v1" }).waitFor();
  await page.locator(".log .good", { hasText: "/reply" }).waitFor();
});

test("in a group the bot is mentioned and the chosen person speaks", async () => {
  const { playground, page } = await startWithBot();
  const group = panel(page, "项目组 Project");
  await openChat(page, "项目组 Project");
  await group.getByRole("button", { name: "Alice", pressed: false }).click();
  await say(page, "项目组 Project", "大家好");
  await group.locator(".from-bot").waitFor();
  const chat = [...playground.simulator.chats.values()].find(({ type }) => type === "group");
  const [written] = playground.simulator.messages(chat?.chatId ?? "");
  expect(written).toMatchObject({ text: "@Larkline 大家好", mentions: [{ bot: true }] });
});

test("the redeliver switch sends the last message once more, and no second reply is shown", async () => {
  const { page, bot } = await startWithBot();
  await say(page, "Alice", "一次");
  await panel(page, "Alice").locator(".from-bot").waitFor();
  await openTab(page, "故障开关");
  await page.getByRole("button", { name: "重新投递最后一条消息" }).click();
  await openTab(page, "活动");
  await page.locator(".log .good", { hasText: "第 2 次" }).waitFor();
  expect(bot.received).toHaveLength(2);
  expect(new Set(bot.received).size).toBe(1);
  expect(await panel(page, "Alice").locator(".from-bot").count()).toBe(1);
});

test("faults are armed and used up, the connection is dropped and comes back, the token expires", async () => {
  const { playground, page } = await startWithBot();
  await openTab(page, "故障开关");
  await page.getByLabel("接下来的调用次数").fill("1");
  await page.getByRole("button", { name: "API 返回 500" }).click();
  await page.getByText("待触发的故障：1").waitFor();
  await openTab(page, "活动");
  await say(page, "Alice", "故障");
  await page.locator(".log .bad", { hasText: "HTTP 500" }).waitFor();
  await panel(page, "Alice").locator(".from-bot").waitFor();
  expect(playground.simulator.faults.size).toBe(0);
  const changes: number[] = [];
  playground.simulator.on("connection", ({ connections }) => changes.push(connections));
  await openTab(page, "故障开关");
  await page.getByRole("button", { name: "断开长连接" }).click();
  await expect.poll(() => changes, { timeout: 60_000 }).toEqual([0, 1]);
  await page.getByText("机器人已通过长连接接入").waitFor();
  await page.getByRole("button", { name: "令牌失效" }).click();
  await openTab(page, "活动");
  await say(page, "Alice", "令牌");
  await page.locator(".log .bad", { hasText: "code 99991663" }).waitFor();
  await panel(page, "Alice").locator(".from-bot").nth(1).waitFor();
});

test("a bot that restarts is said to reconnect, and its messages come then", async () => {
  const { playground, page, bot } = await startWithBot();
  await page.getByText("机器人已通过长连接接入").waitFor();
  await bot.close();
  await page.getByText("机器人正在重新连接，之后会收到消息").waitFor();
  await say(page, "Alice", "重启中");
  closing.push((await startBot({ ...app, domain: playground.url, answer })).close);
  await page.getByText("机器人已通过长连接接入").waitFor();
  await panel(page, "Alice").locator(".from-bot").waitFor({ timeout: 60_000 });
});

test("a person and a chat are added, the language and the theme are switched", async () => {
  const page = await openPage(await start());
  await page.getByText("机器人未连接").waitFor();
  await page.getByRole("button", { name: "添加成员" }).click();
  await page.getByRole("dialog").getByLabel("姓名").fill("Bob");
  await page.getByRole("dialog").getByRole("button", { name: "创建" }).click();
  await page.getByRole("button", { name: "新建会话" }).click();
  await page.getByRole("dialog").getByLabel("Bob").check();
  await page.getByRole("dialog").getByRole("button", { name: "创建" }).click();
  await panel(page, "Bob").waitFor();
  await page.getByRole("button", { name: "English" }).click();
  await page.getByRole("heading", { name: "Larkline Playground" }).waitFor();
  await page.getByText("Bot not connected").waitFor();
  await page.getByRole("button", { name: "Switch light and dark" }).click();
  expect(await page.locator("html").getAttribute("data-theme")).toBe("dark");
});

test("people, chats, messages and ids survive a restart, also of a playground that was killed", async () => {
  const dataDirectory = await newFolder();
  await mkdir(join(dataDirectory, "playground-media"));
  await writeFile(join(dataDirectory, "playground-media", "unused"), "");
  const before = await start({ dataDirectory });
  const bot = await startBot({ ...app, domain: before.url, answer });
  closing.push(bot.close);
  const page = await openPage(before);
  await say(page, "Alice", "记得我");
  const reply = panel(page, "Alice").locator(".from-bot");
  await reply.getByRole("heading", { name: "收到 记得我" }).waitFor();
  const [chatId = ""] = [...before.simulator.chats.values()].flatMap((chat) =>
    chat.name === "Alice" ? chat.chatId : [],
  );
  const from =
    [...before.simulator.users.values()].find(({ name }) => name === "Alice")?.openId ?? "";
  const picture = { bytes: await page.locator("nav").screenshot(), name: "nav.png" };
  const sent = await before.simulator.sendMessage({
    appId: app.appId,
    chatId,
    from,
    image: picture,
  });
  const answered = await before.simulator.waitForReply(sent.messageId, { timeoutMs: 60_000 });
  const media = join(dataDirectory, "playground-media");
  const file = join(dataDirectory, "playground.json");
  await vi.waitFor(async () => expect(await readFile(file, "utf8")).toContain("nav.png"), {
    timeout: 60_000,
  });
  expect((await readdir(media)).map((name) => name.slice(0, 7))).toEqual(["img_v3_"]); // "unused" is removed
  await vi.waitFor(async () => expect(await readFile(file, "utf8")).toContain("### 收到 记得我"), {
    timeout: 60_000,
  });
  await vi.waitFor(async () => expect(await readFile(file, "utf8")).toContain(answered.messageId), {
    timeout: 60_000,
  });
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  // The first one still runs: nothing is written because it ends.
  const killed = await newFolder();
  await copyFile(file, join(killed, "playground.json"));
  await cp(media, join(killed, "playground-media"), { recursive: true });
  const after = await start({ dataDirectory: killed });
  const idsOf = ({ simulator }: Playground) => [
    [...simulator.users.keys()],
    [...simulator.chats.keys()],
    [...simulator.chats.keys()].map((id) =>
      simulator.messages(id).map(({ messageId }) => messageId),
    ),
    simulator.apps.map(({ openId }) => openId),
  ];
  expect(idsOf(after)).toEqual(idsOf(before));
  const later = await openPage(after);
  await openChat(later, "Alice");
  await panel(later, "Alice")
    .locator(".from-bot")
    .getByRole("heading", { name: "收到 记得我" })
    .waitFor();
  const shown = panel(later, "Alice").locator("img.picture");
  await vi.waitFor(
    async () => expect(await shown.evaluate((image) => image.naturalWidth)).toBeGreaterThan(0),
    {
      timeout: 60_000,
    },
  );
});

test("an empty chat offers four messages that show the product, and more below", async () => {
  const { page, bot } = await startWithBot();
  const offered = panel(page, "张伟 Wei").locator(".prompts").first().getByRole("button");
  await offered.last().waitFor();
  expect(await offered.allInnerTexts()).toEqual([
    expect.stringMatching(/^工具\s+12\*7/),
    expect.stringMatching(/^审批\s+记一下/),
    expect.stringMatching(/^图表\s+图表/),
    expect.stringMatching(/^长回答\s+展示/),
  ]);
  await panel(page, "张伟 Wei").getByText("还可以试试").click();
  await panel(page, "张伟 Wei").getByRole("button", { name: "做个计划" }).click();
  await panel(page, "张伟 Wei")
    .locator(".from-bot")
    .getByRole("heading", { name: "收到 做个计划" })
    .waitFor();
  expect(bot.received).toHaveLength(1);
});

test("a state that is damaged is set aside and reported, and the playground begins anew", async () => {
  const dataDirectory = await newFolder();
  await writeFile(join(dataDirectory, "playground.json"), '{"v":1,"users":[{"openId":7}]}');
  const page = await openPage(await start({ dataDirectory }));
  // Loaded once more with a clock that the test moves: other notes go after five seconds.
  await page.clock.install();
  await page.reload();
  const notice = page.getByText("上次的会话文件已损坏");
  await notice.waitFor();
  await panel(page, "张伟 Wei").waitFor();
  await page.clock.runFor(60_000);
  expect(await notice.count()).toBe(1);
  await page.getByRole("button", { name: "关闭" }).click();
  await notice.waitFor({ state: "detached" });
  const [kept = ""] = (await readdir(dataDirectory)).filter((name) =>
    name.startsWith("playground.json.damaged-"),
  );
  expect(await readFile(join(dataDirectory, kept), "utf8")).toBe('{"v":1,"users":[{"openId":7}]}');
});

test("ids are shown and copied, and roles of the playground's configuration name a person who is there", async () => {
  const playground = await start();
  const page = await openPage(playground);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await openChat(page, "项目组 Project");
  await panel(page, "项目组 Project").getByText("ID", { exact: true }).click();
  // The notice goes after five seconds.
  const told = page.getByText("已复制").waitFor();
  await Promise.all([told, page.getByRole("button", { name: "复制 Alice" }).click()]);
  const copied = await page.evaluate<string>("navigator.clipboard.readText()");
  expect(playground.simulator.users.get(copied)?.name).toBe("Alice");
  const config = await loadConfigFile("infra/dev/playground.config.ts");
  expect(config.ok && config.value.permissions.roles["managers"]?.people).toEqual([copied]);
});

const dialogs = {
  zh: { forward: "合并转发消息", pressMenu: "点击机器人菜单" },
  en: { forward: "Forward messages", pressMenu: "Press the bot's menu" },
};

test.each([
  ["zh", "zh-CN", { tabs: ["活动", "限额", "故障开关"], more: "发送其他内容", ...dialogs.zh }],
  [
    "en",
    "en-US",
    { tabs: ["Activity", "Limits", "Faults"], more: "Send something else", ...dialogs.en },
  ],
] as const)(
  "axe finds nothing on the page (%s), and nothing stands beyond the edge of a telephone",
  async (_language, locale, words) => {
    const playground = await start();
    const bot = await startBot({ ...app, domain: playground.url, answer });
    closing.push(bot.close);
    const { simulator } = playground;
    const context = await browser.newContext({ locale, viewport: { width: 390, height: 844 } });
    closing.push(async () => await context.close());
    const page = await context.newPage();
    page.setDefaultTimeout(60_000); // a machine that is busy with other tests
    await page.goto(playground.url);
    const problems: string[] = [];
    const look = async (place: string) =>
      problems.push(...(await accessibilityProblems(page, place)));
    await page.locator(".chat:not([hidden])").waitFor();
    await look("an empty chat");
    const send = page.locator(".chat:not([hidden]) form button").last();
    const box = await send.boundingBox();
    expect(
      (box?.y ?? 0) + (box?.height ?? 0),
      "the first screen ends with the composer",
    ).toBeLessThanOrEqual(844);
    const group = [...simulator.chats.values()].find(({ type }) => type === "group");
    const [from = ""] = group?.members ?? [];
    const { messageId } = await simulator.sendMessage({
      appId: app.appId,
      chatId: group?.chatId ?? "",
      from,
      text: "x",
      mention: true,
    });
    await simulator.waitForReply(messageId, { timeoutMs: 60_000 });
    await page.locator("nav button", { hasText: "项目组" }).click();
    await page.locator(".chat:not([hidden]) .from-bot").waitFor();
    await page.locator(".chat:not([hidden]) .ids > summary").click();
    await look("a group with its ids");
    await page.locator(".chat:not([hidden]) .ids > summary").click();
    await page.locator(".chat:not([hidden])").getByLabel(words.more).first().click();
    await look("the menu of what can be sent");
    await page.keyboard.press("Escape");
    for (const name of words.tabs) {
      await page.getByRole("tab", { name }).click();
      await look(name);
    }
    for (const at of [0, 1]) {
      await page.locator(".top button:not(.icon-theme)").nth(at).click();
      await look(`dialog ${at}`);
      await page.keyboard.press("Escape");
      await page.locator("dialog").waitFor({ state: "detached" });
    }
    await page.locator("nav button", { hasText: "Alice" }).click();
    const chat = page.locator(".chat:not([hidden])");
    await chat.locator(".more-prompts > summary").click();
    await look("all that can be tried");
    for (const item of [words.forward, words.pressMenu]) {
      await chat.getByLabel(words.more).first().click();
      await chat.getByRole("menuitem", { name: item }).click();
      await page.locator("dialog").waitFor();
      await look(item);
      await page.keyboard.press("Escape");
      await page.locator("dialog").waitFor({ state: "detached" });
    }
    expect(problems).toEqual([]);
  },
);

test("other sites, foreign host names and wrong input are refused", async () => {
  const { url } = await start();
  const send = (headers: Record<string, string>, body: object = {}) =>
    fetch(`${url}/api/expire-tokens`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
  expect((await send({ origin: "https://evil.example" })).status).toBe(403);
  expect((await send({ "sec-fetch-site": "cross-site" })).status).toBe(403);
  expect((await send({ origin: url })).status).toBe(200);
  expect(await statusFor(url, "evil.example")).toBe(403);
  expect(await statusFor(url, "localhost:1")).toBe(200);
  const post = (path: string, body: object) =>
    fetch(`${url}/api/${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  expect((await post("messages", { text: 1 })).status).toBe(400);
  expect((await post("messages", { chatId: "oc_1", from: "ou_1" })).status).toBe(400);
  expect((await post("click", { messageId: "om_1" })).status).toBe(400);
  expect((await post("click", { messageId: "om_unknown", openId: "ou_1" })).status).toBe(404);
  expect((await fetch(`${url}/api/images/img_v3_unknown`)).status).toBe(404);
  expect((await fetch(`${url}/api/cards/1`)).status).toBe(404);
  expect((await post("redeliver", { messageId: "om_unknown" })).status).toBe(404);
});

function statusFor(url: string, host: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    get(url, { headers: { host } }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).on("error", reject);
  });
}

test("health, readiness and metrics answer, and the scripted model listens on its own port", async () => {
  const playground = await start({ modelPort: 0 });
  expect((await fetch(`${playground.url}/health`)).status).toBe(200);
  expect((await fetch(`${playground.url}/ready`)).status).toBe(200);
  await fetch(`${playground.url}/open-apis/bot/v3/info`);
  expect(await (await fetch(`${playground.url}/metrics`)).text()).toContain(
    'larkline_simulator_api_calls_total{status="400"',
  );
  const model = await fetch(`${playground.modelUrl}/v1/messages`, { method: "POST", body: "{}" });
  expect(model.status).toBe(401);
});

test("requests that come while it starts are answered with 503, and with the page as soon as it is there", async () => {
  const port = await freePort();
  const ask = async (): Promise<number> => {
    const page = await fetch(`http://127.0.0.1:${port}/`).catch(() => undefined);
    return page?.status ?? 0;
  };
  const statuses = [await ask()];
  const starting = start({ port });
  while (statuses.at(-1) !== 200) {
    const status = await ask();
    if (status !== statuses.at(-1)) statuses.push(status);
  }
  await starting;
  expect(statuses).toEqual([0, 503, 200]);
});
