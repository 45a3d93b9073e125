// `node infra/dev/run.mjs --redis docs/images/make-answer.mjs`: starts everything as `npm start` does, with a model that follows a
// script, and makes the moving pictures of both READMEs (with ffmpeg), in Chinese and English. An argument names the Chromium
// to use. It needs the fonts of make-pictures.mjs, which takes the still pictures.
import { spawn, spawnSync } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { freePort, startModelServer } from "../../packages/testkit/src/index.ts";
import { nodeProgram, root } from "../../infra/dev/launcher/paths.mjs";

const require = createRequire(join(root, "test/package.json"));
const driver = "playwright-core"; // One of the tests' dependencies, not of this folder's.
const { chromium } = require(driver);
const readyMs = 60_000;

/** The last cell of the answer's table: the film waits for it. */
const answerEnd = "+67%";

function answerWith({ title, finding, columns, unchanged }) {
  return `### ${title}

${finding}

${columns}
|---|---|---|
| 3 | 3.4 s | ${unchanged} |
| **4** | **1.1 s** | +33% |
| 5 | 0.9 s | ${answerEnd} |

\`\`\`sh
kubectl scale deployment agent-worker --replicas=4
\`\`\``;
}

/** What is said in each film, and what the page calls its parts. */
const scenes = [
  {
    locale: "en-US",
    person: "Alice",
    picture: "answer.gif",
    page: {
      connected: "Bot connected by long connection",
      input: "Message",
      tools: /^Tools \d/,
      working: "Generating…",
    },
    question: "How many requests came in last week? How many replicas does next week need?",
    followUp: "Draw the requests as a chart.",
    thinking:
      "I read the counts first, then their average. A replica answers about 500 requests a day; peaks need room.",
    answer: answerWith({
      title: "4 replicas for next week",
      finding: "**1,495** requests on an average day, most of them on Friday:",
      columns: "| Replicas | Longest wait | Cost |",
      unchanged: "as now",
    }),
    chart: "Friday had **46%** more requests than Monday:",
    days: ["Mon", "Tue", "Wed", "Thu", "Fri"],
  },
  {
    locale: "zh-CN",
    person: "张伟 Wei",
    picture: "zh/answer.gif",
    page: {
      connected: "机器人已通过长连接接入",
      input: "消息",
      tools: /^工具 \d/,
      working: "生成中…",
    },
    question: "上周每天有多少请求？下周要几个副本？",
    followUp: "把请求量画成图。",
    thinking: "先查每天的请求量，再算平均值。一个副本每天大约处理 500 个请求，高峰要留余量。",
    answer: answerWith({
      title: "下周建议 4 个副本",
      finding: "工作日平均 **1495** 个请求，周五最多：",
      columns: "| 副本 | 高峰等待 | 成本 |",
      unchanged: "不变",
    }),
    chart: "周五比周一多 **46%**：",
    days: ["周一", "周二", "周三", "周四", "周五"],
  },
];

const counts = [1280, 1410, 1395, 1520, 1870];

/** A tool that takes its time, so that the card shows how far it is. */
const countsTool = `
  import { setTimeout as delay } from "node:timers/promises";
  import { defineTool } from "@larkline/tool-kit";
  export default defineTool({
    name: "request_counts",
    description: "Gives the requests of each day of last week.",
    title: { zh: "查询请求量", en: "Request counts" },
    summary: { zh: "上周每天的请求量", en: "The requests of each day of last week" },
    input: { type: "object", properties: { days: { type: "array", items: { type: "string" } } }, required: ["days"] },
    effect: "pure",
    run: async ({ days }, { progress }) => {
      for (const [at, day] of days.entries()) {
        progress(at / days.length, day);
        await delay(600);
      }
      return ${JSON.stringify(counts)};
    },
  });`;

/** Names the picture that the chart tool made. */
function chartAnswer({ chart }, results) {
  const picture =
    /!\[[^\]]*\]\([^)\s]+\)/.exec(results.map(({ content }) => content).join("\n"))?.[0] ?? "";
  return `${chart}\n\n${picture}`;
}

function pieces(text) {
  return text.match(/[\s\S]{1,6}/g) ?? [];
}

/** Reads the counts, calculates and answers; at the second question it draws. */
function scriptOf(scene) {
  const { days, followUp, thinking, answer } = scene;
  return ({ messages }) => {
    const at = messages.findLastIndex(({ role, text }) => role === "user" && text !== "");
    const results = messages.slice(at + 1).flatMap((message) => message.results);
    if (messages[at]?.text.includes(followUp) === true) {
      if (results.length > 0) return { text: pieces(chartAnswer(scene, results)), delayMs: 30 };
      return { calls: [{ name: "bar_chart", arguments: { values: counts } }] };
    }
    if (results.length === 0) {
      const calls = [{ name: "request_counts", arguments: { days } }];
      return { thinking: { text: thinking, signature: "scripted" }, calls, delayMs: 20 };
    }
    if (results.length === 1) {
      return {
        calls: [
          {
            name: "calculator",
            arguments: { expression: `(${counts.join("+")})/${counts.length}` },
          },
        ],
      };
    }
    return { text: pieces(answer), delayMs: 50 };
  };
}

