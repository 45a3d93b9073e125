import { printable } from "./escape.ts";

/** A code fence that is open. */
export interface Fence {
  /** The opening run, such as three backticks. */
  marker: string;
  indent: number;
  /** Language, made harmless. */
  language: string;
}

/** A table that is open. */
export interface OpenTable {
  head: string;
  delimiter: string;
  /** Whether it is shown as a code block. */
  asCode: boolean;
}

/** What is open at a place of the answer. The text after it can be read with this alone. */
export interface Context {
  fence?: Fence;
  table?: OpenTable;
  /** The place is within a line. */
  withinLine: boolean;
  /** Tables begun so far in the whole answer. */
  tables: number;
}

export const startOfAnswer: Context = { withinLine: false, tables: 0 };

/** Tables of one card: the platform refuses a fourth ("Error codes", 230099/11310; measured). */
export const maxTablesPerCard = 3;
/** Tables of a reply; later ones are shown as code blocks, because every three tables need another card. */
export const maxTables = 15;

const maxHeadLength = 1_000;
const maxDelimiterLength = 2_000;
const maxFenceLineLength = 200;

/**
 * - `pending`: the last line, whose kind depends on text that has not arrived yet
 * - `blank`: nothing, or an empty line of a quote
 */
export type LineKind =
  | "pending"
  | "blank"
  | "fence-open"
  | "code"
  | "fence-close"
  | "table-head"
  | "table-delimiter"
  | "table-row"
  | "heading"
  | "rule"
  | "item"
  | "quote"
  | "text";

export interface Line {
  kind: LineKind;
  /** Without the line break. */
  text: string;
  /** In characters of the slice. */
  start: number;
  end: number;
  /** No more text will be added to the line. */
  complete: boolean;
  /** The fence that it opens, belongs to or closes. */
  fence?: Fence;
  table?: OpenTable;
}

/** How a slice of the answer ends. */
export type SliceEnd =
  /** More text may follow. */
  | "growing"
  /** A card or the answer ends here, with the line. */
  | "line"
  /** The card ends here, but the line continues on the next one. */
  | "within-line";

