import type { Message } from "@larkline/protocol/content";
import { apiOfEnvironment, chainOfEnvironment, serveWebhook } from "./settings.ts";
import { bareLoop } from "./model-step.ts";

// The lower bound: one process, no queue, no Redis, history in memory, the tool inline.
const chain = chainOfEnvironment();
const api = apiOfEnvironment();
const histories = new Map<string, Message[]>();

async function answer(chatId: string, messageId: string, text: string): Promise<void> {
  const history = histories.get(chatId) ?? [];
  histories.set(chatId, history);
  history.push({ role: "user", content: [{ type: "text", text }] });
  const reply = await bareLoop(chain, history, async (argumentsText) => argumentsText);
  await api.messages.reply({
    messageId,
    text: reply,
    uuid: `raw-${messageId}`.slice(0, 50),
    inThread: false,
  });
}

serveWebhook(async ({ chatId, messageId, text }) => {
  void answer(chatId, messageId, text);
});
