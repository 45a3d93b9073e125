import { setTimeout as delay } from "node:timers/promises";
import type { CardClickResult, SimMessage } from "@larkline/simulator";
import type { System } from "./system.ts";

const patienceMs = 80_000;

type Json = Record<string, unknown>;

/** A card that asks or has asked a person to decide. */
export interface AskedCard {
  message: SimMessage;
  /** Title of the card; on the card of a reply the line that begins the question. */
  title: string;
  /** Values of its buttons; none once it is settled. */
  values: Json[];
  /** What is asked: the card, or its part of the card of a reply. */
  shown: unknown;
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
    .filter(({ card }) => card?.streaming !== true)
    .flatMap((message) => {
      const json = message.card?.json;
      const title = titleOf(json);
      const own = { message, title, values: valuesIn(json), shown: json };
      return title === "" ? asksInReply(json).map((shown) => inReply(message, shown)) : [own];
    });
}

function inReply(message: SimMessage, shown: Json[]): AskedCard {
  const [, first] = shown;
  const text = isJson(first?.["text"]) ? first["text"]["content"] : undefined;
  return { message, title: typeof text === "string" ? text : "", values: valuesIn(shown), shown };
}

/** The questions below the answer on the card of a reply: from a line to a row of buttons. */
function asksInReply(card: unknown): Json[][] {
  const body = isJson(card) ? card["body"] : undefined;
  const elements =
    isJson(body) && Array.isArray(body["elements"]) ? body["elements"].filter(isJson) : [];
  return elements.flatMap((element, at) => {
    if (!/^ask_\d+$/.test(String(element["element_id"]))) return [];
    const from = elements.slice(0, at).findLastIndex(({ tag }) => tag === "hr");
    return [elements.slice(from, at + 1)];
  });
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
    if (Date.now() > untilMs) {
      throw new Error(`${open.length} questions in ${chatId}, not ${count}`);
    }
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
  const value = values.find((each) =>
    Object.entries(wanted).every(([key, expected]) => each[key] === expected),
  );
  if (value === undefined) throw new Error(`no button with ${JSON.stringify(wanted)}`);
  return await feishu.click({ messageId: message.messageId, openId, value });
}
