import { createHash } from "node:crypto";
import { languageOf } from "@larkline/agent";
import type { AgentConfig } from "@larkline/process/config";
import {
  replyLanguages,
  traceparentOf,
  withDeadline,
  type InboundMessage,
  type ReplyLanguage,
} from "@larkline/protocol";
import type { OutboxRecord, OutboxTarget } from "@larkline/store";
import type { Bot } from "./bot.ts";
import type { Channel, Services } from "./services.ts";

// What ingress says to people by itself, outside of any turn, and in which language it says that.

/** Something to be said outside of a turn. */
export interface Notice {
  /** With `key` it names the notice, which is sent once, however often it is asked for. */
  purpose: "notice" | "queued" | "welcome";
  /** What it is about, such as a message id. */
  key: string;
  session: string;
  target: OutboxTarget;
  /** What is sent when the card cannot be. */
  text: string;
  card?: Record<string, unknown>;
}

/**
 * Stores a notice in the session's outbox, from where it is sent in the background. Resolves when it is stored; false
 * when it was stored before. The outbox remembers it under `messageId`; `parked` waits behind the question on its card.
 */
export async function sendNotice(
  services: Services,
  bot: Bot,
  notice: Notice,
  { messageId, parked }: { messageId?: string; parked?: InboundMessage } = {},
): Promise<boolean> {
  const record = recordOf(notice, services.clock.now());
  const lease = await services.store.pushOutbox(record, messageId ?? record.id, parked);
  if (lease !== undefined) bot.outbox.deliver(lease);
  return lease !== undefined;
}

/** The `uuid` of the record depends on purpose, app and key alone, so the platform shows the notice once. */
function recordOf({ purpose, key, session, target, text, card }: Notice, nowMs: number): OutboxRecord {
  return {
    v: 1,
    id: `${purpose}-${key}`,
    uuid: createHash("sha256").update(`${purpose} ${target.app}:${key}`).digest("base64url").slice(0, 40),
    session,
    target,
    text,
    ...(card === undefined ? {} : { card }),
    // A welcome is about no message.
    ...(purpose === "welcome" ? {} : { traceparent: traceparentOf({ app: target.app, id: key }) }),
    createdAtMs: nowMs,
    attempts: 0,
    uncertainSinceMs: 0,
  };
}

/** The notice for a message that starts no run. */
export type RefusalName = "late" | "full" | "too_long" | "empty" | "foreign_tenant";

const refusals = {
  late: {
    zh: "这条消息 {minutes} 分钟前发出，现在才送达，所以我没有处理。如果仍然需要，请再发一次。",
    en: "This message reached me {minutes} minutes after it was written, so I did not act on it. Please send it again if you still need it.",
  },
  full: {
    zh: "排队等待的消息太多，这条消息没有被处理。请稍后再发一次。",
    en: "Too many messages are waiting here, so this one was not taken. Please send it again later.",
  },
  too_long: {
    zh: "这条消息太长，我没有处理。请缩短后再发一次。",
    en: "This message is too long for me, so I did not act on it. Please send a shorter one.",
  },
  empty: {
    zh: "我在。请写下你的问题。",
    en: "I am here. What can I do for you?",
  },
  foreign_tenant: {
    zh: "抱歉，我不为你所在的组织提供服务。",
    en: "Sorry, I do not serve people of your organisation.",
  },
} as const satisfies Record<RefusalName, Record<ReplyLanguage, string>>;

/** The line that is sent in place of an answer. */
export function refusalText(name: RefusalName, language: ReplyLanguage, ageMs = 0): string {
  const minutes = Math.max(1, Math.round(ageMs / 60_000));
  return refusals[name][language].replace("{minutes}", String(minutes));
}

/** The notice for a message that joins the running turn. */
export const joiningTexts = {
  zh: "已收到，会在正在进行的回答中一并考虑。",
  en: "Received. I will take it into account in the answer that is under way.",
} as const satisfies Record<ReplyLanguage, string>;

