import type { ReplyLanguage } from "@larkline/protocol";
import { en, type Texts } from "./en.ts";
import { zh } from "./zh.ts";

/** All texts of one language. */
export function textsOf(language: ReplyLanguage): Texts {
  return language === "zh" ? zh : en;
}

/** The first `maxChars` characters at most; no emoji or rare Chinese character is split. */
export function textHead(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const splits = /[\uD800-\uDBFF]/.test(text.charAt(maxChars - 1));
  return text.slice(0, splits ? maxChars - 1 : maxChars);
}

/** The text with `maxChars` characters at most, and "…" at the end where it is cut. */
export function shortened(text: string, maxChars: number): string {
  return text.length > maxChars ? `${textHead(text, maxChars - 1)}…` : text;
}

/** The last `maxChars` characters at most; no emoji or rare Chinese character is split. */
export function textTail(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const start = text.length - maxChars;
  return text.slice(/[\uDC00-\uDFFF]/.test(text.charAt(start)) ? start + 1 : start);
}

/** Names a text that the system itself shows: beside an answer, or in place of one. */
export type NoticeName = keyof Texts["notices"];

/** What a notice fills in at `{name}`; each becomes one line. */
export type NoticeValues = Readonly<Record<string, string | number>>;

/** Longest value that a notice repeats, in characters. */
const maxValueChars = 200;

/** The notice in one language. */
export function noticeText(
  name: NoticeName,
  language: ReplyLanguage,
  values: NoticeValues = {},
): string {
  return filledText(textsOf(language).notices[name], values);
}

/** The text with its values: cut to size and to one line; a missing one stays visible. */
export function filledText(text: string, values: NoticeValues): string {
  return text.replaceAll(/\{(\w+)\}/g, (whole, key: string) => {
    const value = Object.hasOwn(values, key) ? values[key] : undefined;
    return value === undefined ? whole : oneLine(String(value), maxValueChars);
  });
}

/** The text without line breaks and other control characters, cut to size between characters. */
export function oneLine(text: string, maxChars: number): string {
  const line = text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gu, " ").trim();
  return shortened(line, maxChars);
}

/** Untrusted text as inline code of Markdown; it cannot end the code span. */
export function inlineCode(text: string, maxChars = maxValueChars): string {
  return `\`${oneLine(text.replaceAll("`", "'"), maxChars)}\``;
}

/** The text that is sent and stored when the step limit is reached. By contract it is the same in every language; cards translate it. */
export const exhaustedText =
  "[Reached the maximum number of steps without completing the request.]";
