import { isDeepStrictEqual } from "node:util";
import type { Client } from "@larkline/feishu/token-call";
import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { documentRemedies, wikiNodeAt } from "../documents/reading.ts";
import { changeOnce, keyOf, makeOnce, repeatMsOf } from "../exactly-once.ts";
import {
  checkedId,
  isRefusal,
  type Platform,
  quoted,
  type Remedies,
  type Settings,
  targetOf,
} from "../platform.ts";
import { type Field, fieldsText, fieldTypes, platformRow, shownValue } from "./values.ts";
import { workTool } from "../work-tool.ts";

export const baseRemedies: Remedies = {
  ...documentRemedies,
  1254040: "There is no such Base; check the link.",
  1254041: "The Base has no such table; list its tables.",
  1254043: "The table has no such record; search again.",
  1254044: "The table has no such field any more; list its tables.",
  1254045: "The table has no field of this name; list its tables.",
  1254046: "The first column of a table cannot be deleted.",
  1254014: "The table has a field of this name already.",
  1254018: "The platform does not take this filter.",
  1254302:
    "The person may not do this with the Base: its owner has to share it, or give them a role.",
  1254304: "The Base has advanced permissions, and the person lacks the role.",
  1254306: "The company's plan does not allow this.",
  1254104: "These are too many records for one call.",
  1254291: "Another change of the table is under way; try again in a minute.",
  1254103: "The table is full.",
  1255006: "The platform knows this write with other content.",
};

export const table = {
  base: Type.String({ minLength: 1, maxLength: 500, description: "Link to the Base, or its id." }),
  table: Type.Optional(
    Type.String({
      maxLength: 100,
      description: "Id of the table, tbl…, when the link does not name it.",
    }),
  ),
};
const row = Type.Record(Type.String({ maxLength: 200 }), Type.Unknown(), {
  description:
    "Values by the names of fields: texts, numbers, true or false, dates as ISO 8601 text, people as a list of open ids, choices by name; null clears.",
});
export const schemaScopes = ["base:table:read", "base:field:read", "wiki:node:read"];

export interface TablePlace {
  app_token: string;
  table_id: string;
}

/** Follows a link of a Base, or of a page in a wiki that holds one. */
async function baseAt(
  platform: Platform,
  text: string,
): Promise<{ appToken: string; table: string | undefined }> {
  const target = targetOf(text);
  const named = target.query.get("table") ?? undefined;
  if (target.kind === "base" || target.kind === "unknown") {
    return { appToken: target.id, table: named };
  }
  if (target.kind !== "wiki") throw new Error(`This is a link to ${target.kind}, not to a Base.`);
  const node = await wikiNodeAt(platform, target.id);
  if (node.type !== "bitable") {
    throw new Error(`This page of the wiki holds ${node.type}, not a Base.`);
  }
  return { appToken: node.object, table: named };
}

export async function tableAt(
  platform: Platform,
  { base, table: named }: { base: string; table?: string | undefined },
): Promise<TablePlace> {
  const place = await baseAt(platform, base);
  const tableId = named ?? place.table;
  if (tableId === undefined) throw new Error("Name the table; list_tables gives the ids.");
  return { app_token: place.appToken, table_id: checkedId(tableId, "a table") };
}

async function fieldsOf(platform: Platform, path: TablePlace): Promise<Field[]> {
  const fields = await listedFields(platform, path);
  return fields.map(({ field_id = "", field_name, type, is_primary = false, property }) => ({
    id: field_id,
    name: field_name,
    type,
    isPrimary: is_primary,
    options: (property?.options ?? []).map(({ name = "" }) => name),
  }));
}

type ListedField = NonNullable<
  NonNullable<
    Awaited<ReturnType<Client["bitable"]["v1"]["appTableField"]["list"]>>["data"]
  >["items"]
>[number];

/** The fields as the platform describes them. */
export async function listedFields(platform: Platform, path: TablePlace): Promise<ListedField[]> {
  const fields: ListedField[] = [];
  for (let page_token = ""; ;) {
    const params = { page_size: 100, ...(page_token === "" ? {} : { page_token }) };
    const page = await platform.read((client, as) =>
      client.bitable.v1.appTableField.list({ path, params }, as),
    );
    fields.push(...(page.items ?? []));
    if (page.has_more !== true || (page.page_token ?? "") === "" || fields.length >= 1_000) {
      return fields;
    }
    page_token = page.page_token ?? "";
  }
}

