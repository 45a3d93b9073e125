import { noteBeat } from "@larkline/store/testing";
import { toolJobId } from "@larkline/protocol/runner";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { launchBrowser, openPage, signInAs, untilShown } from "./browser.fixture.ts";
import {
  answerOne,
  appId,
  auditOf,
  callOf,
  messageOf,
  openWorld,
  passwords,
  questionOf,
  secretText,
  session,
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

const ruleId = "f".repeat(32);

async function leaveRule(): Promise<void> {
  const nowMs = Date.now();
  await world.rules.add({
    v: 1,
    id: ruleId,
    app: appId,
    chatId: "oc_chat",
    tool: "deploy",
    pattern: "staging *",
    author: { id: "ou_boss", name: "Bo" },
    createdAtMs: nowMs,
    expiresAtMs: nowMs + 3_600_000,
  });
}

async function announceRunner(): Promise<void> {
  const spec = { name: "deploy", description: "Deploys.", inputSchema: { type: "object" } };
  const limits = { rate: { calls: 3, perMs: 60_000 } };
  const tool = { spec, effect: "once" as const, requiresApproval: true, timeoutMs: 30_000, limits };
  await world.directory.announce({ runner: "ops", instance: "ops-1", tools: [tool] }, 600_000);
}

/** A page after a sign-in; whatever goes wrong in it fails the test. */
async function visit(
  password: string | undefined,
  { path = "/", locale = "en-US" } = {},
): Promise<Page> {
  const { page, problems, close } = await openPage(browser, `${running.url}${path}`, locale);
  closing.push(close, async () => expect(problems).toEqual([]));
  await signInAs(page, password ?? "");
  return page;
}

const bodyOf = async (page: Page): Promise<string> => await page.locator("body").innerText();

it("an operator signs in and sees at a glance what waits and who is there", async () => {
  await announceRunner();
  await noteBeat(world, "worker-1", 600_000);
  await world.approvals.add(questionOf("1".repeat(32)));
  await world.turns.wake(session, 1);
  await world.tools.dispatch("ops", [callOf("c1"), callOf("c2")]);
  const page = await visit(passwords.operator);
  const row = (name: string) => page.getByRole("row", { name: new RegExp(`^${name} `) });
  expect(await row("turns").innerText()).toMatch(
    /turns\s+1\s+0\s+0\s+0\s+\d+ seconds? ago|turns\s+1\s+0\s+0\s+0\s+now|in 0/,
  );
  expect(await row("tools-ops").innerText()).toMatch(/tools-ops\s+2\s/);
  expect(await row("tools-ops.deploy").innerText()).toMatch(/tools-ops\.deploy\s+0\s/);
  expect(await page.locator("dl").first().innerText()).toMatch(
    /Workers alive\s+1\s+Runners\s+ops\s+Open approvals\s+1/,
  );
  await page.getByRole("link", { name: "Runners" }).click();
  await expect
    .poll(async () => await bodyOf(page))
    .toMatch(/ops-1\s+takes calls\s+in \d+ (?:seconds|minutes)/);
  expect(await bodyOf(page)).toMatch(/deploy\s+once\s+medium\s+yes\s+30 s\s+3 \/ 60 s/);
});

it("a wrong password is said so, where a screen reader reads it", async () => {
  const { page, close } = await openPage(browser, running.url);
  closing.push(close);
  await page.getByLabel("Your name").fill("Ann");
  await page.getByLabel("Password").fill("no");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText("That is not the password.").waitFor();
});

it("speaks the language of the browser, and the other one from then on when asked to", async () => {
  const page = await visit(passwords.viewer, { locale: "zh-CN", path: "/rules" });
  await page.getByRole("heading", { name: "权限规则" }).waitFor();
  await page.getByRole("link", { name: "English" }).click();
  await page.getByRole("heading", { name: "Permission rules" }).waitFor();
  await page.getByRole("link", { name: "Overview" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  expect(await page.locator("html").getAttribute("lang")).toBe("en");
});

it("shows who is asked what, without what it is about", async () => {
  await world.approvals.add(questionOf("1".repeat(32)));
  await world.approvals.add(
    questionOf("2".repeat(32), {
      session: `${appId}.oc_other.omt_0123abcdef`,
      tool: "erase",
      words: { title: "Erase a disk" },
    }),
  );
  const helper = `${appId}.oc_other~0123456789abcdef0123`;
  await world.approvals.add(questionOf("3".repeat(32), { session: helper, tool: "burn" }));
  const page = await visit(passwords.viewer, { path: "/approvals" });
  expect(await page.getByRole("link", { name: "oc_other …ef0123" }).count()).toBe(1);
  expect(await page.getByRole("row", { name: /^deploy/ }).innerText()).toMatch(
    /high\s+Ann\s+ou_boss\s+0 \/ 1/,
  );
  expect(await page.getByRole("row", { name: /^Erase a disk \(erase\)/ }).count()).toBe(1);
  expect(await page.getByRole("link", { name: "oc_other …abcdef" }).count()).toBe(1);
  expect(await page.content()).not.toContain(secretText);
  await world.approvals.decide(session, "1".repeat(32), {
    decision: "reject",
    by: { id: "ou_boss" },
  });
  await page.reload();
  expect(await page.getByRole("row", { name: /^deploy/ }).count()).toBe(0);
});

it("an operator takes a rule back", async () => {
  await leaveRule();
  const page = await visit(passwords.operator, { path: "/rules" });
  await page
    .getByRole("row", { name: /^deploy\(staging \*\)/ })
    .getByRole("button", { name: "Revoke" })
    .click();
  await untilShown(page.getByRole("status").getByText("The rule is revoked."));
  expect(world.ordered).toEqual([
    { v: 1, by: "console:Ann", act: { do: "revoke_rule", app: appId, ruleId } },
  ]);
});

it("a viewer is offered nothing that changes something", async () => {
  await leaveRule();
  await answerOne(world);
  await world.tools.dispatch("ops", [callOf("c1")]);
  const page = await visit(passwords.viewer, { path: "/rules" });
  for (const path of [
    "/rules",
    `/sessions/${session}`,
    `/jobs/tools-ops/${toolJobId(`${session}-1`, "c1")}`,
  ]) {
    await page.goto(`${running.url}${path}`);
    expect(await page.locator("button").allInnerTexts()).toEqual(["Sign out"]);
    expect(await page.content()).not.toContain(secretText);
  }
});

it("the history of a session is shown to an operator who asks for it, after that is noted", async () => {
  await answerOne(world);
  const page = await visit(passwords.operator);
  await page.getByLabel("Session key").fill(session);
  await page.getByRole("button", { name: "Open" }).click();
  await untilShown(page.getByRole("heading", { name: `Session ${session}` }));
  expect(await page.locator("dl").innerText()).toMatch(/State\s+idle/);
  expect(await page.getByRole("row", { name: /^1 user/ }).innerText()).toContain(
    `text, ${secretText.length} characters, hidden`,
  );
  expect(await page.content()).not.toContain(secretText);
  expect(await auditOf(world, "content_shown")).toEqual([]);
  await page.getByRole("button", { name: "Show content" }).click();
  await untilShown(page.getByRole("status").getByText("Content is shown"));
  expect(await page.locator("pre").allInnerTexts()).toEqual([secretText, "<b>Noted</b>"]);
  expect(await auditOf(world, "content_shown")).toMatchObject([{ session, userId: "console:Ann" }]);
  await page.goto(`${running.url}/sessions/${session}`);
  expect(await page.content()).not.toContain(secretText);
});

it("what a call was given is shown to an operator who asks for it, after that is noted", async () => {
  await answerOne(world);
  await world.tools.dispatch("ops", [callOf("c1")]);
  const page = await visit(passwords.operator, {
    path: `/jobs/tools-ops/${toolJobId(`${session}-1`, "c1")}`,
  });
  expect(await bodyOf(page)).toMatch(/Tool\s+deploy/);
  expect(await page.content()).not.toContain(secretText);
  await page.getByRole("button", { name: "Show content" }).click();
  await untilShown(page.getByRole("status"));
  expect(JSON.parse(await page.locator("pre").innerText())).toEqual({ note: secretText });
  expect(await page.content()).not.toContain("signed");
  expect(await auditOf(world, "content_shown")).toMatchObject([
    {
      session,
      turnId: `${session}-1`,
      callId: "c1",
      tool: "deploy",
      app: appId,
      userId: "console:Ann",
    },
  ]);
  await page.getByRole("link", { name: session, exact: true }).click();
  await page.getByRole("heading", { name: `Session ${session}` }).waitFor();
});

it("AT-25: notes of a chat are counted, and not shown", async () => {
  await world.store.append(messageOf("om_1"));
  const chat = { kind: "chat", app: appId, id: "oc_chat" } as const;
  await world.memories.remember(chat, { call: "a", text: secretText, by: "ou_ann" });
  await world.memories.remember(chat, { call: "b", text: "meets on Mondays", by: "ou_ann" });
  const page = await visit(passwords.operator, { path: `/sessions/${session}` });
  expect(await page.locator("dl").innerText()).toMatch(/Notes kept of this chat\s+2/);
  expect(await page.content()).not.toMatch(/Mondays/);
});

it("an operator stops a turn", async () => {
  const { wakeGen = 0 } = await world.store.append(messageOf("om_1"));
  const claim = await world.store.claim(session, wakeGen, "worker");
  const page = await visit(passwords.operator, { path: `/sessions/${session}` });
  expect(await page.locator("dl").innerText()).toMatch(
    new RegExp(`State\\s+running[^]*Epoch\\s+${claim?.epoch}\\s`),
  );
  expect(await page.locator("dl").innerText()).toMatch(/Messages in the inbox\s+1/);
  await page.getByRole("button", { name: "Stop the running turn" }).click();
  await page.getByRole("status").getByText("asked to stop").waitFor();
  expect(world.ordered).toEqual([
    { v: 1, by: "console:Ann", act: { do: "cancel", session, seq: 1 } },
  ]);
});
