import { systemClock } from "@larkline/protocol/clock";
import { createClient } from "@larkline/sdk";
import { describe, expect, it } from "vitest";
import { runConversation } from "./chat.ts";
import type { Terminal } from "./terminal.ts";
import { chatTexts, type Texts } from "./answer-view.ts";
import { delta, done, playServer, type Playing } from "./played-server.fixture.ts";

/** A terminal whose person types these lines, and whose screen can be read. */
function scriptedTerminal(lines: string[]) {
  let interrupt = () => {};
  let screen = "";
  let closed = false;
  const terminal: Terminal = {
    ask: async (prompt) => {
      screen += prompt;
      return closed ? null : (lines.shift() ?? null);
    },
    write: (text) => void (screen += text),
    onInterrupt: (listener) => (interrupt = listener),
    close: () => void (closed = true),
  };
  return { terminal, screen: () => screen, interrupt: () => interrupt() };
}

/** Holds the whole conversation with a server. */
async function converse(
  terminal: Terminal,
  texts: Texts,
  playing: Playing = {},
): Promise<unknown[]> {
  const server = await playServer({ reply: () => [delta("hi"), done], ...playing });
  const { url } = server;
  const client = createClient({ url });
  await runConversation({ clock: systemClock, terminal, client, url, sessionId: "s", texts });
  return server.asked("POST /v1/runs").map(({ body }) => body["input"]);
}

describe("runConversation", () => {
  it.each(["QUIT", " exit ", "q"])(
    "SA-35: %j leaves with a goodbye and is not sent",
    async (word) => {
      const { terminal, screen } = scriptedTerminal([word, "never read"]);
      expect(await converse(terminal, chatTexts.zh)).toEqual([]);
      expect(screen().endsWith("\n你: 再见!\n")).toBe(true);
    },
  );

  it("SA-35: 'quit now' is a message", async () => {
    const { terminal } = scriptedTerminal(["  quit now "]);
    expect(await converse(terminal, chatTexts.zh)).toEqual(["quit now"]);
  });

  it("shows the prompt again after empty input and leaves at the end of input", async () => {
    const { terminal, screen } = scriptedTerminal(["", "   "]);
    expect(await converse(terminal, chatTexts.en)).toEqual([]);
    expect(screen().endsWith("\nYou: \nYou: \nYou: Goodbye!\n")).toBe(true);
  });

  it("SA-37: the prompt returns after an error", async () => {
    const { terminal, screen } = scriptedTerminal(["hello"]);
    const broken = {
      type: "error",
      message: "broken",
      code: "internal_error",
      suggestion: "",
      retryable: false,
    } as const;
    await converse(terminal, chatTexts.zh, { reply: () => [broken] });
    expect(screen()).toContain(`助手: \n[错误]: broken\n${"=".repeat(60)}\n\n你: `);
  });

  it("cancels the running answer at the first Ctrl-C and leaves at the second", async () => {
    const { terminal, screen, interrupt } = scriptedTerminal(["first", "second"]);
    const write = (text: string): void => {
      terminal.write(text);
      if (!text.startsWith("partial")) return;
      interrupt();
      if (text === "partial second") interrupt();
    };
    const reply = (input: string) => [delta(`partial ${input}`)];
    expect(await converse({ ...terminal, write }, chatTexts.en, { reply })).toEqual([
      "first",
      "second",
    ]);
    expect(screen()).toContain(`partial first\n[Cancelled]\n${"=".repeat(60)}\n\nYou: `);
    expect(screen().endsWith("Goodbye!\n")).toBe(true);
  });
});
