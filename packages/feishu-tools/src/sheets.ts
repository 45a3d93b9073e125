import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { documentRemedies, wikiNodeAt } from "./documents/reading.ts";
import { changeOnce, makeOnce } from "./exactly-once.ts";
import {
  checkedId,
  type Platform,
  quoted,
  type Remedies,
  type Settings,
  targetOf,
} from "./platform.ts";
import { workTool } from "./work-tool.ts";

// Cells of spreadsheets.

const remedies: Remedies = {
  ...documentRemedies,
  1310204: "The platform does not take these values or this range.",
  1310213: "The person may not do this with the spreadsheet; its owner can share it.",
  1310214: "There is no such spreadsheet or sheet; list its sheets.",
  1310217: "The platform's limit for such calls is reached; try again in a minute.",
  1310218: "Some of these cells are locked against changes.",
  1310249: "The spreadsheet was deleted.",
};

const sheetLink = Type.String({
  minLength: 1,
  maxLength: 500,
  description: "Link to the spreadsheet, or its id.",
});
const Range = Type.String({
  pattern: "^[A-Za-z0-9]{1,20}![A-Z]{1,3}[1-9][0-9]{0,6}(:[A-Z]{1,3}([1-9][0-9]{0,6})?)?$",
  description: "Sheet and cells, such as 6e5ed3!A1:D20; list_sheets gives the ids of sheets.",
});
type Cell = string | number | boolean | null;
const Row = Type.Array(
  Type.Union([
    Type.String({ maxLength: 40_000 }),
    Type.Number(),
    Type.Boolean(),
    Type.Null({ description: "Leaves the cell blank." }),
  ]),
  { minItems: 1, maxItems: 100 },
);

async function sheetAt(platform: Platform, text: string): Promise<string> {
  const target = targetOf(text);
  if (target.kind === "sheets" || target.kind === "unknown") return target.id;
  if (target.kind !== "wiki") {
    throw new Error(`This is a link to ${target.kind}, not to a spreadsheet.`);
  }
  const node = await wikiNodeAt(platform, target.id);
  if (node.type !== "sheet") {
    throw new Error(`This page of the wiki holds ${node.type}, not a spreadsheet.`);
  }
  return node.object;
}

interface Sheet {
  id: string;
  title: string;
  rows: number;
  columns: number;
}

async function sheetsOf(platform: Platform, token: string): Promise<Sheet[]> {
  const { sheets = [] } = await platform.read((client, as) =>
    client.sheets.v3.spreadsheetSheet.query({ path: { spreadsheet_token: token } }, as),
  );
  return sheets.map(({ sheet_id: id = "", title = "", grid_properties: grid }) => ({
    id,
    title,
    rows: grid?.row_count ?? 0,
    columns: grid?.column_count ?? 0,
  }));
}

type Rendering = "FormattedValue" | "UnformattedValue";

/** Values of a range, without blank rows behind the last one that holds something. */
async function valuesIn(
  platform: Platform,
  { token, range, as: rendering }: { token: string; range: string; as: Rendering },
): Promise<unknown[][]> {
  const url = `/open-apis/sheets/v2/spreadsheets/${checkedId(token, "a spreadsheet")}/values/${range}`;
  const params = { valueRenderOption: rendering };
  const { valueRange } = await platform.read<{ valueRange: { values?: unknown[][] } }>(
    (client, as) => client.request({ method: "GET", url, params }, as),
  );
  const rows = valueRange?.values ?? [];
  return rows.slice(0, rows.findLastIndex((row) => row.some((cell) => textOf(cell) !== "")) + 1);
}

/** What a cell says: rich text comes as a list of segments. */
function textOf(cell: unknown): string {
  if (cell === null || cell === undefined) return "";
  if (Array.isArray(cell)) return cell.map(textOf).join("");
  if (typeof cell !== "object") return String(cell);
  return "text" in cell ? textOf(cell.text) : JSON.stringify(cell);
}

function isSame(found: readonly unknown[][], wanted: readonly (readonly Cell[])[]): boolean {
  return wanted.every((row, at) =>
    row.every((cell, column) => textOf(found[at]?.[column]) === textOf(cell)),
  );
}

function listTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    name: "list_sheets",
    description:
      "Lists the sheets of a spreadsheet, with their ids and sizes, which other tools take.",
    title: { zh: "看电子表格的工作表", en: "See the sheets of a spreadsheet" },
    summary: { zh: "看电子表格 {spreadsheet}", en: "See the spreadsheet {spreadsheet}" },
    input: { spreadsheet: sheetLink },
    effect: "pure",
    scopes: ["sheets:spreadsheet:read", "wiki:node:read"],
    reach: "reads",
    run: async ({ spreadsheet }, platform) => {
      const sheets = await sheetsOf(platform, await sheetAt(platform, spreadsheet));
      const lines = sheets.map(
        ({ id, title, rows, columns }) => `- ${title}: ${id} (${rows} rows, ${columns} columns)`,
      );
      return quoted(spreadsheet, lines.join("\n"));
    },
  });
}

