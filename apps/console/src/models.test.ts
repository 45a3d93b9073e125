import type { AddedProvider } from "@larkline/store/operations";
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

const config = {
  console: { changes: true, models: { hosts: ["10.0.0.7"] } },
  providers: { mine: { type: "openai", baseUrl: "https://mine.example/v1", keyEnv: "MINE_KEY" } },
  agents: { sales: { model: "mine/large", models: ["anthropic/claude-sonnet-5-5"] } },
};
const secret = "sk-key-of-the-vendor";
const deepseek: AddedProvider = {
  name: "deepseek",
  type: "openai",
  baseUrl: "https://api.deepseek.com/v1",
  models: ["deepseek-chat"],
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

async function visit(path: string): Promise<Page> {
  const { page, problems, close } = await openPage(browser, `${running.url}${path}`);
  closing.push(close, async () => expect(problems).toEqual([]));
  await signInAs(page, passwords.operator);
  return page;
}

const press = async (page: Page, name: string): Promise<void> =>
  await page.getByRole("button", { name, exact: true }).click();

async function added(provider = deepseek): Promise<void> {
  expect(await world.providers.set({ provider, by: "console:Bo", atMs: Date.now() })).toBe("done");
}

it("an operator adds a server with its key, which the console cannot show again, tests it and gives it to an agent", async () => {
  await world.providers.refresh();
  const page = await visit("/models");
  await page.getByLabel("Name", { exact: true }).fill("mine");
  await page.getByLabel("Address").fill("http://api.deepseek.com/v1");
  await page.getByLabel("Key", { exact: true }).fill("two words");
  await press(page, "Save");
  const problemAt = async (field: string) => await page.locator(`#${field}-problem`).innerText();
  await untilShown(page.locator("#name-problem"));
  expect(await problemAt("name")).toBe("The file or the environment has this name.");
  expect(await problemAt("models")).toContain("Give 1 to 50 ids");
  expect(await problemAt("key")).toBe("The key is too long, or has blanks in it.");
  expect(world.ordered).toEqual([]);

  await page.getByLabel("Name", { exact: true }).fill("deepseek");
  await page.getByLabel("Models", { exact: true }).fill("deepseek-chat\n");
  await page.getByLabel("Key", { exact: true }).fill(secret);
  await press(page, "Save");
  await untilShown(page.locator("#baseUrl-problem"));
  expect(await page.getByLabel("Key", { exact: true }).inputValue()).toBe("");
  await page.getByLabel("Address").fill("https://api.deepseek.com/v1");
  await page.getByLabel("Key", { exact: true }).fill(secret);
  await press(page, "Save");
  await untilShown(page.getByText("It is saved"));
  const ordered = world.ordered.length;
  await page.reload();
  await untilShown(page.getByText("It is saved"));
  expect(world.ordered).toHaveLength(ordered);
  await page.getByText("sealed: only workers open it").waitFor();
  expect(await page.content()).not.toContain(secret);
  await world.providers.refresh();
  expect([...world.providers.known().values()]).toEqual([{ provider: deepseek, apiKey: secret }]);
  expect(JSON.stringify(world.ordered)).not.toContain(secret);
  expect(await auditOf(world, "provider_changed")).toMatchObject([
    { provider: "deepseek", userId: "console:Ann" },
  ]);

  const model = "deepseek/deepseek-chat";
  world.results.push({ result: "done", test: { model, answer: "ready", tookMs: 812 } });
  const row = page.getByRole("listitem").filter({ hasText: model });
  await row.getByRole("button", { name: "Test" }).click();
  await untilShown(page.getByText("answers:"));
  expect(await page.locator("main .note").innerText()).toBe(`${model} answers: ready seconds: 0.8`);
  const message = "Your credit balance is too low";
  world.results.push({
    result: "done",
    test: { model, code: "api_auth_error", message, tookMs: 90 },
  });
  await page
    .getByRole("listitem")
    .filter({ hasText: model })
    .getByRole("button", { name: "Test" })
    .click();
  await untilShown(page.getByRole("alert"));
  expect(await page.getByRole("alert").innerText()).toContain(message);

  await page.goto(`${running.url}/agents/sales`);
  await page.getByLabel("Model", { exact: true }).selectOption(model);
  await press(page, "Preview");
  await untilShown(page.getByRole("heading", { name: "What changes" }));
  expect(await page.locator(".changes ins").allInnerTexts()).toEqual([`+ ${model}\n`]);
});

it("a server is changed without its key, and removed after a question", async () => {
  await added();
  const page = await visit("/models");
  await page.getByRole("link", { name: "Change" }).click();
  expect(await page.getByLabel("Address").inputValue()).toBe("https://api.deepseek.com/v1");
  await page.getByLabel("Models", { exact: true }).fill("deepseek-chat\ndeepseek-reasoner");
  await press(page, "Save");
  await untilShown(page.getByText("deepseek/deepseek-reasoner"));
  world.results.push({ result: "in_use", agents: ["sales"] });
  await page.getByRole("link", { name: "Remove" }).click();
  await press(page, "Remove");
  await untilShown(page.getByText("Give these other ones first: sales"));
  await page.getByRole("link", { name: "Remove" }).click();
  await press(page, "Remove");
  await untilShown(page.getByText("It is removed."));
  expect(new URL(page.url()).pathname).toBe("/models");
  expect((await world.providers.list()).providers).toEqual([]);
});

it("servers of the file and the environment say where they come from, and win over added ones", async () => {
  await added({ ...deepseek, name: "mine" });
  const { get } = await signIn(running, passwords.operator);
  const page = await (await get("/models")).text();
  for (const text of [
    "variable MINE_KEY",
    "anthropic/claude-sonnet-5-5",
    "environment",
    "which wins: this one is not used",
  ]) {
    expect(page).toContain(text);
  }
  expect(await (await get("/agents/sales")).text()).not.toContain("mine/deepseek-chat");
});

it("viewers see and change nothing of it, and where the file does not allow it nothing can be added", async () => {
  await added();
  const viewer = await signIn(running, passwords.viewer ?? "");
  expect(await (await viewer.get("/models")).text()).not.toContain("deepseek");
  expect((await viewer.get("/models/deepseek/remove")).status).toBe(404);
  const forms = { set: { name: "x", type: "openai", models: "m" }, test: { model: "mine/large" } };
  for (const [what, fields] of Object.entries(forms)) {
    expect((await viewer.post(`/models/${what}`, fields)).status).toBe(403);
  }
  const strict = await startTestConsole(world, passwords, { agents: {} });
  closing.push(strict.close);
  const operator = await signIn(strict, passwords.operator);
  const page = await (await operator.get("/models")).text();
  expect(page).toContain("console: { changes: true, models: true }");
  expect(page).not.toContain('name="key"');
  await operator.post("/models/set", forms.set);
  expect(world.ordered).toEqual([]);
});
