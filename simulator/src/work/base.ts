import { type WorkWorld, uuidKeyOf } from "./world.ts";
import type { ApiRoute, ApiCallContext } from "../api-route.ts";
import {
  type JsonObject,
  PlatformError,
  randomHex,
  newId,
  success,
  pageOf,
  isJsonObject,
} from "../open-api.ts";

// Tables of a Base ("Base overview"). Their refusals come with HTTP 200.

export interface SimField {
  field_id: string;
  field_name: string;
  /** 1 text, 2 number, 3 single select, 4 multi select, 5 date, 7 checkbox, 11 person, 13 phone, 15 link, 20 formula. */
  type: number;
  property?: JsonObject;
  is_primary?: boolean;
}

export interface SimRecord {
  record_id: string;
  fields: JsonObject;
}

export interface SimTable {
  tableId: string;
  name: string;
  fields: SimField[];
  records: SimRecord[];
}

export interface SimBase {
  appToken: string;
  name: string;
  owner: string;
  createdAt: number;
  tables: Map<string, SimTable>;
}

export interface BaseControls {
  readonly bases: ReadonlyMap<string, SimBase>;
  addBase(base: { owner: string; name: string }): SimBase;
  addTable(
    appToken: string,
    table: {
      name: string;
      fields: readonly { name: string; type: number; property?: JsonObject }[];
    },
  ): SimTable;
  addRecord(appToken: string, tableId: string, fields: JsonObject): SimRecord;
  /** The next writes to the table meet another writer that often. */
  lockTable(tableId: string, times: number): void;
  /** The person lacks the role under advanced permissions: reads succeed and are empty. */
  hideRecords(appToken: string, openId: string): void;
}

const keyWindowMs = 10 * 60_000;

/** Refusals of this family come with HTTP 200. */
function refused(code: number, message: string): PlatformError {
  return new PlatformError(code, message, { status: 200 });
}

export class SimBases implements BaseControls {
  readonly bases = new Map<string, SimBase>();
  readonly #world: WorkWorld;
  readonly #locks = new Map<string, number>();
  readonly #hidden = new Set<string>();

  constructor(world: WorkWorld) {
    this.#world = world;
  }

  addBase({ owner, name }: { owner: string; name: string }): SimBase {
    const createdAt = this.#world.clock.now();
    const base: SimBase = { appToken: randomHex(27), name, owner, createdAt, tables: new Map() };
    this.bases.set(base.appToken, base);
    this.#world.share(base.appToken, owner, "edit");
    return base;
  }

  addTable(appToken: string, { name, fields }: Parameters<BaseControls["addTable"]>[1]): SimTable {
    const table: SimTable = {
      tableId: newId("tbl").slice(0, 16),
      name,
      fields: fields.map((field, at) => simField(field, at === 0)),
      records: [],
    };
    this.bases.get(appToken)?.tables.set(table.tableId, table);
    return table;
  }

  addRecord(appToken: string, tableId: string, fields: JsonObject): SimRecord {
    const record = { record_id: newId("rec").slice(0, 14), fields };
    this.bases.get(appToken)?.tables.get(tableId)?.records.push(record);
    return record;
  }

  lockTable(tableId: string, times: number): void {
    this.#locks.set(tableId, times);
  }

  hideRecords(appToken: string, openId: string): void {
    this.#hidden.add(`${appToken} ${openId}`);
  }

  isHidden(appToken: string, who: string | undefined): boolean {
    return this.#hidden.has(`${appToken} ${who ?? ""}`);
  }

  passLock(tableId: string): void {
    const left = this.#locks.get(tableId) ?? 0;
    if (left <= 0) return;
    this.#locks.set(tableId, left - 1);
    throw refused(1254291, "Write conflict");
  }
}

function simField(
  field: { name: string; type: number; property?: JsonObject },
  isPrimary: boolean,
): SimField {
  return {
    field_id: newId("fld").slice(0, 13),
    field_name: field.name,
    type: field.type,
    ...(field.property === undefined ? {} : { property: withOptionIds(field.property) }),
    is_primary: isPrimary,
  };
}

/** Choices of a select as the platform keeps them: each has an id. */
function optionsOf(property: JsonObject | undefined): { id: string; name: string }[] {
  const options = Array.isArray(property?.options) ? property.options.filter(isJsonObject) : [];
  return options.map((one) => ({
    ...one,
    name: String(one.name),
    id: typeof one.id === "string" ? one.id : newId("opt").slice(0, 13),
  }));
}

