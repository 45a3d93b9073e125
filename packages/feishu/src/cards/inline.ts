import { imageNameOf } from "@larkline/protocol";
import { invisible, neutralText } from "./escape.ts";

/** Image key by what the answer calls the image; null: there is none. Without a map there are no images. */
export type ImageKeys = ReadonlyMap<string, string | null>;

export interface InlineOptions {
  /** Nothing follows: everything has to be shown. */
  final: boolean;
  /** Nothing follows within the line. */
  lineComplete: boolean;
  images: ImageKeys | undefined;
}

/** A piece of a line as it is shown; `held`: the rest waits for more text or for an image. */
export interface ShownInline {
  text: string;
  held: boolean;
}

interface Piece {
  /** Characters of the source that it stands for. */
  length: number;
  text: string;
}

type Found = Piece | "wait";

/** Nothing within it can begin another mark, so that no part of it can become one. */
const imageMark = /!\[([^[\]\n]{0,1000})\]\(([^()[\]\n]{1,2000})\)/y;
/** Longer than any mark that the pattern above takes. */
const maxImageLength = 3_010;
/** Entities are shorter; whatever looks like a longer one is broken. */
const maxEntityLength = 40;
const foreignLink = /\]\((?!https?:\/\/|mailto:)/gi;
const allowedLinks = ["http://", "https://", "mailto:"];
const special = /[<&`\]!\\]/g;

/** Where the picture is, as the answer says it: without title and angle brackets. */
function imageRef(destination: string): string {
  const bare = destination.trim().replace(/\s+(?:"[^"]*"|'[^']*')$/, "");
  return bare.startsWith("<") && bare.endsWith(">") ? bare.slice(1, -1) : bare;
}

/** The images that the answer names, in order, each once: what `images` has to answer for. */
export function imageRefsIn(answer: string): string[] {
  const refs = new Set<string>();
  for (const [, , destination = ""] of answer.matchAll(new RegExp(imageMark.source, "g"))) {
    refs.add(imageRef(destination));
  }
  return [...refs];
}

function isImageKey(key: string): boolean {
  return /^[\w-]{1,200}$/.test(key);
}

function withoutImage(alt: string, ref: string): string {
  if (/^blob[:_]/.test(ref)) return neutralText(imageNameOf(alt));
  const name = neutralText(alt.trim() === "" ? (ref.split("/").at(-1) ?? ref) : alt);
  return /^https?:\/\/[^\s<>()&]+$/.test(ref) ? `[${name}](${ref})` : name;
}

function imageAt(line: string, at: number, options: InlineOptions): Found {
  imageMark.lastIndex = at;
  const [mark, alt = "", destination = ""] = imageMark.exec(line) ?? [];
  if (mark === undefined) {
    if (!options.lineComplete && line.length - at < maxImageLength) return "wait";
    return { length: 1, text: line[at + 1] === "[" ? `!${invisible}` : "!" };
  }
  const ref = imageRef(destination);
  const key = options.images === undefined ? null : options.images.get(ref);
  if (key === undefined && !options.final) return "wait";
  const shown = typeof key === "string" && isImageKey(key) ? `![${neutralText(alt)}](${key})` : withoutImage(alt, ref);
  return { length: mark.length, text: shown };
}

function exclamation(line: string, at: number, options: InlineOptions): Found {
  const next = line[at + 1];
  if (next === "[") return imageAt(line, at, options);
  return next === undefined && !options.lineComplete ? "wait" : { length: 1, text: "!" };
}

/** A link to anything but the web or a mail address is text: the invisible character parts it. */
function bracket(line: string, at: number, { lineComplete }: InlineOptions): Found {
  const next = line[at + 1];
  if (next === undefined && !lineComplete) return "wait";
  if (next === ":") return { length: 1, text: `]${invisible}` };
  if (next !== "(") return { length: 1, text: "]" };
  const destination = line.slice(at + 2, at + 12).toLowerCase();
  if (allowedLinks.some((start) => destination.startsWith(start))) return { length: 1, text: "]" };
  if (!lineComplete && allowedLinks.some((start) => start.startsWith(destination))) return "wait";
  return { length: 1, text: `]${invisible}` };
}

/**
 * A code span is copied whole. Images and foreign links in it are broken like everywhere: in a table
 * the platform may see cells where this sees a span, and an image without a key fails the whole card.
 */
function codeSpan(line: string, at: number, { lineComplete }: InlineOptions): Found {
  const run = /`+/y;
  run.lastIndex = at;
  const marker = run.exec(line)?.[0] ?? "`";
  const close = new RegExp(`(?<!\`)${marker}(?!\`)`, "g");
  close.lastIndex = at + marker.length;
  const end = close.exec(line);
  const closed = end !== null && (lineComplete || close.lastIndex < line.length);
  if (!closed) return lineComplete ? { length: marker.length, text: marker } : "wait";
  const text = line.slice(at, close.lastIndex);
  const broken = text.replaceAll("![", `!${invisible}[`).replaceAll(foreignLink, `]${invisible}(`);
  return { length: text.length, text: neutralText(broken) };
}

function backslash(line: string, at: number, { lineComplete }: InlineOptions): Found {
  const next = line[at + 1];
  if (next === undefined && !lineComplete) return "wait";
  if (next !== undefined && "`\\".includes(next)) return { length: 2, text: `\\${next}` };
  return { length: 1, text: "\\" };
}

function openerAt(line: string, at: number, { lineComplete }: InlineOptions): Found {
  if (line[at] === "<") return { length: 1, text: `<${invisible}` };
  const word = /^&[#a-z0-9;]*/i.exec(line.slice(at, at + maxEntityLength))?.[0] ?? "&";
  if (word.length === maxEntityLength) return { length: 1, text: `&${invisible}` };
  if (!lineComplete && at + word.length === line.length) return "wait";
  return { length: word.length, text: neutralText(word) };
}

function foundAt(line: string, at: number, options: InlineOptions): Found {
  switch (line[at]) {
    case "`":
      return codeSpan(line, at, options);
    case "!":
      return exclamation(line, at, options);
    case "]":
      return bracket(line, at, options);
    case "\\":
      return backslash(line, at, options);
    default:
      return openerAt(line, at, options);
  }
}

/**
 * A line of text as the card shows it. While the line grows, what it answers only ever grows too:
 * marks that are not complete wait.
 */
export function shownInline(line: string, options: InlineOptions): ShownInline {
  let text = "";
  let at = 0;
  while (at < line.length) {
    special.lastIndex = at;
    const next = special.exec(line)?.index ?? line.length;
    text += line.slice(at, next);
    if (next === line.length) break;
    const found = foundAt(line, next, options);
    if (found === "wait") return { text, held: true };
    text += found.text;
    at = next + found.length;
  }
  return { text, held: false };
}
