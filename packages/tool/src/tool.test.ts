import { Type } from "typebox";
import { describe, expect, expectTypeOf, it } from "vitest";
import { announcementOf, defineTool, isTool, type ToolDefinition } from "./index.ts";

const context = {
  callId: "c1",
  turnId: "t1",
  signal: new AbortController().signal,
  actor: { app: "a", userId: "u", chatId: "c" },
  progress: () => {},
  saveFile: () => Promise.reject(new Error("no files here")),
  log: () => {},
};

describe("defineTool", () => {
  it("infers the input of a TypeBox schema", () => {
    defineTool({
      name: "add",
      description: "adds",
      input: Type.Object({ a: Type.Number(), tags: Type.Optional(Type.Array(Type.String())) }),
      effect: "pure",
      run(input) {
        expectTypeOf(input.a).toEqualTypeOf<number>();
        expectTypeOf(input.tags).toEqualTypeOf<string[] | undefined>();
        return input.a;
      },
    });
  });

  it("gives an object of unknown values for a JSON Schema without literal types", async () => {
    const schema: Record<string, unknown> = { type: "object", properties: { a: { type: "number" } } };
    const tool = defineTool({
      name: "echo",
      description: "echoes",
      input: schema,
      effect: "pure",
      run(input) {
        expectTypeOf(input).toEqualTypeOf<Record<string, unknown>>();
        return input["a"];
      },
    });
    expect(await tool.run({ a: 7 }, context)).toBe(7);
  });

  it("announces name, description, schema, effect, approval and timeout, and nothing of the handler", () => {
    const tool = defineTool({
      name: "add",
      description: "adds",
      input: Type.Object({ a: Type.Number() }),
      effect: "idempotent",
      requiresApproval: true,
      timeoutMs: 5_000,
      run: () => null,
    });
    expect(JSON.parse(JSON.stringify(announcementOf(tool)))).toEqual({
      spec: {
        name: "add",
        description: "adds",
        inputSchema: { type: "object", required: ["a"], properties: { a: { type: "number" } } },
      },
      effect: "idempotent",
      requiresApproval: true,
      timeoutMs: 5_000,
    });
    expect(isTool(tool)).toBe(true);
    expect(isTool({ name: "add" })).toBe(false);
    expect(tool.isolation).toBe("inline");
  });

  const valid: ToolDefinition<Record<string, unknown>> = {
    name: "ok",
    description: "d",
    input: { type: "object" },
    effect: "pure",
    run: () => null,
  };
  const wrong: [string, Record<string, unknown>, RegExp][] = [
    ["a name with a space", { name: "my tool" }, /"my tool".*name/],
    ["a name of 65 characters", { name: "x".repeat(65) }, /name/],
    ["no name", { name: undefined }, /tool without a name.*name/],
    ["a schema that is not of type object", { input: { type: "array" } }, /"ok".*type "object"/],
    ["no schema", { input: null }, /"ok".*JSON Schema object/],
    [
      "a schema that does not compile",
      { input: { type: "object", properties: { a: { type: "nope" } } } },
      /"ok".*compile/,
    ],
    ["an unknown effect", { effect: "maybe" }, /"ok".*effect/],
    ["an isolation level that does not exist", { isolation: "sandbox" }, /"ok".*"sandbox" does not exist/],
    ["timeout 0", { timeoutMs: 0 }, /"ok".*timeoutMs/],
    ["a fractional timeout", { timeoutMs: 1.5 }, /"ok".*timeoutMs/],
    ["a timeout over an hour", { timeoutMs: 3_600_001 }, /"ok".*timeoutMs/],
    ["no run function", { run: "x" }, /"ok".*run/],
  ];
  it.each(wrong)("refuses %s, naming the tool", (_what, change, message) => {
    const definition: object = { ...valid, ...change };
    expect(() => defineTool(definition as typeof valid)).toThrow(message);
  });
});