function withOptionIds(property: JsonObject): JsonObject {
  return "options" in property ? { ...property, options: optionsOf(property) } : property;
}

/**
 * Says all of a field anew, as the platform does: what the call leaves out is lost. A choice is known by its id; values of
 * choices that are gone are cleared, and those of another type are converted to text or lost.
 */
function changeField(table: SimTable, field: SimField, body: JsonObject): void {
  const name = typeof body.field_name === "string" ? body.field_name.trim() : "";
  const type = Number(body.type);
  if (name === "" || Number.isNaN(type)) throw refused(1254001, "WrongRequestBody");
  if (table.fields.some((one) => one !== field && one.field_name === name)) {
    throw refused(1254014, "FieldNameDuplicated");
  }
  const before = optionsOf(field.property);
  const property = isJsonObject(body.property) ? withOptionIds(body.property) : undefined;
  const after = optionsOf(property);
  const renamed = (value: unknown): unknown => {
    const id = before.find((one) => one.name === value)?.id;
    return after.find((one) => one.id === id)?.name ?? null;
  };
  const converted = (value: unknown): unknown => {
    if (type !== field.type) return type === 1 && typeof value !== "object" ? String(value) : null;
    if (type === 3) return renamed(value);
    return type === 4 && Array.isArray(value)
      ? value.map(renamed).filter((one) => one !== null)
      : value;
  };
  for (const record of table.records) {
    const { [field.field_name]: value, ...others } = record.fields;
    record.fields = value === undefined ? others : { ...others, [name]: converted(value) };
  }
  field.field_name = name;
  field.type = type;
  if (property === undefined) delete field.property;
  else field.property = property;
}

const path = "/open-apis/bitable/v1/apps/:app_token/tables";
const tablePath = `${path}/:table_id`;

