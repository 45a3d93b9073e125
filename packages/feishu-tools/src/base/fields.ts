import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { changeOnce, keyOf } from "../exactly-once.ts";
import { isRefusal, type Platform, type Settings } from "../platform.ts";
import {
  baseRemedies,
  listedFields,
  oneWriter,
  schemaScopes,
  table,
  tableAt,
  type TablePlace,
  usedKey,
} from "./base.ts";
import { fieldTypeNames, fieldTypes, typeNameOf } from "./values.ts";
import { workTool } from "../work-tool.ts";

// The fields (columns) of tables. A change says all of a field anew: what is left out is lost, such as the choices of a
// select with what rows say of them ("Update a field").

const Name = Type.String({ minLength: 1, maxLength: 100 });
const Choice = Type.String({ minLength: 1, maxLength: 100 });
const Named = Type.String({
  minLength: 1,
  maxLength: 100,
  description: "Its name now, exactly as list_tables gives it.",
});

function addTool(settings: Settings): HandlerTool {
  return workTool(settings, baseRemedies, {
    name: "add_field",
    description: "Adds a field (a column) to a table of a Base.",
    title: { zh: "添加多维表格字段", en: "Add a field to a table" },
    summary: {
      zh: "向多维表格 {base} 添加字段：{name}",
      en: "Add the field {name} to the Base {base}",
    },
    input: {
      ...table,
      name: Name,
      type: Type.Enum([...fieldTypeNames]),
      options: Type.Optional(
        Type.Array(Type.String({ minLength: 1, maxLength: 100 }), {
          maxItems: 100,
          description: "Choices of a select.",
        }),
      ),
    },
    effect: "once",
    scopes: ["base:field:create", ...schemaScopes],
    reach: "shared",
    run: async ({ name, type, options = [], ...where }, platform, context) => {
      const path = await tableAt(platform, where);
      const property =
        options.length === 0
          ? {}
          : { property: { options: options.map((one) => ({ name: one })) } };
      return await oneWriter(platform, path, async () => {
        if ((await listedFields(platform, path)).some((field) => field.field_name === name)) {
          throw new Error(`The table has a field ${JSON.stringify(name)} already.`);
        }
        await changeOnce(platform, {
          windowMs: settings.keyWindowMs,
          run: (client, as) =>
            client.bitable.v1.appTableField.create(
              {
                path,
                params: { client_token: keyOf(context, "field") },
                data: { field_name: name, type: fieldTypes[type], ...property },
              },
              as,
            ),
          isDone: async () =>
            (await listedFields(platform, path)).some((one) => one.field_name === name),
          isDuplicate: (error) => isRefusal(error, usedKey),
          done: true,
          open: "whether the field was added",
        });
        return `The table has the field ${JSON.stringify(name)} (${typeNameOf(fieldTypes[type])}).`;
      });
    },
  });
}

type Listed = Awaited<ReturnType<typeof listedFields>>[number];

/** The field of this name. */
async function fieldNamed(platform: Platform, path: TablePlace, name: string): Promise<Listed> {
  const fields = await listedFields(platform, path);
  const found = fields.find(({ field_name }) => field_name === name);
  if (found !== undefined) return found;
  const names = fields.map(({ field_name }) => JSON.stringify(field_name)).join(", ");
  throw new Error(`There is no field ${JSON.stringify(name)}. The table has: ${names}`);
}

function changeTool(settings: Settings): HandlerTool {
  return workTool(settings, baseRemedies, {
    name: "change_field",
    description:
      "Gives a field (a column) of a table another name, renames choices of a select, or adds some. Rows keep their values. Types are not converted and choices not taken away, because rows would lose values.",
    title: { zh: "修改多维表格字段", en: "Change a field of a table" },
    summary: {
      zh: "修改多维表格 {base} 的字段「{field}」",
      en: "Change the field “{field}” of the Base {base}",
    },
    input: {
      ...table,
      field: Named,
      name: Type.Optional(Name),
      rename_choices: Type.Optional(
        Type.Array(Type.Object({ from: Choice, to: Choice }, { additionalProperties: false }), {
          minItems: 1,
          maxItems: 50,
        }),
      ),
      add_choices: Type.Optional(Type.Array(Choice, { minItems: 1, maxItems: 50 })),
    },
    effect: "idempotent",
    scopes: ["base:field:update", ...schemaScopes],
    reach: "shared",
    run: async (
      { field: oldName, name = oldName, rename_choices, add_choices, ...where },
      platform,
    ) => {
      const path = await tableAt(platform, where);
      return await oneWriter(platform, path, async () => {
        const field = await fieldNamed(platform, path, oldName);
        const field_id = field.field_id ?? "";
        const isTaken = (await listedFields(platform, path)).some(
          (one) => one.field_name === name && one.field_id !== field_id,
        );
        if (isTaken) throw new Error(`The table has a field ${JSON.stringify(name)} already.`);
        const options = changedOptions(field, rename_choices ?? [], add_choices ?? []);
        const { type, ui_type, description, property } = field;
        const kept = { ...property, ...(options === undefined ? {} : { options }) };
        await changeOnce(platform, {
          windowMs: settings.keyWindowMs, // a repeat says the same
          run: (client, as) =>
            client.bitable.v1.appTableField.update(
              {
                path: { ...path, field_id },
                data: {
                  field_name: name,
                  type,
                  ...(ui_type === undefined ? {} : { ui_type }),
                  ...(description === undefined ? {} : { description: described(description) }),
                  ...(Object.keys(kept).length === 0 ? {} : { property: kept }),
                },
              },
              as,
            ),
          isDone: async () => {
            const now = (await listedFields(platform, path)).find(
              (one) => one.field_id === field_id,
            );
            const names = namesOf(now?.property?.options);
            const wanted = namesOf(options);
            return now?.field_name === name && wanted.every((one) => names.includes(one));
          },
          open: "whether the field was changed",
        });
        const choices =
          options === undefined ? "" : `, with the choices ${namesOf(options).join(" | ")}`;
        return `The field is called ${JSON.stringify(name)} now${choices}.`;
      });
    },
  });
}

