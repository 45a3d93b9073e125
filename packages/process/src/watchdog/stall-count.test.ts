import { describe, expect, it } from "vitest";
import { lookEveryMs, StallCount } from "./stall-count.ts";

describe("an event loop that a thread watches", () => {
  it("has stood still for as long as the thread has looked and seen no beat", () => {
    const count = new StallCount();
    const seen = [0, 1, 2, 3].map((look) => count.look(7, 10_000 + look * lookEveryMs));
    expect(seen).toEqual([0, lookEveryMs, 2 * lookEveryMs, 3 * lookEveryMs]);
    expect(count.look(8, 12_500)).toBe(0);
    expect(count.look(8, 12_600)).toBe(100);
  });

  it("has not stood still while the thread did not run either", () => {
    const count = new StallCount();
    count.look(1, 0);
    expect(count.look(1, 3_600_000)).toBe(lookEveryMs);
    expect(count.look(2, 3_600_400)).toBe(0);
  });
});
