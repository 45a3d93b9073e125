import { imageNameOf } from "@larkline/protocol/stored-image";
import { formulaText, isFormula } from "./formula.ts";

/** Image key by what the answer calls the image; null: there is none. Without a map there are no images. */
export type ImageKeys = ReadonlyMap<string, string | null>;

/** A slice of the answer as the markdown of one card. */
export interface ShownAnswer {
  text: string;
  tables: number;
  /** A table has so many columns that the card should be as wide as it can be. */
  isWide?: true;
}

interface AnswerOptions {
  end: SliceEnd;
  /** More frames of this card follow: undecided text is held back, and open code stays open. */
  streaming: boolean;
  images: ImageKeys | undefined;
  /** The text is whole and has a panel of its own. Its tables are shown as code: the answer needs those of the card. */
  inPanel?: boolean;
}

/** Shows a slice of the answer; `context` is what is open where it begins. */
export function showAnswer(slice: string, context: Context, options: AnswerOptions): ShownAnswer {
  const { end, streaming } = options;
  const reader = new LineReader(slice, context, options);
  const writer = new AnswerWriter(context, options);
  let goesOn = context.withinLine;
  for (let line = reader.next(); line !== undefined; line = reader.next()) {
    if (!writer.write(line, goesOn) && streaming) {
      return {
        text: writer.text,
        tables: reader.tablesHere,
        ...(writer.isWide ? { isWide: true } : {}),
      };
    }
    goesOn = false;
  }
  const text = streaming ? writer.text : writer.finish(reader.context(end === "within-line"));
  return { text, tables: reader.tablesHere, ...(writer.isWide ? { isWide: true } : {}) };
}

/** The images that the answer names, in order, each once: what `images` has to answer for. */
export function imageRefsIn(answer: string): string[] {
  const refs = new Set<string>();
  for (const [, , destination = ""] of answer.matchAll(new RegExp(imageMark.source, "g"))) {
    refs.add(imageRef(destination));
  }
  return [...refs];
}

const codeTableFence = "```";
/** A table of so many columns breaks its numbers in two on a card of the usual width. */
const wideColumns = 7;
const maxIndent = 40;

/**
 * What separates two lines. Feishu may swallow a single line break ("Rich text (Markdown)": use two), so text
 * gets two; blocks that are made of lines keep one.
 */
function separator(previous: LineKind, next: LineKind, blank: boolean): string {
  if (next === "code" || next === "fence-close" || previous === "fence-open") return "\n";
  if (next === "table-delimiter" || next === "table-row") return "\n";
  if (blank) return "\n\n";
  if (previous === "quote" && next === "quote") return "\n>\n";
  if (previous === "item" && next === "item") return "\n";
  if (previous === "heading" || previous === "fence-close") return "\n";
  return "\n\n";
}

