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

/*
 * Makes text of models, tools and people harmless in a card's markdown.
 *
 * Feishu documents no escape for its own tags (`<at>`, `<person>`, `<font>`, `<text_tag>`, `<link>`, ...;
 * "Rich text (Markdown)"). So an invisible character breaks them, and the reader sees the same text:
 *
 * - in text, after every `<` and after every entity of `<`, so that nothing can begin a tag;
 * - in code, only where a tag that notifies or names a person begins, because people copy code.
 *
 * These functions only insert characters, and only after the text that decides it. So the shown text of a growing
 * answer stays a prefix of the next one, as long as an undecided end is held back.
 */

/** Zero-width space: it breaks tags, and marks a line that continues from another card. */
export const invisible = "\u200B";

const lessThan = String.raw`(?:&(?:amp;|#0*38;|#x0*26;)*(?:lt|#0{0,20}60(?!\d)|#x0{0,20}3c(?![\da-f]));?)`;
const textOpeners = new RegExp(`<|${lessThan}`, "giu");
const tagNames = "at|person|at_all|all";
const codeOpeners = new RegExp(
  String.raw`(?:<|${lessThan})(?=[\s\p{Cc}\p{Cf}/\\]{0,30}(?:${tagNames})(?![\w-]))`,
  "giu",
);
/** An end that the next characters may turn into an opener. */
const openCodeEnd = /(?:<|&[#a-z0-9;]{0,40})[\s\p{Cc}\p{Cf}/\\]{0,30}[\w-]{0,7}$/iu;

/** Text in which no tag can begin. */
export function neutralText(text: string): string {
  return text.replaceAll(textOpeners, `$&${invisible}`);
}

/** Code that mentions and names no person. */
export function neutralCode(code: string): string {
  return code.replaceAll(codeOpeners, `$&${invisible}`);
}

/** Length of the beginning of the code that no following text can change. */
export function decidedCode(code: string): number {
  const at = code.slice(-96).search(openCodeEnd);
  return at === -1 ? code.length : Math.max(0, code.length - 96) + at;
}

const unprintable = /(?![\t\n])\p{Cc}/gu;

/** Without control characters and halves of characters. */
export function printable(text: string): string {
  return text.toWellFormed().replaceAll(unprintable, "");
}

/** A fence that nothing in the text can close. */
function fenceFor(text: string): string {
  let longest = 2;
  for (const [run] of text.matchAll(/`{3,}/g)) longest = Math.max(longest, run.length);
  return "`".repeat(longest + 1);
}

/** Text as a code block that it cannot leave. */
export function fenced(text: string): string {
  const code = neutralCode(printable(text));
  const fence = fenceFor(code);
  return `${fence}\n${code}\n${fence}`;
}

/** Text within a line of markdown, without markup and line breaks. */
export function inlineText(text: string): string {
  return neutralText(
    printable(text)
      .replaceAll(/\s+/g, " ")
      .replaceAll(/[`*_~[\]|\\]/g, `$&${invisible}`),
  );
}

/**
 * Characters that are invisible, look like others, or change the reading direction; except line breaks, tabs and
 * the selector that makes an emoji colourful.
 */
const hidden =
  /(?<!\p{Extended_Pictographic})\uFE0F|(?!\uFE0F)(?![\t\n \u3000])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\p{Default_Ignorable_Code_Point}\u2800]/gu;

function codeOf(characters: string): string {
  let code = "";
  for (let at = 0; at < characters.length; at += 1) {
    code += String.raw`\u${characters.charCodeAt(at).toString(16).padStart(4, "0")}`;
  }
  return code;
}

/** Text in which hidden characters are written as escapes such as `\u200b`. */
export function visibleText(text: string): string {
  return text.replaceAll(hidden, codeOf);
}

/**
 * JSON text for a code block, still JSON of the same value: hidden characters, and characters that could close the
 * block or begin a tag that names a person, are written as escapes.
 */
export function visibleJson(json: string): string {
  return visibleText(json)
    .replaceAll(/`{3,}/g, codeOf)
    .replaceAll(codeOpeners, (opener) => codeOf(opener.slice(0, 1)) + opener.slice(1));
}