async function startEverything(modelUrl, directory) {
  const ports = await Promise.all([freePort(), freePort(), freePort(), freePort(), freePort()]);
  const [playground, ingress, worker, runner, operators] = ports.map(String);
  const {
    FEISHU_APP_ID: _id,
    FEISHU_APP_SECRET: _secret,
    OPENAI_API_KEY: _key,
    ...inherited
  } = process.env;
  const tool = join(directory, "request-counts.ts");
  await writeFile(tool, countsTool);
  const env = {
    ...inherited,
    LARKLINE_DATA_DIR: join(directory, "data"),
    LARKLINE_CONFIG: join(root, "infra/dev/playground.config.ts"),
    RUNNER_TOOLS: `@larkline/example-tools,@larkline/example-tools/wait,${tool}`,
    PLAYGROUND_PORT: playground,
    INGRESS_PORT: ingress,
    AGENT_WORKER_PORT: worker,
    TOOL_RUNNER_PORT: runner,
    CONSOLE_PORT: operators,
    MODEL: "anthropic/claude-sonnet-5-5",
    ANTHROPIC_API_KEY: "scripted",
    ANTHROPIC_BASE_URL: modelUrl,
  };
  const child = spawn(nodeProgram(), [join(root, "infra/dev/start.mjs")], {
    env,
    stdio: "inherit",
  });
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
    if (child.exitCode !== null) {
      throw new Error("The start ended before everything was ready: see its words above.");
    }
    const ready = await fetch(`${url}/ready`).catch(() => undefined);
    if (ready?.ok === true) return;
    await delay(200);
  }
  throw new Error(`Nothing answers at ${url} after ${readyMs / 1000} s.`);
}

/** Takes a picture of what it is given again and again; ends by making one that moves of them. */
function film(subject, frames, picture) {
  const framesPerSecond = 4;
  let taken = 0;
  const over = new AbortController();
  const filming = (async () => {
    await mkdir(frames);
    while (!over.signal.aborted) {
      const next = delay(1000 / framesPerSecond);
      await subject.screenshot({
        path: join(frames, `${String((taken += 1)).padStart(4, "0")}.png`),
      });
      await next;
    }
    const colours =
      "split[a][b];[a]palettegen=max_colors=64[p];[b][p]paletteuse=dither=none:diff_mode=rectangle";
    const input = ["-framerate", String(framesPerSecond), "-i", join(frames, "%04d.png")];
    const filters = [
      "-vf",
      `scale=560:-1:flags=lanczos,tpad=stop_mode=clone:stop_duration=3,${colours}`,
    ];
    const { status } = spawnSync(
      "ffmpeg",
      ["-y", "-loglevel", "error", ...input, ...filters, join(root, "docs/images", picture)],
      {
        stdio: "inherit",
      },
    );
    if (status !== 0) process.stderr.write(`No ${picture}: it needs ffmpeg.\n`);
  })();
  return async () => {
    over.abort();
    await filming;
  };
}

async function makeFilm(page, url, directory, scene) {
  const { person, picture, page: words, question, followUp } = scene;
  await page.goto(url);
  await page.getByText(words.connected).waitFor({ timeout: readyMs });
  await page.locator(".chat-entry", { hasText: person }).first().click();
  const chat = page.getByRole("region", { name: person });
  const input = chat.getByRole("textbox", { name: words.input });
  const card = chat.locator(".feishu-card").first();
  const endFilm = film(chat, join(directory, "frames"), picture);
  await input.fill(question);
  await input.press("Enter");
  await card.getByText(answerEnd).waitFor();
  const tools = card.getByText(words.tools).first();
  await tools.click();
  await chat.getByText(words.working).waitFor({ state: "detached" });
  await delay(1_500);
  await tools.click();
  await input.fill(followUp);
  await input.press("Enter");
  await chat.locator("img.picture").waitFor();
  await chat.getByText(words.working).waitFor({ state: "detached" });
  await chat.getByRole("log").evaluate((list) => list.scrollTo(0, list.scrollHeight));
  await delay(500);
  await endFilm();
}

async function filmScene(browser, scene) {
  const directory = await mkdtemp(join(tmpdir(), "larkline-film-"));
  const model = await startModelServer({ script: scriptOf(scene) });
  const everything = await startEverything(model.url, directory);
  try {
    await untilAnswers(everything.url, everything.child);
    await untilAnswers(everything.runnerUrl, everything.child); // without it the model's calls fail
    const context = await browser.newContext({
      locale: scene.locale,
      viewport: { width: 1280, height: 860 },
    });
    const page = await context.newPage();
    page.setDefaultTimeout(30_000);
    await makeFilm(page, everything.url, directory, scene);
    await context.close();
  } finally {
    await everything.stop();
    await model.close();
    await rm(directory, { recursive: true, force: true });
  }
}

const browser = await chromium.launch({
  executablePath: process.argv[2] ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"],
});
try {
  for (const scene of scenes) await filmScene(browser, scene);
} finally {
  await browser.close();
}
