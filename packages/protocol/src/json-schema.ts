import type { Options } from "ajv/dist/2020.js";
import { describeErrors, newAjv, type ParseResult } from "./schema.ts";

/*
 * Schemas that others wrote: callers of the HTTP API, deployers, authors of tools, servers of tools. To look at one is
 * cheap and safe (`schemaProblem`): one walk over a bounded document. To compile one, or to check a value with it, runs
 * what others wrote: `compileJsonSchema` does that where it is called, so a process that many share calls it in a
 * thread with a deadline only (`SchemaChecks` of @larkline/process).
 */

type JsonObject = Readonly<Record<string, unknown>>;

/** What a schema may consist of. */
export const schemaLimits = {
  /** Of its JSON text. */
  bytes: 65_536,
  /** Objects and lists within each other. */
  depth: 64,
  /** Schemas, the inner ones counted. */
  schemas: 2_000,
  references: 500,
  patterns: 200,
  patternCharacters: 1_000,
} as const;

/** What a value's check by a schema of others has found. `isUnchecked`: the check itself has failed, and says why. */
export type SchemaCheck = { ok: true } | { ok: false; error: string; isUnchecked?: true };

/** Matches texts; made from the pattern of a schema. Throws where it cannot be used, naming the reason. */
export type PatternEngine = (pattern: string) => { test(text: string): boolean };

/**
 * Why this is no JSON Schema (2020-12) that can be used, with the place; undefined where it is one. Takes time in
 * proportion to its size. Only patterns are not looked at, and what `$id` makes of references.
 */
export function schemaProblem(
  schema: unknown,
  maxBytes: number = schemaLimits.bytes,
): string | undefined {
  const walk = new SchemaWalk(schema);
  try {
    const bytes = Buffer.byteLength(jsonOf(schema));
    if (bytes > maxBytes) return `schema is too large (${bytes} bytes, at most ${maxBytes})`;
    walk.schema(schema, []);
    return walk.unresolved();
  } catch (error) {
    if (error instanceof SchemaProblem) return error.message;
    throw error;
  }
}

/**
 * Compiles a JSON Schema (2020-12). Throws when it is none that can be used, naming the reason. `patterns`: in place of
 * JavaScript's regular expressions, whose time has no bound.
 */
export function compileJsonSchema(
  schema: object,
  patterns?: PatternEngine,
): (data: unknown) => ParseResult<unknown> {
  const problem = schemaProblem(schema);
  if (problem !== undefined) throw new Error(problem);
  // An instance per schema: foreign `$id`s must not collide, and the memory goes with the schema.
  const validate = newAjv(foreignOptions(patterns)).compile(schema);
  return (data) =>
    validate(data)
      ? { ok: true, value: data }
      : { ok: false, error: describeErrors(validate.errors) };
}

function foreignOptions(patterns: PatternEngine | undefined): Options {
  // Without inlining, code grows with the schema, not with its references.
  const options: Options = { strict: false, validateFormats: false, inlineRefs: false };
  if (patterns === undefined) return options;
  const regExp = Object.assign((pattern: string) => patterns(pattern), { code: "patterns" });
  return { ...options, code: { regExp } };
}

/** The patterns of a schema, each once. */
export function patternsOf(schema: object): string[] {
  const walk = new SchemaWalk(schema);
  walk.schema(schema, []);
  return [...walk.patterns];
}

function jsonOf(schema: unknown): string {
  try {
    return JSON.stringify(schema) ?? "";
  } catch (error) {
    if (error instanceof RangeError) throw tooDeep(); // the stack has overflown
    throw error;
  }
}

class SchemaProblem extends Error {}

type Place = readonly (string | number)[];
type Check = (value: unknown, at: Place, walk: SchemaWalk) => void;

/** One walk over a document, which ends at its first problem. */
class SchemaWalk {
  readonly patterns = new Set<string>();
  readonly #document: unknown;
  readonly #references: string[] = [];
  readonly #anchors = new Set<string>();
  #schemas = 0;
  #hasInnerIds = false;

  constructor(document: unknown) {
    this.#document = document;
  }

