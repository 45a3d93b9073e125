import { describe, expect, it } from "vitest";
import { filledFormat, outputFormProblem } from "./output-form.ts";

const schema = { type: "object", properties: { a: { type: "string" }, b: {} }, required: ["a"] };

describe("AT-21: the form of an answer", () => {
  it("is refused when its schema is no schema of objects, or too large", () => {
    const problemOf = (given: Record<string, unknown>) =>
      outputFormProblem({ name: "n", schema: given });
    expect(problemOf(schema)).toBeUndefined();
    expect(problemOf({ type: "array" })).toBe("schema is not of type object");
    expect(problemOf({ type: "object", properties: { a: { type: "text" } } })).toMatch(
      /^schema is invalid: properties\.a\.type /,
    );
    expect(problemOf({ type: "object", $ref: "https://example.com/other.json" })).toMatch(
      /can't resolve reference/,
    );
    expect(problemOf({ type: "object", $async: true })).toMatch(/^schema must not be/);
    expect(problemOf({ type: "object", description: "x".repeat(32_768) })).toMatch(
      /^schema is too large/,
    );
  });

  it("is refused when its format has a lone brace or names a field that may be missing", () => {
    const problemOf = (format: string) => outputFormProblem({ name: "n", schema, format });
    expect(problemOf("{{{a}}} and x")).toBeUndefined();
    expect(problemOf("{a")).toBe("format has a lone {");
    expect(problemOf("a}")).toBe("format has a lone }");
    expect(problemOf("{b}")).toBe("format names 'b', which the schema does not require");
    expect(problemOf("{}")).toBe("format names '', which the schema does not require");
  });

  it("is filled with the values of its fields, whose braces stay", () => {
    expect(filledFormat("x {{{a}}} {a}", (field) => `<${field}{b}>`)).toBe("x {<a{b}>} <a{b}>");
  });
});