interface Row {
  record_id?: string | undefined;
  fields: Record<string, unknown>;
}

function shownRow(fields: readonly Field[], { record_id, fields: values }: Row): string {
  const shown = Object.entries(values).map(([name, value]) => [
    name,
    shownValue(
      fields.find((field) => field.name === name),
      value,
    ),
  ]);
  return `${record_id ?? ""} ${JSON.stringify(Object.fromEntries(shown))}`;
}

async function rowsOf(
  platform: Platform,
  path: TablePlace,
  ids: readonly string[],
): Promise<Row[]> {
  const { records = [] } = await platform.read((client, as) =>
    client.bitable.v1.appTableRecord.batchGet({ path, data: { record_ids: [...ids] } }, as),
  );
  return records;
}

function listTool(settings: Settings): HandlerTool {
  return workTool(settings, baseRemedies, {
    name: "list_tables",
    description:
      "Lists the tables of a Base with their fields and choices. Call it before you read or write records.",
    title: { zh: "看多维表格的结构", en: "See the tables of a Base" },
    summary: { zh: "看多维表格 {base} 的结构", en: "See the tables of the Base {base}" },
    input: { base: table.base },
    effect: "pure",
    scopes: schemaScopes,
    reach: "reads",
    run: async ({ base }, platform) => {
      const { appToken: app_token } = await baseAt(platform, base);
      const { items = [] } = await platform.read((client, as) =>
        client.bitable.v1.appTable.list({ path: { app_token }, params: { page_size: 100 } }, as),
      );
      const lines: string[] = [];
      for (const { table_id = "", name = "" } of items.slice(0, maxDescribed)) {
        lines.push(
          `- ${name}: table ${table_id}, fields ${fieldsText(await fieldsOf(platform, { app_token, table_id }))}`,
        );
      }
      lines.push(
        ...items.slice(maxDescribed).map(({ table_id, name }) => `- ${name}: table ${table_id}`),
      );
      return lines.length === 0
        ? "The Base has no tables that the person may see."
        : quoted(base, lines.join("\n"));
    },
  });
}

/** Further tables are named only. */
const maxDescribed = 10;
const maxShownRows = 100;
const operators = [
  "is",
  "isNot",
  "contains",
  "doesNotContain",
  "isEmpty",
  "isNotEmpty",
  "isGreater",
  "isGreaterEqual",
  "isLess",
  "isLessEqual",
] as const;

type Operator = (typeof operators)[number];

interface Condition {
  field: string;
  operator: Operator;
  value?: string | undefined;
}

function platformCondition(fields: readonly Field[], { field: name, operator, value }: Condition) {
  const field = fields.find((one) => one.name === name);
  if (field === undefined) {
    throw new Error(
      `There is no field ${JSON.stringify(name)}. The table has: ${fieldsText(fields)}`,
    );
  }
  if (operator === "isEmpty" || operator === "isNotEmpty") {
    return { field_name: name, operator, value: [] };
  }
  const at = field.type === fieldTypes.date ? Date.parse(value ?? "") : Number.NaN;
  return {
    field_name: name,
    operator,
    value: Number.isNaN(at) ? [value ?? ""] : ["ExactDate", String(at)],
  };
}