/** The operations on Bases. */
export function baseRoutes(world: WorkWorld, store: SimBases): ApiRoute[] {
  const knownBase = (call: ApiCallContext, right: "view" | "edit" = "view"): SimBase => {
    const base = store.bases.get(call.params.app_token ?? "");
    if (base === undefined) throw refused(1254040, "BaseTokenNotFound");
    world.require(call, base.appToken, { right, code: 1254302 });
    return base;
  };
  const knownTable = (call: ApiCallContext, right: "view" | "edit" = "view"): SimTable => {
    const table = knownBase(call, right).tables.get(call.params.table_id ?? "");
    if (table === undefined) throw refused(1254041, "TableIdNotFound");
    return table;
  };
  const writable = (call: ApiCallContext): SimTable => {
    const table = knownTable(call, "edit");
    store.passLock(table.tableId);
    return table;
  };
  return [
    {
      method: "GET",
      path,
      personScopes: ["base:table:read", "bitable:app"],
      limits: { perSecond: 20 },
      handle: (call) => {
        const tables = [...knownBase(call).tables.values()].map(({ tableId, name }) => ({
          table_id: tableId,
          name,
        }));
        return success({ ...pageOf(tables, call.query, 100), total: tables.length });
      },
    },
    {
      method: "GET",
      path: `${tablePath}/fields`,
      personScopes: ["base:field:read", "bitable:app"],
      limits: { perSecond: 20 },
      handle: (call) => success({ ...pageOf(knownTable(call).fields, call.query, 100) }),
    },
    {
      method: "POST",
      path: `${tablePath}/fields`,
      personScopes: ["base:field:create", "bitable:app"],
      limits: { perSecond: 10 },
      handle: (call) => {
        const table = writable(call);
        const once = {
          api: "base.field",
          key: uuidKeyOf(call, 1254037),
          windowMs: keyWindowMs,
          conflict: usedKey,
        };
        return world.once(call, once, () => {
          const name = String(call.body.field_name);
          if (table.fields.some(({ field_name }) => field_name === name)) {
            throw refused(1254014, "FieldNameDuplicated");
          }
          const property = isJsonObject(call.body.property) ? { property: call.body.property } : {};
          const field = simField({ name, type: Number(call.body.type), ...property }, false);
          table.fields.push(field);
          world.record(call, "base.field", name);
          return success({ field });
        });
      },
    },
    {
      method: "PUT",
      path: `${tablePath}/fields/:field_id`,
      personScopes: ["base:field:update", "bitable:app"],
      limits: { perSecond: 10 },
      handle: (call) => {
        const table = writable(call);
        const field = fieldWithId(table, call.params.field_id);
        changeField(table, field, call.body);
        const choices = optionsOf(field.property).map(({ name }) => name);
        world.record(call, "base.field_change", [field.field_name, ...choices].join(" "));
        return success({ field });
      },
    },
    {
      method: "DELETE",
      path: `${tablePath}/fields/:field_id`,
      personScopes: ["base:field:delete", "bitable:app"],
      limits: { perSecond: 10 },
      handle: (call) => {
        const table = writable(call);
        const field = fieldWithId(table, call.params.field_id);
        const { field_id, field_name, is_primary } = field;
        if (is_primary === true) throw refused(1254046, "The Primary Field cannot be deleted.");
        table.fields = table.fields.filter((one) => one !== field);
        for (const record of table.records) {
          const { [field_name]: _gone, ...others } = record.fields;
          record.fields = others;
        }
        world.record(call, "base.field_delete", field_name);
        return success({ field_id, deleted: true });
      },
    },
    {
      method: "POST",
      path: `${tablePath}/records/search`,
      personScopes: ["base:record:retrieve", "bitable:app"],
      limits: { perSecond: 20 },
      handle: (call) => {
        const table = knownTable(call);
        const isHidden = store.isHidden(call.params.app_token ?? "", call.person?.openId);
        const records = isHidden
          ? []
          : table.records.filter((record) => isMatch(table, record, call.body.filter));
        const names = Array.isArray(call.body.field_names)
          ? call.body.field_names.map(String)
          : undefined;
        for (const name of names ?? []) fieldNamed(table, name);
        const items = records.map((record) => readView(table, record, names));
        return success({ ...pageOf(items, call.query, 500), total: items.length });
      },
    },
    {
      method: "POST",
      path: `${tablePath}/records/batch_get`,
      personScopes: ["base:record:retrieve", "bitable:app"],
      limits: { perSecond: 20 },
      handle: (call) => {
        const table = knownTable(call);
        const ids = Array.isArray(call.body.record_ids) ? call.body.record_ids.map(String) : [];
        const records = table.records.filter(({ record_id }) => ids.includes(record_id));
        const absent = ids.filter((id) => !records.some(({ record_id }) => record_id === id));
        return success({
          records: records.map((record) => readView(table, record)),
          absent_record_ids: absent,
          forbidden_record_ids: [],
        });
      },
    },
    {
      method: "POST",
      path: `${tablePath}/records/batch_create`,
      personScopes: ["base:record:create", "bitable:app"],
      handle: (call) => {
        const table = writable(call);
        const once = {
          api: "base.create",
          key: uuidKeyOf(call, 1254037),
          windowMs: keyWindowMs,
          conflict: usedKey,
        };
        return world.once(call, once, () => {
          const rows = recordsIn(call.body);
          if (rows.length > 1_000) throw refused(1254104, "RecordAddOnceExceedLimit");
          for (const { fields } of rows) checkFields(table, fields);
          const records = rows.map(({ fields }) => {
            const record = store.addRecord(call.params.app_token ?? "", table.tableId, fields);
            world.record(call, "base.record", JSON.stringify(fields));
            return record;
          });
          return success({ records: records.map((record) => readView(table, record)) });
        });
      },
    },
    {
      method: "POST",
      path: `${tablePath}/records/batch_update`,
      personScopes: ["base:record:update", "bitable:app"],
      handle: (call) => {
        const table = writable(call);
        const rows = recordsIn(call.body).map(({ id, fields }) => ({
          record: knownRecord(table, id),
          fields,
        }));
        for (const { fields } of rows) checkFields(table, fields);
        for (const { record, fields } of rows) {
          Object.assign(record.fields, fields);
          world.record(call, "base.update", JSON.stringify(fields));
        }
        return success({ records: rows.map(({ record }) => readView(table, record)) });
      },
    },
    {
      method: "POST",
      path: `${tablePath}/records/batch_delete`,
      personScopes: ["base:record:delete", "bitable:app"],
      handle: (call) => {
        const table = writable(call);
        const ids = Array.isArray(call.body.records) ? call.body.records.map(String) : [];
        for (const id of ids) knownRecord(table, id);
        for (const id of ids) world.record(call, "base.delete", id);
        table.records = table.records.filter(({ record_id }) => !ids.includes(record_id));
        return success({ records: ids.map((record_id) => ({ record_id, deleted: true })) });
      },
    },
  ];
}

