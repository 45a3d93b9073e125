// `node infra/dev/run.mjs --redis infra/dev/film.mjs`: starts everything as `npm start` does, with a model that follows a
// script, and makes the moving picture of the README (with ffmpeg) and the example of a recording. An argument names the
// Chromium to use. The still pictures are taken by screenshots.mjs.
import { spawn, spawnSync } from "node:child_process";
import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { freePort, startModelServer } from "../../packages/testkit/src/index.ts";
import { nodeProgram, root } from "./launcher/paths.mjs";

const require = createRequire(join(root, "test/package.json"));
const driver = "playwright-core"; // One of the tests' dependencies, not of this folder's.
const { chromium } = require(driver);
const readyMs = 60_000;
const question = "上周每天的请求量是 1280 1410 1395 1520 1870，下周要几个副本？";
const followUp = "把请求量画成图";
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

function script(request) {
  const { messages } = request;
  const at = messages.findLastIndex(({ role, text }) => role === "user" && text !== "");
  const results = messages.slice(at + 1).flatMap((message) => message.results);
  if (messages[at]?.text.includes(followUp) === true) {
    if (results.length > 0) return { text: pieces(chartAnswer(results)), delayMs: 30 };
    return { calls: [{ name: "bar_chart", arguments: { values: [1280, 1410, 1395, 1520, 1870] } }] };
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
  const [url, runnerUrl] = [playground, runner].map((port) => `http://127.0.0.1:${port}`);
  return { url, runnerUrl, child, stop };
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
    const { status } = spawnSync(
      "ffmpeg",
      ["-y", "-loglevel", "error", ...input, ...filters, join(root, "docs/images", `${name}.gif`)],
      {
        stdio: "inherit",
      },
    );
    if (status !== 0) process.stderr.write(`No ${name}.gif: it needs ffmpeg.\n`);
  })();
  return async () => {
    over.abort();
    await filming;
  };
}

async function makeFilm(page, url) {
  await page.goto(url);
  await page.getByText("机器人已通过长连接接入").waitFor({ timeout: readyMs });
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
  await tools.click();
  await chat.locator("img.picture").waitFor();
  await chat.getByText("生成中…").waitFor({ state: "detached" });
  await chat.getByRole("log").evaluate((list) => list.scrollTo(0, list.scrollHeight));
  await endFilm();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    chat.getByRole("button", { name: "下载录制" }).click(),
  ]);
  await copyFile(await download.path(), join(root, "simulator/src/playground/page/example.recording"));
}

const directory = await mkdtemp(join(tmpdir(), "larkline-film-"));
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
  await makeFilm(page, everything.url);
} finally {
  await browser?.close();
  await everything.stop();
  await model.close();
  await rm(directory, { recursive: true, force: true });
}
