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
export function fenceFor(text: string): string {
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
