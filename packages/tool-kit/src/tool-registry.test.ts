import { Type } from "typebox";
import { describe, expect, it } from "vitest";
import { createToolRegistry, defineTool, ToolNotFoundError, ToolValidationError } from "./index.ts";

const context = {
  callId: "c1",
  turnId: "t1",
  signal: new AbortController().signal,
  actor: { app: "a", userId: "u", chatId: "c" },
  authority: { by: "policy" as const },
  progress: () => {},
  saveFile: () => Promise.reject(new Error("no files here")),
  log: () => {},
};
const city = {
  description: "weather of a city",
  inputSchema: Type.Object({ city: Type.String() }),
};
const direct = (): string => "direct";
const decorated = (): string => "decorated";

describe("ToolRegistry", () => {
  it("AL-11: register with a handler returns that handler; without, a decorator that returns its function", async () => {
    const registry = createToolRegistry();
    expect(registry.register({ ...city, name: "one" }, direct)).toBe(direct);
    expect(registry.register({ ...city, name: "two" })(decorated)).toBe(decorated);
    expect(await registry.dispatch("one", { city: "x" }, context)).toBe("direct");
    expect(await registry.dispatch("two", { city: "x" }, context)).toBe("decorated");
  });

  it("AL-12: the name falls back to the function name; an anonymous function without name is an error", () => {
    const registry = createToolRegistry();
    registry.register(city, function weather() {
      return 1;
    });
    expect(registry.get("weather").name).toBe("weather");
    expect(() => registry.register(city, () => 1)).toThrow(/a tool name is required/);
    const decorate = registry.register(city);
    expect(() => decorate(() => 1)).toThrow(/a tool name is required/);
  });

  it("AL-13: specs keep registration order and hold only name, description and schema", () => {
    const registry = createToolRegistry();
    for (const name of ["z", "a", "m"]) {
      registry.register({ ...city, name, requiresApproval: true }, () => 1);
    }
    expect(registry.specs().map((spec) => spec.name)).toEqual(["z", "a", "m"]);
    for (const spec of registry.specs()) {
      expect(Object.keys(spec).sort()).toEqual(["description", "inputSchema", "name"]);
    }
  });

  it("AL-14: get and dispatch of an unknown name fail with an error that names the tool", async () => {
    const registry = createToolRegistry();
    expect(() => registry.get("nope")).toThrow(ToolNotFoundError);
    expect(() => registry.get("nope")).toThrow(/nope/);
    await expect(registry.dispatch("nope", {}, context)).rejects.toThrow(ToolNotFoundError);
  });

  it("AL-15: arguments that are an array, string or null fail with ToolValidationError", async () => {
    const registry = createToolRegistry();
    let runs = 0;
    registry.register(
      { name: "t", description: "d", inputSchema: { type: "object" } },
      () => (runs += 1),
    );
    for (const args of [[1], "text", null, 3, undefined]) {
      await expect(registry.dispatch("t", args, context)).rejects.toThrow(ToolValidationError);
    }
    expect(runs).toBe(0);
  });

  it("AL-16: a missing required key fails; an extra key fails only when additionalProperties is false", async () => {
    const registry = createToolRegistry();
    registry.register({ ...city, name: "open" }, (input) => input);
    registry.register(
      {
        name: "closed",
        description: "d",
        inputSchema: Type.Object({ city: Type.String() }, { additionalProperties: false }),
      },
      (input) => input,
    );
    await expect(registry.dispatch("open", {}, context)).rejects.toThrow(/city/);
    expect(await registry.dispatch("open", { city: "x", extra: 1 }, context)).toEqual({
      city: "x",
      extra: 1,
    });
    await expect(registry.dispatch("closed", { city: "x", extra: 1 }, context)).rejects.toThrow(
      /extra/,
    );
  });

  it("AL-17: wrong types, enum violations and nested violations fail too", async () => {
    const registry = createToolRegistry();
    const inputSchema = Type.Object({
      unit: Type.Enum(["c", "f"]),
      days: Type.Array(Type.Object({ n: Type.Integer({ minimum: 1 }) })),
    });
    registry.register({ name: "t", description: "d", inputSchema }, () => 1);
    await expect(registry.dispatch("t", { unit: "k", days: [] }, context)).rejects.toThrow(
      ToolValidationError,
    );
    await expect(registry.dispatch("t", { unit: "c", days: "none" }, context)).rejects.toThrow(
      /days/,
    );
    await expect(registry.dispatch("t", { unit: "c", days: [{ n: 0 }] }, context)).rejects.toThrow(
      /days\.0\.n/,
    );
    await expect(
      registry.dispatch("t", { unit: "c", days: [{ n: "1" }] }, context),
    ).rejects.toThrow(/days\.0\.n/);
    expect(await registry.dispatch("t", { unit: "c", days: [{ n: 1 }] }, context)).toBe(1);
  });

  it("AL-18: sync handlers, async handlers and sync handlers that return a promise all resolve to the raw value", async () => {
    const registry = createToolRegistry();
    const value = new Map([["a", 1]]);
    registry.register({ ...city, name: "sync" }, () => value);
    registry.register({ ...city, name: "async" }, async () => await Promise.resolve(value));
    registry.register({ ...city, name: "promise" }, () => Promise.resolve(value));
    for (const name of ["sync", "async", "promise"]) {
      expect(await registry.dispatch(name, { city: "x" }, context)).toBe(value);
    }
  });

  it("AL-60: registering a name twice is an error, in every form, and keeps the first", async () => {
    const registry = createToolRegistry();
    registry.register({ ...city, name: "t" }, () => "first");
    expect(() => registry.register({ ...city, name: "t" }, () => "second")).toThrow(
      /"t" is registered twice/,
    );
    const decorate = registry.register({ ...city, name: "t" });
    expect(() => decorate(() => "third")).toThrow(/twice/);
    const again = defineTool({
      name: "t",
      description: "d",
      input: Type.Object({}),
      effect: "pure",
      run: () => 1,
    });
    expect(() => registry.add(again)).toThrow(/twice/);
    expect(await registry.dispatch("t", { city: "x" }, context)).toBe("first");
  });

  it("treats a function without a declared effect as one that must not be repeated", () => {
    const registry = createToolRegistry();
    registry.register({ ...city, name: "t" }, () => 1);
    expect(registry.get("t").effect).toBe("once");
  });
});
