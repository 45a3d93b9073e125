import type { FieldDocs } from "./field-docs.ts";

// Writes the types of the wire as plain TypeScript, from the schemas that the server checks them against: a
// project that installs the SDK needs neither the schemas nor what they are written with.

type Schema = Readonly<Record<string, unknown>>;

/** The type of a schema. `named` are schemas that have a type of their own; with `docs` each field has a line. */
export function typeText(
  schema: Schema,
  named: ReadonlyMap<unknown, string>,
  docs?: FieldDocs,
): string {
  return named.get(schema) ?? ownText(schema, named, docs);
}

function ownText(schema: Schema, named: ReadonlyMap<unknown, string>, docs?: FieldDocs): string {
  const { anyOf, enum: values, type } = schema;
  if (Array.isArray(anyOf)) {
    return anyOf.map((one: Schema) => typeText(one, named, docs)).join(" | ");
  }
  if (Array.isArray(values)) return values.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema["const"]);
  switch (type) {
    case "string":
    case "boolean":
    case "null":
      return type;
    case "number":
    case "integer":
      return "number";
    case "array":
      return `(${typeText(schema["items"] as Schema, named, docs)})[]`; // every array of the wire says what is in it
    case "object":
      return objectText(schema, named, docs);
    default:
      return "unknown";
  }
}

function objectText(schema: Schema, named: ReadonlyMap<unknown, string>, docs?: FieldDocs): string {
  const { properties, patternProperties, required } = schema;
  if (properties === undefined) {
    const [values] = Object.values((patternProperties ?? {}) as Record<string, Schema>); // as JSON Schema has it
    return `Record<string, ${values === undefined ? "unknown" : typeText(values, named, docs)}>`;
  }
  const needed = new Set((required ?? []) as string[]); // as JSON Schema has it
  const all = Object.entries(properties as Record<string, Schema>);
  // A field that describes itself comes from elsewhere.
  const said = docs?.(
    all.filter(([, { description }]) => description === undefined).map(([name]) => name),
  );
  const fields = all.map(([name, field]) => {
    const mark = needed.has(name) ? "" : "?";
    const { description = "" } = field;
    const doc =
      docs === undefined
        ? ""
        : (said?.get(name) ?? (typeof description === "string" ? description : ""));
    const text = `${/^\w+$/.test(name) ? name : JSON.stringify(name)}${mark}: ${typeText(field, named, docs)};`;
    return doc === "" ? text : `/** ${doc} */\n${text}`;
  });
  if (docs === undefined || fields.length === 0) return `{ ${fields.join(" ")} }`;
  return `{\n${fields.join("\n").replaceAll(/^/gm, "  ")}\n}`;
}

/** A module of types, one for each name, from JSON Schemas. */
export function typesModule(
  heading: string,
  schemas: Readonly<Record<string, object>>,
  docs?: FieldDocs,
): string {
  const named = new Map<unknown, string>(
    Object.entries(schemas).map(([name, schema]) => [schema, name]),
  );
  const types = Object.entries(schemas).map(
    ([name, schema]) => `export type ${name} = ${ownText(schema as Schema, named, docs)};\n`,
  ); // a JSON object
  return [`${heading}\n`, ...types].join("\n");
}
