import { replyLanguages, type ReplyLanguage } from "@larkline/protocol";

/** An element of a card (JSON 2.0), or a whole card. */
export type CardElement = Record<string, unknown>;

/** Most of a whole card in bytes; the platform refuses 30 KB ("Card JSON 2.0"). */
export const maxCardBytes = 26_000;

/** UTF-8 bytes of the JSON, as the platform counts them. */
export function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}

/** Every object with a `tag` counts: components, and the texts within them. */
export function countElements(value: unknown): number {
  if (Array.isArray(value)) return value.reduce<number>((sum, entry) => sum + countElements(entry), 0);
  if (typeof value !== "object" || value === null) return 0;
  const own = "tag" in value ? 1 : 0;
  return own + countElements(Object.values(value));
}

/** The language of a card; `bilingual`: both are sent, and each reader sees that of their client. */
export interface Speech {
  language: ReplyLanguage;
  bilingual?: boolean | undefined;
}

const locales: Readonly<Record<ReplyLanguage, string>> = { zh: "zh_cn", en: "en_us" };

/**
 * What `draw` makes, in one language or in both: then every text that differs carries both in `i18n_content`, and
 * clients of any other language show the English one ("Configure multi-language content"). What is drawn must have
 * the same elements in each language.
 */
export function inLanguages<T>({ language, bilingual = false }: Speech, draw: (language: ReplyLanguage) => T): T {
  const own = draw(language);
  if (!bilingual) return own;
  // The merged value has the form of `own`, with one property more in some of its texts.
  return withBoth(own, new Map(replyLanguages.map((each) => [each, each === language ? own : draw(each)]))) as T;
}

/** The same for a whole card. When both languages need more room than a card has, it has one. */
export function cardInLanguages(speech: Speech, draw: (language: ReplyLanguage) => CardElement): CardElement {
  const card = inLanguages(speech, draw);
  return speech.bilingual === true && jsonBytes(card) > maxCardBytes ? draw(speech.language) : card;
}

function withBoth(own: unknown, drawn: ReadonlyMap<ReplyLanguage, unknown>): unknown {
  const inside = (key: string | number, value: unknown): unknown =>
    withBoth(value, new Map([...drawn].map(([language, each]) => [language, memberOf(each, key)])));
  if (Array.isArray(own)) return own.map((value: unknown, at) => inside(at, value));
  if (typeof own !== "object" || own === null) return own;
  const merged = Object.fromEntries(Object.entries(own).map(([key, value]) => [key, inside(key, value)]));
  const texts = [...drawn].flatMap(([language, each]) => {
    const text = memberOf(each, "content");
    return typeof text === "string" ? [[locales[language], text] as const] : [];
  });
  if (texts.length < replyLanguages.length || new Set(texts.map(([, text]) => text)).size < 2) return merged;
  return { ...merged, i18n_content: Object.fromEntries(texts) };
}

function memberOf(value: unknown, key: string | number): unknown {
  // Own members only: drawn elements are plain objects and arrays.
  return typeof value === "object" && value !== null ? (value as Record<string | number, unknown>)[key] : undefined;
}

export function plainText(content: string): CardElement {
  return { tag: "plain_text", content };
}

export function markdown(content: string, more: CardElement = {}): CardElement {
  return { tag: "markdown", ...more, content };
}

export function button(text: string, more: { value: CardElement; type?: string; elementId?: string }): CardElement {
  return {
    tag: "button",
    ...(more.elementId === undefined ? {} : { element_id: more.elementId }),
    text: plainText(text),
    type: more.type ?? "default",
    size: "small",
    behaviors: [{ type: "callback", value: more.value }],
  };
}

export function foldedPanel(title: string, elements: CardElement[], elementId?: string): CardElement {
  return {
    tag: "collapsible_panel",
    ...(elementId === undefined ? {} : { element_id: elementId }),
    expanded: false,
    header: {
      title: plainText(title),
      icon: { tag: "standard_icon", token: "down-small-ccm_outlined" },
      icon_position: "right",
      icon_expanded_angle: -180,
    },
    border: { color: "grey", corner_radius: "5px" },
    elements,
  };
}

/** The end of a text that fits, by characters and by bytes of JSON, never beginning within a character. */
export function tailWithin(text: string, { characters, bytes }: TextRoom): string {
  let from = Math.max(0, text.length - characters);
  let tail = text.slice(from).toWellFormed();
  while (jsonBytes(tail) > bytes && tail.length > 0) {
    from += Math.max(1, Math.ceil((jsonBytes(tail) - bytes) / 4));
    tail = text.slice(from).toWellFormed();
  }
  return tail.length < text.length ? tail.replace(/^\uFFFD/, "") : tail;
}

/** The beginning of a text that fits, by characters and by bytes of JSON, never ending within a character. */
export function headWithin(text: string, { characters, bytes }: TextRoom): string {
  let to = Math.min(text.length, characters);
  let head = text.slice(0, to).toWellFormed();
  while (jsonBytes(head) > bytes && head.length > 0) {
    to -= Math.max(1, Math.ceil((jsonBytes(head) - bytes) / 4));
    head = text.slice(0, Math.max(0, to)).toWellFormed();
  }
  return head.length < text.length ? head.replace(/\uFFFD$/, "") : head;
}

export function fits(text: string, { characters, bytes }: TextRoom): boolean {
  return text.length <= characters && jsonBytes(text) <= bytes;
}

export interface TextRoom {
  characters: number;
  bytes: number;
}
