import { toolJobId } from "@larkline/protocol";
import { createQueueCatalog, createToolWorker } from "@larkline/queue";
import { closeRedis, connectRedis, mastersOf } from "@larkline/session-redis";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, inject, it, vi } from "vitest";
import { launchBrowser, openPage, signInAs } from "./browser.fixture.ts";
import {
  callOf,
  openWorld,
  passwords,
  secretText,
  session,
  startTestConsole,
  type TestConsole,
  type World,
} from "./console.fixture.ts";
import { actionOf } from "./queue-board.ts";

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

async function visit(path: string, password: string): Promise<Page> {
  const { page, problems, close } = await openPage(browser, `${running.url}/sign-in`);
  closing.push(close, async () => expect(problems).toEqual([]));
  await signInAs(page, password);
  await page.goto(`${running.url}${path}`);
  return page;
}

const jobId = toolJobId(`${session}-1`, "c1");

/** A call that has failed for good, as one whose runner cannot reach Redis for long. */
async function failOne(): Promise<void> {
  const connection = connectRedis(inject("redisUrl"), { role: "worker" });
  const options = { connection, prefix: `{${world.namespace}}` };
  const catalog = createQueueCatalog({ ...options, masters: () => mastersOf(world.redis) });
  await catalog.open("tools-ops").add("deploy", callOf("c1"), { jobId, attempts: 1 });
  const { promise: failed, resolve } = Promise.withResolvers<void>();
  const worker = createToolWorker({
    ...options,
    runner: "ops",
    concurrency: 1,
    handle: async () => {
      throw new Error("no way");
    },
    onFailed: async () => resolve(),
  });
  await failed;
  await Promise.all([worker.close(), catalog.close()]);
  await closeRedis(connection);
}

it("shows all queues with their jobs, and what calls are about without what they were given", async () => {
  await world.turns.wake(session, 1);
  await world.tools.dispatch("ops", [callOf("c1")]);
  const page = await visit("/queues", passwords.operator);
  await page.getByText("turns").first().waitFor();
  await page.getByText("tools-ops").first().waitFor();
  await page.goto(`${running.url}/queues/queue/tools-ops/${jobId}`);
  await page.getByText("deploy").first().waitFor();
  await page.getByText("characters)").first().waitFor();
  const text = await page.content();
  expect(text).not.toContain(secretText);
  expect(text).not.toContain("signed");
  const link = page.locator(`a[href="/jobs/tools-ops/${jobId}"]`);
  expect(await link.count()).toBe(1);
});

it("follows runners that come without being started anew", async () => {
  const page = await visit("/queues", passwords.operator);
  await page.getByText("turns").first().waitFor();
  const tool = { spec: { name: "a", description: "", inputSchema: {} }, effect: "pure" as const };
  const announced = { ...tool, requiresApproval: false, timeoutMs: 1_000 };
  await world.directory.announce({ runner: "late", instance: "1", tools: [announced] }, 60_000);
  await page.getByText("tools-late").first().waitFor({ timeout: 15_000 });
});

it("keeps the queues of runners that went while something is left in them", async () => {
  await world.tools.dispatch("gone", [callOf("c1")]);
  const page = await visit("/queues", passwords.operator);
  await page.getByText("tools-gone").first().waitFor();
  const catalog = createQueueCatalog({
    connection: world.redis,
    prefix: `{${world.namespace}}`,
    masters: () => mastersOf(world.redis),
  });
  await catalog.open("tools-gone").drain();
  await catalog.close();
  await page.getByText("tools-gone").first().waitFor({ state: "detached", timeout: 15_000 });
});

it("an operator retries a failed job with a click, a viewer is not offered to", async () => {
  await failOne();
  const viewing = await visit(`/queues/queue/tools-ops/${jobId}`, passwords.viewer ?? "");
  await viewing.getByText("no way").first().waitFor();
  // The buttons of a job stand behind the link to its page; without them the tabs come next.
  const next = (page: Page) => page.locator(`a[href="/jobs/tools-ops/${jobId}"]`).locator("xpath=following::button[1]");
  expect(await next(viewing).innerText()).toBe("Error");
  const page = await visit(`/queues/queue/tools-ops/${jobId}`, passwords.operator);
  await page.getByText("no way").first().waitFor();
  await next(page).click();
  await page.getByRole("button", { name: "Confirm" }).click();
  await vi.waitFor(async () => {
    await viewing.goto(`${running.url}/jobs/tools-ops/${jobId}`);
    expect(await viewing.locator("dl").first().innerText()).toMatch(/State\s+waiting/);
  }, 10_000);
});

it("only what the console offers is an action", () => {
  expect(actionOf("PUT", `/queues/api/queues/tools-ops/${jobId}/retry`)).toBe("retry");
  expect(actionOf("PUT", "/queues/api/queues/tools-ops/retry/failed")).toBe("retry");
  expect(actionOf("PUT", "/queues/api/queues/pause")).toBe("pause");
  expect(actionOf("PUT", "/queues/api/queues/tools-ops/obliterate")).toBeUndefined();
  expect(actionOf("PUT", "/queues/api/queues/tools-ops/job-schedulers/retry/run")).toBeUndefined();
  expect(actionOf("PUT", "/queues/api/queues/obliterate")).toBeUndefined();
  expect(actionOf("PATCH", `/queues/api/queues/tools-ops/${jobId}/retry`)).toBeUndefined();
});
