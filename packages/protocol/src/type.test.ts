import { Type as TypeBox } from "typebox";
import { describe, expect, it } from "vitest";
import { Type } from "./type.ts";

type Maker = typeof Type;

const schemas: Record<keyof Maker, (type: Maker) => readonly object[]> = {
  Array: (type) => [
    type.Array(type.String()),
    type.Array(type.Null(), { minItems: 1, description: "d" }),
  ],
  Boolean: (type) => [type.Boolean(), type.Boolean({ default: true })],
  Enum: (type) => [type.Enum(["a", "b"]), type.Enum(["a"], { description: "d" })],
  Integer: (type) => [type.Integer(), type.Integer({ minimum: 0, maximum: 9 })],
  Literal: (type) => [type.Literal("a"), type.Literal(1), type.Literal(true, { title: "t" })],
  Never: (type) => [type.Never()],
  Null: (type) => [type.Null(), type.Null({ title: "t" })],
  Number: (type) => [type.Number(), type.Number({ exclusiveMinimum: 0 })],
  Object: (type) => [
    type.Object({}),
    type.Object({ a: type.Optional(type.String()) }),
    type.Object(
      { b: type.String(), a: type.Optional(type.Null()), c: type.Unknown() },
      { additionalProperties: false },
    ),
    type.Object({ deep: type.Object({ a: type.Optional(type.Object({ b: type.Integer() })) }) }),
  ],
  Optional: (type) => [type.Optional(type.String({ minLength: 1 }))],
  Record: (type) => [
    type.Record(type.String(), type.Null()),
    type.Record(type.Enum(["zh", "en"]), type.Null()),
    type.Record(type.Enum(["zh", "en"]), type.String(), { additionalProperties: false }),
    type.Record(type.String({ minLength: 1 }), type.Null()),
    type.Record(type.String({ pattern: "^a$" }), type.Object({ b: type.Integer() }), {
      maxProperties: 3,
    }),
  ],
  String: (type) => [type.String(), type.String({ pattern: "^a$", maxLength: 1 })],
  Union: (type) => [
    type.Union([type.String(), type.Null()]),
    type.Union([type.Literal("a")], { description: "d" }),
  ],
  Unknown: (type) => [type.Unknown(), type.Unknown({ description: "d" })],
  Unsafe: (type) => [
    type.Unsafe({ type: "string", format: "date" }),
    type.Object({ a: type.Unsafe<string>(type.Optional(type.Object({}))) }),
  ],
};

describe("a schema", () => {
  it.each(Object.entries(schemas))("of %s is the one that TypeBox makes, to the byte", (_, of) => {
    expect(JSON.stringify(of(Type))).toBe(JSON.stringify(of(TypeBox)));
  });

  it("that is optional in one object is still required in another", () => {
    const name = Type.String();
    expect(Type.Object({ name: Type.Optional(name) })).not.toHaveProperty("required");
    expect(Type.Object({ name })).toHaveProperty("required", ["name"]);
  });

  it("of a record whose keys are no strings is refused", () => {
    expect(() => Type.Record(Type.Integer(), Type.Null())).toThrow(
      "the keys of a record are strings",
    );
  });
});
