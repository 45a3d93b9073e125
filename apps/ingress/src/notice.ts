import { createHash } from "node:crypto";
import { traceparentOf, type ReplyLanguage } from "@larkline/protocol";
import type { OutboxRecord, OutboxTarget } from "@larkline/store";

/** What a person is told when a message starts no run. */
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

/** Whole minutes of an age, at least one. */
function minutesOf(ageMs: number): number {
  return Math.max(1, Math.round(ageMs / 60_000));
}

/** The line that stands in for an answer. */
export function refusalText(name: RefusalName, language: ReplyLanguage, ageMs = 0): string {
  return refusals[name][language].replace("{minutes}", String(minutesOf(ageMs)));
}

const joining = {
  zh: "已收到，会在正在进行的回答中一并考虑。",
  en: "Received. I will take it into account in the answer that is under way.",
} as const satisfies Record<ReplyLanguage, string>;

/** What a person is told whose message joins the running turn. */
export function joiningText(language: ReplyLanguage): string {
  return joining[language];
}

/** Something to be said outside a turn. */
export interface Statement {
  /** With `key` it names the statement: said once, however often it is asked for. */
  purpose: "notice" | "queued" | "welcome";
  /** What it is about, such as a message id. */
  key: string;
  session: string;
  target: OutboxTarget;
  /** What is sent when the card cannot be. */
  text: string;
  card?: Record<string, unknown>;
  nowMs: number;
}

/** The record of a statement; its `uuid` depends on purpose, app and key alone, so it is shown once. */
export function recordOf({ purpose, key, session, target, text, card, nowMs }: Statement): OutboxRecord {
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
