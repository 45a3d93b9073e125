import type { Draft } from "./draft.ts";
import {
  attributeOf,
  type Relationship,
  relationshipsOf,
  walkXml,
  type XmlAttributes,
  type XmlListener,
  type ZipArchive,
} from "./office-package.ts";

/** What all sheets of a workbook share. */
interface Workbook {
  sheets: { name: string; path: string; isHidden: boolean }[];
  dateSystem: 1900 | 1904;
  strings: string[];
  /** How each cell style shows numbers. */
  styles: NumberStyle[];
}

// A cell far to the right of its neighbour would otherwise cost 16,383 tabs.
const maxGap = 32;

function pathOf(relationships: Relationship[], wanted: string): string {
  return relationships.find(({ type }) => type === wanted)?.path ?? "";
}

async function sharedStrings(archive: ZipArchive, path: string, draft: Draft): Promise<string[]> {
  const strings: string[] = [];
  let pieces: string[] = [];
  let inText = false;
  let phonetic = 0;
  await walkXml(archive.read(path), {
    open(name) {
      if (name === "si") pieces = [];
      else if (name === "t") inText = true;
      else if (name === "rPh") phonetic += 1;
    },
    text(text) {
      if (inText && phonetic === 0) pieces.push(text);
    },
    close(name) {
      if (name === "t") inText = false;
      else if (name === "rPh") phonetic -= 1;
      else if (name === "si") {
        draft.checkTime();
        strings.push(pieces.join(""));
      }
    },
  });
  return strings;
}

async function numberStyles(archive: ZipArchive, path: string): Promise<NumberStyle[]> {
  const codes = new Map<number, string>();
  const styles: NumberStyle[] = [];
  let inCells = false;
  await walkXml(archive.read(path), {
    open(name, attributes) {
      const id = Number(attributeOf(attributes, "numFmtId") ?? 0);
      if (name === "numFmt") codes.set(id, attributeOf(attributes, "formatCode") ?? "");
      else if (name === "cellXfs") inCells = true;
      else if (name === "xf" && inCells) styles.push(numberStyle(id, codes.get(id)));
    },
    close(name) {
      if (name === "cellXfs") inCells = false;
    },
  });
  return styles;
}

async function openWorkbook(archive: ZipArchive, path: string, draft: Draft): Promise<Workbook> {
  const relationships = await relationshipsOf(archive, path);
  const paths = new Map(relationships.map((relationship) => [relationship.id, relationship]));
  const sheets: Workbook["sheets"] = [];
  let dateSystem: Workbook["dateSystem"] = 1900;
  await walkXml(archive.read(path), {
    open(name, attributes) {
      if (name === "workbookPr" && /^(?:1|true)$/.test(attributeOf(attributes, "date1904") ?? "")) {
        dateSystem = 1904;
      }
      const sheet = name === "sheet" ? paths.get(attributeOf(attributes, "id") ?? "") : undefined;
      if (sheet?.type !== "worksheet") return;
      const isHidden = (attributeOf(attributes, "state") ?? "visible") !== "visible";
      sheets.push({ name: attributeOf(attributes, "name") ?? "", path: sheet.path, isHidden });
    },
  });
  return {
    sheets,
    dateSystem,
    strings: await sharedStrings(archive, pathOf(relationships, "sharedStrings"), draft),
    styles: await numberStyles(archive, pathOf(relationships, "styles")),
  };
}

function columnOf(reference: string): number {
  let column = 0;
  for (const letter of /^[A-Z]{1,3}/.exec(reference)?.[0] ?? "") {
    column = column * 26 + letter.charCodeAt(0) - 64;
  }
  return column;
}

class SheetReader implements XmlListener {
  readonly #draft: Draft;
  readonly #workbook: Workbook;
  #column = 1;
  #type = "";
  #style = 0;
  #inValue = false;
  #phonetic = 0;
  #value: string[] = [];

  constructor(draft: Draft, workbook: Workbook) {
    this.#draft = draft;
    this.#workbook = workbook;
  }

  open(name: string, attributes: XmlAttributes): void {
    if (name === "row") {
      this.#column = 1;
    } else if (name === "c") {
      this.#openCell(attributes);
    } else if (name === "v" || name === "t") {
      this.#inValue = this.#phonetic === 0;
    } else if (name === "rPh") {
      this.#phonetic += 1;
    }
  }

