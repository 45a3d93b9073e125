import { createHash } from "node:crypto";
import type { OutboxRecord } from "@larkline/session";

/** What a person is told when a message starts no run. */
export type NoticeName = "late" | "full" | "too_long" | "empty";

const notices = {
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
} as const satisfies Record<NoticeName, Record<"zh" | "en", string>>;

export interface NoticeRequest {
  name: NoticeName;
  session: string;
  target: OutboxRecord["target"];
  /** The person's own words: they decide the language. */
  writtenText: string;
  ageMs: number;
  nowMs: number;
}

/** English needs a Latin letter and no Chinese one: a picture or an empty message says nothing about its writer. */
function noticeLanguage(text: string): "zh" | "en" {
  const words = text.replaceAll(/@\S+|^\[\w+\]$/g, "");
  return /\p{Script=Latin}/u.test(words) && !/\p{Script=Han}/u.test(words) ? "en" : "zh";
}

/** Names the one notice a message may get: as dedup id of the outbox. */
function noticeIdOf({ app, messageId }: OutboxRecord["target"]): string {
  return `${app}:${messageId}`;
}

/** The reply that stands in for a run. Its `uuid` depends on the message alone, so it is shown once. */
export function noticeOf({ name, session, target, writtenText, ageMs, nowMs }: NoticeRequest): OutboxRecord {
  const minutes = String(Math.max(1, Math.round(ageMs / 60_000)));
  const id = noticeIdOf(target);
  return {
    v: 1,
    id: `notice-${target.messageId}`,
    uuid: createHash("sha256").update(`notice ${id}`).digest("base64url").slice(0, 40),
    session,
    target,
    text: notices[name][noticeLanguage(writtenText)].replace("{minutes}", minutes),
    createdAtMs: nowMs,
    attempts: 0,
    uncertainSinceMs: 0,
  };
}
