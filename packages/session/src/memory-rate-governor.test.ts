import { array, assert, asyncProperty, boolean, constant, constantFrom, double, oneof, record } from "fast-check";
import { describe, expect, it } from "vitest";
import { createMemoryRateGovernor } from "./memory-rate-governor.ts";
import { describeRateGovernor } from "./rate-governor.suite.ts";
import type { RateBucket } from "./rate-governor.ts";

describeRateGovernor("memory", async () => {
  let nowMs = 1_700_000_000_000;
  const governor = createMemoryRateGovernor({ now: () => nowMs });
  return {
    governor,
    elsewhere: governor,
    now: () => nowMs,
    async advance(ms) {
      nowMs += ms;
    },
    async close() {},
  };
});

/** The most arrivals in any window of that length, wherever it begins. */
function fullestWindow(arrivals: readonly number[], windowMs: number): number {
  const sorted = arrivals.toSorted((a, b) => a - b);
  let first = 0;
  let fullest = 0;
  for (const [index, at] of sorted.entries()) {
    while (at - (sorted[first] ?? 0) >= windowMs) first += 1;
    fullest = Math.max(fullest, index - first + 1);
  }
  return fullest;
}

interface Limit {
  limit: number;
  windowMs: number;
  jitterMs: number;
}

/** When granted calls arrive: asked for at these steps, each on its way for up to `jitterMs`. */
async function arrivalsOf(
  { limit, windowMs, jitterMs }: Limit,
  asks: readonly { afterMs: number; delay: number; frame: boolean }[],
): Promise<number[]> {
  let nowMs = 1_700_000_000_000;
  const governor = createMemoryRateGovernor({ now: () => nowMs });
  const bucket: RateBucket = { key: "app:x", ...(windowMs === 1_000 ? { perSecond: limit } : { perMinute: limit }) };
  const arrivals: number[] = [];
  for (const { afterMs, delay, frame } of asks) {
    nowMs += afterMs;
    const grant = await governor.take([bucket], frame ? "frame" : "final");
    if (grant.granted) arrivals.push(nowMs + delay * jitterMs);
  }
  return arrivals;
}

describe("any window of the platform", () => {
  // The table of rate-pace.ts.
  it.each([
    { limit: 1, windowMs: 1_000, jitterMs: 420 },
    { limit: 5, windowMs: 1_000, jitterMs: 560 },
    { limit: 10, windowMs: 1_000, jitterMs: 320 },
    { limit: 50, windowMs: 1_000, jitterMs: 200 },
    { limit: 1_000, windowMs: 60_000, jitterMs: 3_200 },
  ])("holds at most $limit in $windowMs ms, though calls are on their way for up to $jitterMs ms", async (limit) => {
    const step = limit.windowMs / limit.limit;
    const ask = record({
      afterMs: oneof(constant(0), double({ min: 0, max: step * 3, noNaN: true })),
      delay: oneof(constantFrom(0, 1), double({ min: 0, max: 1, noNaN: true })),
      frame: boolean(),
    });
    const length = Math.min(2_500, limit.limit * 6);
    await assert(
      asyncProperty(array(ask, { minLength: length, maxLength: length, size: "max" }), async (asks) => {
        expect(fullestWindow(await arrivalsOf(limit, asks), limit.windowMs)).toBeLessThanOrEqual(limit.limit);
      }),
      { numRuns: limit.limit > 100 ? 10 : 100 },
    );
  });

  it("holds at most the limit when the calls before it are late and those in it are not", async () => {
    const limit = { limit: 50, windowMs: 1_000, jitterMs: 200 };
    const asks = Array.from({ length: 3_000 }, (_, index) => ({
      afterMs: 1,
      delay: index < 200 ? 1 : 0,
      frame: false,
    }));
    const arrivals = await arrivalsOf(limit, asks);
    expect(fullestWindow(arrivals, 1_000)).toBeLessThanOrEqual(50);
    expect(arrivals.length).toBeGreaterThan(3 * 35);
  });
});