const maxShownCharacters = 20_000;

function readTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    name: "read_sheet",
    description: "Reads cells of a spreadsheet, a row a line as JSON, as people see them.",
    title: { zh: "读电子表格", en: "Read a spreadsheet" },
    summary: { zh: "读电子表格 {spreadsheet} 的 {range}", en: "Read {range} of {spreadsheet}" },
    input: { spreadsheet: sheetLink, range: Range },
    effect: "pure",
    scopes: ["sheets:spreadsheet:read", "wiki:node:read"],
    reach: "reads",
    run: async ({ spreadsheet, range }, platform) => {
      const token = await sheetAt(platform, spreadsheet);
      const rows = await valuesIn(platform, { token, range, as: "FormattedValue" });
      if (rows.length === 0) return "These cells are blank.";
      return quoted(spreadsheet, shownRows(rows, firstRowOf(range)));
    },
  });
}

function firstRowOf(range: string): number {
  return Number(/![A-Z]+(\d+)/.exec(range)?.[1] ?? 1);
}

/** Rows with their numbers, and from which row to read on where that is too much. */
function shownRows(rows: readonly unknown[][], first: number): string {
  const lines: string[] = [];
  let length = 0;
  for (const [at, row] of rows.entries()) {
    const line = `${first + at} ${JSON.stringify(row.map(textOf))}`;
    length += line.length;
    if (length > maxShownCharacters && at > 0) {
      return `${lines.join("\n")}\n[${rows.length - at} rows are left out: read on from row ${first + at}]`;
    }
    lines.push(line.slice(0, maxShownCharacters));
  }
  return lines.join("\n");
}

function findTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    name: "find_in_sheet",
    description: "Finds the cells of a sheet whose text holds these words.",
    title: { zh: "在电子表格中查找", en: "Find in a spreadsheet" },
    summary: { zh: "在电子表格 {spreadsheet} 中查找：{text}", en: "Find in {spreadsheet}: {text}" },
    input: {
      spreadsheet: sheetLink,
      range: Range,
      text: Type.String({ minLength: 1, maxLength: 200 }),
    },
    effect: "pure",
    scopes: ["sheets:spreadsheet:read", "wiki:node:read"],
    reach: "reads",
    run: async ({ spreadsheet, range, text }, platform) => {
      const token = await sheetAt(platform, spreadsheet);
      const [sheet_id = ""] = range.split("!");
      const { find_result: result } = await platform.read((client, as) =>
        client.sheets.v3.spreadsheetSheet.find(
          {
            path: { spreadsheet_token: token, sheet_id },
            data: { find_condition: { range }, find: text },
          },
          as,
        ),
      );
      const cells = result?.matched_cells ?? [];
      return cells.length === 0
        ? "No cell there holds this text."
        : `Found in ${cells.length} cells: ${cells.slice(0, 200).join(", ")}`;
    },
  });
}

function writeTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    name: "write_sheet",
    description:
      "Sets cells of a spreadsheet to values. The range must be as large as the values. Texts stay texts: formulas are not evaluated. Give what the cells say now, too, as read_sheet shows it, so that the person who is asked sees what goes and what comes.",
    title: { zh: "修改电子表格", en: "Change a spreadsheet" },
    summary: {
      zh: "修改电子表格 {spreadsheet} 的 {range}：{old_rows} → {rows}",
      en: "Change {range} of {spreadsheet}: {old_rows} → {rows}",
    },
    input: {
      spreadsheet: sheetLink,
      range: Range,
      old_rows: Type.Array(Row, {
        minItems: 1,
        maxItems: 500,
        description: "What the cells say now, null for blank ones.",
      }),
      rows: Type.Array(Row, { minItems: 1, maxItems: 500 }),
    },
    effect: "idempotent",
    scopes: ["sheets:spreadsheet:write_only", "sheets:spreadsheet:read", "wiki:node:read"],
    reach: "shared",
    run: async ({ spreadsheet, range, old_rows: claimed, rows }, platform) => {
      const token = await sheetAt(platform, spreadsheet);
      checkSize(range, claimed);
      checkSize(range, rows);
      const now = async () => await valuesIn(platform, { token, range, as: "UnformattedValue" });
      return await platform.exclusive(`sheet ${token}`, async () => {
        const old = await valuesIn(platform, { token, range, as: "FormattedValue" });
        // What the person saw on the card must be what goes; a former run of the call may have changed it already.
        if (!isSame(old, claimed) && !isSame(await now(), rows)) {
          throw new Error(
            `Nothing was changed: the cells say something else. ${quoted("cells", shownRows(old, firstRowOf(range)))}`,
          );
        }
        await changeOnce(platform, {
          windowMs: settings.keyWindowMs, // a repeat sets the same values
          run: (client, as) =>
            client.request(
              {
                method: "PUT",
                url: `/open-apis/sheets/v2/spreadsheets/${checkedId(token, "a spreadsheet")}/values`,
                data: { valueRange: { range, values: rows } },
              },
              as,
            ),
          isDone: async () => isSame(await now(), rows),
          open: "whether the cells were changed",
        });
        const was = old.length === 0 ? "blank" : shownRows(old, firstRowOf(range));
        return `Changed ${range}.\n${quoted("old values", was)}`;
      });
    },
  });
}

