import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseSync, Visitor } from "rolldown/utils";

const packages = fileURLToPath(new URL("../../../packages", import.meta.url));

/** What the source of a schema says of its fields, by their names; found by the names of all fields. */
export type FieldDocs = (fields: readonly string[]) => ReadonlyMap<string, string>;

type Parsed = ReturnType<typeof parseSync>;
type Statement = Extract<Parsed["program"]["body"][number], { type: "ExpressionStatement" }>;
type Literal = Extract<Statement["expression"], { type: "ObjectExpression" }>;
type Fields = ReadonlyMap<string, string>;

/**
 * Reads the comments of schemas in these files (patterns below `packages`). A comment stands before a field of
 * `Type.Object({ ... })`, or before the one constant that the field is made with.
 */
export function fieldDocsOf(...patterns: string[]): FieldDocs {
  const paths = globSync(patterns, { cwd: packages }).toSorted();
  const sources = paths.map((path) => new Source(readFileSync(join(packages, path), "utf8")));
  const constants = new Map(sources.flatMap((source) => [...source.constants]));
  const known = new Map<string, Fields>();
  for (const source of sources) {
    for (const literal of source.schemas) {
      const fields = source.fieldsOf(literal, constants);
      const key = [...fields.keys()].join();
      const other = known.get(key);
      if (other !== undefined && [...fields].some(([name, doc]) => other.get(name) !== doc)) {
        throw new Error(`two schemas have the fields ${key}, with different comments`);
      }
      known.set(key, fields);
    }
  }
  return (names) => known.get(names.join()) ?? new Map();
}

/** One module with schemas. */
class Source {
  readonly #code: string;
  readonly #comments: Parsed["comments"];
  /** The fields of each `Type.Object`. */
  readonly schemas: Literal[] = [];
  /** Comments of constants, by name. */
  readonly constants = new Map<string, string>();
  /** Constants that are spread into schemas. */
  readonly #parts = new Map<string, Literal>();

  constructor(code: string) {
    const { program, comments } = parseSync("schema.ts", code);
    this.#code = code;
    this.#comments = comments;
    new Visitor({
      CallExpression: ({ callee, arguments: [first] }) => {
        const isObject = this.#code.slice(callee.start, callee.end) === "Type.Object";
        if (isObject && first?.type === "ObjectExpression") this.schemas.push(first);
      },
      VariableDeclarator: ({ id, init, start }) => {
        if (id.type !== "Identifier") return;
        const doc = this.#docBefore(start, /^\s*(?:export\s+)?const\s+$/);
        if (doc !== "") this.constants.set(id.name, doc);
        if (init?.type === "ObjectExpression") this.#parts.set(id.name, init);
      },
    }).visit(program);
  }

  /** Fields in their order, each with its comment or an empty text. */
  fieldsOf(literal: Literal, constants: ReadonlyMap<string, string>): Fields {
    return new Map(
      literal.properties.flatMap((property): [string, string][] => {
        if (property.type === "SpreadElement") {
          const part =
            property.argument.type === "Identifier"
              ? this.#parts.get(property.argument.name)
              : undefined;
          return part === undefined ? [] : [...this.fieldsOf(part, constants)];
        }
        const name = property.key.type === "Identifier" ? property.key.name : "";
        const own = this.#docBefore(property.start, /^\s*$/);
        // The constants of its value; what stands before a colon is an option.
        const words =
          this.#code
            .slice(property.value.start, property.value.end)
            .match(/\b[A-Za-z]\w*\b(?!:)/g) ?? [];
        const given = [...new Set(words.flatMap((word) => constants.get(word) ?? []))];
        return [[name, own === "" && given.length === 1 ? given.join() : own]];
      }),
    );
  }

  #docBefore(start: number, between: RegExp): string {
    const comment = this.#comments.findLast(({ end }) => end <= start);
    if (
      comment?.value.startsWith("*") !== true ||
      !between.test(this.#code.slice(comment.end, start))
    ) {
      return "";
    }
    return comment.value
      .slice(1)
      .replaceAll(/\s*\n\s*\*?\s*/g, " ")
      .trim();
  }
}