/** What a person has written, as far as it tells their language. */
export interface Written {
  text: string;
  /** Names that stand in the text behind an `@`. */
  mentioned?: readonly string[];
  /** The words are not the person's: a picture's, a forwarded card's, those of a menu entry. */
  isForeign?: boolean;
  /** The person is not served: nothing is kept of them. */
  isStranger?: boolean;
}

type DefaultLanguage = Pick<AgentConfig, "defaultLanguage">;

/**
 * The language of a message's writer: that of their last message with words of their own, which is kept. Over HTTP,
 * where no person is known, `person` is the id of the session. Never rejects.
 */
export async function hearLanguage(
  services: Services,
  channel: Channel,
  { person, ...written }: Written & { person: string },
  { defaultLanguage }: DefaultLanguage,
): Promise<ReplyLanguage> {
  const found = writtenLanguage(written);
  if (found?.isSure !== true) {
    return (await keptLanguage(services, channel, person)) ?? found?.language ?? defaultLanguage;
  }
  // A message never waits for this.
  if (written.isStranger !== true) void keepLanguage(services, channel, person, found.language);
  return found.language;
}

/** The language of a person who writes nothing at the moment. Never rejects. */
export async function languageOfPerson(
  services: Services,
  channel: Channel,
  person: string,
  { defaultLanguage }: DefaultLanguage,
): Promise<ReplyLanguage> {
  return (await keptLanguage(services, channel, person)) ?? defaultLanguage;
}

/** A store that hangs must not hold messages up for the sake of a few words. */
const languagePatienceMs = 1_000;

async function keptLanguage(services: Services, channel: Channel, person: string): Promise<ReplyLanguage | undefined> {
  const { clock, lookups } = services;
  try {
    const kept = await withDeadline(clock, lookups.get(languageKey(channel, person)), languagePatienceMs);
    return replyLanguages.find((language) => language === kept);
  } catch (error) {
    channel.log.warn({ error }, "a person's language could not be read");
    return undefined;
  }
}

/** Never rejects. */
async function keepLanguage(
  { lookups }: Services,
  channel: Channel,
  person: string,
  language: ReplyLanguage,
): Promise<void> {
  try {
    await lookups.set(languageKey(channel, person), language, channel.languageKeptMs);
  } catch (error) {
    channel.log.warn({ error }, "a person's language could not be kept");
  }
}

function languageKey({ app }: Channel, person: string): string {
  return `lang:${app}:${person}`;
}

/**
 * The language that a text is written in; undefined where it has no words, such as a number, a picture or an emoji.
 * Not sure: a command such as `/help` alone, which speakers of every language write, and words of another author.
 */
export function writtenLanguage(written: Written): { language: ReplyLanguage; isSure: boolean } | undefined {
  const words = wordsOf(written);
  const command = /^\s*\/[\w-]+\s*$/;
  if (!/\p{L}/u.test(words)) return undefined;
  return { language: languageOf(words), isSure: written.isForeign !== true && !command.test(words) };
}

/** The text without what is the same in every language: code, addresses, names of people and of emoji. */
function wordsOf({ text, mentioned = [] }: Written): string {
  const bare = mentioned.reduce((left, name) => (name === "" ? left : left.replaceAll(`@${name}`, " ")), text);
  return bare
    .replaceAll(/```[^]*?(?:```|$)|`[^`\n]*`/g, " ")
    .replaceAll(/https?:\/\/[^\s\p{Script=Han}]+|@\S+/giu, " ")
    .replaceAll(/\[[\p{L}\p{N}_]{1,20}\](?!\()|:[A-Za-z\d_]{1,30}:/gu, " ");
}

/** The language of the texts around an answer to a message of that language. */
export function shownLanguage(agent: AgentConfig, spoken: ReplyLanguage | undefined): ReplyLanguage {
  return agent.language === "auto" ? (spoken ?? agent.defaultLanguage) : agent.language;
}
