import { describe, expect, it } from "vitest";
import { coercedArguments, parseArguments } from "./tool-call.ts";

describe("arguments of a call", () => {
  it("may be encoded twice", () => {
    expect(parseArguments(JSON.stringify('{"a":1}'))).toEqual({ ok: true, value: { a: 1 } });
    expect(parseArguments(JSON.stringify("{no"))).toMatchObject({ ok: false });
    expect(parseArguments(JSON.stringify("text"))).toMatchObject({ ok: false });
  });

  const of = (type: string, more: object = {}) => ({
    type: "object",
    properties: { a: { type, ...more } },
  });

  it.each([
    ["number", "5", 5],
    ["number", "-1.5e3", -1_500],
    ["integer", "7", 7],
    ["boolean", "false", false],
    ["null", "null", null],
    ["array", '["x"]', ["x"]],
    ["object", '{"b":"1"}', { b: "1" }],
  ])("are the %s that the text %j stands for", (type, text, value) => {
    expect(coercedArguments({ a: text }, of(type))).toEqual({ a: value });
  });

  it.each([
    ["string", "5"],
    ["integer", "5.5"],
    ["integer", "five"],
    ["number", ""],
    ["boolean", "1"],
    ["array", '{"b":1}'],
    ["object", "[1]"],
  ])("stay the text for a %s: %j", (type, text) => {
    const given = { a: text };
    expect(coercedArguments(given, of(type))).toBe(given);
  });

  it("stay as they are where the schema has two readings, or none", () => {
    const given = { a: "5", b: "5", c: 5 };
    const schema = { properties: { a: { type: ["number", "string"] }, c: { type: "string" } } };
    expect(coercedArguments(given, schema)).toBe(given);
  });

  it("are read in lists and objects, too", () => {
    const schema = of("array", {
      items: { type: "object", properties: { n: { type: "number" } } },
    });
    expect(coercedArguments({ a: [{ n: "1" }, { n: 2 }] }, schema)).toEqual({
      a: [{ n: 1 }, { n: 2 }],
    });
  });
});
