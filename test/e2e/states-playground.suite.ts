import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  languages,
  openPage,
  playground,
  prompt,
  system,
  takePicture,
} from "./states-deployment.ts";

const answers = {
  zh: `### 下周建议 3 个副本

工作日平均 **1495** 次，周五最高。先扩容再观察 \`turn_wait_seconds\`：

| 副本 | 高峰等待 | 成本 |
|---|---|---|
| 2 | 3.4 s | 基准 |
| **3** | **1.1 s** | +50% |
| 4 | 0.9 s | +100% |

\`\`\`sh
kubectl scale deployment agent-worker --replicas=3
\`\`\``,
  en: `### Three replicas next week

**1495** requests on an average workday, most on Friday. Scale first, then watch \`turn_wait_seconds\`:

| replicas | wait at the peak | cost |
|---|---|---|
| 2 | 3.4 s | as now |
| **3** | **1.1 s** | +50% |
| 4 | 0.9 s | +100% |

\`\`\`sh
kubectl scale deployment agent-worker --replicas=3
\`\`\``,
};

const requests = [1280, 1410, 1395, 1520, 1870];

describe.each(languages)("what people see of the playground (%s)", (language) => {
  const say = (zh: string, en: string): string => (language === "zh" ? zh : en);
  const person = say("张伟 Wei", "Alice");
  let page: Page;
  let close: () => Promise<void>;

  beforeAll(async () => {
    const opened = await openPage(playground.url, language);
    page = opened.page;
    page.setDefaultTimeout(60_000); // a machine that is busy with other tests
    close = async () => {
      expect(opened.errors).toEqual([]);
      await opened.close();
    };
    await page.locator(".chat:not([hidden])").waitFor();
    await page.locator(".chat-entry", { hasText: person }).click();
  });
  afterAll(async () => await close?.());

  const picture = async (name: string) => await takePicture(page, { name, language });
  const chat = () => page.locator(".chat:not([hidden])");

  async function write(text: string): Promise<void> {
    const input = chat().getByRole("textbox", { name: say("消息", "Message") });
    await input.fill(text);
    await input.press("Enter");
  }

  it("an empty chat offers what the product can do", async () => {
    const offered = async () =>
      await chat().locator(".prompts").first().getByRole("button").count();
    await expect.poll(offered, { timeout: 60_000 }).toBe(4);
    await page
      .getByText(say("机器人已通过长连接接入", "Bot connected by long connection"))
      .waitFor();
    await picture("playground-empty");
  });

  it("a card types, with tools, thinking and a stop button; a chart, and what the platform sees", async () => {
    const text = say(
      `上周每天的请求量是 ${requests.join(" ")}，下周要几个副本？`,
      `Last week's requests were ${requests.join(" ")}: how many replicas next week?`,
    );
    const thinking = say(
      "先算工作日的平均值，高峰要留三成余量。",
      "First the average, with a third to spare at the peak.",
    );
    const key = `playground-${language}`;
    const week = say("上周", "last week");
    const [first = "", code = ""] = answers[language].split(/(?=```)/);
    prompt(
      text,
      {
        thinking: { text: thinking, signature: "scripted" },
        calls: [
          { name: "calculator", arguments: `{"expression":"(${requests.join("+")})/5"}` },
          { name: "current_time", arguments: "{}" },
        ],
      },
      {
        text: first.match(/[\s\S]{1,8}/g) ?? [],
        delayMs: 20,
        calls: [{ name: "export_orders", arguments: JSON.stringify({ week, key }) }],
      },
      { text: code },
    );
    await write(text);
    const card = chat().locator(".feishu-card").first();
    await card.getByText(/\+100%/).waitFor();
    await card
      .getByText(/420 \/ 1,000/)
      .first()
      .waitFor();
    expect(await card.getByRole("button", { name: say("停止", "Stop") }).count()).toBe(1);
    await card.locator("details.panel > summary").nth(1).click();
    await picture("playground-typing");
    await card.locator("details.panel > summary").nth(1).click();
    await system.release(key);
    await card.getByText("kubectl").waitFor();
    const chart = say("把请求量画成图", "Draw the requests");
    prompt(chart, {
      calls: [{ name: "bar_chart", arguments: JSON.stringify({ values: requests }) }],
    });
    // The demo's words then show the picture that the tool has made.
    await write(chart);
    await chat().locator("img.picture").waitFor();
    await chat().getByText(say("生成中…", "Generating…")).waitFor({ state: "detached" });
    await page.getByRole("tab", { name: say("限额", "Limits") }).click();
    await page.locator(".card-facts").nth(1).waitFor();
    await chat()
      .getByRole("log")
      .evaluate((list) => list.scrollTo(0, list.scrollHeight));
    await picture("playground-conversation");
  });
});
