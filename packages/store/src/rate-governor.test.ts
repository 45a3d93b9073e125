import { randomUUID } from "node:crypto";
import {
  array,
  assert,
  asyncProperty,
  boolean,
  constant,
  constantFrom,
  double,
  oneof,
  record,
} from "fast-check";
import { describe, expect, it } from "vitest";
import { type RateBucket, RateGovernor } from "./platform.ts";
import { stopScriptClock } from "./lua.ts";
import { openTestStores } from "./testing.ts";

it("every key of the governor expires by itself", async () => {
  const { redis, namespace, governor } = openTestStores();
  await governor.take([{ key: "app:chat:1", perSecond: 5 }], "final");
  await governor.take([{ key: "app:api:1", perSecond: 50, perMinute: 1_000 }], "frame");
  await governor.take([{ key: "app:unlimited" }], "frame");
  await governor.pause("app:chat:1", 30_000);
  await governor.take([{ key: "app:chat:1", perSecond: 5 }], "final");
  await governor.pause("app:chat:2", 30_000, { perSecond: 2 });
  await governor.countCall("app", "2026-11");
  await governor.takeRequest("api", "ann", 2);
  const keys = await redis.keys(`{${namespace}:*`);
  expect(keys.length).toBeGreaterThanOrEqual(3);
  // `PTTL` returns -1 for a key without expiry, -2 for a key that has expired already.
  for (const key of keys) expect(await redis.pttl(key)).not.toBe(-1);
  expect(await redis.pttl(`{${namespace}:rate:app}:bucket:chat:1`)).toBeGreaterThan(20_000);
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
}

interface Ask {
  afterMs: number;
  /** How long the call takes, and after which part of that it arrives. */
  callMs: number;
  arrives: number;
  frame: boolean;
  /** Its process dies before it can say that the call has ended. */
  dies: boolean;
}

const flightMs = 15_000;
const stores = openTestStores();

/** When granted calls arrive: some time between their grant and their end. */
async function arrivalsOf({ limit, windowMs }: Limit, asks: readonly Ask[]): Promise<number[]> {
  const { redis } = stores;
  const governor = new RateGovernor({ redis, namespace: `test-${randomUUID()}` });
  const bucket: RateBucket = {
    key: "app:x",
    ...(windowMs === 1_000 ? { perSecond: limit } : { perMinute: limit }),
  };
  let nowMs = Date.now();
  const at = async <T>(atMs: number, work: () => Promise<T>): Promise<T> => {
    stopScriptClock(redis, atMs);
    return await work();
  };
  const arrivals: number[] = [];
  let underWay: { endMs: number; ticket: string }[] = [];
  for (const { afterMs, callMs, arrives, frame, dies } of asks) {
    const nextMs = nowMs + afterMs;
    const over = underWay
      .filter(({ endMs }) => endMs <= nextMs)
      .toSorted((a, b) => a.endMs - b.endMs);
    for (const { endMs, ticket } of over) {
      await at(endMs, async () => await governor.ended(ticket, [bucket], flightMs));
    }
    underWay = underWay.filter(({ endMs }) => endMs > nextMs);
    nowMs = nextMs;
    const grant = await at(
      nowMs,
      async () => await governor.take([bucket], frame ? "frame" : "final", flightMs),
    );
    if (!grant.granted) continue;
    arrivals.push(nowMs + callMs * arrives);
    if (!dies) underWay.push({ endMs: nowMs + callMs, ticket: grant.ticket });
  }
  return arrivals;
}

describe("any window of the platform", () => {
  it.each([
    { limit: 1, windowMs: 1_000 },
    { limit: 5, windowMs: 1_000 },
    { limit: 10, windowMs: 1_000 },
    { limit: 50, windowMs: 1_000 },
    { limit: 1_000, windowMs: 60_000 },
  ])("holds at most $limit in $windowMs ms, however long calls are on their way", async (limit) => {
    const step = limit.windowMs / limit.limit;
    const ask = record({
      afterMs: oneof(constant(0), double({ min: 0, max: step * 3, noNaN: true })),
      callMs: oneof(
        constant(5),
        double({ min: 0, max: 3_000, noNaN: true }),
        constantFrom(0, flightMs),
      ),
      arrives: oneof(constantFrom(0, 1), double({ min: 0, max: 1, noNaN: true })),
      frame: boolean(),
      dies: oneof(constant(false), constant(false), boolean()),
    });
    const length = Math.min(2_500, limit.limit * 6);
    await assert(
      asyncProperty(
        array(ask, { minLength: length, maxLength: length, size: "max" }),
        async (asks) => {
          const arrivals = await arrivalsOf(limit, asks);
          expect(fullestWindow(arrivals, limit.windowMs)).toBeLessThanOrEqual(limit.limit);
        },
      ),
      { numRuns: limit.limit > 100 ? 1 : 10 },
    );
  });

  it.each([
    { limit: 50, windowMs: 1_000, stepMs: 2 },
    { limit: 1_000, windowMs: 60_000, stepMs: 20 },
  ])(
    "is used to 90 % of $limit in $windowMs ms by those who ask all the time",
    async ({ stepMs, ...limit }) => {
      const windows = 3;
      const asks = Array.from({ length: (windows * limit.windowMs) / stepMs }, () => ({
        afterMs: stepMs,
        callMs: 30,
        arrives: 0.5,
        frame: false,
        dies: false,
      }));
      const arrivals = await arrivalsOf(limit, asks);
      expect(arrivals.length / windows / limit.limit).toBeGreaterThanOrEqual(0.9);
      expect(fullestWindow(arrivals, limit.windowMs)).toBeLessThanOrEqual(limit.limit);
    },
  );

  it("of a minute is never used up by frames, and they never stop for long", async () => {
    const asks = Array.from({ length: 6_000 }, () => ({
      afterMs: 20,
      callMs: 30,
      arrives: 0.5,
      frame: true,
      dies: false,
    }));
    const arrivals = await arrivalsOf({ limit: 1_000, windowMs: 60_000 }, asks);
    const gaps = arrivals.slice(1).map((at, index) => at - (arrivals[index] ?? 0));
    expect(Math.max(...gaps)).toBeLessThan(250);
    expect(arrivals.length).toBeGreaterThan(2 * 900);
  });
});
