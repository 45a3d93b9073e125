import type { InboundMessage } from "@larkline/protocol";
import { turnJobId, turnsQueue } from "@larkline/store/queues";
import { traceIdOf, traceparentOf } from "@larkline/protocol/trace";
import { DeadLetters, GrantStore } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { launchBrowser } from "../playground/page-test.fixture.ts";
import { accessibilityProblems } from "../system/accessibility.ts";
import { waitForAnswer } from "../system/answer.ts";
import { write } from "../system/answers.ts";
import { operators, startConsole, system, users } from "./console-deployment.ts";

let browser: Browser;

beforeAll(async () => {
  browser = await launchBrowser(process.env.CHROMIUM_PATH ?? "/usr/bin/chromium");
});

afterAll(async () => {
  await browser?.close();
});

/** Gives a message up, as workers do when its runs have crashed too often; the page of the dead letter. */
async function giveUp(session: string, messageId: string): Promise<string> {
  const redis = connectRedis(users.urlAs(system.redis.port, "agent-worker"));
  const message: InboundMessage = {
    v: 1,
    session,
    id: messageId,
    app: system.appId,
    sender: { id: "ou_ann" },
    chatType: "p2p",
    parts: [{ type: "text", text: "hello" }],
    createdAtMs: 1,
    reply: { channel: "none" },
  };
  const about = {
    id: `turn:${session}-1`,
    session,
    app: system.appId,
    messageId,
    reason: "its runs crashed",
    atMs: 1,
  };
  await new DeadLetters({ redis }).add({ v: 1, kind: "message", ...about, message });
  await closeRedis(redis);
  return `/dead-letters/${encodeURIComponent(session)}/${encodeURIComponent(about.id)}`;
}

/** The person has granted something, as workers keep it. */
async function letActAs(openId: string): Promise<void> {
  const redis = connectRedis(users.urlAs(system.redis.port, "agent-worker"));
  const store = new GrantStore({ redis, grantKeys: ["a".repeat(64)] });
  const owner = { app: system.appId, tenant: "t1", openId };
  const [nowMs, scopes] = [Date.now(), ["task:task:read", "calendar:calendar.event:create"]];
  const tokens = { accessToken: "u-1", refreshToken: "ur-1" };
  const ends = { accessEndsAtMs: nowMs + 7_200_000, refreshEndsAtMs: nowMs + 604_800_000 };
  const facts = { tokens, ...ends, grantedAtMs: nowMs, asked: scopes, granted: scopes };
  const after = (await store.read(owner))?.generation ?? 0;
  await store.write(owner, { ...facts, issuer: "https://open.example/token", unionId: "" }, after);
  await store.noteUse(owner, { tool: "find_documents", atMs: nowMs });
  await store.noteRefreshError(owner, "unknown 20050", nowMs);
  await closeRedis(redis);
}

/**
 * What axe-core finds in Bull Board, whose markup and colours are not ours: icons without names, a logo without a title,
 * headings that are missing or out of order, pale texts. Nothing else may come to it.
 */
const ofBullBoard = [
  "button-name",
  "color-contrast",
  "heading-order",
  "image-redundant-alt",
  "page-has-heading-one",
  "svg-img-alt",
];

it("axe finds nothing on the page where operators sign in", async () => {
  const guarded = await startConsole({ CONSOLE_PASSWORD: "a password that people do not guess" });
  const page = await browser.newPage({ viewport: { width: 390, height: 844 } });
  page.setDefaultTimeout(60_000); // a machine that is busy with other tests
  await page.goto(`${guarded.url}/runs`);
  expect(await page.locator("input[type=password]").count()).toBe(1);
  expect(await accessibilityProblems(page, "sign-in")).toEqual([]);
  await page.locator("#name").fill("Ann");
  await page.locator("#password").fill("a guess");
  await page.locator("main button").click();
  await page.getByRole("alert").waitFor();
  expect(await accessibilityProblems(page, "a wrong password")).toEqual([]);
  await page.close();
  await guarded.stop();
});

it.each([
  ["zh", "zh-CN"],
  ["en", "en-US"],
] as const)(
  "axe finds nothing on any page of the console (%s) but what is known of Bull Board, and nothing stands beyond the edge of a telephone",
  async (_language, locale) => {
    const ann = system.person("Ann");
    const { messageId, chatId } = await write(system, ann, 'call note_pure {"key":"k1"}');
    await waitForAnswer(system.feishu, messageId, { timeoutMs: 60_000 });
    const session = `${system.appId}.${chatId}`;
    const trace = traceIdOf(traceparentOf({ app: system.appId, id: messageId }));
    await vi.waitFor(
      async () =>
        expect(await (await fetch(`${operators.url}/runs?q=${trace}`)).text()).toContain("class"),
      {
        timeout: 60_000,
      },
    );
    const context = await browser.newContext({ locale, viewport: { width: 390, height: 844 } });
    const page = await context.newPage();
    page.setDefaultTimeout(60_000); // a machine that is busy with other tests
    const problems: string[] = [];
    const paths = [
      "/",
      "/runs",
      "/trends?span=hour",
      "/trends?span=month",
      "/approvals",
      "/rules",
      "/grants",
      "/budgets",
    ];
    paths.push(
      "/feedback",
      "/feishu",
      "/runners",
      "/dead-letters",
      "/sessions",
      `/sessions/${session}`,
    );
    paths.push("/agents", "/agents/default", "/models", "/errors");
    await letActAs(ann.openId);
    const letter = await giveUp(session, messageId);
    paths.push(
      letter,
      `${letter}/retry`,
      `/jobs/${turnsQueue}/${encodeURIComponent(turnJobId(session, 1))}`,
    );
    paths.push(`/sessions/${session}/reset`, `/why?q=${trace}`, "/why?q=unknown", "/no-such-page");
    for (const path of paths) {
      const answer = await page.goto(`${operators.url}${path}`);
      expect([path, answer?.status()]).toEqual([path, path === "/no-such-page" ? 404 : 200]);
      problems.push(...(await accessibilityProblems(page, path)));
    }
    for (const path of ["/queues", "/queues/queue/turns"]) {
      await page.goto(`${operators.url}${path}`);
      await page.locator("main").first().waitFor();
      const found = await accessibilityProblems(page, path);
      problems.push(
        ...found.filter((line) => !ofBullBoard.some((rule) => line.includes(`: ${rule} `))),
      );
    }
    await page.goto(`${operators.url}/feishu`);
    await page.locator("form[action='/feishu/check'] button").first().click();
    await page.locator("main details").nth(2).waitFor();
    problems.push(...(await accessibilityProblems(page, "a checked app")));
    const steps = page.locator("[id='limits.maxIterations']");
    await page.goto(`${operators.url}/agents/default`);
    await page.locator("#instructions").fill("Be brief.\nBe kind.");
    for (const [value, place] of [
      ["1000", "a wrong field"],
      ["3", "a preview"],
    ] as const) {
      await steps.fill(value);
      await page.locator("form.change button").click();
      await page
        .locator(value === "3" ? ".diff" : "[aria-invalid]")
        .first()
        .waitFor();
      problems.push(...(await accessibilityProblems(page, place)));
    }
    await context.close();
    expect(problems).toEqual([]);
  },
);
