import { chromium, type Browser, type Locator, type Page } from "playwright-core";

// For tests: Debian's Chromium, without anything that reaches for the network.

export function launchBrowser(executablePath: string): Promise<Browser> {
  const quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"];
  return chromium.launch({
    executablePath,
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", ...quiet],
  });
}

export interface OpenPage {
  page: Page;
  /** What went wrong in the page, and what it asked of others than the console. */
  problems: string[];
  close(): Promise<void>;
}

export async function openPage(browser: Browser, url: string, locale = "en-US"): Promise<OpenPage> {
  const context = await browser.newContext({ locale, viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000); // a machine that is busy with other tests
  const problems: string[] = [];
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (line) => line.type() === "error" && problems.push(line.text()));
  page.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (protocol.startsWith("http") && origin !== new URL(url).origin) problems.push(request.url());
  });
  await page.goto(url);
  return { page, problems, close: async () => await context.close() };
}

export async function signInAs(page: Page, password: string, name = "Ann"): Promise<void> {
  await page.locator("#name").fill(name);
  await page.locator("input[type=password]").fill(password);
  await page.locator("main button").click();
  await untilShown(page.locator("nav"));
}

/** Waits for a part of the next page, and for the rest of that page: what is read after that does not wait for anything. */
export async function untilShown(part: Locator): Promise<void> {
  await part.waitFor();
  await part.page().waitForLoadState();
}
