import { Type, type Static } from "./type.ts";

export const replyLanguages = ["zh", "en"] as const;

/** Language of the texts around an answer. */
export type ReplyLanguage = (typeof replyLanguages)[number];

/** Words of an author: the same for all readers, or in each language. */
export const LocalText = Type.Union([
  Type.String({ minLength: 1, maxLength: 300 }),
  Type.Object({
    zh: Type.String({ minLength: 1, maxLength: 300 }),
    en: Type.String({ minLength: 1, maxLength: 300 }),
  }),
]);

export type LocalText = Static<typeof LocalText>;

export function textIn(text: LocalText, language: ReplyLanguage): string {
  return typeof text === "string" ? text : text[language];
}
