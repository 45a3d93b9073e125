import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { RateBucket, RateGovernor, RateGrant, RateLane } from "./rate-governor.ts";
import { ratePacesOf } from "./rate-pace.ts";

/** A governor under test with storage of its own. */
export interface RateGovernorHarness {
  governor: RateGovernor;
  /** The same governor as another process sees it. */
  elsewhere: RateGovernor;
  /** A clock in ms that runs at the pace of the governor's. */
  now(): number;
  /** Returns when that much time has passed for the governor. */
  advance(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** Refills so slowly that the pauses of a busy machine do not matter: a burst of 3, one more every 9 s. */
const slow: RateBucket = { key: "app:slow", perMinute: 10 };
const slowBurst = 3;
const fast: RateBucket = { key: "app:fast", perSecond: 50 };

function waitOf(grant: RateGrant): number {
  return grant.granted ? 0 : grant.waitMs;
}

/** What every RateGovernor promises. Call it at the top level of a test file. */
export function describeRateGovernor(name: string, makeHarness: () => Promise<RateGovernorHarness>): void {
  describe(`${name}: rate governor`, () => {
    let harness: RateGovernorHarness;
    let governor: RateGovernor;
    let elsewhere: RateGovernor;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ governor, elsewhere } = harness);
    });
    afterEach(() => harness.close());

    /** How many of `asks` takes at once were granted, by both processes in turn. */
    async function granted(buckets: readonly RateBucket[], lane: RateLane, asks: number): Promise<number> {
      const grants = await Promise.all(
        Array.from({ length: asks }, (_, i) => (i % 2 === 0 ? governor : elsewhere).take(buckets, lane)),
      );
      return grants.filter((grant) => grant.granted).length;
    }

    it("grants a burst to all processes together, then says who refused and for how long", async () => {
      expect(await granted([slow], "final", 10)).toBe(slowBurst);
      const refused = await governor.take([slow], "final");
      expect(refused).toMatchObject({ granted: false, key: slow.key });
      expect(waitOf(refused)).toBeGreaterThan(0);
      expect(waitOf(refused)).toBeLessThanOrEqual(Math.ceil(ratePacesOf(slow, "final").minute?.intervalMs ?? 0));
    });

    it("shows how full buckets are, and takes nothing by it", async () => {
      const look = async () =>
        (await elsewhere.look([slow, fast])).map(({ left, most, pausedMs }) => [left, most, pausedMs]);
      expect(await look()).toEqual([
        [slowBurst, slowBurst, 0],
        [8, 8, 0],
      ]);
      await governor.take([slow], "final");
      expect((await look())[0]).toEqual([slowBurst - 1, slowBurst, 0]);
      await granted([slow], "final", 5);
      await governor.pause(fast.key, 60_000);
      const [empty, paused] = await look();
      expect(empty?.[0]).toBe(0);
      expect(paused?.[0]).toBe(0);
      expect(paused?.[2]).toBeGreaterThan(30_000);
      expect(await governor.look([])).toEqual([]);
    });

    it("grants again after the wait it named", async () => {
      await granted([fast], "final", 30);
      const refused = await elsewhere.take([fast], "final");
      await harness.advance(waitOf(refused) + 1);
      expect(await governor.take([fast], "final")).toEqual({ granted: true });
    });

    it("grants no more over time than the pace allows, to whoever asks how often", async () => {
      const startedAt = harness.now();
      let total = 0;
      for (let round = 0; round < 40; round += 1) {
        total += await granted([fast], "final", 10);
        await harness.advance(10);
      }
      const { intervalMs = 1, toleranceMs = 0 } = ratePacesOf(fast, "final").second ?? {};
      const elapsedMs = harness.now() - startedAt;
      expect(total).toBeLessThanOrEqual(1 + Math.floor((toleranceMs + elapsedMs) / intervalMs));
      expect(total).toBeGreaterThan(8);
    });

    it("keeps buckets and apps apart", async () => {
      await granted([slow], "final", 10);
      expect(await granted([{ ...slow, key: "app:other" }], "final", 10)).toBe(slowBurst);
      expect(await granted([{ ...slow, key: "app2:slow" }], "final", 10)).toBe(slowBurst);
    });

    it("leaves the last part of a burst to what a person waits for", async () => {
      expect(await granted([slow], "frame", 10)).toBe(slowBurst - 1);
      expect(await governor.take([slow], "frame")).toMatchObject({ granted: false });
      expect(await elsewhere.take([slow], "final")).toEqual({ granted: true });
    });

    it("takes from all buckets or from none, and names the one that refused", async () => {
      const other = { ...slow, key: "app:other" };
      await granted([slow], "final", 10);
      expect(await governor.take([other, slow], "final")).toMatchObject({ granted: false, key: slow.key });
      expect(await elsewhere.take([slow, other], "final")).toMatchObject({ granted: false, key: slow.key });
      expect(await granted([other], "final", 10)).toBe(slowBurst);
    });

    it("keeps both limits of a bucket", async () => {
      const both = { key: "app:both", perSecond: 50, perMinute: 10 };
      expect(await granted([both], "final", 20)).toBe(slowBurst);
      expect(await granted([{ key: "app:both-2", perSecond: 5, perMinute: 1_000 }], "final", 4)).toBe(2);
    });

    it("grants nothing from a paused bucket, to no lane and no process, and pauses no other", async () => {
      await governor.pause(fast.key, 60_000);
      for (const lane of ["final", "frame"] as const) {
        const refused = await elsewhere.take([slow, fast], lane);
        expect(refused).toMatchObject({ granted: false, key: fast.key });
        expect(waitOf(refused)).toBeGreaterThan(50_000);
      }
      expect(await governor.take([slow], "final")).toEqual({ granted: true });
    });

    it("ends a pause, and a short one does not cut a long one", async () => {
      await governor.pause(slow.key, 300);
      await elsewhere.pause(slow.key, 50);
      const refused = await governor.take([slow], "final");
      expect(waitOf(refused)).toBeGreaterThan(50);
      await harness.advance(waitOf(refused) + 1);
      expect(await elsewhere.take([slow], "final")).toEqual({ granted: true });
    });

    it("remembers what was taken before a pause", async () => {
      await granted([slow], "final", 10);
      await governor.pause(slow.key, 20);
      await harness.advance(40);
      expect(await governor.take([slow], "final")).toMatchObject({ granted: false });
    });

    it("counts the calls of a month for each app", async () => {
      expect(await governor.callsOf("app", "2026-11")).toBe(0);
      expect(await governor.countCall("app", "2026-11")).toBe(1);
      expect(await elsewhere.countCall("app", "2026-11")).toBe(2);
      expect(await governor.countCall("app", "2026-12")).toBe(1);
      expect(await governor.countCall("app2", "2026-11")).toBe(1);
      expect(await elsewhere.callsOf("app", "2026-11")).toBe(2);
    });

    it("refuses keys without an app, buckets of two apps and limits below one", async () => {
      await expect(governor.take([{ key: "chat", perSecond: 5 }], "final")).rejects.toThrow(RangeError);
      await expect(governor.take([slow, { ...slow, key: "app2:slow" }], "final")).rejects.toThrow(RangeError);
      await expect(governor.take([{ key: "app:x", perSecond: 0 }], "final")).rejects.toThrow(RangeError);
      await expect(governor.pause("chat", 5)).rejects.toThrow(RangeError);
    });
  });
}
