import { createRequire } from "node:module";
import type * as AjvModule from "ajv/dist/2020.js";
import type { Ajv2020, ErrorObject, Options, ValidateFunction } from "ajv/dist/2020.js";
import { compiledBefore } from "./compiled-schemas.ts";
import type { Static, TSchema } from "./type.ts";

const require = createRequire(import.meta.url);

/**
 * What every instance has in common. The own check of schemas is off: it compiles the eight documents of the
 * meta-schema, which takes longer than a process otherwise needs to start. Code is not optimized: that takes a third
 * of the time to compile it and saves 100 ns at a call.
 */
const common: Options = { allErrors: true, validateSchema: false, meta: false };

/** For our own schemas: here, and where they are compiled before. */
export const ownOptions: Options = {
  ...common,
  strict: true,
  allowUnionTypes: true,
  messages: true,
};

/** Ajv is loaded when it is first needed: processes that only run tools start without it. */
export function newAjv({ code, ...options }: Options): Ajv2020 {
  const loaded = require("ajv/dist/2020.js") as typeof AjvModule; // as the package says
  return new loaded.Ajv2020({ ...common, ...options, code: { ...code, optimize: false } });
}

let ajv: Ajv2020 | undefined;
/**
 * The one Ajv instance of a process for our own schemas, which TypeBox makes valid: strict, no coercion, no defaults
 * written into data. `allowUnionTypes` because JSON Schemas of foreign tools use `type: ["string", "null"]`.
 */
function ownAjv(): Ajv2020 {
  return (ajv ??= newAjv(ownOptions));
}

/** Result of parsing data from outside: bad input is a value, not a throw. */
export type ParseResult<T> = { ok: true; value: T } | { ok: false; error: string };

/** Checks unknown data against the schema it was made for. */
export type Parser<T> = (data: unknown) => ParseResult<T>;

const maxReportedErrors = 5;

function describe(error: ErrorObject): string {
  const path =
    error.instancePath === "" ? "value" : error.instancePath.slice(1).replaceAll("/", ".");
  const extra =
    error.keyword === "additionalProperties"
      ? ` '${String(error.params["additionalProperty"])}'`
      : "";
  const allowed =
    error.keyword === "enum" ? `: ${JSON.stringify(error.params["allowedValues"])}` : "";
  return `${path} ${error.message ?? "is invalid"}${extra}${allowed}`;
}

export function describeErrors(
  errors: readonly ErrorObject[] | null | undefined,
  limit = maxReportedErrors,
): string {
  const list = (errors ?? []).slice(0, limit).map(describe);
  return list.length > 0 ? list.join("; ") : "invalid data";
}

function lazily(schema: object): () => ValidateFunction {
  const before = compiledBefore(schema);
  let validate: ValidateFunction | undefined;
  return () => (validate ??= before() ?? ownAjv().compile(schema));
}

/**
 * Makes a parser from a TypeBox schema; the validator is compiled on first use. An error names the
 * first `maxProblems` problems, default 5.
 */
export function parserOf<S extends TSchema>(
  schema: S,
  options: { maxProblems?: number } = {},
): Parser<Static<S>> {
  const validator = lazily(schema);
  return (data) => {
    const validate = validator();
    return validate(data)
      ? { ok: true, value: data as Static<S> } // checked against S just above
      : { ok: false, error: describeErrors(validate.errors, options.maxProblems) };
  };
}

/** Like {@link parserOf} for JSON text; text that is no JSON is an error value too. */
export function jsonParserOf<S extends TSchema>(
  schema: S,
): (text: string) => ParseResult<Static<S>> {
  const parse = parserOf(schema);
  return (text) => {
    let data: unknown;
    try {
      data = parseJson(text);
    } catch {
      return { ok: false, error: "not valid JSON" };
    }
    return parse(data);
  };
}

// JSON can hold half of a surrogate pair (`"\ud83d"`), which is no text: vendors of models and the platform refuse
// requests that hold one. So half pairs become U+FFFD where JSON comes in, and before a model is asked.

/** The value of JSON text, with well-formed texts. Throws as JSON.parse does. */
export function parseJson(text: string): unknown {
  const value: unknown = JSON.parse(text);
  return /\\ud[89a-f]/i.test(text) || !text.isWellFormed() ? wellFormed(value) : value;
}

/** The same value with well-formed texts, names of fields included; what has nothing else is not copied. */
export function wellFormed<T>(value: T): T {
  return isWellFormed(value) ? value : (made(value) as T); // it changes no type
}

/** Allocates nothing: each request of a model is looked through, and nearly all are well-formed. */
function isWellFormed(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (Array.isArray(value)) return value.every(isWellFormed);
  if (!isPlain(value)) return true;
  const fields = value as Readonly<Record<string, unknown>>; // read by names that it has
  for (const name in fields) {
    if (!name.isWellFormed() || !isWellFormed(fields[name])) return false;
  }
  return true;
}

function made(value: unknown): unknown {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) {
    const items: unknown[] = value.map(made);
    return items.some((item, at) => item !== value[at]) ? items : value;
  }
  if (!isPlain(value)) return value;
  const fields = Object.entries(value);
  const clean = fields.map(([name, field]) => [name.toWellFormed(), made(field)] as const);
  const isSame = clean.every(
    ([name, field], at) => fields[at]?.[0] === name && fields[at][1] === field,
  );
  return isSame ? value : Object.fromEntries(clean);
}

function isPlain(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
