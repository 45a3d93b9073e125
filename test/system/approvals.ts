import { setTimeout as delay } from "node:timers/promises";
import type { CardClickResult, SimMessage } from "@larkline/simulator";
import type { System } from "./system.ts";

const patienceMs = 80_000;

type Json = Record<string, unknown>;

/** A card that asks or has asked a person to decide. */
export interface AskedCard {
  message: SimMessage;
  /** Title of the card. */
  title: string;
  /** Values of its buttons; none once it is settled. */
  values: Json[];
}

function isJson(value: unknown): value is Json {
  return typeof value === "object" && value !== null;
}

/** Values of all buttons anywhere in a card. */
function valuesIn(node: unknown): Json[] {
  if (!isJson(node)) return [];
  const behaviors = Array.isArray(node["behaviors"]) ? node["behaviors"] : [];
  const own = behaviors.flatMap((behavior: unknown) =>
    isJson(behavior) && isJson(behavior["value"]) ? [behavior["value"]] : [],
  );
  return [...own, ...Object.values(node).flatMap(valuesIn)];
}

function titleOf(card: unknown): string {
  const header = isJson(card) ? card["header"] : undefined;
  const title = isJson(header) ? header["title"] : undefined;
  const content = isJson(title) ? title["content"] : undefined;
  return typeof content === "string" ? content : "";
}

/** What the bot has asked in a chat, oldest first, decided or not. */
export function askedCards({ feishu }: System, chatId: string): AskedCard[] {
  return feishu
    .messages(chatId)
    .filter(({ senderType, card }) => senderType === "app" && card !== undefined)
    .map((message) => ({ message, title: titleOf(message.card?.json), values: valuesIn(message.card?.json) }))
    .filter(({ title, message }) => title !== "" && message.card?.streaming !== true);
}

/** Cards of a chat that still wait for a decision. */
export function openQuestions(system: System, chatId: string): AskedCard[] {
  return askedCards(system, chatId).filter(({ values }) => values.length > 0);
}

/** Waits until so many cards of the chat wait for a decision. */
export async function untilAsked(system: System, chatId: string, count = 1): Promise<AskedCard[]> {
  const untilMs = Date.now() + patienceMs;
  for (;;) {
    const open = openQuestions(system, chatId);
    if (open.length >= count) return open;
    if (Date.now() > untilMs) throw new Error(`${open.length} questions in ${chatId}, not ${count}`);
    await delay(10);
  }
}

/** Waits until no card of the chat has a button. */
export async function untilRetired(system: System, chatId: string): Promise<AskedCard[]> {
  const untilMs = Date.now() + patienceMs;
  while (openQuestions(system, chatId).length > 0) {
    if (Date.now() > untilMs) throw new Error(`a card in ${chatId} still has buttons`);
    await delay(10);
  }
  return askedCards(system, chatId);
}

/** Clicks on the button whose value holds all of `wanted`. */
export async function decide(
  { feishu }: System,
  { message, values }: AskedCard,
  { openId, wanted }: { openId: string; wanted: Json },
): Promise<CardClickResult> {
  const value = values.find((each) => Object.entries(wanted).every(([key, expected]) => each[key] === expected));
  if (value === undefined) throw new Error(`no button with ${JSON.stringify(wanted)}`);
  return await feishu.click({ messageId: message.messageId, openId, value });
}
