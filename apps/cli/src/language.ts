import type { Env } from "@larkline/process/config";

export const languages = ["zh", "en"] as const;
export type Language = (typeof languages)[number];

/** A text in both languages. */
export type Bilingual = Readonly<Record<Language, string>>;

/** The language of the terminal: Chinese when it says so, English otherwise. */
export function languageOf(env: Env): Language {
  return /^zh/i.test(env["LC_ALL"] || env["LC_MESSAGES"] || env["LANG"] || "") ? "zh" : "en";
}
