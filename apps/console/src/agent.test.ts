import type { AgentChange } from "@larkline/store/operations";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { launchBrowser, openPage, signInAs, untilShown } from "./browser.fixture.ts";
import {
  auditOf,
  openWorld,
  passwords,
  signIn,
  startTestConsole,
  type TestConsole,
  type World,
} from "./console.fixture.ts";

const sales = {
  instructions: "Sell wine.\nBe kind.\nStay brief.",
  tools: ["search", "pay"],
  models: ["openai/a", "openai/b"],
  maxIterations: 10,
};
const config = {
  console: { changes: true },
  agents: { sales },
  teams: { both: { members: ["default", "sales"], select: "round_robin" } },
};

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
  world = openWorld(config);
  running = await startTestConsole(world, passwords, config);
});
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
  await running.close();
  await world.close();
});

async function visit(
  path: string,
  { locale = "en-US", password = passwords.operator, name = "Ann" } = {},
): Promise<Page> {
  const { page, problems, close } = await openPage(browser, `${running.url}${path}`, locale);
  closing.push(close, async () => expect(problems).toEqual([]));
  await signInAs(page, password, name);
  return page;
}

async function change(base: number, changes: AgentChange, agent = "sales"): Promise<void> {
  const about = { agent, by: "console:Bo", atMs: Date.now(), file: "" };
  expect(await world.versions.add({ ...about, base, change: changes })).toBe("done");
}

async function stored(agent = "sales"): Promise<unknown[]> {
  return (
    (await world.versions.list()).versions
      .get(agent)
      ?.map(({ number, change: what }) => [number, what]) ?? []
  );
}

/** What the preview shows as removed. */
async function removedIn(page: Page): Promise<string[]> {
  const preview = page.locator("section").filter({ hasText: "What changes" });
  return (await preview.locator("del").allInnerTexts()).map((line) => line.trim());
}

const press = async (page: Page, name: string): Promise<void> =>
  await page.getByRole("button", { name }).click();

it("an operator changes an agent: wrong fields are named, the difference is shown, and then it is applied", async () => {
  const page = await visit("/agents");
  await page.getByRole("link", { name: "sales", exact: true }).click();
  const [text, steps] = [page.getByLabel("Instructions"), page.getByLabel(/Model steps of a turn/)];
  expect(await text.inputValue()).toBe(sales.instructions);
  await text.fill("Sell wine.\nBe very kind.\nStay brief.");
  await steps.fill("11");
  await page.getByLabel("Tokens a day").fill("many");
  await page.getByLabel("pay").uncheck();
  await press(page, "Preview");
  await untilShown(page.getByText("Some fields are wrong"));
  expect(await page.locator("#limits\\.maxIterations-problem").innerText()).toBe(
    "More than the file allows: 10",
  );
  expect(await page.locator("#budgets\\.day\\.tokens-problem").innerText()).toBe("Give a number.");
  expect(await steps.getAttribute("aria-invalid")).toBe("true");
  expect(await page.getByLabel("pay").isChecked()).toBe(false);
  expect(await page.getByRole("button", { name: "Apply" }).count()).toBe(0);

  await steps.fill("5");
  await page.getByLabel("Tokens a day").fill("1000");
  await page.getByLabel("Model", { exact: true }).selectOption("openai/b");
  await page.getByLabel("Why").fill("complaints");
  await press(page, "Preview");
  await untilShown(page.getByRole("heading", { name: "What changes" }));
  expect(await page.locator(".changes del").allInnerTexts()).toEqual(
    ["− Be kind.", "− As in the file", "− pay", "− 10", "− none"].map((line) => `${line}\n`),
  );
  expect(await page.locator(".changes ins").allInnerTexts()).toEqual(
    ["+ Be very kind.", "+ openai/b", "+ 5", "+ 1000"].map((line) => `${line}\n`),
  );
  expect(await stored()).toEqual([]);
  await press(page, "Apply as a new version");
  await page.getByText("It is applied.").waitFor();
  const wanted = {
    instructions: "Sell wine.\nBe very kind.\nStay brief.",
    model: "openai/b",
    tools: ["search"],
    limits: { maxIterations: 5 },
    budgets: { day: { tokens: 1_000 } },
  };
  expect(await stored()).toEqual([[1, wanted]]);
  expect(await auditOf(world, "agent_changed")).toMatchObject([
    { agent: "sales", userId: "console:Ann", from: 0, to: 1 },
  ]);
  expect(await page.locator("summary").innerText()).toMatch(
    /^Version 1, Ann, .*: complaints\s+in force$/,
  );
  await page.goto(`${running.url}/agents`);
  await page.getByText("Works, Version 1").waitFor();
  await page.goto(`${running.url}/budgets?id=sales`);
  await page.getByText("1,000").first().waitFor();
});