function knownRecord(table: SimTable, id: unknown): SimRecord {
  const record = table.records.find(({ record_id }) => record_id === id);
  if (record === undefined) throw refused(1254043, "RecordIdNotFound");
  return record;
}

const usedKey = refused(1254608, "the same client_token was used");

function recordsIn(body: JsonObject): { id: unknown; fields: JsonObject }[] {
  const rows = Array.isArray(body.records) ? body.records.filter(isJsonObject) : [];
  return rows.map(({ record_id, fields }) => ({
    id: record_id,
    fields: isJsonObject(fields) ? fields : {},
  }));
}

function fieldWithId({ fields }: SimTable, id: string | undefined): SimField {
  const field = fields.find(({ field_id }) => field_id === id);
  if (field === undefined) throw refused(1254044, "FieldIdNotFound");
  return field;
}

function fieldNamed({ fields }: SimTable, name: string): SimField {
  const field = fields.find(({ field_name }) => field_name === name);
  if (field === undefined) throw refused(1254045, "FieldNameNotFound");
  return field;
}

/** What a value of each type must be, and the code when it is not. */
const forms: Readonly<Record<number, { code: number; isRight: (value: unknown) => boolean }>> = {
  1: { code: 1254060, isRight: (value) => typeof value === "string" },
  2: { code: 1254061, isRight: (value) => typeof value === "number" },
  3: { code: 1254062, isRight: (value) => typeof value === "string" },
  4: { code: 1254063, isRight: (value) => Array.isArray(value) },
  5: { code: 1254064, isRight: (value) => typeof value === "number" },
  7: { code: 1254065, isRight: (value) => typeof value === "boolean" },
  11: {
    code: 1254066,
    isRight: (value) =>
      Array.isArray(value) && value.every((one) => isJsonObject(one) && "id" in one),
  },
  13: { code: 1254067, isRight: (value) => typeof value === "string" && /^\+?\d*$/.test(value) },
  15: { code: 1254068, isRight: (value) => isJsonObject(value) && typeof value.link === "string" },
};

function checkFields(table: SimTable, fields: JsonObject): void {
  for (const [name, value] of Object.entries(fields)) {
    const form = forms[fieldNamed(table, name).type];
    if (form === undefined) throw refused(1254015, "Field types do not match");
    if (value !== null && !form.isRight(value)) throw refused(form.code, "FieldConvFail");
  }
}

/** Texts are read as lists of segments. */
function readView(
  table: SimTable,
  { record_id, fields }: SimRecord,
  names?: readonly string[],
): JsonObject {
  const shown = Object.entries(fields).filter(
    ([name, value]) => value !== null && names?.includes(name) !== false,
  );
  const typeOf = (name: string) => table.fields.find(({ field_name }) => field_name === name)?.type;
  return {
    record_id,
    fields: Object.fromEntries(
      shown.map(([name, value]) => [
        name,
        typeOf(name) === 1 ? [{ type: "text", text: value }] : value,
      ]),
    ),
  };
}

function isMatch(table: SimTable, { fields }: SimRecord, filter: unknown): boolean {
  const conditions =
    isJsonObject(filter) && Array.isArray(filter.conditions)
      ? filter.conditions.filter(isJsonObject)
      : [];
  if (!isJsonObject(filter) || conditions.length === 0) return true;
  const holds = ({ field_name, operator, value }: JsonObject): boolean => {
    const name = String(field_name);
    fieldNamed(table, name);
    const [wanted] = Array.isArray(value) ? value.map(String) : [""];
    const has = fields[name];
    const text =
      has === undefined || has === null
        ? ""
        : typeof has === "object"
          ? JSON.stringify(has)
          : String(has);
    switch (operator) {
      case "is":
        return text === wanted;
      case "isNot":
        return text !== wanted;
      case "contains":
        return text.includes(wanted ?? "");
      case "doesNotContain":
        return !text.includes(wanted ?? "");
      case "isEmpty":
        return text === "";
      case "isNotEmpty":
        return text !== "";
      case "isGreater":
        return Number(text) > Number(wanted);
      case "isLess":
        return Number(text) < Number(wanted);
      default:
        throw refused(1254018, "InvalidFilter");
    }
  };
  return filter.conjunction === "or" ? conditions.some(holds) : conditions.every(holds);
}
