import type { Type as TypeBox } from "typebox";

export type { Static, TSchema } from "typebox";

// TypeBox gives the types of our schemas, and its package is not loaded: its 370 files took a quarter of the CPU time in
// which the modules of a worker load, and 10 MB of its memory. What makes the schemas is the few functions that we use.

type Schema = Readonly<Record<string, unknown>>;

/** Marks a property that may be missing; nothing that writes or compares schemas sees it. */
const optional = "~optional";

function isRequired([, schema]: [string, Schema]): boolean {
  return !Object.hasOwn(schema, optional);
}

function object(properties: Readonly<Record<string, Schema>>, options?: Schema): Schema {
  const required = Object.entries(properties)
    .filter(isRequired)
    .map(([name]) => name);
  return { type: "object", ...(required.length === 0 ? {} : { required }), properties, ...options };
}

/** With the names of an enum as its keys it is an object that has all of them. */
function record(key: Schema, value: Schema, options?: Schema): Schema {
  const { enum: names, type, pattern = "^.*$" } = key;
  if (Array.isArray(names)) {
    return object(Object.fromEntries(names.map((name) => [String(name), value])), options);
  }
  if (type !== "string") throw new Error("the keys of a record are strings");
  return { type: "object", patternProperties: { [String(pattern)]: value }, ...options };
}

const make = {
  Array: (items: Schema, options?: Schema) => ({ type: "array", items, ...options }),
  Boolean: (options?: Schema) => ({ type: "boolean", ...options }),
  Enum: (values: readonly unknown[], options?: Schema) => ({ enum: values, ...options }),
  Integer: (options?: Schema) => ({ type: "integer", ...options }),
  Literal: (value: unknown, options?: Schema) => ({ type: typeof value, const: value, ...options }),
  Never: (options?: Schema) => ({ not: {}, ...options }),
  Null: (options?: Schema) => ({ type: "null", ...options }),
  Number: (options?: Schema) => ({ type: "number", ...options }),
  Object: object,
  Optional: (schema: Schema) => Object.defineProperty({ ...schema }, optional, { value: true }),
  Record: record,
  String: (options?: Schema) => ({ type: "string", ...options }),
  Union: (anyOf: readonly Schema[], options?: Schema) => ({ anyOf, ...options }),
  Unknown: (options?: Schema) => ({ ...options }),
  Unsafe: (schema: Schema) => schema,
};

/** Makes JSON Schemas (2020-12) with the types that TypeBox gives them: `Static<typeof schema>` is the type of the data. */
export const Type = make as unknown as Pick<typeof TypeBox, keyof typeof make>; // type.test.ts compares them
