import { toolJobId } from "@larkline/protocol/runner";
import {
  createQueueCatalog,
  createToolWorker,
  createTurnWorker,
  turnJobId,
} from "@larkline/store/queues";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { scrubText } from "@larkline/process/telemetry";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, inject, it, vi } from "vitest";
import { launchBrowser, openPage, signInAs } from "./browser.fixture.ts";
import {
  callOf,
  openWorld,
  passwords,
  secretText,
  session,
  signIn,
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

const quickly = { redact: scrubText, concurrency: 1 };

/** Runs one call and one wake-up to their end, and lets another of each fail for good. */
async function work(): Promise<void> {
  const connection = connectRedis(inject("redisUrl"), { role: "worker" });
  const options = { connection, prefix: `{${world.namespace}}` };
  const failing = async (): Promise<never> => {
    throw new Error(`no way with sk-0123456789abcdef to read "${secretText}"`);
  };
  const workers = [
    createToolWorker({
      ...options,
      ...quickly,
      runner: "ops",
      handle: async ({ callId }) => (callId === "c1" ? await failing() : "done"),
      onFailed: async () => {},
    }),
    createTurnWorker({
      ...options,
      ...quickly,
      handle: async ({ gen }) => (gen === 1 ? await failing() : "done"),
      onFailed: async () => {},
    }),
  ];
  await world.tools.dispatch("ops", [callOf("c1"), callOf("c2")]);
  await Promise.all([1, 2].map(async (gen) => await world.turns.wake(session, gen)));
  const catalog = createQueueCatalog(options);
  for (const name of ["tools-ops", "turns"]) {
    const queue = catalog.open(name);
    await vi.waitFor(
      async () => {
        await queue.promoteJobs(); // the pauses between tries add up to six seconds
        expect([await queue.getCompletedCount(), await queue.getFailedCount()]).toEqual([1, 1]);
      },
      { timeout: 60_000, interval: 50 },
    );
  }
  await Promise.all([...workers.map(async (worker) => await worker.close()), catalog.close()]);
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
  await page.getByText("tools-late").first().waitFor({ timeout: 60_000 });
});

it("keeps the queues of runners that went while something is left in them", async () => {
  await world.tools.dispatch("gone", [callOf("c1")]);
  const page = await visit("/queues", passwords.operator);
  await page.getByText("tools-gone").first().waitFor();
  const catalog = createQueueCatalog({
    connection: world.redis,
    prefix: `{${world.namespace}}`,
  });
  await catalog.open("tools-gone").drain();
  await catalog.close();
  await page.getByText("tools-gone").first().waitFor({ state: "detached", timeout: 60_000 });
});

it("shows what has finished by its ids, and where a failed job failed, without a word of what was said", async () => {
  await work();
  const page = await visit("/queues/queue/tools-ops?status=completed", passwords.operator);
  const done = toolJobId(`${session}-1`, "c2");
  await page.locator(`a[href*="${done}"]`).first().waitFor();
  const completed = await page.content();
  await page.goto(`${running.url}/queues/queue/tools-ops/${done}`);
  await page.getByText("not kept").first().waitFor();
  const finished = await page.content();
  expect(finished).toContain(`${session}-1`);
  await page.goto(`${running.url}/queues/queue/tools-ops/${jobId}`);
  await page
    .getByText(/at .*queue-board\.test\.ts/)
    .first()
    .waitFor();
  const failed = await page.content();
  expect(failed).toContain("no way with [secret]");
  await page.goto(`${running.url}/queues/queue/turns?status=failed`);
  await page.getByText(`${session}-1`).first().waitFor();
  const wakeUps = await page.content();
  await page.goto(`${running.url}/jobs/tools-ops/${done}`);
  await page.getByText("not kept").first().waitFor();
  const ours = await page.content();
  for (const shown of [completed, finished, failed, wakeUps, ours]) {
    for (const text of [secretText, "sk-0123", "signed", "ou_ann"]) {
      expect(shown).not.toContain(text);
    }
  }
});

it("an operator retries a failed wake-up with a click, a viewer is not offered to, and no call is run again", async () => {
  await work();
  const woken = turnJobId(session, 1);
  const viewing = await visit(`/queues/queue/turns/${woken}`, passwords.viewer ?? "");
  await viewing.getByText("no way").first().waitFor();
  // The buttons of a job stand behind the link to its page; without them the tabs come next.
  const next = (page: Page, queue: string, id: string) =>
    page.locator(`a[href="/jobs/${queue}/${id}"]`).locator("xpath=following::button[1]");
  expect(await next(viewing, "turns", woken).innerText()).toBe("Error");
  const page = await visit(`/queues/queue/tools-ops/${jobId}`, passwords.operator);
  await page.getByText("no way").first().waitFor();
  const operator = await signIn(running, passwords.operator);
  const refused = await operator.put(`/queues/api/queues/tools-ops/${jobId}/retry`);
  expect([refused.status, await refused.text()]).toEqual([
    403,
    expect.stringContaining("not run again"),
  ]);
  expect((await operator.put("/queues/api/queues/tools-ops/retry/failed")).status).toBe(403);
  expect(await (await operator.get("/dead-letters")).text()).toContain(jobId);
  await page.goto(`${running.url}/queues/queue/turns/${woken}`);
  await page.getByText("no way").first().waitFor();
  await next(page, "turns", woken).click();
  await page.getByRole("button", { name: "Confirm" }).click();
  await vi.waitFor(
    async () => {
      await viewing.goto(`${running.url}/jobs/turns/${woken}`);
      expect(await viewing.locator("dl").first().innerText()).toMatch(/State\s+waiting/);
    },
    { timeout: 60_000 },
  );
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
