// `node infra/dev/run.mjs --redis infra/dev/screenshots.mjs`: starts everything as `npm start` does, with a model
// that follows a script, and takes the pictures of the playground and of the console for the README, one of which moves
// (where there is ffmpeg). An argument names the Chromium to use.
import { spawn, spawnSync } from "node:child_process";
import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { demoScript, freePort, startModelServer } from "../../packages/testkit/src/index.ts";
import { nodeProgram, root } from "./launcher/paths.mjs";

const require = createRequire(join(root, "test/package.json"));
const driver = "playwright-core"; // One of the tests' dependencies, not of this folder's.
const { chromium } = require(driver);
const readyMs = 60_000;
const question = "上周每天的请求量是 1280 1410 1395 1520 1870，下周要几个副本？";
const followUp = "把请求量画成图";
const order = "把结论记到团队笔记里";
const note = "下周 agent-worker 用 3 个副本，周五前扩容。";

const thinking = "先算工作日的平均值，再按一个副本每小时处理约 40 个会话来估算，高峰要留三成余量。";

const answer = `### 下周建议 3 个副本

工作日平均 **1495** 次，周五最高。先扩容再观察 \`turn_wait_seconds\`：

| 副本 | 高峰等待 | 成本 |
|---|---|---|
| 2 | 3.4 s | 基准 |
| **3** | **1.1 s** | +50% |
| 4 | 0.9 s | +100% |

\`\`\`sh
kubectl scale deployment agent-worker --replicas=3
\`\`\``;

/** Names the picture that the chart tool made. */
function chartAnswer(results) {
  const picture = /!\[[^\]]*\]\([^)\s]+\)/.exec(results.map(({ content }) => content).join("\n"))?.[0] ?? "";
  return `周一到周五，周五比周一多 **46%**：\n\n${picture}`;
}

function pieces(text) {
  return text.match(/[\s\S]{1,6}/g) ?? [];
}

/** What the pictures of agents ask for: the demo model answers it. */
const wishes = {
  handOver: "请专家看一下：周五要扩容吗？",
  helpers: "派两个助手：绿茶和红茶",
  team: "请团队写一句开场白",
};

function script(request) {
  const { messages, system } = request;
  const isDemo = Object.values(wishes).some((wish) => messages.some(({ text }) => text.includes(wish)));
  if (isDemo || /^You are a helper\b/m.test(system)) return demoScript(request);
  const at = messages.findLastIndex(({ role, text }) => role === "user" && text !== "");
  const results = messages.slice(at + 1).flatMap((message) => message.results);
  if (messages[at]?.text.includes(followUp) === true) {
    if (results.length > 0) return { text: pieces(chartAnswer(results)), delayMs: 30 };
    return { calls: [{ name: "bar_chart", arguments: { values: [1280, 1410, 1395, 1520, 1870] } }] };
  }
  if (messages[at]?.text.includes(order) === true) {
    if (results.length > 0) return { text: "已经记下了。" };
    return { text: "好的，我来记下。", calls: [{ name: "add_note", arguments: { text: note } }] };
  }
  if (results.length > 0) return { text: pieces(answer), delayMs: 60 };
  return {
    thinking: { text: thinking, signature: "scripted" },
    calls: [
      { name: "calculator", arguments: { expression: "(1280+1410+1395+1520+1870)/5" } },
      { name: "current_time", arguments: {} },
    ],
    delayMs: 20,
  };
}

/** The playground's agents, without the buttons that rate answers: not every machine has a font for them. */
async function writeConfig(directory) {
  const path = join(directory, "larkline.config.mjs");
  const agents = JSON.stringify(join(root, "infra/dev/playground.config.ts"));
  await writeFile(path, `import config from ${agents};\nexport default { ...config, feishu: {} };\n`);
  return path;
}

