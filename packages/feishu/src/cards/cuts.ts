import { LineReader, maxTables, maxTablesPerCard, startOfAnswer, type Context, type Line } from "./lines.ts";

/** What the answer may take of one card. */
export interface CardLimits {
  /** Bytes of JSON of the answer element's content. Default 20,000: the rest of the card needs the room. */
  answerBytes?: number;
  /** At most how many cuts to find; the text after the last one is not read. Default: all. */
  maxCuts?: number;
}

export const defaultAnswerBytes = 20_000;

/**
 * Where the earlier cards of the reply end, in characters of the answer. Never changes a known cut; adds
 * cuts when the last card would become too full. A cut depends on the text before it (and the one
 * character after it), not on the pieces in which the answer arrived; a frame that is rendered after
 * every piece never shows more of a card than the cut leaves on it.
 */
export function extendCuts(answer: string, cuts: readonly number[], options: CardLimits = {}): number[] {
  const { answerBytes = defaultAnswerBytes, maxCuts = Number.POSITIVE_INFINITY } = options;
  const limits = { answerBytes, maxCuts };
  const extended = [...cuts];
  let context = contextAt(answer, cuts, cuts.length);
  while (extended.length < maxCuts) {
    const start = extended.at(-1) ?? 0;
    const cut = firstCut(answer.slice(start), context, limits);
    if (cut === undefined) return extended;
    extended.push(start + cut.at);
    context = cut.context;
  }
  return extended;
}

/** What is open where a page begins, read from the text before it. */
export function contextAt(answer: string, cuts: readonly number[], page: number): Context {
  const from = cuts[page - 1];
  if (from === undefined) return startOfAnswer;
  const key = cuts.slice(0, page).join();
  const known = remembered.get(key);
  if (known !== undefined && answer.startsWith(known.before)) return known.context;
  const context = contextAfter(answer.slice(cuts[page - 2] ?? 0, from), contextAt(answer, cuts, page - 1));
  remember(key, { before: answer.slice(0, from), context });
  return context;
}

/*
 * A cut is made at the first place of a kind after this share of the room; better places have smaller shares.
 * So a cut depends only on the text before it, however the text was split into pieces, and it never lies before
 * text that a person has already seen on the card.
 */
const shares = {
  /** Before a table or a code block, so that it has at least a third of a card. */
  block: 0.65,
  paragraph: 0.75,
  line: 0.88,
  /** Between the rows of a table. */
  row: 0.94,
  word: 0.94,
  grapheme: 0.97,
} as const;

/** Bytes that it costs to close a block on one card and to open it again on the next. */
const reopenBytes = 160;
/** Image keys are longer than most names of images. */
const imageKeyBytes = 140;

const extraBytes: Record<string, number> = { '"': 1, "\\": 1, "<": 3, ";": 3, "&": 3, "]": 3, "\t": 1, "[": 0, "!": 3 };

/** The most bytes that one UTF-16 unit takes in the JSON of the card, with everything that may be inserted after it. */
function unitCost(text: string, at: number): number {
  const code = text.charCodeAt(at);
  if (code === 91 && text.charCodeAt(at - 1) === 33) return 1 + imageKeyBytes;
  if (code < 0x80) return 1 + (extraBytes[text[at] ?? ""] ?? 0);
  return code < 0x800 ? 2 : 3;
}

/** Line break, and two bytes for every blank of the indent. */
function lineOverhead({ text, kind }: Line): number {
  const indent = Math.min(80, text.length - text.trimStart().length);
  return (kind === "quote" ? 6 : 4) + indent * 4 + (kind === "fence-open" || kind === "table-head" ? 24 : 0);
}

function openingCost({ table }: Context): number {
  let bytes = reopenBytes;
  for (const line of [table?.head ?? "", table?.delimiter ?? ""]) {
    for (let at = 0; at < line.length; at += 1) bytes += unitCost(line, at);
  }
  return bytes;
}

const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });

function isWithinCharacter(text: string, at: number): boolean {
  const before = text.charCodeAt(at - 1);
  const after = text.charCodeAt(at);
  return before >= 0xd800 && before <= 0xdbff && after >= 0xdc00 && after <= 0xdfff;
}

