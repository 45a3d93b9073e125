import type { Browser, Page } from "playwright-core";
import type { Schedule } from "@larkline/protocol/schedule";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { launchBrowser, openPage, signInAs, untilShown } from "./browser.fixture.ts";
import {
  appId,
  openWorld,
  passwords,
  secretText,
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

const id = "00000000000000aa";

async function addOne(): Promise<void> {
  const schedule: Schedule = {
    id,
    app: appId,
    owner: { id: "ou_boss", name: "Bo" },
    chatId: "oc_chat",
    chatType: "group",
    title: "Report",
    task: secretText,
    timing: { kind: "cron", cron: "0 9 * * 1" },
    zone: "Asia/Shanghai",
    missed: "late",
    language: "en",
    createdAtMs: Date.now(),
  };
  const dueMs = Date.now() + 3_600_000;
  await world.schedules.add(schedule, { dueMs, alarmMs: dueMs });
  const lines = [
    { dueMs: dueMs - 20_000_000, untilMs: dueMs - 10_000_000, count: 4, state: "skipped" },
    { dueMs: dueMs - 7_200_000, count: 1, state: "late" },
  ] as const;
  await world.schedules.settle(
    { schedule, dueMs, generation: 1 },
    { dueMs, alarmMs: dueMs },
    lines.map((line) => ({ ...line, atMs: dueMs })),
  );
}

async function visit(password = "", locale?: string): Promise<Page> {
  const { page, close } = await openPage(browser, `${running.url}/schedules`, locale);
  closing.push(close);
  await signInAs(page, password);
  return page;
}

it("schedules are listed with owner, next time and the last ones, and never with their task", async () => {
  await addOne();
  const page = await visit(passwords.viewer);
  const row = page.getByRole("row", { name: /^Report/ });
  const text = await row.innerText();
  expect(text).toMatch(/Bo[^]*cron 0 9 \* \* 1 \(Asia\/Shanghai\)[^]*in 1 hour/);
  expect(text).toMatch(/run late[^]*skipped by its policy × 4/);
  expect(await row.locator("button").count()).toBe(0);
  await page.getByRole("link", { name: "Report" }).click();
  await untilShown(page.getByRole("heading", { name: "Report" }));
  expect(await page.locator("dl").innerText()).toMatch(/Missed times\s+the last one runs/);
  expect(await page.content()).not.toContain(secretText);
  const chinese = await visit(passwords.viewer, "zh-CN");
  expect(await chinese.getByRole("row", { name: /^Report/ }).innerText()).toContain(
    "按策略跳过 × 4",
  );
});

it("an operator pauses and deletes one by orders to a worker", async () => {
  await addOne();
  const page = await visit(passwords.operator);
  const click = async (name: string, says: string) => {
    await page
      .getByRole("row", { name: /^Report/ })
      .getByRole("button", { name })
      .click();
    await untilShown(page.getByRole("status").getByText(says));
  };
  await click("Pause", "The schedule is paused.");
  await click("Delete", "The schedule is deleted.");
  const by = "console:Ann";
  expect(world.ordered).toEqual([
    { v: 1, by, act: { do: "pause_schedule", schedule: id } },
    { v: 1, by, act: { do: "delete_schedule", schedule: id } },
  ]);
});
