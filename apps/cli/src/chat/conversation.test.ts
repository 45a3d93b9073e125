import { type StreamFrame, systemClock } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import type { ApprovalClient } from "./approvals.ts";
import type { ChatClient } from "./chat-client.ts";
import { runConversation, type Terminal } from "./chat.ts";
import { chatTexts } from "./answer-view.ts";

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

function scriptedClient(answer: (message: string, signal: AbortSignal) => AsyncGenerator<StreamFrame>) {
  const sent: string[] = [];
  const client: ChatClient = {
    send(message, signal) {
      sent.push(message);
      return answer(message, signal);
    },
  };
  return { client, sent };
}

const nothingPending: ApprovalClient = { pending: async () => [], decide: async () => "failed" };

async function* plainAnswer(): AsyncGenerator<StreamFrame> {
  yield { type: "assistant", content: "hi" };
  yield { type: "done", final: "hi" };
}

describe("runConversation", () => {
  it.each(["QUIT", " exit ", "q"])("SA-35: %j leaves with a goodbye and is not sent", async (word) => {
    const { terminal, screen } = scriptedTerminal([word, "never read"]);
    const { client, sent } = scriptedClient(plainAnswer);
    await runConversation({ clock: systemClock, terminal, client, approvals: nothingPending, texts: chatTexts.zh });
    expect(sent).toEqual([]);
    expect(screen().endsWith("\n你: 再见!\n")).toBe(true);
  });

  it("SA-35: 'quit now' is a message", async () => {
    const { terminal } = scriptedTerminal(["  quit now "]);
    const { client, sent } = scriptedClient(plainAnswer);
    await runConversation({ clock: systemClock, terminal, client, approvals: nothingPending, texts: chatTexts.zh });
    expect(sent).toEqual(["quit now"]);
  });

  it("shows the prompt again after empty input and leaves at the end of input", async () => {
    const { terminal, screen } = scriptedTerminal(["", "   "]);
    const { client, sent } = scriptedClient(plainAnswer);
    await runConversation({ clock: systemClock, terminal, client, approvals: nothingPending, texts: chatTexts.en });
    expect(sent).toEqual([]);
    expect(screen().endsWith("\nYou: \nYou: \nYou: Goodbye!\n")).toBe(true);
  });

  it("SA-37: the prompt returns after an error", async () => {
    const { terminal, screen } = scriptedTerminal(["hello"]);
    const { client } = scriptedClient(async function* () {
      yield { type: "error", message: "broken" };
    });
    await runConversation({ clock: systemClock, terminal, client, approvals: nothingPending, texts: chatTexts.zh });
    expect(screen()).toContain(`助手: \n[错误]: broken\n${"=".repeat(60)}\n\n你: `);
  });

  it("cancels the running answer at the first Ctrl-C and leaves at the second", async () => {
    const { terminal, screen, interrupt } = scriptedTerminal(["first", "second"]);
    const { client, sent } = scriptedClient(async function* (message, signal) {
      yield { type: "assistant", content: `partial ${message}` };
      interrupt();
      if (message === "second") interrupt();
      expect(signal.aborted).toBe(true);
    });
    await runConversation({ clock: systemClock, terminal, client, approvals: nothingPending, texts: chatTexts.en });
    expect(sent).toEqual(["first", "second"]);
    expect(screen()).toContain(`partial first\n[Cancelled]\n${"=".repeat(60)}\n\nYou: `);
    expect(screen().endsWith("Goodbye!\n")).toBe(true);
  });
});
