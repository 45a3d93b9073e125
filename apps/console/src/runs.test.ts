import { UsageCounter } from "@larkline/store/operations";
import { runOf } from "@larkline/store/testing";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { launchBrowser, openPage, signInAs } from "./browser.fixture.ts";
import {
  answerOne,
  auditOf,
  openWorld,
  passwords,
  session,
  signIn,
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

/** The rows of the list, as people read them. */
async function rowsOf(page: Page): Promise<string[]> {
  const rows = await page.locator("tbody tr").allInnerTexts();
  return rows.map((row) => row.replaceAll(/\s+/g, " "));
}

/** The chats in the list of a page, without a browser. */
function chatsIn(html: string): string[] {
  const [, rows = ""] = /<tbody>([^]*?)<\/tbody>/.exec(html) ?? [];
  return [...rows.matchAll(/<td><a href="\/runs\?chat=[^"]*">([^<]*)<\/a><\/td>/g)].map(
    ([, chat = ""]) => chat,
  );
}

const nowMs = Date.now();
const ann = runOf({
  turn: "cli_1.oc_team-1",
  trace: "a".repeat(32),
  message: "om_1",
  person: "ou_ann",
  endedAtMs: nowMs - 2 * 3_600_000,
  tools: { search: 2, page: 1 },
  failedTools: { page: 1 },
  firstMs: 800,
});
const bob = runOf({
  turn: "cli_1.oc_bob-7",
  trace: "b".repeat(32),
  message: "om_2",
  person: "ou_bob",
  agent: "expert",
  model: "other/large",
  outcome: "api_overloaded",
  problem: "Overloaded, request 7",
  endedAtMs: nowMs - 60_000,
  ms: 45_000,
  usd: 0.25,
});

it("lists the runs, the newest first, each with what it took, and leads to what is known of it", async () => {
  await world.runs.append([ann, bob]);
  const page = await visit("/runs");
  // A machine that is busy with other tests takes minutes for this one.
  expect(
    (await rowsOf(page)).map((row) => row.replace(/^\d+ minutes? ago/, "Minutes ago")),
  ).toEqual([
    "Minutes ago The model is overloaded Overloaded, request 7 ou_bob oc_bob expert other/large – – 45.0 s 100 / 20 $0.25",
    "2 hours ago Answered ou_ann oc_team default scripted/model search ×2, page 800 ms 1.2 s 100 / 20 $0.0010",
  ]);
  await page.getByRole("link", { name: /\d+ minutes? ago/ }).click();
  await page.getByRole("heading", { name: "Why no answer?" }).waitFor();
  expect(await page.getByLabel("Look for").inputValue()).toBe("b".repeat(32));
});

it.each([
  ["outcome=failed", ["oc_bob"]],
  ["outcome=answered", ["oc_team"]],
  ["agent=expert", ["oc_bob"]],
  ["model=scripted", ["oc_team"]],
  ["tool=page", ["oc_team"]],
  ["person=ou_bob", ["oc_bob"]],
  ["chat=oc_team", ["oc_team"]],
  ["longer=10", ["oc_bob"]],
  ["dearer=0.1", ["oc_bob"]],
  ["span=hour", ["oc_bob"]],
  ["q=cli_1.oc_team-1", ["oc_team"]],
  ["q=om_2", ["oc_bob"]],
  ["q=overloaded,+request", ["oc_bob"]],
  [`q=${"b".repeat(8)}`, ["oc_bob"]],
  ["q=nothing", []],
  ["outcome=failed&person=ou_ann", []],
])("shows what is asked for with %s", async (query, chats) => {
  await world.runs.append([ann, bob]);
  const viewer = await signIn(running, passwords.viewer ?? "");
  const html = await (await viewer.get(`/runs?${query}`)).text();
  expect(chatsIn(html)).toEqual(chats);
  expect(html.includes("No run fits.")).toBe(chats.length === 0);
});

it("shows and filters sums in the currency of the configuration", async () => {
  const currency = { code: "CNY", perUsd: 7 };
  const inYuan = await startTestConsole(world, passwords, { currency });
  closing.push(async () => await inYuan.close());
  await world.runs.append([ann, bob]);
  const viewer = await signIn(inYuan, passwords.viewer ?? "");
  const html = await (await viewer.get("/runs?dearer=1.7")).text();
  expect(chatsIn(html)).toEqual(["oc_bob"]);
  expect(html).toContain("Dearer than (CNY)");
  expect(html).toContain("¥1.75");
  expect(await (await viewer.get("/trends")).text()).toContain("¥0.00");
});

it("shows what was asked to operators who ask for it, finds by it, and records each look; viewers get none of it", async () => {
  const [asked, toolProblem] = ["Where is the merger?", "HTTP 503 from the wiki"];
  const here = { turn: `${session}-1`, endedAtMs: nowMs };
  await world.runs.append([ann, runOf({ ...here, asked, toolProblem })]);
  await answerOne(world);
  const off = await signIn(running, passwords.operator);
  expect(await (await off.post("/runs/content")).text()).not.toContain(asked);
  const keeping = await startTestConsole(world, passwords, { console: { questions: true } });
  closing.push(async () => await keeping.close());
  const [operator, viewer] = [
    await signIn(keeping, passwords.operator),
    await signIn(keeping, passwords.viewer ?? ""),
  ];
  const pages = ["/runs", "/sessions", "/runs?q=503", "/sessions?search=oc_chat"];
  for (const path of pages) {
    const hidden = await (await operator.get(path)).text();
    expect(hidden).not.toMatch(/merger|wiki/);
    expect(hidden).toContain("Show questions");
  }
  expect(await auditOf(world, "content_shown")).toEqual([]);
  expect(await (await operator.post("/runs/content?q=503")).text()).toMatch(
    /Where is the merger\?[^]*HTTP 503 from the wiki/,
  );
  expect(await (await operator.post("/sessions/content")).text()).toContain(asked);
  expect(await auditOf(world, "content_shown")).toHaveLength(2);
  for (const path of [
    "/runs?content=shown",
    "/sessions?content=shown",
    "/runs?q=503&content=shown",
  ]) {
    expect(await (await viewer.get(path)).text()).not.toMatch(/merger\?|wiki|Show questions/);
  }
  expect(await auditOf(world, "content_shown")).toHaveLength(2);
});

it("shows names in place of ids, also in the other pages, and finds by them", async () => {
  await world.runs.append([ann, bob]);
  await world.names.keep(
    new Map([
      ["ou_ann", "Ann <Lee>"],
      ["oc_team", "The Team"],
      ["oc_chat", "Lunch"],
    ]),
    nowMs,
  );
  await answerOne(world);
  const page = await visit("/runs?q=ann+<l");
  expect(await rowsOf(page)).toEqual([
    expect.stringMatching(/Answered Ann <Lee> The Team default/),
  ]);
  await page.getByRole("link", { name: "Ann <Lee>" }).click();
  await page.waitForURL(/person=ou_ann/);
  for (const path of ["/sessions?search=lunch", `/sessions/${session}`]) {
    await page.goto(`${running.url}${path}`);
    await page.getByText("Lunch").first().waitFor();
  }
});

it.each([
  { locale: "en-US", title: "Search the web", path: "/runs" },
  { locale: "zh-CN", title: "搜索网页", path: "/runs" },
  { locale: "en-US", title: "Search the web", path: "/trends?by=tool" },
])("calls tools by their titles ($locale, $path)", async ({ locale, title, path }) => {
  await world.runs.append([ann]);
  const counter = new UsageCounter("Asia/Shanghai");
  counter.countRun({ ...ann, endedAtMs: nowMs });
  await world.usage.add("b-1", counter.take());
  const spec = { name: "search", description: "Searches.", inputSchema: { type: "object" } };
  const words = { zh: "搜索网页", en: "Search the web" };
  const tool = {
    spec,
    title: words,
    effect: "pure" as const,
    requiresApproval: false,
    timeoutMs: 30_000,
  };
  await world.directory.announce({ runner: "web", instance: "web-1", tools: [tool] }, 60_000);
  const page = await visit(path, locale);
  const shown = page.locator("main").getByTitle("search", { exact: true });
  expect(await shown.first().innerText()).toBe(title);
});

it("tells tools of one title apart by their names", async () => {
  await world.runs.append([ann]);
  const shared = {
    effect: "pure" as const,
    requiresApproval: false,
    timeoutMs: 30_000,
    title: "Look",
  };
  const tools = ["search", "page"].map((name) => ({
    ...shared,
    spec: { name, description: "Looks.", inputSchema: { type: "object" } },
  }));
  await world.directory.announce({ runner: "web", instance: "web-1", tools }, 60_000);
  const page = await visit("/runs");
  expect(await rowsOf(page)).toEqual([expect.stringContaining("Look (search) ×2, Look (page)")]);
});

it("is filtered by its form, and goes back page by page", async () => {
  const many = Array.from({ length: 60 }, (_, at) =>
    runOf({ turn: `cli_1.oc_many-${at}`, endedAtMs: nowMs }),
  );
  await world.runs.append([ann, ...many]);
  const page = await visit("/runs");
  expect(await rowsOf(page)).toHaveLength(50);
  await page.getByRole("link", { name: "Older" }).click();
  await expect.poll(async () => await rowsOf(page)).toHaveLength(11);
  await page.getByRole("link", { name: "Newest" }).click();
  await expect.poll(async () => await rowsOf(page)).toHaveLength(50);
  await page.getByLabel("Tool").fill("search");
  await page.getByRole("button", { name: "Show" }).click();
  await expect.poll(async () => await rowsOf(page)).toHaveLength(1);
  await page.getByRole("link", { name: "Clear" }).click();
  await expect.poll(async () => await rowsOf(page)).toHaveLength(50);
  await page.getByLabel("Outcome").selectOption("failed");
  await page.getByRole("button", { name: "Show" }).click();
  await page.getByRole("status").getByText("No run fits.").waitFor();
});

it("says what it is in Chinese, and that nothing has run yet", async () => {
  const page = await visit("/runs", "zh-CN");
  await page.getByRole("heading", { name: "运行记录" }).waitFor();
  await page.getByRole("status").getByText("还没有运行结束。").waitFor();
});