/** A line of text that opens no code block; lines that do open one were recognised before. */
function withoutFence(line: string): string {
  return line.replace(/^((?:(?:>|[-*+]|\d{1,9}[.)])\s*)*)(``(?=`)|~~(?=~))/, `$1$2${invisible}`);
}

/** Turns the lines of one card's slice into markdown. Each line is written once, so the text only grows. */
class AnswerWriter {
  text = "";
  isWide = false;
  #previous: LineKind | undefined;
  #blank = false;
  #inList = false;
  #codeTable = false;
  readonly #options: AnswerOptions;

  constructor(context: Context, options: AnswerOptions) {
    this.#options = options;
    this.#reopen(context);
  }

  /** Opens again the block that the previous card had to close. */
  #reopen({ fence }: Context): void {
    if (fence !== undefined) {
      this.text = `${fence.marker}${fence.language}`;
      this.#previous = "fence-open";
    }
  }

  #inline(line: string, lineComplete: boolean): { text: string; held: boolean } {
    const final = !this.#options.streaming;
    return shownInline(line, {
      final,
      lineComplete: lineComplete || final,
      images: this.#options.images,
    });
  }

  #put(kind: LineKind, text: string): void {
    if (this.#previous !== undefined) this.text += separator(this.#previous, kind, this.#blank);
    this.text += text;
    this.#previous = kind;
    this.#blank = false;
  }

  #endCodeTable(): void {
    if (!this.#codeTable) return;
    this.#put("fence-close", codeTableFence);
    this.#codeTable = false;
  }

  /** Writes one line; false: the rest is held back. `goesOn`: the line began on the previous card. */
  write(line: Line, goesOn: boolean): boolean {
    if (line.kind === "pending") return false;
    if (!line.kind.startsWith("table-") || line.kind === "table-head") this.#endCodeTable();
    switch (line.kind) {
      case "blank":
        this.#blank = true;
        return true;
      case "fence-open":
        return this.#openFence(line);
      case "fence-close":
        this.#put("fence-close", line.fence?.marker ?? "```");
        return true;
      case "code":
        return this.#writeCode(line, goesOn);
      case "table-head":
      case "table-delimiter":
      case "table-row":
        return this.#writeRow(line);
      case "formula":
        return this.#writeFormula(line, goesOn);
      default:
        return this.#writeText(line, goesOn);
    }
  }

  /** Without the first half of a character whose second half may follow. */
  #known(text: string, complete: boolean): string {
    return complete || !this.#options.streaming ? text : text.replace(/[\uD800-\uDBFF]$/, "");
  }

  #openFence({ text, fence }: Line): boolean {
    const lead = /^\s*((?:[-*+]|\d{1,9}[.)])\s)/.exec(printable(text))?.[1];
    if (lead !== undefined) this.#put("item", lead.trim());
    this.#put("fence-open", `${fence?.marker ?? "```"}${fence?.language ?? ""}`);
    this.#inList = false;
    return true;
  }

  #writeCode({ text, fence, complete }: Line, goesOn: boolean): boolean {
    const known = this.#known(text, complete);
    const decided = complete || !this.#options.streaming ? known.length : decidedCode(known);
    const indent = Math.min(fence?.indent ?? 0, text.length - text.trimStart().length);
    const code = neutralCode(printable(text.slice(goesOn ? 0 : indent, decided)));
    const broken = goesOn || (fence !== undefined && looksLikeEnd(printable(text), fence));
    this.#put("code", broken ? `${invisible}${code}` : code);
    return decided === text.length;
  }

  /** Repeats the head of a table that began on the previous card. */
  #reopenTable({ head, delimiter, asCode }: OpenTable): void {
    this.text = asCode
      ? codeTableFence
      : `${this.#inline(printable(head.trim()), true).text}\n${delimiter.trim()}`;
    this.#previous = asCode ? "fence-open" : "table-delimiter";
  }

  #writeRow({ kind, text, table, complete }: Line): boolean {
    if (this.#options.streaming && !complete) return false;
    if (this.#previous === undefined && kind === "table-row" && table !== undefined) {
      this.#reopenTable(table);
    }
    const row = printable(text.trim());
    this.isWide ||= cellsOf(table?.head ?? "").length >= wideColumns;
    if (table?.asCode === true) {
      if (kind === "table-head") this.#put("fence-open", codeTableFence);
      this.#codeTable = true;
      this.#put("code", neutralCode(alignedRow(row, kind, table.columns)));
      return true;
    }
    const { text: shown, held } = this.#inline(row, true);
    this.#put(kind, kind === "table-delimiter" ? row : shown);
    return !held;
  }

  /** A line of a formula, without the signs that it begins or ends with. */
  #writeFormula({ text, complete, formulaEnd = "$$" }: Line, goesOn: boolean): boolean {
    if (this.#options.streaming && !complete) return false;
    const opening = formulaEnd === "$$" ? "$$" : "\\[";
    let tex = printable(text).trim();
    if (!goesOn && tex.startsWith(opening)) tex = tex.slice(opening.length);
    if (tex.endsWith(formulaEnd)) tex = tex.slice(0, -formulaEnd.length);
    if (tex.trim() === "") return true;
    const shown = shownFormula(tex) ?? this.#inline(tex, true).text;
    if (shown !== "") this.#put("formula", `${goesOn ? invisible : ""}${shown}`);
    return true;
  }

  #indentOf(kind: LineKind, spaces: string): string {
    const width = Math.min(maxIndent, spaces.replaceAll("\t", "    ").length);
    if (this.#previous === undefined || kind === "heading" || kind === "quote") return "";
    if (kind === "item" || (this.#inList && width > 0)) return " ".repeat(width);
    const afterText = this.#previous === "text" && !this.#blank;
    return width >= 4 && !afterText ? "\u00A0".repeat(width) : "";
  }

  #writeText({ kind, text, complete }: Line, goesOn: boolean): boolean {
    const clean = printable(this.#known(text, complete));
    const bare = goesOn ? clean : clean.trimStart();
    const spaces = goesOn ? "" : clean.slice(0, clean.length - bare.length);
    if (kind === "item") this.#inList = true;
    else if (spaces === "" || kind === "heading" || kind === "rule") this.#inList = false;
    const indent = this.#indentOf(kind, spaces);
    if (kind === "item" && this.#options.streaming && !complete && openTask.test(bare)) {
      return false;
    }
    const line = kind === "item" ? bare.replace(taskItem, taskShown) : bare;
    const { text: shown, held } = this.#inline(
      kind === "rule" ? "---" : withoutFence(line),
      complete,
    );
    if (shown !== "") this.#put(kind, `${goesOn ? invisible : indent}${shown}`);
    return !held && complete;
  }

  /** Closes what is open when the card is finished. */
  finish(context: Context): string {
    this.#endCodeTable();
    if (context.fence !== undefined) this.#put("fence-close", context.fence.marker);
    return this.text;
  }
}

