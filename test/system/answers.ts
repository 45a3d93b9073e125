import { setTimeout as delay } from "node:timers/promises";
import { visibleAnswers, type Answer } from "./answer.ts";
import type { System } from "./system.ts";

/** A message that the platform has handed over. */
export interface Written {
  chatId: string;
  /** Whose it is: in a group, order is promised to each person. */
  openId?: string;
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
 * acceptance, so a test waits for it before it writes the next message.
 */
export async function write(
  { feishu, appId }: System,
  { openId, chatId, mention = false }: { openId: string; chatId: string; mention?: boolean },
  text: string,
): Promise<Written> {
  const { messageId, delivery } = await feishu.sendMessage({
    appId,
    chatId,
    from: openId,
    text,
    mention,
  });
  const { outcome } = await delivery;
  if (outcome !== "acknowledged") throw new Error(`'${text}' was not acknowledged: ${outcome}`);
  return { chatId, openId, messageId, text };
}

/** The bot's finished answers to one message. */
export function answersTo({ feishu }: System, written: Written): Answer[] {
  return visibleAnswers(feishu, written).filter(({ finished }) => finished);
}

/** All that the bot has answered in a chat, in the order in which the answers appeared; what still types is left out. */
export function answersIn({ feishu }: System, chatId: string): string[] {
  const messages = feishu.messages(chatId).filter(({ senderType }) => senderType === "app");
  const questions = new Set(
    messages.flatMap(({ parentId }) => (parentId === undefined ? [] : [parentId])),
  );
  const answers = [...questions].flatMap((messageId) =>
    visibleAnswers(feishu, { chatId, messageId }),
  );
  return answers.flatMap(({ finished, text }) => (finished ? [text] : []));
}

/** Waits until every message has an answer, or the time is over: what is missing is counted, not thrown. */
export async function untilAnswered(
  system: System,
  written: readonly Written[],
  patienceMs: number,
): Promise<void> {
  const until = Date.now() + patienceMs;
  while (Date.now() < until && written.some((message) => answersTo(system, message).length === 0)) {
    await delay(50);
  }
}

/** How many answers appeared before the answer to an earlier message of the same person in the chat. */
function misorderedIn(system: System, chat: readonly Written[]): number {
  const people = Map.groupBy(chat, ({ openId }) => openId);
  return [...people.values()].reduce((sum, own) => sum + misorderedOf(system, own), 0);
}

function misorderedOf({ feishu }: System, chat: readonly Written[]): number {
  const order = feishu.messages(chat[0]?.chatId ?? "").map(({ messageId }) => messageId);
  const firstOf = (message: Written): string =>
    visibleAnswers(feishu, message)[0]?.messages[0]?.messageId ?? "";
  const positions = chat.map((message) => order.indexOf(firstOf(message))).filter((at) => at >= 0);
  return positions.filter((at, index) => index > 0 && at < (positions[index - 1] ?? 0)).length;
}

/**
 * Counts what went wrong with the messages of each chat, given in the order of their acceptance. A
 * card that was never closed is a lost answer; the cards of one reply are one answer.
 */
export function tally(system: System, chats: readonly (readonly Written[])[]): Tally {
  const all = chats.flat().map((message) => visibleAnswers(system.feishu, message));
  return {
    lost: all.filter((answers) => !answers.some(({ finished }) => finished)).length,
    duplicated: all.filter((answers) => answers.length > 1).length,
    misordered: chats.reduce((sum, chat) => sum + misorderedIn(system, chat), 0),
  };
}

/** Runs of recording tools of one effect, and how many of them repeated a key. */
export function repeats(
  lines: readonly string[],
  effect: string,
): { started: number; repeated: number } {
  const keys = lines.filter((line) => line.startsWith(`${effect} `));
  return { started: keys.length, repeated: keys.length - new Set(keys).size };
}

/** The sum of a metric of a process over all label values that contain `labels`. */
export async function metricOf(
  { url }: { url: string },
  name: string,
  labels = "",
): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line.startsWith(name) && line.includes(labels));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
}