  schema(value: unknown, at: Place): void {
    this.#schemas += 1;
    if (this.#schemas > schemaLimits.schemas) {
      throw new SchemaProblem(`schema has too many parts (at most ${schemaLimits.schemas})`);
    }
    if (typeof value === "boolean" && at.length > 0) return;
    if (!isObject(value)) throw invalid(at, "must be object,boolean");
    // Ajv compiles asynchronous checks, whose results come later.
    if (value["$async"] !== undefined) throw new SchemaProblem("schema must not be asynchronous");
    for (const [keyword, given] of Object.entries(value)) {
      const check = Object.hasOwn(keywords, keyword) ? keywords[keyword] : undefined;
      if (check === undefined) this.depth(given, at.length + 1);
      else check(given, [...at, keyword], this);
    }
  }

  /** Of what is no schema, such as an example. */
  depth(value: unknown, depth: number): void {
    if (depth > schemaLimits.depth) throw tooDeep();
    if (typeof value !== "object" || value === null) return;
    for (const each of Object.values(value)) this.depth(each, depth + 1);
  }

  pattern(pattern: string): void {
    this.patterns.add(pattern);
    if (this.patterns.size > schemaLimits.patterns) {
      throw new SchemaProblem(`schema has too many patterns (at most ${schemaLimits.patterns})`);
    }
    if (pattern.length > schemaLimits.patternCharacters) {
      throw new SchemaProblem(
        `schema has a pattern of more than ${schemaLimits.patternCharacters} characters`,
      );
    }
  }

  reference(reference: string): void {
    this.#references.push(reference);
    if (this.#references.length > schemaLimits.references) {
      throw new SchemaProblem(
        `schema has too many references (at most ${schemaLimits.references})`,
      );
    }
  }

  anchor(name: string): void {
    this.#anchors.add(name);
  }

  id(at: Place): void {
    if (at.length > 1) this.#hasInnerIds = true;
  }

