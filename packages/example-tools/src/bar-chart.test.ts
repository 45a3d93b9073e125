import { crc32, inflateSync } from "node:zlib";
import { runTool, type StoreFile } from "@larkline/tool-kit";
import { describe, expect, it } from "vitest";
import { barChart, drawBars } from "./bar-chart.ts";

interface Decoded {
  width: number;
  height: number;
  /** `rrggbb` of a point. */
  at(x: number, y: number): string;
  /** Points of a colour in a column. */
  count(x: number, color: string): number;
}

/** Reads a PNG with a palette as the specification says, every checksum included. */
function decoded(png: Buffer): Decoded {
  expect(png.subarray(0, 8)).toEqual(Buffer.from("\x89PNG\r\n\x1a\n", "latin1"));
  const chunks = new Map<string, Buffer>();
  let at = 8;
  while (at < png.length) {
    const length = png.readUInt32BE(at);
    const body = png.subarray(at + 4, at + 8 + length);
    expect(png.readUInt32BE(at + 8 + length)).toBe(crc32(body));
    chunks.set(body.toString("latin1", 0, 4), body.subarray(4));
    at += length + 12;
  }
  expect([...chunks.keys()]).toEqual(["IHDR", "PLTE", "IDAT", "IEND"]);
  const none = Buffer.alloc(0);
  const header = chunks.get("IHDR") ?? none;
  expect([...header.subarray(8)]).toEqual([8, 3, 0, 0, 0]);
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  const points = inflateSync(chunks.get("IDAT") ?? none);
  expect(points.length).toBe((width + 1) * height);
  for (let y = 0; y < height; y += 1) expect(points[y * (width + 1)]).toBe(0);
  const colorAt = (x: number, y: number): string => {
    const color = (points[y * (width + 1) + 1 + x] ?? 0) * 3;
    return (chunks.get("PLTE") ?? none).toString("hex", color, color + 3);
  };
  const count = (x: number, color: string): number =>
    Array.from({ length: height }, (_, y) => colorAt(x, y)).filter((found) => found === color)
      .length;
  return { width, height, at: colorAt, count };
}

const id = `blob_${"x".repeat(43)}`;
const blue = "3370ff";
const red = "f54a45";

async function call(input: unknown, stored: { bytes?: Uint8Array } = {}): Promise<unknown> {
  const storeFile: StoreFile = async (bytes) => {
    stored.bytes = bytes;
    return id;
  };
  const actor = { app: "a", userId: "u", chatId: "c" };
  const { signal } = new AbortController();
  const context = {
    callId: "c",
    turnId: "t",
    signal,
    actor,
    authority: { by: "policy" } as const,
    progress: () => {},
    log: () => {},
  };
  return await runTool(barChart, { argumentsText: JSON.stringify(input), context, storeFile });
}

describe("bar_chart", () => {
  it("draws bars as high as their values, the highest one over all the room", () => {
    const picture = decoded(drawBars([3, 6, 0]));
    expect(picture).toMatchObject({ width: 640, height: 360 });
    const [low, high, none] = [122, 320, 517].map((x) => picture.count(x, blue));
    expect(high).toBeGreaterThan(250);
    expect((low ?? 0) / (high ?? 1)).toBeCloseTo(0.5, 1);
    expect(none).toBe(0);
    expect(picture.at(0, 0)).toBe("ffffff");
  });

  it("draws values below zero downwards, in another colour", () => {
    const picture = decoded(drawBars([5, -5]));
    const [up, down] = [picture.count(172, blue), picture.count(468, red)];
    expect(Math.abs(up - down)).toBeLessThanOrEqual(2);
    expect(picture.count(468, blue)).toBe(0);
    expect(picture.at(172, 100)).toBe(blue);
    expect(picture.at(468, 300)).toBe(red);
  });

  it("writes the value above its bar", () => {
    const digits = [1, 2].map((value) => {
      const { at } = decoded(drawBars([value]));
      return Array.from({ length: 60 * 60 }, (_, n) =>
        at(290 + (n % 60), Math.floor(n / 60)) === "646a73" ? "#" : ".",
      );
    });
    expect(digits[0]).toContain("#");
    expect(digits[0]).not.toEqual(digits[1]);
  });

  it.each([
    [[0]],
    [[1e15, -1e15]],
    [[Number.MIN_VALUE]],
    [Array.from({ length: 40 }, (_, n) => n * 1_234.5)],
  ])("draws %j", (values) => {
    expect(decoded(drawBars(values))).toMatchObject({ width: 640, height: 360 });
  });

  it("gives back the Markdown of what it has saved, the same for the same values", async () => {
    const stored: { bytes?: Uint8Array } = {};
    const outcome = await call({ values: [3, 5, 2] }, stored);
    expect(stored.bytes).toEqual(drawBars([3, 5, 2]));
    expect(outcome).toEqual({ ok: true, result: `![Bar chart of 3, 5, 2](blob:${id})` });
    expect(await call({ values: [1], title: "Sales" })).toMatchObject({
      result: expect.stringMatching(/^!\[Sales\]\(/),
    });
  });

  it.each([
    { values: [] },
    { values: Array(41).fill(1) },
    { values: ["3"] },
    { values: [1e16] },
    { values: [1], width: 1e9 },
  ])("refuses %j", async (input) => {
    expect(await call(input)).toMatchObject({
      ok: false,
      error: expect.stringContaining("invalid arguments"),
    });
  });
});
