// Writes the types of the wire as plain TypeScript, from the schemas that the server checks them against: a
// project that installs the SDK needs neither the schemas nor what they are written with.

type Schema = Readonly<Record<string, unknown>>;

/** The type of a schema. `named` are schemas that have a type of their own. */
export function typeText(schema: Schema, named: ReadonlyMap<unknown, string>): string {
  return named.get(schema) ?? ownText(schema, named);
}

function ownText(schema: Schema, named: ReadonlyMap<unknown, string>): string {
  const { anyOf, enum: values, type } = schema;
  if (Array.isArray(anyOf)) return anyOf.map((one: Schema) => typeText(one, named)).join(" | ");
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
      return `(${typeText(schema["items"] as Schema, named)})[]`; // every array of the wire says what is in it
    case "object":
      return objectText(schema, named);
    default:
      return "unknown";
  }
}

function objectText(schema: Schema, named: ReadonlyMap<unknown, string>): string {
  const { properties, patternProperties, required } = schema;
  if (properties === undefined) {
    const [values] = Object.values((patternProperties ?? {}) as Record<string, Schema>); // as JSON Schema has it
    return `Record<string, ${values === undefined ? "unknown" : typeText(values, named)}>`;
  }
  const needed = new Set((required ?? []) as string[]); // as JSON Schema has it
  const fields = Object.entries(properties as Record<string, Schema>).map(([name, field]) => {
    const mark = needed.has(name) ? "" : "?";
    return `${/^\w+$/.test(name) ? name : JSON.stringify(name)}${mark}: ${typeText(field, named)};`;
  });
  return `{ ${fields.join(" ")} }`;
}

/** A module of types, one for each name, from JSON Schemas. */
export function typesModule(heading: string, schemas: Readonly<Record<string, object>>): string {
  const named = new Map<unknown, string>(Object.entries(schemas).map(([name, schema]) => [schema, name]));
  const types = Object.entries(schemas).map(
    ([name, schema]) => `export type ${name} = ${ownText(schema as Schema, named)};\n`,
  ); // a JSON object
  return [`${heading}\n`, ...types].join("\n");
}