  #openCell(attributes: XmlAttributes): void {
    this.#type = attributeOf(attributes, "t") ?? "n";
    this.#style = Number(attributeOf(attributes, "s") ?? 0);
    this.#value = [];
    const column = columnOf(attributeOf(attributes, "r") ?? "");
    if (column <= this.#column) return;
    this.#draft.add("\t".repeat(Math.min(column - this.#column, maxGap)));
    this.#column = column;
  }

  text(text: string): void {
    if (this.#inValue) this.#value.push(text);
  }

  close(name: string): void {
    if (name === "v" || name === "t") this.#inValue = false;
    else if (name === "rPh") this.#phonetic -= 1;
    else if (name === "c") this.#closeCell();
    else if (name === "row") this.#draft.add("\n");
  }

  #closeCell(): void {
    const text = this.#shown(this.#value.join("")).replaceAll(/\s+/g, " ").trim();
    this.#draft.add(text);
    this.#draft.add("\t");
    this.#column += 1;
  }

  #shown(value: string): string {
    if (value === "") return "";
    if (this.#type === "s") return this.#workbook.strings[Number(value)] ?? "";
    if (this.#type === "b") return value === "1" ? "TRUE" : "FALSE";
    const style = this.#type === "n" ? this.#workbook.styles[this.#style] : undefined;
    if (style === "date") return dateOfSerial(Number(value), this.#workbook.dateSystem) ?? value;
    const percent = Number(value) * 100;
    return style === undefined || style === "plain" || Number.isNaN(percent)
      ? value
      : `${percent.toFixed(style.percentDigits)}%`;
  }
}

/** Cells of a workbook, sheet by sheet, one row a line, columns by tabs. */
export async function readWorkbook(archive: ZipArchive, path: string, draft: Draft): Promise<void> {
  const workbook = await openWorkbook(archive, path, draft);
  draft.pages = workbook.sheets.length;
  for (const { name, path: sheet, isHidden } of workbook.sheets) {
    draft.add(`\n[Sheet: ${name}${isHidden ? ", hidden" : ""}]\n`);
    await walkXml(archive.read(sheet), new SheetReader(draft, workbook));
  }
}

/* ---- Numbers as cells show them ---- */

// Formats that Excel numbers without describing them (ECMA-376, part 1, 18.8.30), East Asian ones included.
function isBuiltInDate(id: number): boolean {
  return (
    (id >= 14 && id <= 22) ||
    (id >= 27 && id <= 36) ||
    (id >= 45 && id <= 47) ||
    (id >= 50 && id <= 58)
  );
}

// Excel takes 255.
const maxFormatCharacters = 255;

/** Whether a number format shows a date or a time: letters of dates outside quotes and brackets. */
export function isDateFormat(id: number, code: string | undefined): boolean {
  if (code === undefined) return isBuiltInDate(id);
  const start = code.slice(0, maxFormatCharacters);
  return /[ymdhs]/i.test(
    start.replaceAll(/"[^"]*"|\[[^\]]*\]|\\.|_./g, "").replaceAll(/general/gi, ""),
  );
}

/** How numbers of a cell are shown. */
export type NumberStyle = "plain" | "date" | { percentDigits: number };

/** The style of a number format; 9 and 10 are the percentages that Excel numbers without describing them. */
export function numberStyle(id: number, code: string | undefined): NumberStyle {
  if (isDateFormat(id, code)) return "date";
  const described = code ?? { 9: "0%", 10: "0.00%" }[id] ?? "";
  const [positive = ""] = described
    .slice(0, maxFormatCharacters)
    .replaceAll(/"[^"]*"|\[[^\]]*\]|\\.|_./g, "")
    .split(";");
  if (!positive.includes("%")) return "plain";
  return { percentDigits: /\.([0#?]+)/.exec(positive)?.[1]?.length ?? 0 };
}

const dayMs = 86_400_000;
// Day 0. The 1900 system counts a 29 February 1900 that never was, so it starts a day early.
const epochMs = { 1900: Date.UTC(1899, 11, 30), 1904: Date.UTC(1904, 0, 1) };
const maxSerial = 2_958_465; // 9999-12-31

/** A serial number as a date, `2026-03-01`, `2026-03-01 08:30:00` or a bare time; undefined when it is none. */
export function dateOfSerial(serial: number, system: keyof typeof epochMs): string | undefined {
  if (!(serial >= 0 && serial <= maxSerial)) return undefined;
  const text = new Date(epochMs[system] + Math.round(serial * 86_400) * 1_000).toISOString();
  const [day = "", time = ""] = text.slice(0, 19).split("T");
  if (serial < 1) return time;
  return Number.isInteger(Math.round(serial * 86_400) / (dayMs / 1_000)) ? day : `${day} ${time}`;
}
