import { createRequire } from "node:module";
import type * as AjvModule from "ajv/dist/2020.js";
import type { Ajv2020, ErrorObject, Options, ValidateFunction } from "ajv/dist/2020.js";
import type { Static, TSchema } from "typebox";

const require = createRequire(import.meta.url);

/** Ajv is loaded when it is first needed: processes that only run tools start without it. */
function newAjv(options: Options): Ajv2020 {
  const loaded = require("ajv/dist/2020.js") as typeof AjvModule; // as the package says
  return new loaded.Ajv2020(options);
}

let ajv: Ajv2020 | undefined;
/**
 * The one Ajv instance of a process: strict, no coercion, no defaults written into data.
 * `allowUnionTypes` because JSON Schemas of foreign tools use `type: ["string", "null"]`.
 */
function ownAjv(): Ajv2020 {
  return (ajv ??= newAjv({ strict: true, allErrors: true, allowUnionTypes: true, messages: true }));
}

const foreignOptions: Options = { strict: false, allErrors: true, validateFormats: false };
let schemaChecker: Ajv2020 | undefined;

/** Result of parsing data from outside: bad input is a value, not a throw. */
export type ParseResult<T> = { ok: true; value: T } | { ok: false; error: string };

/** Checks unknown data against the schema it was made for. */
export type Parser<T> = (data: unknown) => ParseResult<T>;

const maxReportedErrors = 5;

function describe(error: ErrorObject): string {
  const path = error.instancePath === "" ? "value" : error.instancePath.slice(1).replaceAll("/", ".");
  const extra = error.keyword === "additionalProperties" ? ` '${String(error.params["additionalProperty"])}'` : "";
  const allowed = error.keyword === "enum" ? `: ${JSON.stringify(error.params["allowedValues"])}` : "";
  return `${path} ${error.message ?? "is invalid"}${extra}${allowed}`;
}

function describeAll(errors: readonly ErrorObject[] | null | undefined, limit = maxReportedErrors): string {
  const list = (errors ?? []).slice(0, limit).map(describe);
  return list.length > 0 ? list.join("; ") : "invalid data";
}

function lazily(schema: object): () => ValidateFunction {
  let validate: ValidateFunction | undefined;
  return () => (validate ??= ownAjv().compile(schema));
}

/**
 * Makes a parser from a TypeBox schema; the validator is compiled on first use. An error names the
 * first `maxProblems` problems, default 5.
 */
export function parserOf<S extends TSchema>(schema: S, options: { maxProblems?: number } = {}): Parser<Static<S>> {
  const validator = lazily(schema);
  return (data) => {
    const validate = validator();
    return validate(data)
      ? { ok: true, value: data as Static<S> } // checked against S just above
      : { ok: false, error: describeAll(validate.errors, options.maxProblems) };
  };
}

/** Like {@link parserOf} for JSON text; text that is no JSON is an error value too. */
export function jsonParserOf<S extends TSchema>(schema: S): (text: string) => ParseResult<Static<S>> {
  const parse = parserOf(schema);
  return (text) => {
    let data: unknown;
    try {
      data = JSON.parse(text);
    } catch {
      return { ok: false, error: "not valid JSON" };
    }
    return parse(data);
  };
}

/**
 * Compiles a JSON Schema that came from outside (a tool author, a runner).
 * Throws when the schema itself is invalid, naming the reason.
 */
export function compileJsonSchema(schema: object): (data: unknown) => ParseResult<unknown> {
  // Whether it is a schema, one instance tells for all of them: an instance needs a tenth of a second to learn it.
  schemaChecker ??= newAjv(foreignOptions);
  void schemaChecker.validateSchema(schema, true);
  // A separate instance per schema: foreign `$id`s must not collide, and the memory goes with the tool.
  const own = newAjv({ ...foreignOptions, validateSchema: false });
  const validate = own.compile(schema);
  return (data) => (validate(data) ? { ok: true, value: data } : { ok: false, error: describeAll(validate.errors) });
}
