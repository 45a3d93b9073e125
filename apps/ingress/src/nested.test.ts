import { describe, expect, it } from "vitest";
import { parseNested } from "./nested.ts";

describe("the position in a run and its helpers", () => {
  it("AT-3: is read back, also that of a view of the root alone", () => {
    expect(parseNested("12.1~0-5~0_1_15-7.2")).toEqual({
      root: { seq: 12, part: 1 },
      below: new Map([
        ["0", { seq: 5 }],
        ["0_1_15", { seq: 7, part: 2 }],
      ]),
    });
    expect(parseNested("12")).toEqual({ root: { seq: 12 }, below: new Map() });
  });

  it("is refused when it is malformed, deeper than helpers work, or longer than any that is sent", () => {
    const branches = (count: number) => ["1", ...Array.from({ length: count }, (_, at) => `${at}-1`)].join("~");
    expect(parseNested(branches(99))?.below.size).toBe(99);
    const wrong = ["", "~0-1", "1~", "1~0", "1~0-x", "1~0_1_2_3-1", "1~a-1", "x~0-1", branches(100), branches(90_000)];
    expect(wrong.filter((text) => parseNested(text) !== undefined)).toEqual([]);
  });
});