function searchTool(settings: Settings): HandlerTool {
  return workTool(settings, baseRemedies, {
    name: "search_records",
    description: `Reads records of a table, with conditions or without: at most ${maxShownRows} at a time, with their ids.`,
    title: { zh: "查询多维表格", en: "Search a table" },
    summary: { zh: "查询多维表格 {base}", en: "Search the Base {base}" },
    input: {
      ...table,
      conditions: Type.Optional(
        Type.Array(
          Type.Object(
            {
              field: Type.String({ maxLength: 200 }),
              operator: Type.Enum([...operators]),
              value: Type.Optional(
                Type.String({ maxLength: 1_000, description: "Dates as ISO 8601." }),
              ),
            },
            { additionalProperties: false },
          ),
          { maxItems: 50 },
        ),
      ),
      any: Type.Optional(
        Type.Boolean({ description: "One condition suffices. Default: all must hold." }),
      ),
      fields: Type.Optional(Type.Array(Type.String({ maxLength: 200 }), { maxItems: 200 })),
      page_token: Type.Optional(
        Type.String({ maxLength: 500, description: "Of a former answer: goes on there." }),
      ),
    },
    effect: "pure",
    scopes: ["base:record:retrieve", ...schemaScopes],
    reach: "reads",
    run: async (
      { conditions = [], any = false, fields: names, page_token, ...where },
      platform,
    ) => {
      const path = await tableAt(platform, where);
      const fields = await fieldsOf(platform, path);
      const filter = {
        conjunction: any ? ("or" as const) : ("and" as const),
        conditions: conditions.map((one) => platformCondition(fields, one)),
      };
      const page = await platform.read((client, as) =>
        client.bitable.v1.appTableRecord.search(
          {
            path,
            params: {
              page_size: maxShownRows,
              ...(page_token === undefined ? {} : { page_token }),
            },
            data: {
              ...(conditions.length === 0 ? {} : { filter }),
              ...(names === undefined ? {} : { field_names: names }),
            },
          },
          as,
        ),
      );
      const rows = page.items ?? [];
      if (rows.length === 0) {
        return "No record was found. In a Base with advanced permissions that can mean that the person may not see them.";
      }
      const more =
        page.has_more === true ? `\nmore follow: page_token ${page.page_token ?? ""}` : "";
      const total = page.total ?? rows.length;
      const lines = rows.map((one) => shownRow(fields, one)).join("\n");
      return `${total} records in all\n${quoted(where.base, lines + more)}`;
    },
  });
}

const maxWritten = 200;

function addTool(settings: Settings): HandlerTool {
  return workTool(settings, baseRemedies, {
    name: "add_records",
    description: "Adds rows to a table of a Base. Name fields exactly as list_tables gives them.",
    title: { zh: "添加多维表格记录", en: "Add rows to a table" },
    summary: { zh: "向多维表格 {base} 添加：{rows}", en: "Add to the Base {base}: {rows}" },
    input: { ...table, rows: Type.Array(row, { minItems: 1, maxItems: maxWritten }) },
    effect: "once",
    repeatMs: repeatMsOf(settings.keyWindowMs),
    scopes: ["base:record:create", "base:record:retrieve", ...schemaScopes],
    reach: "shared",
    run: async ({ rows, ...where }, platform, context) => {
      const path = await tableAt(platform, where);
      const fields = await fieldsOf(platform, path);
      const records = rows.map((one) => ({ fields: platformRow(fields, one) as Values }));
      const ids = await oneWriter(platform, path, async () => {
        const before = new Set(await alike(platform, path, { fields, records }));
        return await makeOnce(platform, {
          windowMs: settings.keyWindowMs,
          run: (client, as) =>
            client.bitable.v1.appTableRecord.batchCreate(
              { path, params: { client_token: keyOf(context, "rows") }, data: { records } },
              as,
            ),
          result: (answer): string[] =>
            (answer.records ?? []).map(({ record_id = "" }) => record_id),
          find: async () => {
            const found = (await alike(platform, path, { fields, records })).filter(
              (id) => !before.has(id),
            );
            return found.length === 0 ? undefined : found;
          },
          // All rows of a call are added, or none.
          isDuplicate: (error) => isRefusal(error, usedKey),
          done: [],
          open: "whether the rows were added",
        });
      });
      return ids.length === 0
        ? `Added ${rows.length} rows.`
        : `Added ${rows.length} rows: ${ids.join(", ")}`;
    },
  });
}

/** The platform's answer to a key that it knows. */
export const usedKey = 1254608;

type Values = Parameters<
  Parameters<Parameters<Platform["write"]>[0]>[0]["bitable"]["v1"]["appTableRecord"]["batchCreate"]
>[0] extends { data: { records: { fields: infer F }[] } } | undefined
  ? F
  : never;

