import type { WorkWorld } from "./world.ts";
import type { ApiRoute, ApiCallContext } from "../api-route.ts";
import {
  PlatformError,
  randomHex,
  newId,
  success,
  type JsonObject,
  isJsonObject,
  stringField,
} from "../open-api.ts";

// Spreadsheets ("Sheets overview"). Their refusals come with HTTP 200.

type Cell = string | number | boolean | null;

interface SimSheet {
  sheetId: string;
  title: string;
  /** Rows with something in them, and blank ones between. */
  rows: Cell[][];
  /** How many rows the grid has, blank ones included. */
  rowCount: number;
  columnCount: number;
}

interface SimSpreadsheet {
  token: string;
  title: string;
  owner: string;
  folder: string;
  createdAt: number;
  sheets: SimSheet[];
}

export interface SheetControls {
  readonly spreadsheets: ReadonlyMap<string, SimSpreadsheet>;
  /** A spreadsheet of a person with one sheet of these rows. */
  addSpreadsheet(sheet: {
    owner: string;
    title: string;
    rows: readonly (readonly Cell[])[];
    folder?: string;
  }): SimSpreadsheet;
}

const reading = [
  "sheets:spreadsheet:read",
  "sheets:spreadsheet:readonly",
  "sheets:spreadsheet:write_only",
  "sheets:spreadsheet",
];
const writing = ["sheets:spreadsheet:write_only", "sheets:spreadsheet"];
const limits = { perSecond: 100 };
const maxCell = 50_000;

function refused(code: number, message: string): PlatformError {
  return new PlatformError(code, message, { status: 200 });
}

export class SimSheets implements SheetControls {
  readonly spreadsheets = new Map<string, SimSpreadsheet>();
  readonly #world: WorkWorld;

  constructor(world: WorkWorld) {
    this.#world = world;
  }

  addSpreadsheet({
    owner,
    title,
    rows,
    folder = "",
  }: Parameters<SheetControls["addSpreadsheet"]>[0]): SimSpreadsheet {
    const sheet: SimSheet = {
      sheetId: randomHex(6),
      title: "Sheet1",
      rows: rows.map((row) => [...row]),
      rowCount: Math.max(200, rows.length),
      columnCount: 20,
    };
    const spreadsheet: SimSpreadsheet = {
      token: newId("sht").slice(0, 27),
      title,
      owner,
      folder,
      createdAt: this.#world.clock.now(),
      sheets: [sheet],
    };
    this.spreadsheets.set(spreadsheet.token, spreadsheet);
    this.#world.share(spreadsheet.token, owner, "edit");
    return spreadsheet;
  }

  routes(): ApiRoute[] {
    const v3 = "/open-apis/sheets/v3/spreadsheets/:token/sheets";
    const v2 = "/open-apis/sheets/v2/spreadsheets/:token";
    return [
      {
        method: "GET",
        path: `${v3}/query`,
        personScopes: reading,
        limits: { perMinute: 100 },
        handle: (call) => {
          const { sheets } = this.#known(call, "view");
          const views = sheets.map(({ sheetId, title, rowCount, columnCount }, index) => ({
            sheet_id: sheetId,
            title,
            index,
            hidden: false,
            grid_properties: { row_count: rowCount, column_count: columnCount },
            resource_type: "sheet",
          }));
          return success({ sheets: views });
        },
      },
      {
        method: "POST",
        path: `${v3}/:sheet_id/find`,
        personScopes: reading,
        limits: { perMinute: 100 },
        handle: (call) => this.#find(call),
      },
      {
        method: "GET",
        path: `${v2}/values/:range`,
        personScopes: reading,
        limits,
        handle: (call) => {
          const { token, sheets } = this.#known(call, "view");
          const area = areaOf(sheets, call.params.range ?? "");
          const values = rowsIn(area);
          const range = rangeOf(area);
          return success({
            revision: 1,
            spreadsheetToken: token,
            valueRange: { majorDimension: "ROWS", range, revision: 1, values },
          });
        },
      },
      {
        method: "PUT",
        path: `${v2}/values`,
        personScopes: writing,
        limits,
        handle: (call) => {
          const { token, sheets } = this.#known(call, "edit");
          const { range, values } = givenIn(call);
          const area = areaOf(sheets, range);
          put(area.sheet, { row: area.top, column: area.left, values });
          for (const row of values) this.#world.record(call, "sheet.write", JSON.stringify(row));
          const updatedRange = rangeOf(area);
          return success({ revision: 2, spreadsheetToken: token, updatedRange });
        },
      },
      {
        method: "POST",
        path: `${v2}/values_append`,
        personScopes: writing,
        limits,
        handle: (call) => this.#append(call),
      },
    ];
  }

