import { Type, type Static } from "./type.ts";
import { schemaProblem } from "./json-schema.ts";

/** The form that an answer is to have: a JSON object of this JSON Schema (2020-12). Tools work as without it. */
export const OutputForm = Type.Object(
  {
    name: Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" }),
    schema: Type.Record(Type.String(), Type.Unknown()),
    /** What people in chats see in place of JSON: `{field}` is the field's value, `{{` and `}}` are braces. */
    format: Type.Optional(Type.String({ minLength: 1, maxLength: 10_000 })),
  },
  { additionalProperties: false },
);
export type OutputForm = Static<typeof OutputForm>;

const maxSchemaBytes = 32_768;

/** Why answers cannot have this form, beginning with the name of the field; undefined when they can. */
export function outputFormProblem({ schema, format }: OutputForm): string | undefined {
  if (schema["type"] !== "object") return "schema is not of type object";
  const problem = schemaProblem(schema, maxSchemaBytes);
  if (problem !== undefined) return problem;
  return format === undefined ? undefined : formatProblem(format, schema);
}

/** Fields have to be there in every answer, so they are required ones. */
function formatProblem(format: string, { required }: OutputForm["schema"]): string | undefined {
  const known: readonly unknown[] = Array.isArray(required) ? required : [];
  for (const piece of piecesOfFormat(format)) {
    if (piece === "{" || piece === "}") return `format has a lone ${piece}`;
    if (typeof piece === "object" && !known.includes(piece.field)) {
      return `format names '${piece.field}', which the schema does not require`;
    }
  }
  return undefined;
}

/** The pieces of a format: texts, fields, and lone braces, which are errors, as texts of their own. */
function piecesOfFormat(format: string): (string | { field: string })[] {
  return (format.match(/\{\{|\}\}|\{[^{}]*\}|[{}]|[^{}]+/g) ?? []).map((piece) => {
    if (piece === "{{" || piece === "}}" || piece.length === 1 || !piece.startsWith("{")) {
      return piece;
    }
    return { field: piece.slice(1, -1) };
  });
}

/** A format with the values of its fields, as `textOf` writes them. */
export function filledFormat(format: string, textOf: (field: string) => string): string {
  return piecesOfFormat(format)
    .map((piece) =>
      typeof piece === "object" ? textOf(piece.field) : piece.replace(/^([{}])\1$/, "$1"),
    )
    .join("");
}
