import { PassThrough } from "node:stream";
import { describe, expect, it } from "vitest";
import { createPrompt } from "./questions.ts";

/** Streams that are taken for a terminal. */
function openTerminal() {
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => {} });
  const output = Object.assign(new PassThrough(), { isTTY: true });
  const interrupt = new AbortController();
  let screen = "";
  output.setEncoding("utf8").on("data", (data: string) => (screen += data));
  return {
    prompt: createPrompt({ input, output, interrupt }),
    type: (keys: string) => void input.write(keys),
    until: async (part: string) => await expect.poll(() => screen).toContain(part),
    screen: () => screen,
    interrupt,
  };
}

describe("the prompt in a terminal", () => {
  it("shows what is typed, but not a secret", async () => {
    const terminal = openTerminal();
    const name = terminal.prompt.ask("App ID: ");
    await terminal.until("App ID: ");
    terminal.type("cli_x\x7f1\r");
    expect(await name).toBe("cli_1");
    const secret = terminal.prompt.ask("App Secret: ", { secret: true });
    await terminal.until("App Secret: ");
    terminal.type("hunter2\r");
    expect(await secret).toBe("hunter2");
    const next = terminal.prompt.ask("Domain: ");
    await terminal.until("Domain: ");
    terminal.type(" lark \r");
    expect(await next).toBe("lark");
    expect(terminal.screen()).toContain("cli_x");
    expect(terminal.screen()).not.toContain("hunter2");
    terminal.prompt.close();
  });

  it("takes Ctrl-C for an interrupt, now and for every later question", async () => {
    const terminal = openTerminal();
    const answer = terminal.prompt.ask("App ID: ");
    await terminal.until("App ID: ");
    terminal.type("\x03");
    expect(await answer).toBeNull();
    expect(terminal.interrupt.signal.aborted).toBe(true);
    expect(await terminal.prompt.ask("App Secret: ", { secret: true })).toBeNull();
    terminal.prompt.close();
  });

  it("has no answer when the terminal is gone", async () => {
    const terminal = openTerminal();
    const answer = terminal.prompt.ask("App ID: ");
    terminal.prompt.close();
    expect(await answer).toBeNull();
  });
});
