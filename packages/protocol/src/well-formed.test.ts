import { expect, it } from "vitest";
import { parseJson, wellFormed } from "./schema.ts";

it("half of a surrogate pair becomes U+FFFD wherever it stands, and whole pairs stay", () => {
  const text = String.raw`{"a":["x\ud83d","\ud83d\ude00",{"\ude00k":"y\uDE00"}],"b":1}`;
  expect(parseJson(text)).toEqual({ a: ["x\ufffd", "😀", { "\ufffdk": "y\ufffd" }], b: 1 });
  expect(parseJson('"a\ud83d"')).toBe("a\ufffd");
});

it("what is well-formed is the same object, and what is no JSON value is not looked into", () => {
  const value = { a: ["😀", null, { b: "x" }], bytes: new Uint8Array([1]) };
  expect(wellFormed(value)).toBe(value);
  const other = wellFormed({ ...value, c: "\ud83d" });
  expect(other.a).toBe(value.a);
  expect(other.bytes).toBe(value.bytes);
});
