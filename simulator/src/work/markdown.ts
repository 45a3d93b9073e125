import { type JsonObject, newId, isJsonObject } from "../open-api.ts";

// Blocks of a document and Markdown, as the platform converts them both ways ("Convert content to blocks").

/** Types of blocks ("Block data structure"). */
export const blockTypes = {
  page: 1,
  text: 2,
  heading1: 3,
  bullet: 12,
  ordered: 13,
  code: 14,
  quote: 15,
  todo: 17,
  divider: 22,
  file: 23,
  image: 27,
  table: 31,
  table_cell: 32,
  view: 33,
  board: 43,
} as const;

export interface SimBlock extends JsonObject {
  block_id: string;
  parent_id: string;
  block_type: number;
  children?: string[];
}

/** The name of the field that holds what a block of the type says. */
export function dataKeyOf(type: number): string | undefined {
  if (type >= 3 && type <= 11) return `heading${type - 2}`;
  return Object.entries(blockTypes).find(([, value]) => value === type)?.[0];
}

const lineForms: [
  RegExp,
  (found: RegExpExecArray) => { type: number; text: string; style?: JsonObject },
][] = [
  [/^(#{1,9}) +(.*)$/, ([, marks = "", text = ""]) => ({ type: 2 + marks.length, text })],
  [
    /^[-*] \[([ xX])\] (.*)$/,
    ([, mark, text = ""]) => ({ type: 17, text, style: { done: mark !== " " } }),
  ],
  [/^[-*] +(.*)$/, ([, text = ""]) => ({ type: 12, text })],
  [/^\d+\. +(.*)$/, ([, text = ""]) => ({ type: 13, text })],
  [/^> ?(.*)$/, ([, text = ""]) => ({ type: 15, text })],
  [/^---+$/, () => ({ type: 22, text: "" })],
  [/^!\[.*\]\(.*\)$/, () => ({ type: 27, text: "" })],
];

/** Blocks with temporary ids, and which of them stand at the top. */
export function blocksOf(markdown: string): { top: string[]; blocks: SimBlock[] } {
  const top: string[] = [];
  const blocks: SimBlock[] = [];
  const add = (type: number, text: string, more: JsonObject = {}): SimBlock => {
    const block = textBlock(type, text, more);
    blocks.push(block);
    return block;
  };
  const lines = markdown.split("\n");
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at] ?? "";
    if (line.trim() === "") continue;
    if (line.startsWith("```")) {
      const end = lines.findIndex((one, index) => index > at && one.startsWith("```"));
      const until = end < 0 ? lines.length : end;
      top.push(add(14, lines.slice(at + 1, until).join("\n")).block_id);
      at = until;
      continue;
    }
    if (line.startsWith("|")) {
      const rows: string[][] = [];
      for (; (lines[at] ?? "").startsWith("|"); at += 1) {
        const cells = (lines[at] ?? "")
          .split("|")
          .slice(1, -1)
          .map((cell) => cell.trim());
        if (!cells.every((cell) => /^:?-+:?$/.test(cell))) rows.push(cells);
      }
      at -= 1;
      top.push(addTable(blocks, rows));
      continue;
    }
    const form = lineForms.flatMap(([expression, read]) => {
      const found = expression.exec(line);
      return found === null ? [] : [read(found)];
    })[0];
    const { type, text, style } = form ?? { type: 2, text: line, style: undefined };
    top.push(add(type, text, style === undefined ? {} : { style }).block_id);
  }
  return { top, blocks };
}

function textBlock(type: number, text: string, more: JsonObject = {}): SimBlock {
  const data =
    type === 22 || type === 27
      ? {}
      : { elements: [{ text_run: { content: text, text_element_style: {} } }], ...more };
  return {
    block_id: newId("tmp"),
    parent_id: "",
    block_type: type,
    children: [],
    [dataKeyOf(type) ?? "text"]: data,
  };
}