type Options = NonNullable<NonNullable<Listed["property"]>["options"]>;

function namesOf(options: Options = []): string[] {
  return options.map(({ name = "" }) => name);
}

/** All choices of a select as they shall be, those of now with their ids; undefined: the field has none. */
function changedOptions(
  { property, field_name, type }: Listed,
  renamed: readonly { from: string; to: string }[],
  added: readonly string[],
): Options | undefined {
  const options = property?.options;
  const isSelect = type === fieldTypes.select || type === fieldTypes.multi_select;
  if (!isSelect) {
    if (renamed.length + added.length === 0) return options;
    throw new Error(`The field ${JSON.stringify(field_name)} has no choices.`);
  }
  const names = namesOf(options);
  const missing = renamed.find(({ from }) => !names.includes(from));
  if (missing !== undefined) {
    throw new Error(
      `There is no choice ${JSON.stringify(missing.from)}. The field has: ${names.join(" | ")}`,
    );
  }
  const kept = (options ?? []).map((one) => ({
    ...one,
    name: renamed.find(({ from }) => from === one.name)?.to ?? one.name ?? "",
  }));
  const all = [...kept, ...added.map((name) => ({ name }))];
  const twice = namesOf(all).find((name, at, others) => others.indexOf(name) !== at);
  if (twice !== undefined) {
    throw new Error(`The field would have the choice ${JSON.stringify(twice)} twice.`);
  }
  return all;
}

/** A list gives descriptions as text or as an object, a change takes an object. */
function described(description: unknown): { text: string } {
  if (typeof description === "string") return { text: description };
  const isText = typeof description === "object" && description !== null && "text" in description;
  return { text: isText ? String(description.text) : "" };
}

function deleteTool(settings: Settings): HandlerTool {
  return workTool(settings, baseRemedies, {
    name: "delete_field",
    description:
      "Deletes a field (a column) of a table with the values of all rows. Give how many rows have a value in it (search_records with isNotEmpty says it), so that the person who is asked sees what goes.",
    title: { zh: "删除多维表格字段", en: "Delete a field of a table" },
    summary: {
      zh: "从多维表格 {base} 删除字段「{field}」，{filled_rows} 行的内容会丢失",
      en: "Delete the field “{field}” from the Base {base}, with what {filled_rows} rows say there",
    },
    input: {
      ...table,
      field: Named,
      filled_rows: Type.Integer({ minimum: 0, description: "Rows that have a value in it." }),
    },
    effect: "idempotent",
    scopes: ["base:field:delete", "base:record:retrieve", ...schemaScopes],
    reach: "destroys",
    run: async ({ field: name, filled_rows: claimed, ...where }, platform) => {
      const path = await tableAt(platform, where);
      return await oneWriter(platform, path, async () => {
        const { field_id = "" } = await fieldNamed(platform, path, name);
        const filled = await filledRows(platform, path, name);
        if (filled !== claimed) {
          throw new Error(
            `Nothing was deleted: ${filled} rows have a value in ${JSON.stringify(name)}, not ${claimed}.`,
          );
        }
        const isThere = async (): Promise<boolean> =>
          (await listedFields(platform, path)).some((one) => one.field_id === field_id);
        await changeOnce(platform, {
          windowMs: settings.keyWindowMs, // what is deleted cannot be deleted again
          run: (client, as) =>
            client.bitable.v1.appTableField.delete({ path: { ...path, field_id } }, as),
          isDone: async () => !(await isThere()),
          isDuplicate: (error, wasUnanswered) => wasUnanswered && isRefusal(error, 1254044),
          done: true,
          open: "whether the field was deleted",
        });
        return `Deleted the field ${JSON.stringify(name)}.`;
      });
    },
  });
}

async function filledRows(
  platform: Platform,
  path: TablePlace,
  field_name: string,
): Promise<number> {
  const conditions = [{ field_name, operator: "isNotEmpty" as const, value: [] }];
  const { total = 0 } = await platform.read((client, as) =>
    client.bitable.v1.appTableRecord.search(
      { path, params: { page_size: 1 }, data: { filter: { conjunction: "and", conditions } } },
      as,
    ),
  );
  return total;
}

/** Adds, changes and deletes the fields of tables. */
export const fieldTools = [addTool, changeTool, deleteTool];