  #known(call: ApiCallContext, right: "view" | "edit"): SimSpreadsheet {
    const spreadsheet = this.spreadsheets.get(call.params.token ?? "");
    if (spreadsheet === undefined) throw refused(1310249, "spreadsheet is deleted");
    if (
      call.person === undefined ||
      !this.#world.may(call.person.openId, spreadsheet.token, right)
    ) {
      throw refused(1310213, "Permission Fail");
    }
    return spreadsheet;
  }

  #find(call: ApiCallContext): JsonObject {
    const { sheets } = this.#known(call, "view");
    const sheet = sheets.find(({ sheetId }) => sheetId === call.params.sheet_id);
    if (sheet === undefined) throw refused(1310214, "sheetId not found");
    const condition = isJsonObject(call.body.find_condition) ? call.body.find_condition : {};
    const area = areaOf(sheets, stringField(condition, "range"));
    const wanted = stringField(call.body, "find").toLowerCase();
    const matched_cells = rowsIn(area).flatMap((row, at) =>
      row.flatMap((cell, column) =>
        String(cell ?? "")
          .toLowerCase()
          .includes(wanted)
          ? [`${columnName(area.left + column)}${area.top + at + 1}`]
          : [],
      ),
    );
    return success({
      find_result: { matched_cells, matched_formula_cells: [], rows_count: matched_cells.length },
    });
  }

  /** Behind the last row with something in it. Without INSERT_ROWS what stands there is overwritten. */
  #append(call: ApiCallContext): JsonObject {
    const { token, sheets } = this.#known(call, "edit");
    const { range, values } = givenIn(call);
    const area = areaOf(sheets, range);
    const { sheet } = area;
    const last = sheet.rows.findLastIndex((row) =>
      row.some((cell) => cell !== null && cell !== ""),
    );
    const row = last + 1;
    if (call.query.get("insertDataOption") === "INSERT_ROWS") {
      sheet.rows.splice(row, 0, ...values.map(() => []));
      sheet.rowCount += values.length;
    }
    put(sheet, { row, column: area.left, values });
    for (const each of values) this.#world.record(call, "sheet.append", JSON.stringify(each));
    const updatedRange = `${sheet.sheetId}!${columnName(area.left)}${row + 1}:${columnName(area.left + (values[0]?.length ?? 1) - 1)}${row + values.length}`;
    return success({
      revision: 2,
      spreadsheetToken: token,
      tableRange: updatedRange,
      updates: { revision: 2, spreadsheetToken: token, updatedRange, updatedRows: values.length },
    });
  }
}

/** Part of a sheet; rows and columns count from 0, `bottom` and `right` are in it. */
interface Area {
  sheet: SimSheet;
  top: number;
  left: number;
  bottom: number;
  right: number;
}

/** Reads `sheetId`, `sheetId!A1`, `sheetId!A1:B9` or `sheetId!A:C`. */
function areaOf(sheets: readonly SimSheet[], range: string): Area {
  const [, sheetId, left, top, right, bottom] =
    /^([^!]+)(?:!([A-Z]+)(\d*)(?::([A-Z]+)(\d*))?)?$/.exec(range) ?? [];
  const sheet = sheets.find((one) => one.sheetId === sheetId);
  if (sheet === undefined) throw refused(1310214, "sheetId not found");
  const first = { top: Number(top || 1) - 1, left: columnOf(left ?? "A") };
  const whole = left === undefined;
  return {
    sheet,
    ...first,
    bottom:
      whole || (right !== undefined && bottom === "")
        ? sheet.rowCount - 1
        : Number(bottom ?? top) - 1,
    right: whole ? sheet.columnCount - 1 : columnOf(right ?? left),
  };
}

function rangeOf({ sheet, top, left, bottom, right }: Area): string {
  return `${sheet.sheetId}!${columnName(left)}${top + 1}:${columnName(right)}${bottom + 1}`;
}

/** The rows up to the last one with something in it. */
function rowsIn({ sheet, top, left, bottom, right }: Area): Cell[][] {
  return sheet.rows
    .slice(top, bottom + 1)
    .map((row) => Array.from({ length: right - left + 1 }, (_, at) => row[left + at] ?? null));
}

function givenIn({ body }: ApiCallContext): { range: string; values: Cell[][] } {
  const given = isJsonObject(body.valueRange) ? body.valueRange : {};
  const values = Array.isArray(given.values) ? (given.values as Cell[][]) : []; // checked below
  const isRight = values.every(
    (row) => Array.isArray(row) && row.every((cell) => String(cell).length <= maxCell),
  );
  if (!isRight || values.length === 0 || values.length > 5_000) {
    throw refused(1310204, "Wrong Request Parameter");
  }
  return { range: stringField(given, "range"), values };
}

function put(
  sheet: SimSheet,
  { row, column, values }: { row: number; column: number; values: Cell[][] },
): void {
  for (const [at, cells] of values.entries()) {
    while (sheet.rows.length <= row + at) sheet.rows.push([]);
    const into = sheet.rows[row + at] ?? [];
    for (const [offset, cell] of cells.entries()) into[column + offset] = cell;
  }
  sheet.rowCount = Math.max(sheet.rowCount, sheet.rows.length);
}

function columnOf(name: string): number {
  return [...name].reduce((all, letter) => all * 26 + letter.charCodeAt(0) - 64, 0) - 1;
}

function columnName(column: number): string {
  const rest = String.fromCharCode(65 + (column % 26));
  return column < 26 ? rest : columnName(Math.floor(column / 26) - 1) + rest;
}