function addTable(blocks: SimBlock[], rows: string[][]): string {
  const columns = Math.max(1, ...rows.map(({ length }) => length));
  const cells: string[] = [];
  const table: SimBlock = {
    block_id: newId("tmp"),
    parent_id: "",
    block_type: 31,
    children: cells,
  };
  blocks.push(table);
  for (const row of rows) {
    for (let column = 0; column < columns; column += 1) {
      const text = textBlock(2, row[column] ?? "");
      const cell: SimBlock = {
        block_id: newId("tmp"),
        parent_id: table.block_id,
        block_type: 32,
        children: [text.block_id],
        table_cell: {},
      };
      text.parent_id = cell.block_id;
      cells.push(cell.block_id);
      blocks.push(cell, text);
    }
  }
  // The platform gives `merge_info` here, and refuses it where blocks are made.
  const merge_info = cells.map(() => ({ row_span: 1, col_span: 1 }));
  table["table"] = { cells, property: { row_size: rows.length, column_size: columns, merge_info } };
  return table.block_id;
}

/** The plain text of a block. */
export function textOf(block: SimBlock): string {
  const data = block[dataKeyOf(block.block_type) ?? ""];
  const elements: unknown[] =
    isJsonObject(data) && Array.isArray(data.elements) ? data.elements : [];
  return elements
    .map((element) =>
      isJsonObject(element) && isJsonObject(element.text_run)
        ? String(element.text_run.content)
        : "",
    )
    .join("");
}

/** The document as Markdown; pictures and files by the names of their files. */
export function markdownOf(
  rootId: string,
  blocks: ReadonlyMap<string, SimBlock>,
  fileName: (token: string) => string | undefined,
): string {
  const childrenOf = (id: string): SimBlock[] =>
    (blocks.get(id)?.children ?? []).flatMap((child) => blocks.get(child) ?? []);
  const plain = (id: string): string =>
    childrenOf(id)
      .map((child) => textOf(child))
      .join(" ");
  const lineOf = (block: SimBlock): string => {
    const text = textOf(block);
    const type = block.block_type;
    if (type >= 3 && type <= 11) return `${"#".repeat(type - 2)} ${text}`;
    if (type === 12) return `- ${text}`;
    if (type === 13) return `1. ${text}`;
    if (type === 14) return `\`\`\`\n${text}\n\`\`\``;
    if (type === 15) return `> ${text}`;
    if (type === 17) return `- [${isDone(block) ? "x" : " "}] ${text}`;
    if (type === 22) return "---";
    if (type === 23) return fileLine(block.file);
    if (type === 27) return `!${fileLine(block.image)}`;
    if (type === 43) return `[board]${fileLine(block.board).replace(/^\[.*\]/, "")}`;
    if (type === 33) return childrenOf(block.block_id).map(lineOf).join("\n");
    if (type === 31) return tableLines(block);
    return text;
  };
  const fileLine = (data: unknown): string => {
    const token = isJsonObject(data) && typeof data.token === "string" ? data.token : "";
    return token === "" ? "[empty]()" : `[${fileName(token) ?? ""}](${token})`;
  };
  const tableLines = (block: SimBlock): string => {
    const table =
      isJsonObject(block.table) && isJsonObject(block.table.property) ? block.table.property : {};
    const columns = Number(table.column_size ?? 1);
    const cells = (block.children ?? []).map(plain);
    const rows = Array.from({ length: Math.ceil(cells.length / columns) }, (_, row) =>
      cells.slice(row * columns, (row + 1) * columns),
    );
    const [head = [], ...rest] = rows.map((row) => `| ${row.join(" | ")} |`);
    return [head, `|${" --- |".repeat(columns)}`, ...rest].join("\n");
  };
  return childrenOf(rootId).map(lineOf).join("\n\n");
}

function isDone(block: SimBlock): boolean {
  const { todo } = block;
  return isJsonObject(todo) && isJsonObject(todo.style) && todo.style.done === true;
}