/** Ids of the rows that say what the first of these records says, as far as the platform can search for it. */
async function alike(
  platform: Platform,
  path: TablePlace,
  {
    fields,
    records,
  }: { fields: readonly Field[]; records: readonly { fields: Record<string, unknown> }[] },
): Promise<string[]> {
  const searchable = new Set<number>([fieldTypes.text, fieldTypes.number, fieldTypes.select]);
  const typeOf = (name: string): number => fields.find((field) => field.name === name)?.type ?? 0;
  const conditions = Object.entries(records[0]?.fields ?? {})
    .filter(([name, value]) => value !== null && value !== "" && searchable.has(typeOf(name)))
    .slice(0, 10)
    .map(([field_name, value]) => ({
      field_name,
      operator: "is" as const,
      value: [String(value)],
    }));
  if (conditions.length === 0) return [];
  const { items = [] } = await platform.read((client, as) =>
    client.bitable.v1.appTableRecord.search(
      { path, params: { page_size: 500 }, data: { filter: { conjunction: "and", conditions } } },
      as,
    ),
  );
  return items.map(({ record_id = "" }) => record_id);
}

/** The platform refuses parallel writes to a table. */
export async function oneWriter<T>(
  platform: Platform,
  { app_token, table_id }: TablePlace,
  work: () => Promise<T>,
): Promise<T> {
  return await platform.exclusive(`table ${app_token} ${table_id}`, work);
}

function updateTool(settings: Settings): HandlerTool {
  return workTool(settings, baseRemedies, {
    name: "update_records",
    description:
      "Changes records of a table by their ids: the named fields only. Give the values that they have now, too, as search_records shows them, so that the person who is asked sees what goes and what comes.",
    title: { zh: "修改多维表格记录", en: "Change rows of a table" },
    summary: { zh: "修改多维表格 {base}：{changes}", en: "Change the Base {base}: {changes}" },
    input: {
      ...table,
      changes: Type.Array(
        Type.Object(
          {
            record: Type.String({ minLength: 1, maxLength: 100 }),
            old_values: Type.Record(Type.String({ maxLength: 200 }), Type.Unknown(), {
              description:
                "What these fields say now, as search_records shows it; null where blank.",
            }),
            values: row,
          },
          { additionalProperties: false },
        ),
        { minItems: 1, maxItems: 100 },
      ),
    },
    effect: "idempotent",
    scopes: ["base:record:update", "base:record:retrieve", ...schemaScopes],
    reach: "shared",
    run: async ({ changes, ...where }, platform) => {
      const path = await tableAt(platform, where);
      const fields = await fieldsOf(platform, path);
      const records = changes.map(({ record, values }) => ({
        record_id: checkedId(record, "a record"),
        fields: platformRow(fields, values) as Values,
      }));
      const ids = records.map(({ record_id }) => record_id);
      return await oneWriter(platform, path, async () => {
        const old = await rowsOf(platform, path, ids);
        for (const [at, change] of changes.entries()) {
          checkOld(fields, { ...change, wanted: records[at]?.fields ?? {} }, old);
        }
        await changeOnce(platform, {
          windowMs: settings.keyWindowMs, // a repeat sets the same values
          run: (client, as) =>
            client.bitable.v1.appTableRecord.batchUpdate({ path, data: { records } }, as),
          isDone: async () => {
            const now = await rowsOf(platform, path, ids);
            return records.every((one) => unsetIn(fields, one, now).length === 0);
          },
          isDuplicate: (error) => isRefusal(error, usedKey),
          done: true,
          open: "whether the rows were changed",
        });
        const now = await rowsOf(platform, path, ids);
        // Some fields, such as stages, answer success and stay as they were.
        const kept = records.flatMap((one) => unsetIn(fields, one, now));
        const warning =
          kept.length === 0
            ? ""
            : `\nThe platform has not changed: ${[...new Set(kept)].join(", ")}`;
        const was = old.map((one) =>
          shownRow(fields, { ...one, fields: namedOnly(one.fields, changes) }),
        );
        return `Changed ${changes.length} rows.${warning}\n${quoted("old values", was.join("\n"))}`;
      });
    },
  });
}

