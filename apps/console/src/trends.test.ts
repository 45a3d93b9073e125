import { UsageCounter } from "@larkline/store/operations";
import { runOf, noteBeat } from "@larkline/store/testing";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { launchBrowser, openPage, signInAs, untilShown } from "./browser.fixture.ts";
import {
  openWorld,
  passwords,
  startTestConsole,
  type TestConsole,
  type World,
} from "./console.fixture.ts";

let browser: Browser;
let world: World;
let running: TestConsole;
const closing: (() => Promise<void>)[] = [];

beforeAll(async () => {
  browser = await launchBrowser(process.env.CHROMIUM_PATH ?? "/usr/bin/chromium");
});
afterAll(async () => {
  await browser?.close();
});
beforeEach(async () => {
  world = openWorld();
  running = await startTestConsole(world);
});
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
  await running.close();
  await world.close();
});

async function visit(path: string, locale = "en-US"): Promise<Page> {
  const { page, problems, close } = await openPage(browser, `${running.url}${path}`, locale);
  closing.push(close, async () => expect(problems).toEqual([]));
  await signInAs(page, passwords.viewer ?? "");
  return page;
}

/** Ten runs that have ended now, so that no hour begins between them: two have failed, half were asked by each of two people. */
async function recordRuns(nowMs = Date.now()): Promise<void> {
  const counter = new UsageCounter("Asia/Shanghai");
  for (let at = 0; at < 10; at += 1) {
    counter.countRun(
      runOf({
        turn: `cli_1.oc_1-${at}`,
        person: at % 2 === 0 ? "ou_ann" : "ou_bob",
        outcome: at < 2 ? "timeout" : "answered",
        endedAtMs: nowMs,
        firstMs: 1_000,
        ms: 4_000,
        tools: { search: 2 },
        ...(at === 0 ? { failedTools: { search: 1 } } : {}),
      }),
    );
  }
  counter.countWait(500, nowMs);
  await world.usage.add("recorded", counter.take());
}

const figuresIn = async (page: Page): Promise<string> =>
  (await page.locator("dl.figures").innerText()).replaceAll(/\s+/g, " ");

async function rowIn(page: Page, name: string): Promise<string> {
  return (await page.getByRole("row", { name: new RegExp(`^${name} `) }).innerText()).replaceAll(
    /\s+/g,
    " ",
  );
}

it("names the time zone under each chart", async () => {
  const page = await visit("/trends");
  const zones = await page.locator("figure.chart .zone").allInnerTexts();
  expect(zones).toEqual(Array.from({ length: 7 }, () => "Asia/Shanghai"));
});

it.each(["hour", "day", "month"])(
  "shows what runs of the last %s come to, and who and what has used it",
  async (span) => {
    await recordRuns();
    await world.names.keep(new Map([["ou_ann", "Ann Lee"]]), Date.now());
    const page = await visit(`/trends?span=${span}`);
    // Durations are counted in bins that are a fifth wide.
    expect(await figuresIn(page)).toMatch(
      /^Runs 10 Failed 2 \(20 %\) First text p50 \/ p95 \S+ (?:ms|s) \/ \S+ (?:ms|s) Took p50 \/ p95 3\.\d s \/ [34]\.\d s Tokens 1,200 Money \$0\.0100$/,
    );
    for (const name of ["scripted/model", "default"]) {
      const figures =
        /^\S+ 10 2 \(20 %\) (?:\d+ ms|1\.\d s) \/ (?:\d+ ms|1\.\d s) 3\.\d s \/ [34]\.\d s 1,200 \$0\.0100$/;
      expect(await rowIn(page, name)).toMatch(figures);
    }
    expect(await rowIn(page, "search")).toBe("search 20 1 (5.0 %) 1,200 $0.0100");
    expect(await rowIn(page, "Ann Lee")).toBe("Ann Lee 5 600 $0.0050");
    const charts = await page
      .getByRole("img")
      .evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
    expect(charts).toEqual([
      "Runs",
      "First text",
      "Took",
      "Time in the queue",
      "Waits for the platform's limits",
      "Tokens",
      "Money",
    ]);
    await page.locator("summary").click();
    await page
      .locator("details tbody tr")
      .filter({ hasText: "$0.0" })
      .first()
      .getByRole("link")
      .click();
    await page.getByText("Only the time that was chosen").waitFor();
  },
);