async function startEverything(modelUrl, directory) {
  const ports = await Promise.all([freePort(), freePort(), freePort(), freePort(), freePort()]);
  const [playground, ingress, worker, runner, operators] = ports.map(String);
  const { FEISHU_APP_ID: _id, FEISHU_APP_SECRET: _secret, OPENAI_API_KEY: _key, ...inherited } = process.env;
  const env = {
    ...inherited,
    LARKLINE_DATA_DIR: directory,
    LARKLINE_CONFIG: await writeConfig(directory),
    PLAYGROUND_PORT: playground,
    INGRESS_PORT: ingress,
    AGENT_WORKER_PORT: worker,
    TOOL_RUNNER_PORT: runner,
    CONSOLE_PORT: operators,
    MODEL: "anthropic/claude-sonnet-5-5",
    ANTHROPIC_API_KEY: "scripted",
    ANTHROPIC_BASE_URL: modelUrl,
  };
  const child = spawn(nodeProgram(), [join(root, "infra/dev/start.mjs")], { env, stdio: "inherit" });
  const stop = async () => {
    if (child.exitCode !== null) return;
    const exited = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    await exited;
  };
  const urls = [playground, ingress, operators, runner].map((port) => `http://127.0.0.1:${port}`);
  const [url, apiUrl, consoleUrl, runnerUrl] = urls;
  return { url, apiUrl, consoleUrl, runnerUrl, child, stop };
}

async function untilAnswers(url, child) {
  const deadline = AbortSignal.timeout(readyMs);
  while (!deadline.aborted) {
    if (child.exitCode !== null) throw new Error("The start ended before everything was ready: see its words above.");
    const ready = await fetch(`${url}/ready`).catch(() => undefined);
    if (ready?.ok === true) return;
    await delay(200);
  }
  throw new Error(`Nothing answers at ${url} after ${readyMs / 1000} s.`);
}

function file(name, kind = "png") {
  return join(root, "docs/images", `${name}.${kind}`);
}

/** Takes a picture of what it is given again and again; ends by making one that moves of them. */
function film(subject, name) {
  const framesPerSecond = 4;
  let taken = 0;
  const over = new AbortController();
  const filming = (async () => {
    const frames = join(directory, name);
    await mkdir(frames);
    while (!over.signal.aborted) {
      const next = delay(1000 / framesPerSecond);
      await subject.screenshot({ path: join(frames, `${String((taken += 1)).padStart(4, "0")}.png`) });
      await next;
    }
    const colours = "split[a][b];[a]palettegen=max_colors=64[p];[b][p]paletteuse=dither=none:diff_mode=rectangle";
    const input = ["-framerate", String(framesPerSecond), "-i", join(frames, "%04d.png")];
    const filters = ["-vf", `scale=560:-1:flags=lanczos,tpad=stop_mode=clone:stop_duration=3,${colours}`];
    const { status } = spawnSync("ffmpeg", ["-y", "-loglevel", "error", ...input, ...filters, file(name, "gif")], {
      stdio: "inherit",
    });
    if (status !== 0) process.stderr.write(`No ${name}.gif: it needs ffmpeg.\n`);
  })();
  return async () => {
    over.abort();
    await filming;
  };
}

async function takePictures(page, url) {
  await page.goto(url);
  await page.getByText("机器人已通过长连接接入").waitFor({ timeout: readyMs });
  await page.screenshot({ path: file("playground-empty") });
  const chat = page.getByRole("region", { name: "张伟 Wei" });
  const input = chat.getByRole("textbox", { name: "消息" });
  const card = chat.locator(".feishu-card");
  const endFilm = film(chat, "answer");
  await input.fill(question);
  await input.press("Enter");
  const tools = card.getByText(/^工具 \d/).first();
  await tools.click();
  await card.getByText("下周建议 3 个副本").waitFor();
  await input.fill(followUp);
  await input.press("Enter");
  await card.getByText("+100%").waitFor();
  await page.screenshot({ path: file("playground-typing") });
  await tools.click();
  await chat.locator("img.picture").waitFor();
  await chat.getByText("生成中…").waitFor({ state: "detached" });
  await chat.getByRole("log").evaluate((list) => list.scrollTo(0, list.scrollHeight));
  await endFilm();
  await page.getByRole("tab", { name: "限额" }).click();
  await page.locator(".card-facts", { hasText: "序号" }).nth(1).waitFor();
  await chat.getByRole("log").evaluate((list) => list.scrollTo(0, list.scrollHeight));
  await page.screenshot({ path: file("playground-conversation") });
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    chat.getByRole("button", { name: "下载录制" }).click(),
  ]);
  await copyFile(await download.path(), join(root, "simulator/src/playground/page/example.recording"));
}

/** The card that asks whether a tool may run. */
async function takeApprovalPicture(page) {
  const chat = page.getByRole("region", { name: "张伟 Wei" });
  const input = chat.getByRole("textbox", { name: "消息" });
  await input.fill(order);
  await input.press("Enter");
  const approve = chat.getByRole("button", { name: "批准", exact: true });
  await approve.waitFor();
  await approve.scrollIntoViewIfNeeded();
  await page.screenshot({ path: file("playground-approval") });
  await approve.click();
  await chat.getByText("已经记下了。").waitFor();
}

