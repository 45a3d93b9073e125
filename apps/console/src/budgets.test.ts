import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { launchBrowser, openPage, signInAs, untilShown } from "./browser.fixture.ts";
import { openWorld, passwords, startTestConsole, type World } from "./console.fixture.ts";

let browser: Browser;
let world: World;

beforeAll(async () => {
  browser = await launchBrowser(process.env.CHROMIUM_PATH ?? "/usr/bin/chromium");
  world = openWorld();
  await spend("person", "ou_ann", { tokens: 82_000, usd: 0.4 });
  await spend("person", "ou_bob", { tokens: 130_000, usd: 1.25 });
  await spend("person", "ou_boss", { tokens: 450_000, usd: 3 });
  await spend("chat", "oc_<b>", { tokens: 5, usd: 0.002 });
  await spend("deployment", "all", { tokens: 662_005, usd: 4.652 });
});

afterAll(async () => {
  await browser.close();
  await world.close();
});

const budgets = {
  timeZone: "UTC",
  limits: [
    { per: "person", period: "month", tokens: 100_000, usd: 2 },
    { per: "person", period: "month", of: ["ou_boss", "ou_idle"], unlimited: true },
    { per: "chat", period: "month", usd: 10 },
    { per: "deployment", period: "month", usd: 100 },
    { per: "agent", period: "day", of: ["ops"], tokens: 5 },
  ],
};

async function spend(
  per: string,
  id: string,
  spent: { tokens: number; usd: number },
): Promise<void> {
  const bucket = new Date().toISOString().slice(0, 7);
  const account = { per, id, bucket, endsAtMs: Date.now() + 86_400_000 };
  await world.budgets.charge([account], { id: `${per} ${id}`, ...spent });
}

async function visit(
  config: Record<string, unknown>,
  path = "/budgets",
  locale = "en-US",
): Promise<Page> {
  const running = await startTestConsole(world, passwords, config);
  onTestFinished(running.close);
  const { page, problems, close } = await openPage(browser, `${running.url}${path}`, locale);
  onTestFinished(close);
  onTestFinished(() => expect(problems).toEqual([]));
  await signInAs(page, passwords.viewer ?? "");
  await untilShown(page.locator("h1"));
  return page;
}

const rowsOf = async (page: Page, title: string): Promise<string[]> => {
  const rows = page
    .locator("section", { has: page.getByRole("heading", { name: title }) })
    .locator("tbody tr");
  return (await rows.allInnerTexts()).map((text) => text.replaceAll(/\s+/g, " ").trim());
};

it("shows every budget with its period and limits, and who has spent most of theirs", async () => {
  const page = await visit({ budgets });
  expect(await page.getByRole("heading", { level: 2 }).allInnerTexts()).toEqual([
    "Look up an id",
    "Per person, a month",
    "Per chat, a month",
    "Per agent, a day",
    "The whole deployment, a month",
  ]);
  expect(await rowsOf(page, "Per person, a month")).toEqual([
    "ou_bob 130,000 $1.25 100,000 tokens / $2.00 130%",
    "ou_ann 82,000 $0.40 100,000 tokens / $2.00 82%",
    "ou_boss 450,000 $3.00 none –",
  ]);
  expect(await rowsOf(page, "Per chat, a month")).toEqual(["oc_<b> 5 $0.0020 $10.00 0%"]);
  expect(await rowsOf(page, "The whole deployment, a month")).toEqual([
    "everybody 662,005 $4.65 $100.00 4%",
  ]);
  expect(await rowsOf(page, "Per agent, a day")).toEqual([]);
  const facts = await page.locator("dl").first().innerText();
  expect(facts.replaceAll(/\s+/g, " ")).toMatch(
    /^Present period \d{4}-\d\d Renews in \d+ \w+ General limit .+ own 2$/,
  );
  expect(await page.getByRole("meter", { name: "Used" }).first().getAttribute("value")).toBe(
    "1.000",
  );
});

it("looks one id up among all kinds", async () => {
  const page = await visit({ budgets });
  await page.getByLabel("Id of a person").fill(" ou_ann ");
  await page.getByRole("button", { name: "Look up" }).click();
  await untilShown(page.getByRole("table", { name: "ou_ann" }));
  expect(await rowsOf(page, "Look up an id")).toEqual([
    expect.stringMatching(
      /^Per person, a month 82,000 \$0\.40 100,000 tokens \/ \$2\.00 82% in \d+ \w+$/,
    ),
  ]);
  await page.getByLabel("Id of a person").fill("ou_nobody");
  await page.getByRole("button", { name: "Look up" }).click();
  await page
    .getByRole("status")
    .getByText("Nothing of any budget has been spent by that id")
    .waitFor();
});

it("says so, in the reader's language, when there is no budget", async () => {
  const page = await visit({}, "/budgets", "zh-CN");
  expect(await page.locator("main").innerText()).toMatch(/^额度与花费\s+没有设置额度/);
});
