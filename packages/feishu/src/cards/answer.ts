import { decidedCode, invisible, neutralCode, printable } from "./escape.ts";
import { shownInline, type ImageKeys } from "./inline.ts";
import {
  LineReader,
  looksLikeEnd,
  type Context,
  type Line,
  type LineKind,
  type OpenTable,
  type SliceEnd,
} from "./lines.ts";

/** A slice of the answer as the markdown of one card. */
export interface ShownAnswer {
  text: string;
  tables: number;
}

export interface AnswerOptions {
  end: SliceEnd;
  /** More frames of this card follow: whatever is not decided waits, and open code stays open. */
  streaming: boolean;
  images: ImageKeys | undefined;
  tablesPerCard?: number;
}

const codeTableFence = "```";
const maxIndent = 40;

/**
 * What stands between two lines without a blank one between them. Feishu may swallow a single
 * line break ("Rich text (Markdown)": use two), so text gets two; blocks that are made of lines keep one.
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

/** A line of text that opens no code block: what does has been recognised before. */
function withoutFence(line: string): string {
  return line.replace(/^((?:(?:>|[-*+]|\d{1,9}[.)])\s*)*)(``(?=`)|~~(?=~))/, `$1$2${invisible}`);
}

/** Turns the lines of one card's slice into markdown; asks for no line again, so that text only grows. */
class AnswerWriter {
  text = "";
  #previous: LineKind | undefined;
  #blank = false;
  #inList = false;
  #codeTable = false;
  readonly #options: AnswerOptions;

  constructor(context: Context, options: AnswerOptions) {
    this.#options = options;
    this.#reopen(context);
  }

  /** The block that the card before had to close goes on. */
  #reopen({ fence }: Context): void {
    if (fence !== undefined) {
      this.text = `${fence.marker}${fence.language}`;
      this.#previous = "fence-open";
    }
  }

  #inline(line: string, lineComplete: boolean): { text: string; held: boolean } {
    const final = !this.#options.streaming;
    return shownInline(line, { final, lineComplete: lineComplete || final, images: this.#options.images });
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

  /** Writes one line; false: the rest has to wait. `goesOn`: the line began on the card before. */
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
      default:
        return this.#writeText(line, goesOn);
    }
  }

  /** Without the first half of a character whose second half may follow. */
  #known(text: string, complete: boolean): string {
    return complete || !this.#options.streaming ? text : text.replace(/[\uD800-\uDBFF]$/, "");
  }

  #openFence({ text, fence }: Line): boolean {
    const lead = /^\s*((?:[-*+]|\d{1,9}[.)])\s)/.exec(text)?.[1];
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

  /** A table that goes on from the card before gets its head again. */
  #reopenTable({ head, delimiter, asCode }: OpenTable): void {
    this.text = asCode ? codeTableFence : `${this.#inline(printable(head.trim()), true).text}\n${delimiter.trim()}`;
    this.#previous = asCode ? "fence-open" : "table-delimiter";
  }

  #writeRow({ kind, text, table, complete }: Line): boolean {
    if (this.#options.streaming && !complete) return false;
    if (this.#previous === undefined && kind === "table-row" && table !== undefined) this.#reopenTable(table);
    const row = printable(text.trim());
    if (table?.asCode === true) {
      if (kind === "table-head") this.#put("fence-open", codeTableFence);
      this.#codeTable = true;
      this.#put("code", neutralCode(row));
      return true;
    }
    const { text: shown, held } = this.#inline(row, true);
    this.#put(kind, kind === "table-delimiter" ? row : shown);
    return !held;
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
    const { text: shown, held } = this.#inline(kind === "rule" ? "---" : withoutFence(bare), complete);
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

/** Shows a slice of the answer; `context` is what is open where it begins. */
export function showAnswer(slice: string, context: Context, options: AnswerOptions): ShownAnswer {
  const { end, streaming } = options;
  const reader = new LineReader(slice, context, options);
  const writer = new AnswerWriter(context, options);
  let goesOn = context.withinLine;
  for (let line = reader.next(); line !== undefined; line = reader.next()) {
    if (!writer.write(line, goesOn) && streaming) return { text: writer.text, tables: reader.tablesHere };
    goesOn = false;
  }
  const text = streaming ? writer.text : writer.finish(reader.context(end === "within-line"));
  return { text, tables: reader.tablesHere };
}
