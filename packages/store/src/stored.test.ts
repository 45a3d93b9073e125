import { describe, expect, it } from "vitest";
import { controlFrom } from "./stored.ts";

const unreadable = { type: "outcome", callId: "c1", outcome: { ok: false, unknown: true } };

describe("what a runner of another make answers", () => {
  it.each([
    ["says neither how it ended nor what came of it", '{"type": "outcome", "callId": "c1"}'],
    [
      "has an outcome of another shape",
      '{"type":"outcome","callId":"c1","outcome":{"ok":"yes","result":1}}',
    ],
    [
      "is nested too deeply to be stored again",
      `{"type":"outcome","callId":"c1","outcome":{"ok":true,"result":${"[".repeat(100_000)}${"]".repeat(100_000)}}}`,
    ],
  ])("is an unknown outcome of its call when it %s", (_, text) => {
    expect(controlFrom(text)).toMatchObject(unreadable);
  });

  it("stays as it is when it can be read, whatever its order and spaces", () => {
    const text =
      '{ "outcome": { "result": {"a": [1]}, "ok": true }, "callId": "c1", "type": "outcome" }';
    expect(controlFrom(text)).toEqual({
      type: "outcome",
      callId: "c1",
      outcome: { ok: true, result: { a: [1] } },
    });
  });
});

it("an entry of a kind that a newer version may know is not dropped", () => {
  expect(() => controlFrom('{"type":"later"}')).toThrow("control entry is not readable");
});