  /** The first reference that leads out of the document, or nowhere. With inner ids only a compiler can tell. */
  unresolved(): string | undefined {
    if (this.#hasInnerIds) return undefined;
    const own = isObject(this.#document)
      ? String(this.#document["$id"] ?? "").replace(/#$/, "")
      : "";
    const lost = this.#references.find((reference) => {
      const [address = "", fragment = ""] = reference.split(/#(.*)/s);
      if (address !== "" && address !== own) return true;
      if (fragment === "") return false;
      return fragment.startsWith("/") ? !this.#leadsTo(fragment) : !this.#anchors.has(fragment);
    });
    return lost === undefined ? undefined : `schema can't resolve reference ${lost}`;
  }

  #leadsTo(pointer: string): boolean {
    let value = this.#document;
    for (const part of pointer.split("/").slice(1)) {
      const name = unescaped(part);
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return false;
      value = (value as JsonObject)[name];
    }
    return true;
  }
}

function unescaped(part: string): string {
  const plain = part.replaceAll("~1", "/").replaceAll("~0", "~");
  try {
    return decodeURIComponent(plain);
  } catch {
    return plain;
  }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function invalid(at: Place, problem: string): SchemaProblem {
  return new SchemaProblem(
    `schema is invalid: ${at.length === 0 ? "value" : at.join(".")} ${problem}`,
  );
}

function tooDeep(): SchemaProblem {
  return new SchemaProblem(`schema is nested too deeply (at most ${schemaLimits.depth} levels)`);
}

// What the meta-schema says of each keyword.

const types = ["array", "boolean", "integer", "null", "number", "object", "string"];

const schema: Check = (value, at, walk) => {
  if (at.length > schemaLimits.depth) throw tooDeep();
  walk.schema(value, at);
};

const text: Check = (value, at) => {
  if (typeof value !== "string") throw invalid(at, "must be string");
};

const boolean: Check = (value, at) => {
  if (typeof value !== "boolean") throw invalid(at, "must be boolean");
};

const number: Check = (value, at) => {
  if (typeof value !== "number") throw invalid(at, "must be number");
};

const count: Check = (value, at) => {
  if (!Number.isInteger(value)) throw invalid(at, "must be integer");
  if ((value as number) < 0) throw invalid(at, "must be >= 0"); // an integer, as just checked
};

const anything: Check = (value, at, walk) => walk.depth(value, at.length);

const list: Check = (value, at, walk) => {
  if (!Array.isArray(value)) throw invalid(at, "must be array");
  walk.depth(value, at.length);
};

const texts: Check = (value, at, walk) => {
  if (!Array.isArray(value)) throw invalid(at, "must be array");
  for (const [index, each] of value.entries()) text(each, [...at, index], walk);
  if (new Set(value).size < value.length) throw invalid(at, "must NOT have duplicate items");
};

const schemas: Check = (value, at, walk) => {
  if (!Array.isArray(value)) throw invalid(at, "must be array");
  if (value.length === 0) throw invalid(at, "must NOT have fewer than 1 items");
  for (const [index, each] of value.entries()) schema(each, [...at, index], walk);
};

function mapOf(check: Check): Check {
  return (value, at, walk) => {
    if (!isObject(value)) throw invalid(at, "must be object");
    for (const [name, each] of Object.entries(value)) check(each, [...at, name], walk);
  };
}

const schemaOrTexts: Check = (value, at, walk) =>
  (Array.isArray(value) ? texts : schema)(value, at, walk);

function textOf(form: RegExp, note: (value: string, at: Place, walk: SchemaWalk) => void): Check {
  return (value, at, walk) => {
    if (typeof value !== "string") throw invalid(at, "must be string");
    if (!form.test(value)) throw invalid(at, `must match pattern "${form.source}"`);
    note(value, at, walk);
  };
}

const any = /^/;
const id = textOf(/^[^#]*#?$/, (_id, at, walk) => walk.id(at));
const anchor = textOf(/^[A-Za-z_][-A-Za-z0-9._]*$/, (name, _at, walk) => walk.anchor(name));
const reference = textOf(any, (to, _at, walk) => walk.reference(to));
const pattern = textOf(any, (source, _at, walk) => walk.pattern(source));

const dialect = "https://json-schema.org/draft/2020-12/schema";

const ofDialect: Check = (value) => {
  if (value === dialect || value === `${dialect}#`) return;
  throw new SchemaProblem(
    `$schema ${JSON.stringify(value)} is not known, only ${JSON.stringify(dialect)}`,
  );
};

const type: Check = (value, at) => {
  const named: readonly unknown[] = Array.isArray(value) ? value : [value];
  if (named.length === 0 || !named.every((each) => types.some((known) => known === each))) {
    throw invalid(at, `must be one or several of ${types.join(", ")}`);
  }
  if (new Set(named).size < named.length) throw invalid(at, "must NOT have duplicate items");
};

const factor: Check = (value, at) => {
  if (typeof value !== "number") throw invalid(at, "must be number");
  if (value <= 0) throw invalid(at, "must be > 0");
};

const patternMap: Check = (value, at, walk) => {
  mapOf(schema)(value, at, walk);
  for (const source of Object.keys(value as object)) walk.pattern(source); // an object, as just checked
};

const keywords: Readonly<Record<string, Check>> = {
  $schema: ofDialect,
  $id: id,
  $ref: reference,
  $anchor: anchor,
  $dynamicRef: reference,
  $dynamicAnchor: anchor,
  $vocabulary: mapOf(boolean),
  $comment: text,
  $defs: mapOf(schema),
  prefixItems: schemas,
  items: schema,
  contains: schema,
  additionalProperties: schema,
  properties: mapOf(schema),
  patternProperties: patternMap,
  dependentSchemas: mapOf(schema),
  propertyNames: schema,
  if: schema,
  // oxlint-disable-next-line unicorn/no-thenable -- the name of a keyword; no promise ever resolves to this table
  then: schema,
  else: schema,
  allOf: schemas,
  anyOf: schemas,
  oneOf: schemas,
  not: schema,
  unevaluatedItems: schema,
  unevaluatedProperties: schema,
  type,
  const: anything,
  enum: list,
  multipleOf: factor,
  maximum: number,
  exclusiveMaximum: number,
  minimum: number,
  exclusiveMinimum: number,
  maxLength: count,
  minLength: count,
  pattern,
  maxItems: count,
  minItems: count,
  uniqueItems: boolean,
  maxContains: count,
  minContains: count,
  maxProperties: count,
  minProperties: count,
  required: texts,
  dependentRequired: mapOf(texts),
  title: text,
  description: text,
  default: anything,
  deprecated: boolean,
  readOnly: boolean,
  writeOnly: boolean,
  examples: list,
  format: text,
  contentEncoding: text,
  contentMediaType: text,
  contentSchema: schema,
  definitions: mapOf(schema),
  dependencies: mapOf(schemaOrTexts),
  $recursiveAnchor: anchor,
  $recursiveRef: reference,
};