function checkSize(range: string, rows: readonly (readonly Cell[])[]): void {
  const [, left = "", top = "", right = left, bottom = top] =
    /!([A-Z]+)(\d+)(?::([A-Z]+)(\d+))?$/.exec(range) ?? [];
  const [height, width] = [Number(bottom) - Number(top) + 1, columnOf(right) - columnOf(left) + 1];
  const isRight = height === rows.length && rows.every((row) => row.length === width);
  if (!isRight) {
    throw new Error(
      `The range has ${height} rows of ${width} cells: give as many values, null for blank ones.`,
    );
  }
}

function columnOf(name: string): number {
  return [...name].reduce((all, letter) => all * 26 + letter.charCodeAt(0) - 64, 0) - 1;
}

function columnName(column: number): string {
  const rest = String.fromCharCode(65 + (column % 26));
  return column < 26 ? rest : columnName(Math.floor(column / 26) - 1) + rest;
}

/** Rows at the end of a sheet in which appended ones are looked for. */
const maxTail = 1_000;

function appendTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    name: "append_rows",
    description:
      "Adds rows to a sheet, behind the last one that holds something, beginning with column A. What is there stays as it is.",
    title: { zh: "追加电子表格行", en: "Add rows to a spreadsheet" },
    summary: {
      zh: "向电子表格 {spreadsheet} 追加：{rows}",
      en: "Add to the spreadsheet {spreadsheet}: {rows}",
    },
    input: {
      spreadsheet: sheetLink,
      sheet: Type.String({
        pattern: "^[A-Za-z0-9]{1,20}$",
        description: "Id of the sheet, as list_sheets gives it.",
      }),
      rows: Type.Array(Row, { minItems: 1, maxItems: 200 }),
    },
    effect: "once",
    scopes: ["sheets:spreadsheet:write_only", "sheets:spreadsheet:read", "wiki:node:read"],
    reach: "shared",
    run: async ({ spreadsheet, sheet, rows }, platform) => {
      const token = await sheetAt(platform, spreadsheet);
      const width = Math.max(...rows.map((row) => row.length));
      return await platform.exclusive(`sheet ${token}`, async () => {
        const tail = async () => await tailOf(platform, { token, sheet, width });
        const before = (await tail()).filter((_, at, all) => isSame(all.slice(at), rows)).length;
        const range = await makeOnce(platform, {
          run: (client, as) =>
            client.request<{ data: { updates?: { updatedRange?: string } } }>(
              {
                method: "POST",
                url: `/open-apis/sheets/v2/spreadsheets/${checkedId(token, "a spreadsheet")}/values_append`,
                params: { insertDataOption: "INSERT_ROWS" }, // otherwise what is there may be overwritten
                data: {
                  valueRange: { range: `${sheet}!A1:${columnName(width - 1)}1`, values: rows },
                },
              },
              as,
            ),
          result: ({ updates }) => updates?.updatedRange ?? "",
          // Without a key the same rows may stand there from before: one more of them are these.
          find: async () => {
            const now = (await tail()).filter((_, at, all) => isSame(all.slice(at), rows)).length;
            return now > before ? "" : undefined;
          },
          open: "whether the rows were added",
        });
        return `Added ${rows.length} rows${range === "" ? "" : `: ${range}`}`;
      });
    },
  });
}

/** The last rows of a sheet, from the first columns. */
async function tailOf(
  platform: Platform,
  { token, sheet, width }: { token: string; sheet: string; width: number },
): Promise<unknown[][]> {
  const found = (await sheetsOf(platform, token)).find(({ id }) => id === sheet);
  if (found === undefined) throw new Error("The spreadsheet has no such sheet; list its sheets.");
  const from = Math.max(1, found.rows - maxTail + 1);
  const range = `${sheet}!A${from}:${columnName(width - 1)}${Math.max(1, found.rows)}`;
  return await valuesIn(platform, { token, range, as: "UnformattedValue" });
}

/** Lists, reads and changes the cells of spreadsheets. */
export const sheetTools = [listTool, readTool, findTool, writeTool, appendTool];
