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

/** The code of a currency, such as `CNY`, and how much of it a US dollar is. */
interface Currency {
  readonly code: string;
  readonly perUsd: number;
}

/** The smallest sum that is written out, in any currency. */
const leastShown = 0.0001;

/** A sum of US dollars in a currency, as readers of the language write it: to the cent, below a tenth more exactly. */
export function moneyText(
  usd: number,
  language: ReplyLanguage,
  { code, perUsd }: Currency = { code: "USD", perUsd: 1 },
): string {
  const amount = usd * perUsd;
  const isTiny = amount > 0 && amount < leastShown;
  const digits = amount > 0 && amount < 0.1 ? 4 : 2;
  const shown = new Intl.NumberFormat(language === "zh" ? "zh-CN" : "en-US", {
    style: "currency",
    currency: code,
    currencyDisplay: "narrowSymbol",
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  }).format(isTiny ? leastShown : amount);
  return isTiny ? `<${shown}` : shown;
}
