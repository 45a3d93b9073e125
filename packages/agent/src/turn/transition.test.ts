import { describe, expect, it } from "vitest";
import { turnLimits } from "./transition.ts";

describe("turn limits", () => {
  it("AL-19: the default of maxIterations is 25", () => {
    expect(turnLimits().maxIterations).toBe(25);
    expect(turnLimits({ maxIterations: 3 }).maxIterations).toBe(3);
  });

  it.each([0, -1, 1.5, Number.NaN])(
    "AL-19: maxIterations %d is refused, naming option and value",
    (maxIterations) => {
      expect(() => turnLimits({ maxIterations })).toThrow(
        `maxIterations must be a whole number of at least 1, got ${maxIterations}`,
      );
    },
  );

  it("every other limit is checked too", () => {
    expect(() => turnLimits({ maxResultChars: 0 })).toThrow("maxResultChars");
  });
});