// Tables that are shown as code: every row fills the columns that the head and the delimiter row make.

/** A column in the width of a terminal: wide characters take two. */
interface Column {
  width: number;
  /** Alignment, by the colons of the delimiter row; `left` and `right` together centre the cells. */
  left: boolean;
  right: boolean;
}

/** Wider tables stay as they were written: no card shows their rows in one line. */
const maxAlignedWidth = 160;

/** The columns of a table, or undefined where they would be too wide; `rows`: those that are known beforehand. */
function columnsOf(
  head: string,
  delimiter: string,
  rows: readonly string[],
): readonly Column[] | undefined {
  const heads = cellsOf(head);
  const marks = cellsOf(delimiter);
  const widths = rows.map((row) => cellsOf(row).map((cell) => widthOf(cell.trim())));
  const columns = Array.from({ length: Math.max(heads.length, marks.length) }, (_, at): Column => {
    const [title = "", mark = ""] = [heads[at], marks[at]];
    // A blank on either side belongs to the frame; further ones show how wide the writer made the column.
    const ownWidth = Math.max(1, widthOf(title.trim()), widthOf(title) - 2, mark.length - 2);
    const width = widths.reduce((most, row) => Math.max(most, row[at] ?? 0), ownWidth);
    return { width, left: mark.trim().startsWith(":"), right: mark.trim().endsWith(":") };
  });
  const total = columns.reduce((sum, { width }) => sum + width + 3, 1);
  if (total <= maxAlignedWidth) return columns;
  return rows.length === 0 ? undefined : columnsOf(head, delimiter, []);
}

/** Between the bars, with their blanks. */
function cellsOf(row: string): string[] {
  return row
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "")
    .split(/(?<!\\)\|/);
}

/**
 * A row with its cells in their columns. A cell that is too long shifts the next ones until their blanks make up for
 * it. Cells beyond the last column stay as they were written, so that a row grows by less than {@link maxAlignedWidth}.
 */
