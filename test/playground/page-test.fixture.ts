import { Metrics, silentLogger } from "@larkline/process/telemetry";
import { patientClock } from "@larkline/testkit";
import { chromium, type Browser, type Page } from "playwright-core";
import type { PlaygroundConfig } from "@larkline/simulator/playground";
import { startPlayground, type Playground } from "@larkline/simulator/playground";

export const app = { appId: "cli_0123456789abcdef", appSecret: "secret" };

/** Debian's Chromium, without anything that reaches for the network. */
export function launchBrowser(executablePath: string): Promise<Browser> {
  const quiet = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
  ];
  return chromium.launch({
    executablePath,
    timeout: 180_000, // a machine that is busy with other tests
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", ...quiet],
  });
}

export function startTestPlayground(changes: Partial<PlaygroundConfig> = {}): Promise<Playground> {
  const config: PlaygroundConfig = {
    host: "127.0.0.1",
    port: 0,
    logLevel: "silent",
    ...app,
    encryptKey: undefined,
    verificationToken: undefined,
    webhookUrl: undefined,
    modelPort: undefined,
    dataDirectory: undefined,
    ...changes,
  };
  const metrics = new Metrics({ service: "playground" });
  // A stall of this process is no fault of the bot.
  return startPlayground({ config, logger: silentLogger, metrics, clock: patientClock });
}

/** A page in Chinese, unless another language is wanted, and what went wrong in it. */
export async function openTestPage(
  browser: Browser,
  url: string,
  locale = "zh-CN",
): Promise<{ page: Page; errors: string[]; close: () => Promise<void> }> {
  const context = await browser.newContext({ locale, viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (line) => line.type() === "error" && errors.push(line.text()));
  await page.goto(url, { timeout: 60_000 }); // a machine that is busy with other tests
  return { page, errors, close: () => context.close() };
}

/** One chat of the page. */
export function panel(page: Page, name: string): ReturnType<Page["getByRole"]> {
  return page.getByRole("region", { name });
}

export async function openChat(page: Page, name: string): Promise<void> {
  // Its name begins with its title; the last message comes behind.
  await page
    .locator(".chat-entry", { has: page.locator(".chat-entry-title", { hasText: name }) })
    .click();
}

export async function openTab(page: Page, name: string): Promise<void> {
  await page.getByRole("tab", { name }).click();
}

export async function say(page: Page, chat: string, text: string): Promise<void> {
  await openChat(page, chat);
  const input = panel(page, chat).getByRole("textbox", { name: "消息" });
  await input.fill(text);
  await input.press("Enter");
}
