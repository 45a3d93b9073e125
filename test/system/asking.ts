import type { CardClickResult } from "@larkline/simulator";
import { untilAsked, type AskedCard } from "./approvals.ts";
import type { Writer } from "./sending.ts";
import type { System } from "./system.ts";

/** A person whom a configuration can name, with a chat of their own. */
export function namedPerson({ feishu, appId }: System, openId: string, name: string): Writer {
  feishu.addUser({ openId, name });
  return { openId, chatId: feishu.addChat({ type: "p2p", members: [openId, appId] }).chatId };
}

/** Waits for the card of a chat that asks for a decision; of several the oldest. */
export async function theQuestion(system: System, chatId: string): Promise<AskedCard> {
  const [card] = await untilAsked(system, chatId);
  if (card === undefined) throw new Error("unreachable: a card was waited for");
  return card;
}

/** Fills a form of a card and submits it: `button` is the name of the button that does. */
export async function submit(
  { feishu }: System,
  { message }: AskedCard,
  { openId, button, form }: { openId: string; button: string; form: Record<string, string> },
): Promise<CardClickResult> {
  return await feishu.click({
    messageId: message.messageId,
    openId,
    elementId: button,
    formValue: form,
  });
}
