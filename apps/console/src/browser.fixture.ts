import { chromium, type Browser, type Locator, type Page } from "playwright-core";

// For tests: Debian's Chromium, without anything that reaches for the network.

export function launchBrowser(executablePath: string): Promise<Browser> {
  const quiet = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
  ];
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

/** Pages that tests have given back, by language: each has a context of its own, whose start costs what a test costs. */
const spare = new WeakMap<Browser, Map<string, Page[]>>();

function sparePages(browser: Browser, locale: string): Page[] {
  const ofBrowser = spare.get(browser) ?? new Map<string, Page[]>();
  spare.set(browser, ofBrowser);
  const pages = ofBrowser.get(locale) ?? [];
  ofBrowser.set(locale, pages);
  return pages;
}

async function newPage(browser: Browser, locale: string): Promise<Page> {
  const page = await (await browser.newContext({ locale })).newPage();
  page.setDefaultTimeout(60_000); // a machine that is busy with other tests
  return page;
}

/** A page without the cookies of those before; consoles differ by port, and so do what else they leave. */
export async function openPage(browser: Browser, url: string, locale = "en-US"): Promise<OpenPage> {
  const pages = sparePages(browser, locale);
  const page = pages.pop() ?? (await newPage(browser, locale));
  await page.setViewportSize({ width: 1280, height: 800 });
  const problems: string[] = [];
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (line) => line.type() === "error" && problems.push(line.text()));
  page.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (protocol.startsWith("http") && origin !== new URL(url).origin) problems.push(request.url());
  });
  await page.goto(url);
  const close = async (): Promise<void> => {
    for (const name of ["pageerror", "console", "request"]) page.removeAllListeners(name);
    await page.goto("about:blank");
    await page.context().clearCookies();
    pages.push(page);
  };
  return { page, problems, close };
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