export function alignedRow(
  row: string,
  kind: LineKind,
  columns: readonly Column[] | undefined,
): string {
  if (columns === undefined) return row;
  if (kind === "table-delimiter") return `|${columns.map(delimiterOf).join("|")}|`;
  const cells = cellsOf(row);
  let shift = 0;
  const shown = cells.map((written, at) => {
    const column = columns[at];
    if (column === undefined) return written;
    const cell = written.replaceAll("\t", " ").trim();
    const blanks = column.width - widthOf(cell) - shift;
    shift = Math.max(0, -blanks);
    return ` ${placed(cell, Math.max(0, blanks), column)} `;
  });
  return `|${shown.join("|")}|`;
}

function delimiterOf({ width, left, right }: Column): string {
  const dashes = "-".repeat(width + 2 - Number(left) - Number(right));
  return `${left ? ":" : ""}${dashes}${right ? ":" : ""}`;
}

function placed(cell: string, blanks: number, { left, right }: Column): string {
  const before = right ? Math.floor(blanks / (left ? 2 : 1)) : 0;
  return " ".repeat(before) + cell + " ".repeat(blanks - before);
}

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });
const wide =
  /^(?![\uFF61-\uFFDC\uFFE8-\uFFEE])[\p{Script=Han}\p{Script=Hangul}\u3000-\u33FF\uFF01-\uFFE6\p{Emoji_Presentation}]|\uFE0F/u;
const invisibleOnly = /^[\p{Mn}\p{Me}\p{Cf}\p{Cc}]*$/u;

/** Columns that the text takes in a font of equal widths. */
function widthOf(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length;
  let width = 0;
  for (const { segment } of graphemes.segment(text)) {
    width += wide.test(segment) ? 2 : invisibleOnly.test(segment) ? 0 : 1;
  }
  return width;
}

/** An item of a list of tasks, which the platform does not know. */
const taskItem = /^((?:[-*+]|\d{1,9}[.)])\s+)\[([ xX])\](?=\s)/;
/** What may still become one. */
const openTask = /^(?:[-*+]|\d{1,9}[.)])\s+\[(?:[ xX]\]?)?$/;

function taskShown(_whole: string, lead: string, mark: string): string {
  return `${lead}${mark === " " ? "☐" : "☑"}`;
}

// Within a line: code spans, images, links, entities, formulas.

interface InlineOptions {
  /** Nothing follows: everything has to be shown. */
  final: boolean;
  /** Nothing follows within the line. */
  lineComplete: boolean;
  images: ImageKeys | undefined;
}

/** A piece of a line as it is shown; `held`: the rest waits for more text or for an image. */
interface ShownInline {
  text: string;
  held: boolean;
}

interface Piece {
  /** Length of the source that the piece replaces. */
  length: number;
  text: string;
}

type Found = Piece | "wait";