/** Cards of helpers at work, of a hand-over, and of a team, which is asked by another person: the word stays with it. */
async function takeAgentPictures(page) {
  const pictures = [
    ["agents-helpers", "张伟 Wei", wishes.helpers, /helper: 看看红茶 · [1-9] 秒/],
    ["agents-hand-over", "张伟 Wei", wishes.handOver, "我是专家"],
    ["agents-team", "Alice", wishes.team, "APPROVED"],
  ];
  for (const [name, person, wish, shown] of pictures) {
    await page.getByRole("navigation", { name: "会话" }).getByRole("button", { name: person }).click();
    const chat = page.getByRole("region", { name: person });
    const input = chat.getByRole("textbox", { name: "消息" });
    const card = chat.locator(".feishu-card").nth(await chat.locator(".feishu-card").count());
    await input.fill(wish);
    await input.press("Enter");
    await card.getByText(shown).first().waitFor();
    if (name !== "agents-helpers") await chat.getByText("生成中…").waitFor({ state: "detached" });
    await card.scrollIntoViewIfNeeded();
    await card.screenshot({ path: file(name) });
    await chat.getByText("生成中…").waitFor({ state: "detached" });
  }
}

/** Does with the queue `turns` what an operator's click in Bull Board does. */
async function tellTurns(consoleUrl, action) {
  const { headers } = await fetch(`${consoleUrl}/queues`);
  const [, token = ""] = /XSRF-TOKEN=([^;]+)/.exec(headers.get("set-cookie") ?? "") ?? [];
  const url = `${consoleUrl}/queues/api/queues/turns/${action}`;
  const { ok, status } = await fetch(url, { method: "PUT", headers: { "x-xsrf-token": decodeURIComponent(token) } });
  if (!ok) throw new Error(`The console answers ${status} to ${action}.`);
}

/** What became of one message, and how long each part of it took. */
async function takeWhyPicture(page, { consoleUrl, apiUrl }) {
  const body = JSON.stringify({ message: question, session_id: "answered" });
  await (await fetch(`${apiUrl}/chat`, { method: "POST", body })).text();
  await page.goto(`${consoleUrl}/why?q=api.answered`);
  await page.getByText(/后已回答。$/).waitFor();
  await page.screenshot({ path: file("console-why"), fullPage: true });
}

/** What operators see of it while a message waits, because they have paused the queue. */
async function takeConsolePictures(page, { consoleUrl, apiUrl }) {
  await tellTurns(consoleUrl, "pause");
  const asking = new AbortController();
  const body = JSON.stringify({ message: question, session_id: "pictures" });
  await fetch(`${apiUrl}/chat`, { method: "POST", body, signal: asking.signal });
  await page.goto(consoleUrl);
  await page
    .getByRole("row", { name: /^turns/ })
    .getByText("1", { exact: true })
    .waitFor();
  await page.screenshot({ path: file("console-overview") });
  await page.goto(`${consoleUrl}/queues/queue/turns`);
  await page.locator('a[href*="/jobs/turns/"]').first().waitFor();
  await page.screenshot({ path: file("console-queues") });
  await page.goto(`${consoleUrl}/sessions`);
  await page.getByText("queued").waitFor();
  await page.screenshot({ path: file("console-sessions") });
  await page.goto(`${consoleUrl}/instances`);
  await page.getByText("agent-worker").waitFor();
  await page.screenshot({ path: file("console-instances") });
  asking.abort();
  await tellTurns(consoleUrl, "resume");
}

const directory = await mkdtemp(join(tmpdir(), "larkline-pictures-"));
const model = await startModelServer({ script });
const everything = await startEverything(model.url, directory);
let browser;
try {
  await untilAnswers(everything.url, everything.child);
  await untilAnswers(everything.runnerUrl, everything.child); // without it the model's calls fail
  browser = await chromium.launch({
    executablePath: process.argv[2] ?? "/usr/bin/chromium",
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"],
  });
  const context = await browser.newContext({ locale: "zh-CN", viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  await takePictures(page, everything.url);
  await takeApprovalPicture(page);
  await takeAgentPictures(page);
  await takeWhyPicture(page, everything);
  await takeConsolePictures(page, everything);
} finally {
  await browser?.close();
  await everything.stop();
  await model.close();
  await rm(directory, { recursive: true, force: true });
}
