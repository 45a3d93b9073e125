import { NameBook, RunLog, UsageCounter, UsageStore } from "@larkline/store/operations";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { runOf } from "@larkline/store/testing";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  app,
  guarded,
  languages,
  openPage,
  operators,
  playground,
  prompt,
  system,
  takePicture,
} from "./states-deployment.ts";

const people = { ou_li: "李雷", ou_han: "韩梅梅", ou_bob: "Bob Lee" };
const tools = ["search_orders", "query_stock", "export_orders"];

/** An hour of runs before those of the suites, always the same but for its time: charts have something to draw. */
async function recordAnHour(): Promise<void> {
  const redis = connectRedis(system.env["REDIS_URL"] ?? "");
  const options = { redis, namespace: "larkline" };
  const counter = new UsageCounter("Asia/Shanghai");
  const nowMs = Date.now();
  const runs = Array.from({ length: 180 }, (_, at) => {
    const wave = Math.sin(at / 9) + 1;
    const failed = at % 17 === 5;
    return runOf({
      turn: `${app.appId}.oc_orders-${at}`,
      trace: at.toString(16).padStart(32, "0"),
      message: `om_${at}`,
      person: Object.keys(people)[at % 3] ?? "",
      agent: at % 5 === 0 ? "expert" : "default",
      model: at % 4 === 0 ? "openai/gpt-6.1-sol" : "anthropic/claude-sonnet-5-5",
      outcome: failed ? "timeout" : at % 23 === 7 ? "stopped" : "answered",
      endedAtMs: nowMs - 3_500_000 + at * 18_500,
      firstMs: Math.round(600 + 500 * wave + (at % 7) * 90),
      ms: Math.round(2_200 + 2_600 * wave + (at % 11) * 240),
      queuedMs: 4 + (at % 9) * 3,
      input: Math.round(2_400 + 1_800 * wave),
      output: 180 + (at % 13) * 25,
      usd: 0.011 + 0.006 * wave,
      tools: { [tools[at % 3] ?? ""]: 1 + (at % 2) },
      ...(failed ? { failedTools: { [tools[at % 3] ?? ""]: 1 } } : {}),
    });
  });
  for (const run of runs) counter.countRun(run);
  await new UsageStore({ ...options, timeZone: "Asia/Shanghai" }).add("recorded", counter.take());
  await new RunLog(options).append(runs);
  const names = [...Object.entries(people), ["oc_orders", "订单群 Orders"] as const];
  await new NameBook(options).keep(new Map(names), nowMs);
  await closeRedis(redis);
}

let isRecorded = false;

describe.each(languages)("what operators see (%s)", (language) => {
  const say = (zh: string, en: string): string => (language === "zh" ? zh : en);
  let page: Page;
  let close: () => Promise<void>;

  beforeAll(async () => {
    if (!isRecorded) await recordAnHour();
    isRecorded = true;
    const opened = await openPage(operators.url, language);
    page = opened.page;
    page.setDefaultTimeout(60_000); // a machine that is busy with other tests
    await page.setViewportSize({ width: 1_100, height: 760 });
    close = async () => {
      expect(opened.errors).toEqual([]);
      await opened.close();
    };
  });
  afterAll(async () => await close?.());

  const picture = async (name: string, ...parts: Locator[]) =>
    await takePicture(page, { name, language, parts });
  const open = async (path: string) => await page.goto(`${operators.url}${path}`);
  const textOf = async (part: Locator) => (await part.innerText()).replaceAll(/\s+/g, " ");

  /** A person asks for something that operators decide; resolves to what the chat shows of it. */
  function deploys(): () => string {
    const { simulator } = playground;
    const person = simulator.addUser({ name: say("韩梅梅", "Mei Han") });
    const { chatId } = simulator.addChat({
      type: "p2p",
      name: person.name,
      members: [person.openId],
    });
    const text = say("把 shop 2.2 发布出去", "Ship shop 2.2");
    const given = { service: "shop", version: "2.2", replicas: 3 };
    prompt(
      text,
      { calls: [{ name: "deploy", arguments: JSON.stringify(given) }] },
      { text: say("已经发布。", "It is deployed.") },
    );
    void simulator.sendMessage({ appId: app.appId, chatId, from: person.openId, text });
    return () => JSON.stringify(simulator.messages(chatId));
  }

  it("an approval to decide, and the overview that counts it", async () => {
    const shown = deploys();
    const row = page.getByRole("row", {
      name: say("发布服务 (deploy)", "Deploy a service (deploy)"),
    });
    await expect
      .poll(
        async () => {
          await open("/approvals");
          return await row.count();
        },
        { timeout: 60_000 },
      )
      .toBe(1);
    await open("/");
    expect(await textOf(page.locator("main"))).toMatch(
      new RegExp(`${say("等待中的审批", "Open approvals")} [1-9]`),
    );
    await picture("console-overview");
    await open("/approvals");
    await row.getByRole("button").click();
    await expect
      .poll(async () => await textOf(page.locator("main")), { timeout: 60_000 })
      .toContain(say("把 shop 2.2 发布到生产环境", "Deploy shop 2.2 to production"));
    await picture("console-approval");
    await page.getByRole("button", { name: say("批准", "Approve"), exact: true }).click();
    await expect.poll(shown, { timeout: 60_000 }).toContain(say("已经发布。", "It is deployed."));
  });

  it("the list of runs with its filters", async () => {
    await open("/runs?outcome=failed");
    const rows = page.locator("tbody tr");
    expect(await rows.count()).toBeGreaterThan(8);
    for (const text of await rows.allInnerTexts()) {
      expect(text).not.toContain(say("已回答", "Answered"));
    }
    await open("/runs");
    await picture("console-runs");
  });

  it("trends, runners, feedback, and why there was no answer", async () => {
    await open("/trends");
    expect(await page.locator("main svg").count()).toBeGreaterThanOrEqual(7);
    await picture("console-trends");
    await open("/runners");
    expect(await textOf(page.locator("main"))).toContain("export_orders");
    await picture("console-runners");
    await open("/feedback");
    expect(await textOf(page.locator("tbody").last())).toContain(say("差评", "Bad"));
    await picture("console-feedback");
    const [answered] = [...playground.simulator.chats.values()]
      .flatMap(({ chatId }) => playground.simulator.messages(chatId))
      .filter(({ text }) => /导出上周的订单/.test(text));
    await open(`/why?q=${answered?.messageId ?? ""}`);
    await page.locator("main svg, main table").first().waitFor();
    await picture("console-why");
  });

  it("a version of an agent, with what it changes", async () => {
    await open("/agents/default");
    await page
      .locator("#instructions")
      .fill(
        say(
          "你是订单团队的助手。\n回答要简短，数字要有来源。",
          "You are the assistant of the orders team.\nBe brief, and name your sources.",
        ),
      );
    await page.locator("[id='limits.maxIterations']").fill("12");
    await page.locator("form.change button").click();
    const diff = page.locator(".diff").first();
    await diff.waitFor();
    expect(await diff.textContent()).toContain(say("订单团队", "orders team"));
    await picture("console-version");
  });

  it("the page where operators sign in", async () => {
    await page.goto(`${guarded.url}/runs`);
    await page.locator("input[type=password]").waitFor();
    await picture("console-sign-in");
  });
});