it("of an agent with every tool, keeps others away only where that is not ticked any more", async () => {
  const operator = await signIn(running, passwords.operator);
  const wanted = async (fields: Record<string, string>): Promise<string> => {
    const page = await (
      await operator.post("/agents/default/preview", { instructions: "x", ...fields })
    ).text();
    return /name="change" value="([^"]*)"/.exec(page)?.[1]?.replaceAll("&quot;", '"') ?? "";
  };
  expect(await wanted({ everyTool: "on", shown: "a", tool: "a" })).toBe('{"instructions":"x"}');
  expect(await wanted({ shown: "a", tool: "a" })).toBe('{"instructions":"x","tools":["a"]}');
  expect(await wanted({ everyTool: "on", shown: "a" })).toBe('{"instructions":"x","tools":[]}');
  await change(0, { tools: ["away"] }, "default");
  const page = await visit("/agents/default");
  expect(await page.getByLabel("later ones too").isChecked()).toBe(false);
  await page.getByLabel("Instructions").fill("y");
  await press(page, "Preview");
  await press(page, "Apply");
  await page.getByText("It is applied.").waitFor();
  expect(await stored("default")).toMatchObject([
    [2, { instructions: "y", tools: ["away"] }],
    [1, { tools: ["away"] }],
  ]);
});

it("goes back to an earlier version, or to the file, by a new version", async () => {
  await change(0, { instructions: "one" });
  await change(1, { instructions: "two", tools: [] });
  const page = await visit("/agents/sales");
  await page.locator("summary").filter({ hasText: "Version 1" }).click();
  await page.locator("details[open]").getByRole("button").click();
  await expect.poll(async () => await removedIn(page)).toEqual(["− two"]);
  await press(page, "Apply");
  await page.getByText("It is applied.").waitFor();
  await page.locator(".versions > li:last-child button").click();
  await press(page, "Apply");
  await page.getByText("It is applied.").waitFor();
  expect(await stored()).toEqual([
    [4, {}],
    [3, { instructions: "one" }],
    [2, { instructions: "two", tools: [] }],
    [1, { instructions: "one" }],
  ]);
});

it("tells the second of two operators, keeps what they wrote, and compares it anew", async () => {
  const page = await visit("/agents/sales");
  await page.getByLabel("Instructions").fill("mine");
  await press(page, "Preview");
  await page.getByRole("heading", { name: "What changes" }).waitFor();
  await change(0, { instructions: "theirs" });
  await press(page, "Apply");
  await untilShown(page.getByText("Another operator has changed it meanwhile"));
  expect(await page.getByLabel("Instructions").inputValue()).toBe("mine");
  expect(await removedIn(page)).toEqual(["− theirs"]);
  expect(await stored()).toEqual([[1, { instructions: "theirs" }]]);
  await press(page, "Apply");
  await page.getByText("It is applied.").waitFor();
  expect(await stored()).toMatchObject([
    [2, { instructions: "mine" }],
    [1, { instructions: "theirs" }],
  ]);
});

it("shows viewers who changed what, but no instructions; they change nothing", async () => {
  await change(0, { instructions: "confidential words", limits: { maxIterations: 3 } });
  const viewer = await signIn(running, passwords.viewer ?? "");
  const shown = await (await viewer.get("/agents/sales")).text();
  expect(shown).toContain("Viewers do not see instructions.");
  expect(shown).toMatch(/Version 1,\s+Bo/);
  expect(shown).toContain("+ 3");
  for (const secret of ["confidential words", "Sell wine", "<textarea"]) {
    expect(shown).not.toContain(secret);
  }
  for (const deed of ["preview", "apply", "back"]) {
    expect(
      (await viewer.post(`/agents/sales/${deed}`, { version: "1", base: "1", change: "{}" }))
        .status,
    ).toBe(403);
  }
  expect(await stored()).toHaveLength(1);
});