/** Whether a person sees one character at this place, so that it cannot be cut here. */
function isWithinGrapheme(text: string, at: number): boolean {
  const from = Math.max(0, at - 32);
  const before = text.slice(isWithinCharacter(text, from) ? from + 1 : from, at);
  const next = String.fromCodePoint(text.codePointAt(at) ?? 0);
  return segmenter.segment(before + next).containing(before.length)?.index !== before.length;
}

const breakAfter = /[\s\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u3000-\u303F\uFF00-\uFFEF]/u;

/** Whether both halves of the character have arrived. */
function isThere({ text, complete }: Line, at: number): boolean {
  return complete || at + 1 < text.length || !/[\uD800-\uDBFF]/.test(text[at] ?? "");
}

/** Whether the line may be cut before the character at `at`, after this share of the room. */
function mayCutWithin(text: string, at: number, share: number): boolean {
  if (isWithinCharacter(text, at)) return false;
  if (share >= 1) return true;
  if (isWithinGrapheme(text, at)) return false;
  if (share >= shares.grapheme) return true;
  return breakAfter.test(text[at - 1] ?? "") && !/\s/.test(text[at] ?? "");
}

interface Page {
  limits: Required<CardLimits>;
  cost: number;
  tables: number;
}

/** Whether the card ends before the line. */
function endsBefore(
  line: Line,
  { after, page, tablesSoFar }: { after: Line | undefined; page: Page; tablesSoFar: number },
): boolean {
  const share = page.cost / page.limits.answerBytes;
  switch (line.kind) {
    case "table-head":
      return share >= shares.block || (page.tables >= maxTablesPerCard && tablesSoFar < maxTables);
    case "fence-open":
      return share >= shares.block;
    case "table-row":
      return share >= shares.row;
    case "table-delimiter":
    case "fence-close":
      return false;
    case "code":
      return share >= (line.text.trim() === "" ? shares.grapheme : shares.line) && after?.kind !== "fence-open";
    case "heading":
      return share >= shares.paragraph;
    default:
      return share >= (after?.kind === "blank" ? shares.paragraph : shares.line);
  }
}

/** Where within the line the card ends; undefined: it has room for the line. Adds the cost of the line. */
function cutWithin(line: Line, page: Page): number | undefined {
  const room = page.limits.answerBytes;
  const threshold = line.kind === "table-row" ? shares.grapheme : shares.word;
  const whole = line.kind === "table-head" || line.kind === "table-delimiter" || line.kind.startsWith("fence");
  page.cost += lineOverhead(line);
  const start = line.kind === "code" ? 0 : line.text.length - line.text.trimStart().length;
  for (let at = start; at < line.text.length; at += 1) {
    const share = page.cost / room;
    if (share >= threshold && at > 0 && !whole && isThere(line, at) && mayCutWithin(line.text, at, share)) {
      return line.start + at;
    }
    page.cost += unitCost(line.text, at);
  }
  return undefined;
}

interface Cut {
  /** In characters of the slice. */
  at: number;
  context: Context;
}

/** The first cut of the slice. */
function firstCut(slice: string, context: Context, limits: Required<CardLimits>): Cut | undefined {
  const reader = new LineReader(slice, context, { end: "growing" });
  const page: Page = { limits, cost: openingCost(context), tables: reader.tablesHere };
  let after: Line | undefined;
  let before = context;
  for (let line = reader.next(); line !== undefined; line = reader.next()) {
    if (line.kind === "pending") return undefined;
    if (line.kind !== "blank") {
      const ends = after !== undefined && endsBefore(line, { after, page, tablesSoFar: before.tables });
      if (ends) return { at: line.start, context: before };
      const within = cutWithin(line, page);
      if (within !== undefined) return { at: within, context: reader.context(true) };
    }
    page.tables = reader.tablesHere;
    before = reader.context();
    after = line;
  }
  return undefined;
}

const maxRemembered = 64;
/** What was open at the cuts of the latest answers: reading a long answer again takes longer than a frame. */
const remembered = new Map<string, { before: string; context: Context }>();

function remember(key: string, entry: { before: string; context: Context }): void {
  remembered.delete(key);
  remembered.set(key, entry);
  for (const oldest of remembered.keys()) {
    if (remembered.size <= maxRemembered) return;
    remembered.delete(oldest);
  }
}

function contextAfter(slice: string, context: Context): Context {
  const withinLine = !slice.endsWith("\n");
  const reader = new LineReader(slice, context, { end: withinLine ? "within-line" : "line" });
  while (reader.next() !== undefined);
  return reader.context(withinLine);
}
