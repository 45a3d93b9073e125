import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from "vitest";
import { launchBrowser, openPage, signInAs } from "./browser.fixture.ts";
import {
  auditOf,
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
  const run = { app: "cli_1", agent: "default", model: "scripted/small", tools: ["search"] };
  const expert = { ...run, agent: "expert", model: "scripted/large", tools: [] };
  const ttlMs = 90 * 86_400_000;
  await world.ratings.rate(
    { ...run, turn: "cli_1.oc_1-1", person: "ou_ann" },
    { rating: "up" },
    ttlMs,
  );
  await world.ratings.rate(
    { ...run, turn: "cli_1.oc_1-2", person: "ou_ann" },
    { rating: "up" },
    ttlMs,
  );
  await untilLater();
  const bob = { ...run, turn: "cli_1.oc_1-1", person: "ou_bob" };
  await world.ratings.rate(bob, { rating: "down", reason: "it <b>forgot</b> me" }, ttlMs);
  await untilLater();
  await world.ratings.rate(
    { ...expert, turn: "cli_1.oc_2-1", person: "ou_bob" },
    { reason: "slow" },
    ttlMs,
  );
  await world.names.keep(new Map([["ou_ann", "Ann"]]), Date.now());
});
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
  await running.close();
  await world.close();
});

/** Ratings of one millisecond are in no order. */
async function untilLater(): Promise<void> {
  const nowMs = Date.now();
  await vi.waitFor(() => expect(Date.now()).toBeGreaterThan(nowMs), {
    timeout: 60_000,
    interval: 1,
  });
}

async function visit(
  path: string,
  { locale = "en-US", role = "viewer" as "viewer" | "operator" } = {},
): Promise<Page> {
  const { page, problems, close } = await openPage(browser, `${running.url}${path}`, locale);
  closing.push(close, async () => expect(problems).toEqual([]));
  await signInAs(page, passwords[role] ?? "");
  return page;
}

async function rowsOf(page: Page, caption: string): Promise<string[]> {
  const rows = await page
    .getByRole("region", { name: caption, exact: true })
    .locator("tbody tr")
    .allInnerTexts();
  return rows.map((row) => row.replaceAll(/\s+/g, " "));
}

it("counts ratings by agent, model and tool, and lists them, the newest first, without reasons", async () => {
  const page = await visit("/feedback");
  expect(await rowsOf(page, "Agent")).toEqual(["default 2 1 67 %", "expert 0 0 –"]);
  expect(await rowsOf(page, "Model")).toEqual(["scripted/small 2 1 67 %", "scripted/large 0 0 –"]);
  expect(await rowsOf(page, "Tool")).toEqual(["search 2 1 67 %"]);
  expect(
    (await rowsOf(page, "Feedback")).map((row) => row.replace(/^.*?(?=Reason only|Good|Bad)/, "")),
  ).toEqual([
    "Reason only ou_bob expert scripted/large – given, not shown",
    "Bad ou_bob default scripted/small search given, not shown",
    "Good Ann default scripted/small search –",
    "Good Ann default scripted/small search –",
  ]);
  expect(await page.getByRole("button", { name: "Show reasons" }).count()).toBe(0);
  await page.getByRole("link", { name: "expert" }).click();
  await expect.poll(async () => await rowsOf(page, "Feedback")).toHaveLength(1);
});

it("shows operators the reasons, with a record of that in the audit log first", async () => {
  const page = await visit("/feedback?rating=down", { role: "operator" });
  await page.getByRole("button", { name: "Show reasons" }).click();
  await expect
    .poll(async () => await rowsOf(page, "Feedback"))
    .toEqual([expect.stringContaining("it <b>forgot</b> me")]);
  expect(await auditOf(world, "content_shown")).toMatchObject([{ userId: "console:Ann" }]);
});

it.each([
  ["rating=up", 2],
  ["agent=expert", 1],
  ["model=small", 3],
  ["tool=search&person=ou_bob", 1],
  ["span=day", 4],
])("shows in Chinese, too, what is asked for with %s", async (query, count) => {
  const page = await visit(`/feedback?${query}`, { locale: "zh-CN" });
  expect(await rowsOf(page, "反馈")).toHaveLength(count);
});

it("says where there is none", async () => {
  const page = await visit("/feedback?agent=default&rating=none");
  await page.getByRole("status").getByText("No rating fits.").waitFor();
});