/** What the person saw on the card must be what goes; a former run of the call may have changed it already. */
function checkOld(
  fields: readonly Field[],
  {
    record,
    old_values: claimed,
    wanted,
  }: { record: string; old_values: Record<string, unknown>; wanted: Record<string, unknown> },
  rows: readonly Row[],
): void {
  const now = rows.find((one) => one.record_id === record)?.fields ?? {};
  for (const [name, value] of Object.entries(wanted)) {
    const field = fields.find((one) => one.name === name);
    const says = shownValue(field, now[name]) ?? "";
    const isClaimed = isDeepStrictEqual(says, claimed[name] ?? "");
    if (!isClaimed && comparable(field, value) !== comparable(field, now[name])) {
      throw new Error(
        `Nothing was changed: ${JSON.stringify(name)} of the record ${record} is ${JSON.stringify(says).slice(0, 300)}.`,
      );
    }
  }
}

/** Names of the fields that do not say what they were set to. */
function unsetIn(
  fields: readonly Field[],
  { record_id, fields: wanted }: Row,
  rows: readonly Row[],
): string[] {
  const now = rows.find((one) => one.record_id === record_id)?.fields ?? {};
  return Object.entries(wanted).flatMap(([name, value]) => {
    const field = fields.find((one) => one.name === name);
    return comparable(field, value) === comparable(field, now[name]) ? [] : [name];
  });
}

/** People come back with names and more: their ids are what counts. */
function comparable(field: Field | undefined, value: unknown): string {
  if (field?.type === fieldTypes.person && Array.isArray(value)) {
    return value
      .map((one) => String(typeof one === "object" && one !== null && "id" in one ? one.id : ""))
      .join();
  }
  return JSON.stringify(shownValue(field, value));
}

function namedOnly(
  values: Record<string, unknown>,
  changes: readonly { values: Record<string, unknown> }[],
): Record<string, unknown> {
  const names = new Set(changes.flatMap((one) => Object.keys(one.values)));
  return Object.fromEntries(Object.entries(values).filter(([name]) => names.has(name)));
}

function deleteTool(settings: Settings): HandlerTool {
  return workTool(settings, baseRemedies, {
    name: "delete_records",
    description:
      "Deletes records of a table by their ids. Give the value of the first column of each, so that the person who is asked sees what goes.",
    title: { zh: "删除多维表格记录", en: "Delete rows of a table" },
    summary: {
      zh: "从多维表格 {base} 删除：{records}",
      en: "Delete from the Base {base}: {records}",
    },
    input: {
      ...table,
      records: Type.Array(
        Type.Object(
          {
            id: Type.String({ minLength: 1, maxLength: 100 }),
            first_column: Type.String({ maxLength: 5_000 }),
          },
          { additionalProperties: false },
        ),
        { minItems: 1, maxItems: 100 },
      ),
    },
    effect: "idempotent",
    scopes: ["base:record:delete", "base:record:retrieve", ...schemaScopes],
    reach: "destroys",
    run: async ({ records: named, ...where }, platform) => {
      const path = await tableAt(platform, where);
      const primary = (await fieldsOf(platform, path)).find(({ isPrimary }) => isPrimary);
      const ids = named.map(({ id }) => checkedId(id, "a record"));
      return await oneWriter(platform, path, async () => {
        const there = await rowsOf(platform, path, ids);
        for (const { record_id, fields } of there) {
          const says = String(shownValue(primary, fields[primary?.name ?? ""]) ?? "");
          const claimed = named.find(({ id }) => id === record_id)?.first_column ?? "";
          if (says !== claimed) {
            throw new Error(
              `The record ${record_id ?? ""} says ${JSON.stringify(says)} in its first column.`,
            );
          }
        }
        const records = there.flatMap(({ record_id }) => record_id ?? []);
        if (records.length === 0) return "These records are not there any more.";
        await changeOnce(platform, {
          windowMs: settings.keyWindowMs, // what is deleted cannot be deleted again
          run: (client, as) =>
            client.bitable.v1.appTableRecord.batchDelete({ path, data: { records } }, as),
          isDone: async () => (await rowsOf(platform, path, records)).length === 0,
          isDuplicate: (error, wasUnanswered) => wasUnanswered && isRefusal(error, 1254043),
          open: "whether the rows were deleted",
        });
        return `Deleted ${records.length} rows.`;
      });
    },
  });
}

/** Reads and changes the rows of Bases. */
export const baseTools = [listTool, searchTool, addTool, updateTool, deleteTool];
