import { answerClosing, answerOpening, AnswerView, openingText } from "./answer-view.ts";
import type { ApprovalClient } from "./approval-client.ts";
import { watchApprovals } from "./approval-watch.ts";
import type { ChatClient } from "./chat-client.ts";
import type { Terminal } from "./terminal.ts";
import type { Texts } from "./texts.ts";

const quitWords = new Set(["quit", "exit", "q"]);

export interface ConversationParts {
  terminal: Terminal;
  client: ChatClient;
  approvals: ApprovalClient;
  texts: Texts;
}

/** Shows one answer. Resolves when it is complete, failed or cancelled. */
async function showAnswer(parts: ConversationParts, message: string, signal: AbortSignal) {
  const { terminal, client, approvals, texts } = parts;
  terminal.write(answerOpening(texts));
  const watch = watchApprovals({ terminal, approvals, texts }, signal);
  const view = new AnswerView(texts);
  let failed = false;
  for await (const frame of client.send(message, signal)) {
    failed = frame.type === "error";
    watch.note(frame);
    terminal.write(view.draw(frame));
  }
  await watch.close();
  if (signal.aborted && !failed) terminal.write(`\n${texts.cancelled}${answerClosing()}`);
}

/**
 * Asks and answers until the person leaves: by a quit word, the end of input, or Ctrl-C. Ctrl-C
 * during an answer only cancels the answer.
 */
export async function runConversation(parts: ConversationParts): Promise<void> {
  const { terminal, texts } = parts;
  let running: AbortController | undefined;
  terminal.onInterrupt(() => {
    if (running === undefined || running.signal.aborted) terminal.close();
    else running.abort();
  });
  terminal.write(openingText(texts));
  for (;;) {
    const line = await terminal.ask(`\n${texts.you}`);
    const message = line?.trim() ?? "quit";
    if (quitWords.has(message.toLowerCase())) break;
    if (message === "") continue;
    running = new AbortController();
    await showAnswer(parts, message, running.signal);
    running = undefined;
  }
  terminal.write(`${texts.goodbye}\n`);
  terminal.close();
}
