import { approvalCard, type ShownApproval } from "@larkline/feishu/cards";
import type { Approval, SettledState } from "@larkline/protocol/approval";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { startCardBot } from "./card-bot.fixture.ts";
import {
  app,
  launchBrowser,
  openTestPage,
  panel,
  say,
  startTestPlayground,
} from "./page-test.fixture.ts";

let browser: Browser;
const closing: (() => Promise<void>)[] = [];

beforeAll(async () => {
  browser = await launchBrowser(process.env.CHROMIUM_PATH ?? "/usr/bin/chromium");
});

afterAll(async () => {
  await browser?.close();
});

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

function approvalOf(kind: Approval["kind"]): Approval {
  return {
    v: 1,
    id: "0123456789abcdef0123456789abcdef",
    kind,
    session: "cli_x.oc_y",
    turnId: "cli_x.oc_y-1",
    callId: "c1",
    app: app.appId,
    chatId: "oc_y",
    requester: { id: "ou_1" },
    tool: "deploy",
    arguments: { to: "prod", note: "``` <b>x</b>" },
    argumentsHash: "",
    secrets: [],
    deciders: { requester: true, people: [], roles: [], fourEyes: false, count: 1 },
    reason: "",
    risk: "high",
    ...(kind === "question"
      ? { question: { text: "Deploy where?", choices: ["prod", "staging"] } }
      : {}),
    remember: { tool: "deploy", pattern: "prod" },
    language: "zh",
    target: { channel: "none" },
    createdAtMs: Date.now(),
    expiresAtMs: Date.now() + 3_600_000,
  };
}

interface Asked {
  page: Page;
  /** The `action` of every click. */
  clicks: Record<string, unknown>[];
  /** What was asked before a click counted. */
  asks: string[];
}

/** Alice has an approval card before her; a click on it is answered as the bot would, with this state. */
async function asked(kind: Approval["kind"], state: SettledState): Promise<Asked> {
  const playground = await startTestPlayground();
  closing.push(playground.close);
  const clicks: Asked["clicks"] = [];
  const shown: ShownApproval = { approval: approvalOf(kind), state: "pending", decisions: [] };
  const bot = await startCardBot({
    ...app,
    domain: playground.url,
    card: () => approvalCard(shown),
    onClick: async (action) => {
      clicks.push(action);
      if (JSON.stringify(action).includes('"ask":"reason"')) {
        return { card: { type: "raw", data: approvalCard(shown, { asksReason: true }) } };
      }
      const toast = {
        type: "success",
        content: "Taken",
        i18n: { zh_cn: "已收到", en_us: "Taken" },
      };
      return { toast, card: { type: "raw", data: approvalCard({ ...shown, state }) } };
    },
  });
  closing.push(bot.close);
  const { page, errors, close } = await openTestPage(browser, playground.url);
  closing.push(close, async () => expect(errors).toEqual([]));
  const asks: string[] = [];
  page.on("dialog", (dialog) => {
    asks.push(dialog.message());
    void dialog.accept();
  });
  await say(page, "Alice", "发布");
  await panel(page, "Alice")
    .locator(".feishu-card", { hasText: /deploy/i })
    .waitFor();
  return { page, clicks, asks };
}

const cardIn = (page: Page) => panel(page, "Alice").locator(".feishu-card");

/** Waits until the card has no buttons any more and the person has a notice. */
async function untilDecided(page: Page): Promise<void> {
  await page.locator(".toast-success", { hasText: "已收到" }).waitFor();
  await expect
    .poll(async () => await cardIn(page).locator("button").count(), { timeout: 60_000 })
    .toBe(0);
}

const id = approvalOf("call").id;

test.each([
  ["批准", { __approval__: id, decision: "approve" }, "approved"],
  ["拒绝", { __approval__: id, decision: "reject" }, "rejected"],
] as const)(
  "the button %s of an approval decides and retires the buttons",
  async (name, value, state) => {
    const { page, clicks } = await asked("call", state);
    expect(await cardIn(page).textContent()).toContain('"to": "prod"');
    await cardIn(page).getByRole("button", { name, exact: true }).click();
    await untilDecided(page);
    expect(clicks).toMatchObject([{ value }]);
  },
);

test("an approval can hold from now on, after a question whether that is meant", async () => {
  const { page, clicks, asks } = await asked("call", "approved");
  await cardIn(page).getByRole("button", { name: "始终允许…" }).click();
  await untilDecided(page);
  expect(asks).toEqual([expect.stringContaining("符合 deploy(prod) 的调用不再询问")]);
  expect(clicks).toMatchObject([
    { value: { __approval__: id, decision: "approve", remember: true } },
  ]);
});

test("a rejection takes the reason that was written into the form", async () => {
  const { page, clicks } = await asked("call", "rejected");
  await cardIn(page).getByRole("button", { name: "拒绝并说明理由…" }).click();
  await cardIn(page).locator("form input").fill("周五不发布");
  await cardIn(page).locator("form button").click();
  await untilDecided(page);
  expect(clicks).toMatchObject([
    { value: { __approval__: id, ask: "reason" } },
    { value: { __approval__: id, decision: "reject" }, form_value: { reason: "周五不发布" } },
  ]);
});

test("what became of a call is answered with a note", async () => {
  const { page, clicks } = await asked("outcome", "done");
  await cardIn(page).locator("form input").fill("工单 7");
  await cardIn(page).locator("form button").click();
  await untilDecided(page);
  expect(clicks).toMatchObject([
    {
      value: { larkline: "outcome", approval: id, action: "done" },
      form_value: { note: "工单 7" },
    },
  ]);
});

test("a question is answered by the button of a choice", async () => {
  const { page, clicks } = await asked("question", "answered");
  await cardIn(page).getByRole("button", { name: "staging", exact: true }).click();
  await untilDecided(page);
  expect(clicks).toMatchObject([
    { value: { larkline: "answer", approval: id, choice: "staging" } },
  ]);
});

test("a question takes the words that were written into its field", async () => {
  const { page, clicks } = await asked("question", "answered");
  await cardIn(page).locator("form input").fill("先不要发布");
  await cardIn(page).locator("form button").click();
  await untilDecided(page);
  expect(clicks).toMatchObject([
    { value: { larkline: "answer", approval: id }, form_value: { answer: "先不要发布" } },
  ]);
});
