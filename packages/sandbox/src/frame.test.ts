import { describe, expect, it } from "vitest";
import { encodeFrame, FrameError, FrameReader } from "./frame.ts";

const bounds = { bytes: 100_000, frames: 100 };

function framed(text: string): Buffer {
  const body = Buffer.from(text);
  const header = Buffer.alloc(4);
  header.writeUInt32LE(body.length);
  return Buffer.concat([header, body]);
}
const read = (...chunks: Buffer[]): unknown[] => {
  const reader = new FrameReader(bounds);
  return chunks.flatMap((chunk) => reader.push(chunk));
};

describe("frames", () => {
  it("carry JSON values, in whatever pieces they arrive", () => {
    const values = [{ 城: "上海" }, [1, [2, [3]]], "text", null, 7];
    const bytes = Buffer.concat(values.map(encodeFrame));
    expect(read(bytes)).toEqual(values);
    expect(read(...[...bytes].map((byte) => Buffer.from([byte])))).toEqual(values);
    expect(read(bytes.subarray(0, 7), bytes.subarray(7, 30), bytes.subarray(30))).toEqual(values);
  });

  it("carry nothing that is no JSON", () => {
    for (const value of [undefined, 1n, () => 1]) {
      expect(() => encodeFrame(value)).toThrow(TypeError);
    }
  });

  it("are refused by their header when they are too large, before their bytes come", () => {
    const header = Buffer.alloc(4);
    header.writeUInt32LE(bounds.bytes + 1);
    expect(() => read(header)).toThrow(FrameError);
  });

  it("are refused when there are too many", () => {
    expect(() => read(...Array.from({ length: bounds.frames + 1 }, () => encodeFrame(1)))).toThrow(
      /more than 100/,
    );
  });

  it.each(["", "{", "nothing", '{"a":1}x', "\u0000"])("are refused when %j is in them", (text) => {
    expect(() => read(framed(text))).toThrow(FrameError);
  });

  it("are refused when they are nested too deeply, brackets in strings aside", () => {
    const nested = (depth: number): string => "[".repeat(depth) + "]".repeat(depth);
    expect(read(framed(nested(64)))).toHaveLength(1);
    expect(() => read(framed(nested(65)))).toThrow(/deeper/);
    expect(() => read(framed(nested(40_000)))).toThrow(/deeper/);
    const text = `"${"[".repeat(500)}\\"${"{".repeat(500)}`;
    expect(read(framed(`[${text}"]`))).toEqual([[JSON.parse(`${text}"`)]]);
  });

  it.each([
    ['{"a":1,"__proto__":{"polluted":true}}', { a: 1 }],
    ['{"a":{"\\u005f_proto__":{"polluted":true}}}', { a: {} }],
    ['{"constructor":{"prototype":{"polluted":true}},"b":2}', { b: 2 }],
    ['{"constructor":"a word","prototype":1}', { constructor: "a word", prototype: 1 }],
  ])("lose what would change a prototype: %s", (text, expected) => {
    const [value] = read(framed(text));
    expect(Object.getOwnPropertyNames(value)).toEqual(Object.getOwnPropertyNames(expected));
    expect(JSON.stringify(value)).toBe(JSON.stringify(expected));
    const target: Record<string, unknown> = {};
    Object.assign(target, value);
    expect(({} as Record<string, unknown>)["polluted"]).toBeUndefined();
  });
});
