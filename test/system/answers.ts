import { setTimeout as delay } from "node:timers/promises";
import type { SimMessage } from "@larkline/feishu-simulator";
import type { System } from "./system.ts";

/** A message that the platform has handed over. */
export interface Written {
  chatId: string;
  messageId: string;
  text: string;
}

/** How the answers of some chats keep the delivery contract. */
export interface Tally {
  lost: number;
  duplicated: number;
  misordered: number;
}

/**
 * A person writes. Resolves with the acknowledgement: the order that counts is the order of
 * acceptance, so whoever writes the next message waits for it.
 */
export async function write(
  { feishu, appId }: System,
  { openId, chatId }: { openId: string; chatId: string },
  text: string,
): Promise<Written> {
  const { messageId, delivery } = await feishu.sendMessage({ appId, chatId, from: openId, text });
  const { outcome } = await delivery;
  if (outcome !== "acknowledged") throw new Error(`'${text}' was not acknowledged: ${outcome}`);
  return { chatId, messageId, text };
}

/** The bot's answers to one message. */
export function answersTo({ feishu }: System, { chatId, messageId }: Written): SimMessage[] {
  return feishu.messages(chatId).filter(({ senderType, parentId }) => senderType === "app" && parentId === messageId);
}

/** All that the bot wrote in a chat, oldest first. */
export function answersIn({ feishu }: System, chatId: string): string[] {
  return feishu.messages(chatId).flatMap(({ senderType, text }) => (senderType === "app" ? [text] : []));
}

/** Waits until every message has an answer, or the time is over: what is missing is counted, not thrown. */
export async function untilAnswered(system: System, written: readonly Written[], patienceMs: number): Promise<void> {
  const until = Date.now() + patienceMs;
  while (Date.now() < until && written.some((message) => answersTo(system, message).length === 0)) await delay(50);
}

function misorderedIn(system: System, chat: readonly Written[]): number {
  const order = system.feishu.messages(chat[0]?.chatId ?? "").map(({ messageId }) => messageId);
  const positions = chat.map((message) => order.indexOf(answersTo(system, message)[0]?.messageId ?? ""));
  return positions.filter((at, index) => at >= 0 && index > 0 && at < (positions[index - 1] ?? 0)).length;
}

/** Counts what went wrong with the messages of each chat, given in the order of their acceptance. */
export function tally(system: System, chats: readonly (readonly Written[])[]): Tally {
  const counts = chats.flat().map((message) => answersTo(system, message).length);
  return {
    lost: counts.filter((count) => count === 0).length,
    duplicated: counts.filter((count) => count > 1).length,
    misordered: chats.reduce((sum, chat) => sum + misorderedIn(system, chat), 0),
  };
}

/** Runs of recording tools of one effect, and how many of them repeated a key. */
export function repeats(lines: readonly string[], effect: string): { started: number; repeated: number } {
  const keys = lines.filter((line) => line.startsWith(`${effect} `));
  return { started: keys.length, repeated: keys.length - new Set(keys).size };
}

/** The sum of a metric of a process over all label values that contain `labels`. */
export async function metricOf({ url }: { url: string }, name: string, labels = ""): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line.startsWith(name) && line.includes(labels));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
}