const fenceOpen = /^(\s*)((?:[-*+]|\d{1,9}[.)])\s+)?(`{3,}|~{3,})([^\n]*)$/;
const delimiterRow = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const rule = /^\s{0,3}([-*_])(?:\s*\1){2,}\s*$/;
const item = /^\s*(?:[-*+]|\d{1,9}[.)])\s+\S/;
const heading = /^\s{0,3}#{1,6}\s+\S/;
const quote = /^\s{0,3}>/;
const emptyQuote = /^\s{0,3}(?:>\s*)+$/;
/** A line that can only be text, judged by its first character, as most lines. */
const ordinary = /^ {0,40}[^\s#\-*+_>|`~\d]/;
/** Beginnings of lines that may become any of the above. */
const undecided =
  /^\s*(?:#{0,6}\s*|(?:[-*+]|\d{1,9}[.)])?\s*(?:`{1,2}|~{1,2}|[`~]{3}[^\n]*)?|\d{1,9}|(?:>\s*)+|([-*_])(?:\s*\1)*\s*)$/;

function languageOf(info: string): string {
  return /^\s*([\w+#.-]{1,30})(?=[\s{,:]|$)/.exec(info)?.[1] ?? "";
}

function openedFence(line: string): Fence | undefined {
  if (line.length > maxFenceLineLength) return undefined;
  const [, indent = "", lead = "", marker = "", info = ""] = fenceOpen.exec(line) ?? [];
  if (marker === "" || (marker.startsWith("`") && info.includes("`"))) return undefined;
  return { marker, indent: indent.length + lead.length, language: languageOf(info) };
}

function closes(line: string, fence: Fence): boolean {
  if (line.length > maxFenceLineLength) return false;
  const trimmed = line.trimStart();
  if (!trimmed.startsWith(fence.marker) || line.length - trimmed.length > fence.indent + 3) return false;
  return [...trimmed.trimEnd()].every((character) => character === fence.marker[0]);
}

/** Whether a parser could take a line of code for the end of its fence, judged by the beginning of the line. */
export function looksLikeEnd(code: string, fence: Fence): boolean {
  const start = code.slice(0, maxFenceLineLength + 1).trim();
  return start.length >= 3 && [...start].every((character) => character === fence.marker[0]);
}

/** Whether the beginning of a line within a fence may still become its end. */
function mayClose(line: string, fence: Fence): boolean {
  if (line.length > maxFenceLineLength) return false;
  const trimmed = line.trim();
  return trimmed === "" || [...trimmed].every((character) => character === fence.marker[0]);
}

function isDelimiter(line: string): boolean {
  return line.length <= maxDelimiterLength && line.includes("|") && line.includes("-") && delimiterRow.test(line);
}

/** Whether the next line makes a possible table head one; undefined: not known yet. */
function headFollowedBy(next: { text: string; complete: boolean } | undefined): boolean | undefined {
  if (next === undefined) return undefined;
  if (next.complete) return isDelimiter(next.text);
  return next.text.length <= maxDelimiterLength && /^[\s:|-]*$/.test(next.text) ? undefined : false;
}

/** The kind of a line that is no part of a fence or a table. */
function lineKind({ text, complete }: RawLine): LineKind {
  if (text.trim() === "" || emptyQuote.test(text)) return "blank";
  if (quote.test(text)) return "quote";
  if (heading.test(text)) return "heading";
  if (complete && rule.test(text)) return "rule";
  return item.test(text) ? "item" : "text";
}

/**
 * Reads the lines of a slice of the answer. The kind of a line never changes when text is added; a line whose
 * kind is not decided yet is `pending`, and the last one.
 */
export class LineReader {
  readonly #slice: string;
  readonly #end: SliceEnd;
  #position = 0;
  #withinLine: boolean;
  #fence: Fence | undefined;
  #table: OpenTable | undefined;
  #delimiterNext = false;
  #tables: number;
  #tablesHere = 0;
  /** The table began on an earlier card; whether it continues here is not known yet. */
  #carried: boolean;
  readonly #tablesPerCard: number;

  constructor(slice: string, context: Context, { end, tablesPerCard = maxTablesPerCard }: ReaderOptions) {
    this.#slice = slice;
    this.#end = end;
    this.#withinLine = context.withinLine;
    this.#fence = context.fence;
    this.#table = context.withinLine ? undefined : context.table;
    this.#carried = this.#table !== undefined;
    this.#tables = context.tables;
    this.#tablesPerCard = tablesPerCard;
  }

  /** Tables shown as tables so far. */
  get tablesHere(): number {
    return this.#tablesHere;
  }

  /** What is open after the line that was read last. */
  context(withinLine = false): Context {
    return {
      ...(this.#fence === undefined ? {} : { fence: this.#fence }),
      ...(this.#table === undefined || withinLine ? {} : { table: this.#table }),
      withinLine,
      tables: this.#tables,
    };
  }

  /** The next line, or undefined at the end. */
  next(): Line | undefined {
    const raw = this.#rawAt(this.#position);
    if (raw === undefined) return undefined;
    const first = this.#withinLine;
    this.#withinLine = false;
    const line = { ...raw, ...this.#judge({ ...raw, text: printable(raw.text) }, first) };
    this.#position = raw.end;
    return line;
  }

  #rawAt(start: number): RawLine | undefined {
    if (start >= this.#slice.length) return undefined;
    const at = this.#slice.indexOf("\n", start);
    const end = at === -1 ? this.#slice.length : at + 1;
    const complete = at !== -1 || this.#end === "line";
    const text = this.#slice.slice(start, at === -1 ? end : at);
    return { text: text.endsWith("\r") ? text.slice(0, -1) : text, start, end, complete };
  }

  #judge(raw: RawLine, goesOn: boolean): Judgement {
    if (this.#fence !== undefined) return this.#judgeCode(raw, this.#fence, goesOn);
    if (goesOn) return { kind: "text" };
    if (this.#table !== undefined) {
      const within = this.#judgeRow(raw, this.#table);
      if (within !== undefined) return within;
      this.#table = undefined;
      this.#carried = false;
    }
    return this.#judgeBlock(raw);
  }

  #judgeCode(raw: RawLine, fence: Fence, goesOn: boolean): Judgement {
    if (goesOn) return { kind: "code", fence };
    if (raw.complete && closes(raw.text, fence)) {
      this.#fence = undefined;
      return { kind: "fence-close", fence };
    }
    const open = !raw.complete && this.#end === "growing" && mayClose(raw.text, fence);
    return { kind: open ? "pending" : "code", fence };
  }

  #judgeRow(raw: RawLine, table: OpenTable): Judgement | undefined {
    if (this.#delimiterNext) {
      this.#delimiterNext = false;
      return { kind: "table-delimiter", table };
    }
    const begins = raw.text.trimStart();
    if (begins === "" && !raw.complete && this.#end === "growing") return { kind: "pending" };
    if (!begins.startsWith("|")) return undefined;
    if (this.#carried && !table.asCode) this.#tablesHere += 1;
    this.#carried = false;
    return { kind: "table-row", table };
  }

  #judgeBlock(raw: RawLine): Judgement {
    const { text, complete } = raw;
    if (ordinary.test(text)) return { kind: "text" };
    if (!complete && this.#end === "growing" && text.length <= maxFenceLineLength && undecided.test(text)) {
      return { kind: "pending" };
    }
    const fence = complete ? openedFence(text) : undefined;
    if (fence !== undefined) {
      this.#fence = fence;
      return { kind: "fence-open", fence };
    }
    return text.trimStart().startsWith("|") ? this.#judgeHead(raw) : { kind: lineKind(raw) };
  }

  #judgeHead(raw: RawLine): Judgement {
    if (raw.text.length > maxHeadLength) return { kind: "text" };
    const growing = this.#end === "growing";
    if (!raw.complete) return { kind: growing ? "pending" : "text" };
    const following = this.#rawAt(raw.end);
    const next = following === undefined ? undefined : { ...following, text: printable(following.text) };
    const isHead = headFollowedBy(next);
    if (isHead === undefined && growing) return { kind: "pending" };
    if (isHead !== true) return { kind: "text" };
    const asCode = this.#tables >= maxTables || this.#tablesHere >= this.#tablesPerCard;
    this.#table = { head: raw.text, delimiter: next?.text ?? "", asCode };
    this.#tables += 1;
    if (!asCode) this.#tablesHere += 1;
    this.#delimiterNext = true;
    return { kind: "table-head", table: this.#table };
  }
}

/** A line as it was written; it is judged without the characters that are never shown. */
interface RawLine {
  text: string;
  start: number;
  end: number;
  complete: boolean;
}

type Judgement = Pick<Line, "kind" | "fence" | "table">;

interface ReaderOptions {
  end: SliceEnd;
  /** Default: what the platform takes. */
  tablesPerCard?: number;
}