it("takes nothing without the token of its forms, that is no change, or that the file does not allow", async () => {
  const operator = await signIn(running, passwords.operator);
  const apply = async (fields: Record<string, string>, agent = "sales") =>
    await operator.post(`/agents/${agent}/apply`, { base: "0", change: "{}", ...fields });
  expect((await apply({ csrf: "x" })).status).toBe(403);
  for (const wrong of [
    { change: "x" },
    { change: '{"people":["ou_1"]}' },
    { base: "-1" },
    { base: "x" },
  ]) {
    expect((await apply(wrong)).status).toBe(404);
  }
  const over = JSON.stringify({ limits: { maxIterations: 11 } });
  expect(await (await apply({ change: over })).text()).toContain(
    "The file does not allow this version.",
  );
  const preview = async (instructions: string) =>
    await (await operator.post("/agents/sales/preview", { instructions })).text();
  expect(await preview("长".repeat(20_001))).toContain("Too long: at most 20,000 characters.");
  const long = JSON.stringify({ instructions: "长".repeat(20_000) });
  expect(await preview("长".repeat(20_000))).toContain(long.replaceAll('"', "&quot;"));
  expect((await operator.get("/agents/both")).status).toBe(404);
  expect((await operator.get("/agents/constructor")).status).toBe(404);
  expect((await apply({}, "none")).status).toBe(404);
  expect(await stored()).toEqual([]);
});

it("says what of a version does not count after the file has changed, and which version a worker refuses", async () => {
  await change(0, { model: "openai/b", tools: ["pay"], limits: { maxIterations: 8 } });
  await change(1, { instructions: "forged" });
  const key = `{${world.namespace}}:agent-versions`;
  await world.redis.hset(key, { "refused:sales:2": "1", "version:sales:3": "garbage" });
  const later = {
    ...config,
    agents: { sales: { ...sales, models: [], tools: ["search"], maxIterations: 6 } },
  };
  const console = await startTestConsole(world, passwords, later);
  closing.push(async () => await console.close());
  const operator = await signIn(console, passwords.operator);
  const text = (await (await operator.get("/agents/sales")).text())
    .replaceAll(/<[^>]*>/g, " ")
    .replaceAll(/\s+/g, " ");
  expect(text).toContain("The agent has changed in the file since this version was made.");
  expect(text).toContain("Model: Not offered by the file: openai/b");
  expect(text).toContain("Tools: Not offered by the file: pay");
  expect(text).toContain("Model steps of a turn: More than the file allows: 6");
  expect(text).toContain("Version 3: Damaged");
  expect(text).toMatch(/Version 2, .*Damaged, or not sealed by a worker of this deployment/);
  expect(text).toMatch(/Version 1, Bo, [^.]* in force/);
});

it("changes nothing where the file does not say so, and speaks Chinese", async () => {
  const off = await startTestConsole(world, passwords, { agents: { sales } });
  closing.push(async () => await off.close());
  const operator = await signIn(off, passwords.operator);
  const shown = await (await operator.get("/agents/sales")).text();
  expect(shown).toContain("console.changes");
  expect(shown).not.toContain("<textarea");
  await change(0, { instructions: "你好" });
  const page = await visit("/agents/sales", { locale: "zh-CN" });
  await page.getByLabel("指令").fill("你好。\n".repeat(20));
  await page.getByLabel(/每轮的模型步数/).fill("100");
  await press(page, "预览差异");
  await page.getByText("超过配置文件的值：10").waitFor();
  await page.getByLabel(/每轮的模型步数/).fill("");
  await press(page, "预览差异");
  await press(page, "应用为新版本");
  await page.getByText("已应用。").waitFor();
  expect(await stored()).toMatchObject([
    [2, { instructions: "你好。\n".repeat(20) }],
    [1, {}],
  ]);
});