it.each([
  ["By model", ["other/large", "scripted/model"], ["other/large 1,800", "scripted/model 1,200"]],
  ["By agent", ["default"], ["default 3,000"]],
  ["By tool", ["search"], ["search 1,200"]],
  ["By person", ["Ann Lee", "ou_bob"], ["Ann Lee 2,400, ou_bob 600"]],
])("draws tokens and money %s, for as long as that is chosen", async (choice, legend, figures) => {
  const nowMs = Date.now();
  await recordRuns(nowMs);
  const counter = new UsageCounter("Asia/Shanghai");
  counter.countRun(
    runOf({
      endedAtMs: nowMs,
      person: "ou_ann",
      model: "other/large",
      input: 1_000,
      output: 800,
      usd: 0.5,
    }),
  );
  await world.usage.add("large", counter.take());
  await world.names.keep(new Map([["ou_ann", "Ann Lee"]]), Date.now());
  const page = await visit("/trends?span=day");
  await page.getByRole("link", { name: choice }).click();
  await untilShown(page.locator(".switch [aria-current]").filter({ hasText: choice }));
  for (const name of ["Tokens", "Money"]) {
    const chart = page
      .getByRole("figure")
      .filter({ has: page.getByRole("img", { name: `${name} · ${choice}` }) });
    const shown = await chart.locator(".legend > span").allInnerTexts();
    if (legend.length > 1) expect(shown).toEqual(legend);
  }
  const tokens = page.getByRole("img", { name: `Tokens · ${choice}` });
  const said = (await tokens.locator("title").allTextContents()).join(" ");
  for (const figure of figures) expect(said).toContain(figure);
  expect(await page.getByText("counts with each").count()).toBe(1);
  await page.getByRole("link", { name: "Last hour" }).click();
  await page.getByRole("img", { name: `Money · ${choice}` }).waitFor();
});

it("asks again by itself, until a click stops it", async () => {
  const page = await visit("/trends");
  const reload = async () => (await page.reload())?.headers()["refresh"];
  expect(await reload()).toBe("30");
  await page.getByRole("link", { name: "Stop" }).click();
  await page.getByRole("link", { name: "Refresh by itself" }).waitFor();
  expect(await reload()).toBeUndefined();
});

/** In the page: how much wider it is than its window. */
const beyondTheEdge = "document.documentElement.scrollWidth - document.documentElement.clientWidth";

/** In the page: how much of each list of links is cut off. */
const cutLists =
  '[...document.querySelectorAll("nav ul, .switch")].map((list) => list.scrollWidth - list.clientWidth)';

it("says in Chinese that nothing has run, without anything beyond the edge of a phone", async () => {
  const page = await visit("/trends", "zh-CN");
  await page.setViewportSize({ width: 390, height: 800 });
  await untilShown(page.getByRole("heading", { name: "趋势" }));
  expect(await page.getByText("这段时间没有数据。").count()).toBe(7);
  for (const path of ["/", "/runs", "/trends", "/runners"]) {
    await page.goto(`${running.url}${path}`);
    const beyond = await page.evaluate<number>(beyondTheEdge);
    expect([path, beyond]).toEqual([path, 0]);
    const cut = await page.evaluate<number[]>(cutLists);
    expect([path, cut]).toEqual([path, cut.map(() => 0)]);
  }
});

it("begins the overview with what is wrong now", async () => {
  const page = await visit("/");
  expect(
    await page.getByRole("listitem").filter({ hasText: "No agent-worker is alive" }).count(),
  ).toBe(1);
  await noteBeat(world, "worker-1", 600_000);
  await page.reload();
  await page.getByRole("status").getByText("Nothing is wrong").waitFor();
  for (let at = 0; at < 2; at += 1) await recordRuns();
  const counter = new UsageCounter("Asia/Shanghai");
  counter.countRun(runOf({ outcome: "timeout", endedAtMs: Date.now() }));
  counter.countRun(runOf({ outcome: "agent_paused", endedAtMs: Date.now() })); // operators know of it
  await world.usage.add("more", counter.take());
  await world.runs.append([runOf({ endedAtMs: Date.now() })]);
  await page.reload();
  await page
    .getByRole("listitem")
    .filter({ hasText: "3 / 12 runs of the last hour have failed" })
    .waitFor();
  expect(await figuresIn(page)).toMatch(/^Runs 12 Failed 3/);
  await page.getByRole("link", { name: "3 / 12" }).click();
  await page.waitForURL(/outcome=failed/);
});
