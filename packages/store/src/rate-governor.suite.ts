import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  type RateBucket,
  type RateGovernor,
  type RateGrant,
  type RatePriority,
  rateWindowsOf,
} from "./platform.ts";

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

/** Refills so slowly that the pauses of a busy machine do not matter. */
const slow: RateBucket = { key: "app:slow", perMinute: 10 };
const fast: RateBucket = { key: "app:fast", perSecond: 50 };
const chat: RateBucket = { key: "app:chat", perSecond: 5 };

function waitOf(grant: RateGrant): number {
  return grant.granted ? 0 : grant.waitMs;
}

/** What every RateGovernor promises. Call it at the top level of a test file. */
export function describeRateGovernor(
  name: string,
  makeHarness: () => Promise<RateGovernorHarness>,
): void {
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
    async function granted(
      buckets: readonly RateBucket[],
      priority: RatePriority,
      asks: number,
    ): Promise<number> {
      const grants = await Promise.all(
        Array.from({ length: asks }, (_, i) =>
          (i % 2 === 0 ? governor : elsewhere).take(buckets, priority),
        ),
      );
      return grants.filter((grant) => grant.granted).length;
    }

    it("grants the limit to all processes together, then says who refused and for how long", async () => {
      expect(await granted([slow], "final", 20)).toBe(10);
      const refused = await governor.take([slow], "final");
      expect(refused).toMatchObject({ granted: false, key: slow.key });
      expect(waitOf(refused)).toBeGreaterThan(50_000);
      expect(waitOf(refused)).toBeLessThanOrEqual(Math.ceil(60_000 / 0.95));
    });

    it("counts requests of each over all processes, all of a minute at once, and lets more pass at their pace", async () => {
      const take = async (of: RateGovernor, who = "ann") => await of.takeRequest("api", who, 30);
      const first = await Promise.all(
        Array.from(
          { length: 40 },
          async (_, at) => await take(at % 2 === 0 ? governor : elsewhere),
        ),
      );
      expect(first.filter((waitMs) => waitMs === 0)).toHaveLength(30);
      const waitMs = Math.max(...first);
      expect(waitMs).toBeGreaterThan(0);
      expect(waitMs).toBeLessThanOrEqual(2_000);
      expect(await take(elsewhere, "bob")).toBe(0);
      await harness.advance(waitMs);
      expect(await take(governor)).toBe(0);
      // The same of an hour: two at once, then one each half hour.
      const inHour = async () => await elsewhere.takeRequest("api", "carl", 2, 3_600_000);
      expect([await inHour(), await inHour()]).toEqual([0, 0]);
      const nextMs = await inHour();
      expect(nextMs).toBeGreaterThan(1_700_000);
      expect(nextMs).toBeLessThanOrEqual(1_800_000);
    });

    it("shows how full buckets are, and takes nothing by it", async () => {
      const look = async () =>
        (await elsewhere.look([slow, fast])).map(({ left, most, pausedMs }) => [
          left,
          most,
          pausedMs,
        ]);
      expect(await look()).toEqual([
        [10, 10, 0],
        [50, 50, 0],
      ]);
      await governor.take([slow], "final");
      expect((await look())[0]).toEqual([9, 10, 0]);
      await granted([slow], "final", 20);
      await governor.pause(fast.key, 60_000);
      const [empty, paused] = await look();
      expect(empty?.[0]).toBe(0);
      expect(paused?.[0]).toBe(0);
      expect(paused?.[2]).toBeGreaterThan(30_000);
      expect(await governor.look([])).toEqual([]);
    });

    it("grants again after the wait it named", async () => {
      await granted([fast], "final", 60);
      const refused = await elsewhere.take([fast], "final");
      await harness.advance(waitOf(refused) + 1);
      expect(await governor.take([fast], "final")).toMatchObject({ granted: true });
    });

    it("lets no second hold more than the limit, and wastes no more than a twentieth of it", async () => {
      const { lengthMs = 0, spanMs = 0 } = rateWindowsOf(fast, "final").second ?? {};
      expect(lengthMs / spanMs).toBeCloseTo(0.95);
      // Each grant happened between two moments, and the clocks are read to the ms.
      const grants: { after: number; before: number }[] = [];
      let refusals = 0;
      const startedAt = harness.now();
      // Windows are full several times by then.
      while (harness.now() - startedAt < 3_000) {
        const after = harness.now() - 1;
        const took = await granted([fast], "final", 10);
        const before = harness.now() + 1;
        grants.push(...Array.from({ length: took }, () => ({ after, before })));
        if (took < 10) {
          refusals++;
          // A full window is why it refused.
          expect(
            grants.filter((grant) => grant.before >= after - spanMs).length,
          ).toBeGreaterThanOrEqual(50);
        }
        await harness.advance(5);
      }
      for (const [index, { after }] of grants.entries()) {
        const fiftyFirst = grants[index + 50];
        if (fiftyFirst !== undefined) {
          expect(fiftyFirst.before - after).toBeGreaterThanOrEqual(spanMs);
        }
      }
      expect(refusals).toBeGreaterThan(0);
      expect(grants.length).toBeGreaterThan(100);
    });

    it("keeps the place of a call that is under way, until its window is over", async () => {
      const buckets = [chat, { ...fast, key: "app:api" }];
      const tickets = await Promise.all(
        Array.from({ length: 5 }, async () => await governor.take(buckets, "final", 60_000)),
      );
      await harness.advance(1_300);
      const refused = await elsewhere.take([chat], "final");
      expect(refused).toMatchObject({ granted: false, key: chat.key });
      const [first] = tickets;
      if (first?.granted !== true) throw new Error("the first of five was refused");
      await elsewhere.ended(first.ticket, buckets, 60_000);
      expect(await governor.take([chat], "final")).toMatchObject({ granted: false });
      await harness.advance(1_001);
      expect(await granted([chat], "final", 3)).toBe(1);
    });

    it("uses as much of a limit as the bucket says", async () => {
      const shared = { ...chat, share: 0.8 };
      await granted([shared], "final", 5);
      const refused = await governor.take([shared], "final");
      expect(waitOf(refused)).toBeGreaterThan(1_053);
      expect(waitOf(refused)).toBeLessThanOrEqual(1_250);
    });

    it("keeps a lower limit that the platform has named", async () => {
      await governor.pause(slow.key, 1, { perMinute: 4 });
      await harness.advance(5);
      expect(await granted([slow], "final", 20)).toBe(4);
      expect((await elsewhere.look([slow]))[0]).toMatchObject({ left: 0, most: 4 });
      await governor.pause(fast.key, 1, { perSecond: 500 });
      await harness.advance(5);
      expect(await granted([fast], "final", 60)).toBe(50);
    });

    it("spaces frames once half of a minute is taken, and leaves the rest to what a person waits for", async () => {
      const minute = { key: "app:cards", perMinute: 1_000 };
      expect(await granted([minute], "frame", 700)).toBeLessThan(510);
      expect(await granted([minute], "final", 100)).toBe(100);
    });

    it("keeps buckets and apps apart", async () => {
      await granted([slow], "final", 10);
      expect(await granted([{ ...slow, key: "app:other" }], "final", 10)).toBe(10);
      expect(await granted([{ ...slow, key: "app2:slow" }], "final", 10)).toBe(10);
    });

    it("leaves the last place to what a person waits for", async () => {
      expect(await granted([chat], "frame", 10)).toBe(4);
      expect(await governor.take([chat], "frame")).toMatchObject({ granted: false });
      expect(await elsewhere.take([chat], "final")).toMatchObject({ granted: true });
    });

    it("takes from all buckets or from none, and names the one that refused", async () => {
      const other = { ...slow, key: "app:other" };
      await granted([slow], "final", 10);
      expect(await governor.take([other, slow], "final")).toMatchObject({
        granted: false,
        key: slow.key,
      });
      expect(await elsewhere.take([slow, other], "final")).toMatchObject({
        granted: false,
        key: slow.key,
      });
      expect(await granted([other], "final", 10)).toBe(10);
    });

    it("keeps both limits of a bucket", async () => {
      const both = { key: "app:both", perSecond: 50, perMinute: 10 };
      expect(await granted([both], "final", 20)).toBe(10);
      expect(
        await granted([{ key: "app:both-2", perSecond: 5, perMinute: 1_000 }], "final", 20),
      ).toBe(5);
    });

    it("grants no process a call from a paused bucket, and pauses no other bucket", async () => {
      await governor.pause(fast.key, 60_000);
      for (const priority of ["final", "frame"] as const) {
        const refused = await elsewhere.take([slow, fast], priority);
        expect(refused).toMatchObject({ granted: false, key: fast.key });
        expect(waitOf(refused)).toBeGreaterThan(50_000);
      }
      expect(await governor.take([slow], "final")).toMatchObject({ granted: true });
    });

    it("ends a pause, and a short one does not cut a long one", async () => {
      await governor.pause(slow.key, 300);
      await elsewhere.pause(slow.key, 50);
      const refused = await governor.take([slow], "final");
      expect(waitOf(refused)).toBeGreaterThan(50);
      await harness.advance(waitOf(refused) + 1);
      expect(await elsewhere.take([slow], "final")).toMatchObject({ granted: true });
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
      await expect(governor.take([{ key: "chat", perSecond: 5 }], "final")).rejects.toThrow(
        RangeError,
      );
      await expect(governor.take([slow, { ...slow, key: "app2:slow" }], "final")).rejects.toThrow(
        RangeError,
      );
      await expect(governor.take([{ key: "app:x", perSecond: 0 }], "final")).rejects.toThrow(
        RangeError,
      );
      await expect(governor.pause("chat", 5)).rejects.toThrow(RangeError);
    });
  });
}