/** Nothing inside an image mark can begin another mark. */
const imageMark = /!\[([^[\]\n]{0,1000})\]\(([^()[\]\n]{1,2000})\)/y;
/** Longer than any mark that the pattern above matches. */
const maxImageLength = 3_010;
/** Entities are shorter; a text that looks like a longer one is broken by an invisible character. */
const maxEntityLength = 40;
const foreignLink = /\]\((?!https?:\/\/|mailto:)/gi;
const allowedLinks = ["http://", "https://", "mailto:"];
const special = /[<&`\]!\\$]/g;

/** The address of an image as the answer gives it, without title and angle brackets. */
function imageRef(destination: string): string {
  const bare = destination.trim().replace(/\s+(?:"[^"]*"|'[^']*')$/, "");
  return bare.startsWith("<") && bare.endsWith(">") ? bare.slice(1, -1) : bare;
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
  const shown =
    typeof key === "string" && isImageKey(key)
      ? `![${neutralText(alt)}](${key})`
      : withoutImage(alt, ref);
  return { length: mark.length, text: shown };
}

function exclamation(line: string, at: number, options: InlineOptions): Found {
  const next = line[at + 1];
  if (next === "[") return imageAt(line, at, options);
  return next === undefined && !options.lineComplete ? "wait" : { length: 1, text: "!" };
}

/** A link to anything but the web or a mail address becomes text: an invisible character breaks it. */
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

function backslash(line: string, at: number, options: InlineOptions): Found {
  const next = line[at + 1];
  if (next === undefined && !options.lineComplete) return "wait";
  if (next !== undefined && "`\\$".includes(next)) return { length: 2, text: `\\${next}` };
  const formula =
    next === "(" || next === "["
      ? formulaAt(line, at, [`\\${next}`, next === "(" ? "\\)" : "\\]"], options)
      : undefined;
  return formula ?? { length: 1, text: "\\" };
}

/** Longer ones stay as they were written, so that no text waits for more than this. */
const maxFormulaLength = 300;
/** Where it may as well be a price. */
const maxDigitsLength = 40;

/** A formula between two signs; undefined: there is none. */
function formulaAt(
  line: string,
  at: number,
  [open, close]: readonly [string, string],
  { lineComplete }: InlineOptions,
): Found | undefined {
  const start = at + open.length;
  if (start === line.length) return lineComplete ? undefined : "wait";
  const most = mostFor(open, { before: line[at - 1] ?? "", first: line[start] ?? "" });
  const end = line.indexOf(close, start);
  if (end === -1 || end - start > most) {
    return lineComplete || line.length - start > most ? undefined : "wait";
  }
  const tex = line.slice(start, end);
  const stop = end + close.length;
  if (open === "$") {
    if (stop === line.length && !lineComplete) return "wait";
    if (/[\d$]/.test(line[stop] ?? "") || !isFormula(tex)) return undefined;
  }
  if (/[`|]/.test(tex)) return undefined;
  const text = shownFormula(tex, line.slice(at, stop)) ?? "";
  return text === "" ? undefined : { length: stop - at, text };
}

/** How long a formula may be that begins so; 0: none begins here. */
function mostFor(open: string, { before, first }: { before: string; first: string }): number {
  if (open !== "$") return maxFormulaLength;
  if (/\s/.test(first) || /[\p{L}\p{N}]/u.test(before)) return 0;
  return /\d/.test(first) ? maxDigitsLength : maxFormulaLength;
}

function dollar(line: string, at: number, options: InlineOptions): Found {
  const next = line[at + 1];
  if (next === undefined && !options.lineComplete) return "wait";
  const sign = next === "$" ? "$$" : "$";
  return formulaAt(line, at, [sign, sign], options) ?? { length: sign.length, text: sign };
}

/** What a script may take beyond the signs that it is written with; the limits of cards count with that. */
export const scriptBytes = 2;

/** A formula that people can read; undefined where it would take more room than `source`, as cuts count it. */
function shownFormula(tex: string, source = tex): string | undefined {
  const text = inlineText(formulaText(tex));
  const scripts = source.match(/[\^_]/g)?.length ?? 0;
  const room = Buffer.byteLength(JSON.stringify(source)) + scripts * scriptBytes;
  return Buffer.byteLength(JSON.stringify(text)) <= room ? text : undefined;
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
    case "$":
      return dollar(line, at, options);
    default:
      return openerAt(line, at, options);
  }
}

/**
 * A line of text as the card shows it. While the line grows the result only grows: incomplete marks are held back.
 */
function shownInline(line: string, options: InlineOptions): ShownInline {
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

/** A code fence that is open. */
interface Fence {
  /** The opening run, such as three backticks. */
  marker: string;
  indent: number;
  /** Language, made harmless. */
  language: string;
}

/** A table that is open. */
interface OpenTable {
  head: string;
  delimiter: string;
  /** Whether it is shown as a code block. */
  asCode: boolean;
  /** The columns of a code block whose rows are aligned. */
  columns?: readonly Column[] | undefined;
}

/** How a formula of several lines ends. */
type FormulaEnd = "$$" | "\\]";

/** What is open at a place of the answer. The text after it can be read with this alone. */
export interface Context {
  fence?: Fence;
  formula?: FormulaEnd;
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
type LineKind =
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
  | "formula"
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
  formulaEnd?: FormulaEnd;
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
const ordinary = /^ {0,40}[^\s#\-*+_>|`~\d$\\]/;
/** The first line of a formula of several lines. */
const formulaOpen = /^\s*(\$\$|\\\[)/;
/** What may become one. */
const openFormula = /^\s*(?:\$|\\|(?:\$\$|\\\[).*)$/;
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
  if (!trimmed.startsWith(fence.marker) || line.length - trimmed.length > fence.indent + 3) {
    return false;
  }
  return [...trimmed.trimEnd()].every((character) => character === fence.marker[0]);
}

/** Whether a parser could take a line of code for the end of its fence, judged by the beginning of the line. */
function looksLikeEnd(code: string, fence: Fence): boolean {
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
  return (
    line.length <= maxDelimiterLength &&
    line.includes("|") &&
    line.includes("-") &&
    delimiterRow.test(line)
  );
}

/** Whether the next line makes a possible table head one; undefined: not known yet. */
function headFollowedBy(
  next: { text: string; complete: boolean } | undefined,
): boolean | undefined {
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
  #formula: FormulaEnd | undefined;
  #table: OpenTable | undefined;
  #delimiterNext = false;
  #tables: number;
  #tablesHere = 0;
  /** The table began on an earlier card; whether it continues here is not known yet. */
  #carried: boolean;
  readonly #inPanel: boolean;

  constructor(slice: string, context: Context, { end, inPanel = false }: ReaderOptions) {
    this.#slice = slice;
    this.#end = end;
    this.#withinLine = context.withinLine;
    this.#fence = context.fence;
    this.#formula = context.formula;
    this.#table = context.withinLine ? undefined : context.table;
    this.#carried = this.#table !== undefined;
    this.#tables = context.tables;
    this.#inPanel = inPanel;
  }

  /** Tables shown as tables so far. */
  get tablesHere(): number {
    return this.#tablesHere;
  }

  /** What is open after the line that was read last. */
  context(withinLine = false): Context {
    return {
      ...(this.#fence === undefined ? {} : { fence: this.#fence }),
      ...(this.#formula === undefined ? {} : { formula: this.#formula }),
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
    const line = { ...raw, ...this.#read({ ...raw, text: printable(raw.text) }, first) };
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

  #read(raw: RawLine, goesOn: boolean): LineFacts {
    if (this.#fence !== undefined) return this.#readCode(raw, this.#fence, goesOn);
    if (this.#formula !== undefined) {
      const within = this.#readFormula(raw, this.#formula);
      if (within !== undefined) return within;
    }
    if (goesOn) return { kind: "text" };
    if (this.#table !== undefined) {
      const within = this.#readRow(raw, this.#table);
      if (within !== undefined) return within;
      this.#table = undefined;
      this.#carried = false;
    }
    return this.#readBlock(raw);
  }

  #readCode(raw: RawLine, fence: Fence, goesOn: boolean): LineFacts {
    if (goesOn) return { kind: "code", fence };
    if (raw.complete && closes(raw.text, fence)) {
      this.#fence = undefined;
      return { kind: "fence-close", fence };
    }
    const open = !raw.complete && this.#end === "growing" && mayClose(raw.text, fence);
    return { kind: open ? "pending" : "code", fence };
  }

  #readFormulaStart({ text, complete }: RawLine): LineFacts | undefined {
    if (!complete) {
      return this.#end === "growing" && openFormula.test(text) ? { kind: "pending" } : undefined;
    }
    const [, sign] = formulaOpen.exec(text) ?? [];
    if (sign === undefined) return undefined;
    const formulaEnd = sign === "$$" ? "$$" : "\\]";
    const rest = text.trim().slice(sign.length);
    if (rest.includes(formulaEnd)) {
      return rest.endsWith(formulaEnd) ? { kind: "formula", formulaEnd } : undefined;
    }
    this.#formula = formulaEnd;
    return { kind: "formula", formulaEnd };
  }

  /** An empty line ends a formula that nothing else has ended, and a line that is too long does not. */
  #readFormula({ text, complete }: RawLine, formulaEnd: FormulaEnd): LineFacts | undefined {
    // A longer line is not waited for.
    const isDecided = text.length > maxFormulaLength || (!complete && this.#end !== "growing");
    if (isDecided) return { kind: "formula", formulaEnd };
    if (!complete) return { kind: "pending" };
    const isEmpty = text.trim() === "";
    if (isEmpty || text.trimEnd().endsWith(formulaEnd)) this.#formula = undefined;
    return isEmpty ? undefined : { kind: "formula", formulaEnd };
  }

  #readRow(raw: RawLine, table: OpenTable): LineFacts | undefined {
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

  #readBlock(raw: RawLine): LineFacts {
    const { text, complete } = raw;
    if (ordinary.test(text)) return { kind: "text" };
    if (
      !complete &&
      this.#end === "growing" &&
      text.length <= maxFenceLineLength &&
      undecided.test(text)
    ) {
      return { kind: "pending" };
    }
    const formula = text.length <= maxFenceLineLength ? this.#readFormulaStart(raw) : undefined;
    if (formula !== undefined) return formula;
    const fence = complete ? openedFence(text) : undefined;
    if (fence !== undefined) {
      this.#fence = fence;
      return { kind: "fence-open", fence };
    }
    return text.trimStart().startsWith("|") ? this.#readHead(raw) : { kind: lineKind(raw) };
  }

  #readHead(raw: RawLine): LineFacts {
    if (raw.text.length > maxHeadLength) return { kind: "text" };
    const growing = this.#end === "growing";
    if (!raw.complete) return { kind: growing ? "pending" : "text" };
    const following = this.#rawAt(raw.end);
    const next =
      following === undefined ? undefined : { ...following, text: printable(following.text) };
    const isHead = headFollowedBy(next);
    if (isHead === undefined && growing) return { kind: "pending" };
    if (isHead !== true) return { kind: "text" };
    const asCode =
      this.#inPanel || this.#tables >= maxTables || this.#tablesHere >= maxTablesPerCard;
    this.#table = { head: raw.text, delimiter: next?.text ?? "", asCode };
    if (asCode) {
      const rows = this.#inPanel ? this.#rowsFrom(following?.end ?? raw.end) : [];
      this.#table.columns = columnsOf(this.#table.head, this.#table.delimiter, rows);
    }
    this.#tables += 1;
    if (!asCode) this.#tablesHere += 1;
    this.#delimiterNext = true;
    return { kind: "table-head", table: this.#table };
  }

  #rowsFrom(start: number): string[] {
    const rows: string[] = [];
    for (
      let raw = this.#rawAt(start);
      raw?.text.trimStart().startsWith("|");
      raw = this.#rawAt(raw.end)
    ) {
      rows.push(printable(raw.text));
    }
    return rows;
  }
}

/** A line as it was written; it is judged without the characters that are never shown. */
interface RawLine {
  text: string;
  start: number;
  end: number;
  complete: boolean;
}

type LineFacts = Pick<Line, "kind" | "fence" | "table" | "formulaEnd">;

interface ReaderOptions {
  end: SliceEnd;
  inPanel?: boolean;
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
function neutralText(text: string): string {
  return text.replaceAll(textOpeners, `$&${invisible}`);
}

/** Code that mentions and names no person. */
function neutralCode(code: string): string {
  return code.replaceAll(codeOpeners, `$&${invisible}`);
}

/** Length of the beginning of the code that no following text can change. */
function decidedCode(code: string): number {
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
