import { Ajv2020 } from "ajv/dist/2020.js";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { compileJsonSchema, schemaLimits, schemaProblem } from "./json-schema.ts";

describe("a JSON Schema from outside", () => {
  it.each([
    [{ properties: { a: { type: "nope" } } }, /schema is invalid: properties\.a\.type/],
    [{ properties: { a: { minLength: -1 } } }, /properties\.a\.minLength must be >= 0/],
    [{ $defs: { a: { items: [{}] } } }, /\$defs\.a\.items must be object,boolean/],
    [{ definitions: { a: 3 } }, /definitions\.a must be object,boolean/],
    [{ dependencies: { a: ["b", 3] } }, /dependencies\.a/],
    [{ pattern: "(" }, /Unterminated group/],
    [{ $ref: "#/$defs/a" }, /can't resolve reference/],
    [
      { $schema: "http://json-schema.org/draft-07/schema#" },
      /draft-07.*is not known, only.*2020-12/,
    ],
    [{ $schema: 3 }, /\$schema 3 is not known/],
  ])("%j is refused, and what is wrong is named", (schema, problem) => {
    expect(() => compileJsonSchema(schema)).toThrow(problem);
  });

  it("checks values, also by references, and keeps schemas of one `$id` apart", () => {
    const $schema = "https://json-schema.org/draft/2020-12/schema";
    const list = {
      $schema,
      $id: "a",
      $defs: { n: { type: "number" } },
      prefixItems: [{ $ref: "#/$defs/n" }],
    };
    const [numbers, texts] = [
      compileJsonSchema(list),
      compileJsonSchema({ $id: "a", type: "string" }),
    ];
    expect(numbers([1, "b"])).toEqual({ ok: true, value: [1, "b"] });
    expect(numbers(["b"])).toEqual({ ok: false, error: "0 must be number" });
    expect(texts("b").ok).toBe(true);
  });

  it.each([
    [
      "levels",
      { items: nestedBy(schemaLimits.depth, (inner) => ({ not: inner })) },
      /nested too deeply/,
    ],
    [
      "levels of an example",
      { default: nestedBy(100_000, (inner) => [inner]) },
      /nested too deeply/,
    ],
    ["parts", { anyOf: Array(schemaLimits.schemas).fill(true) }, /too many parts/],
    [
      "references",
      { anyOf: countedTexts(schemaLimits.references + 1).map(() => ({ $ref: "#" })) },
      /too many references/,
    ],
    [
      "patterns",
      { allOf: countedTexts(schemaLimits.patterns + 1).map((pattern) => ({ pattern })) },
      /too many patterns/,
    ],
    [
      "characters of a pattern",
      { pattern: "x".repeat(schemaLimits.patternCharacters + 1) },
      /a pattern of more than/,
    ],
    [
      "bytes",
      { description: "é".repeat(schemaLimits.bytes / 2) },
      /too large \(\d+ bytes, at most 65536\)/,
    ],
    ["documents", { $ref: "https://example.com/a.json" }, /can't resolve reference https:/],
    ["places", { $ref: "#nowhere" }, /can't resolve reference #nowhere/],
    ["moments", { properties: { a: { $async: true } } }, /must not be asynchronous/],
  ])("has a bound on its %s", (_what, schema, problem) => {
    expect(schemaProblem(schema)).toMatch(problem);
  });

  it("leads to places by pointer, by anchor and by its own name", () => {
    const $defs = { "a/b": { $anchor: "here", type: "string" } };
    for (const $ref of ["#", "#here", "#/$defs/a~1b", "#/%24defs/a~1b", "own#here"]) {
      expect(schemaProblem({ $id: "own", $defs, anyOf: [{ $ref }] })).toBeUndefined();
    }
  });

  it("is one where the meta-schema of 2020-12 says so", () => {
    const official = new Ajv2020({ strict: false, validateFormats: false, logger: false });
    fc.assert(
      fc.property(anySchema, (schema) => {
        const isInvalid = refusal(schema).includes("schema is invalid");
        expect(isInvalid).toBe(!official.validateSchema(schema));
      }),
      { numRuns: 500 },
    );
  });
});

function nestedBy(depth: number, around: (inner: object) => object): object {
  let nested: object = {};
  for (let level = 0; level < depth; level += 1) nested = around(nested);
  return nested;
}

function countedTexts(count: number): string[] {
  return Array.from({ length: count }, (_, at) => `${at}`);
}

function refusal(schema: object): string {
  try {
    compileJsonSchema(schema);
    return "";
  } catch (error) {
    return String(error);
  }
}

/** Keywords with values that fit, and some that do not. */
const anySchema = fc.letrec<{ schema: object; value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom(
      "string",
      "object",
      "#a",
      "",
      true,
      -1,
      0,
      2,
      1.5,
      null,
      ["string"],
      ["a", "a"],
      [],
      {},
    ),
    tie("schema"),
    fc.array(tie("schema"), { maxLength: 2 }),
    fc.dictionary(fc.constantFrom("a", "b"), tie("value"), { maxKeys: 2 }),
  ),
  schema: fc.dictionary(fc.constantFrom(...keywords()), tie("value"), {
    maxKeys: 3,
    noNullPrototype: true,
  }),
})).schema;

function keywords(): string[] {
  const of = {
    core: [
      "$id",
      "$ref",
      "$anchor",
      "$dynamicRef",
      "$dynamicAnchor",
      "$vocabulary",
      "$comment",
      "$defs",
    ],
    lists: ["allOf", "anyOf", "oneOf", "prefixItems", "enum", "required", "examples"],
    schemas: [
      "not",
      "if",
      "then",
      "else",
      "items",
      "contains",
      "additionalProperties",
      "propertyNames",
    ],
    unevaluated: ["unevaluatedItems", "unevaluatedProperties"],
    maps: ["properties", "patternProperties", "dependentSchemas", "dependentRequired"],
    old: ["definitions", "dependencies", "$recursiveAnchor", "$recursiveRef"],
    values: [
      "type",
      "const",
      "format",
      "minLength",
      "multipleOf",
      "uniqueItems",
      "minContains",
      "contentSchema",
    ],
    words: ["title", "default", "deprecated", "readOnly"],
  };
  return Object.values(of).flat();
}
