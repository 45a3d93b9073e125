import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { runOf } from "./testing.ts";
import {
  countIn,
  quantileOf,
  timesBy,
  usageBy,
  UsageCounter,
  type UsageStore,
} from "./usage-store.ts";

export interface UsageStoreHarness {
  /** Days of this store begin in Shanghai. */
  store: UsageStore;
  /** The same counts as another process sees them. */
  elsewhere: UsageStore;
  now(): number;
  /** Resolves when so much time has passed. */
  advance(ms: number): Promise<void>;
  close(): Promise<void>;
}

const timeZone = "Asia/Shanghai";
const hourMs = 3_600_000;

/** What every UsageStore promises. Call it at the top level of a test file. */
export function describeUsageStore(
  name: string,
  makeHarness: () => Promise<UsageStoreHarness>,
): void {
  describe(`${name}: what runs have used`, () => {
    let harness: UsageStoreHarness;
    let store: UsageStore;
    let elsewhere: UsageStore;
    let batches = 0;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ store, elsewhere } = harness);
      // To the first seconds of an hour, which all of a test happens in.
      await harness.advance(hourMs - (harness.now() % hourMs) + 1_000);
    });
    afterEach(async () => await harness.close());

    async function count(countAll: (counter: UsageCounter) => void, to = store): Promise<void> {
      const counter = new UsageCounter(timeZone);
      countAll(counter);
      await to.add(`batch-${(batches += 1)}`, counter.take());
    }

    /** An hour as it was recorded: 60 runs, one a minute. */
    function recordedHour(counter: UsageCounter): void {
      const beganMs = harness.now() - (harness.now() % hourMs) - hourMs;
      for (let minute = 0; minute < 60; minute += 1) {
        counter.countRun(
          runOf({
            endedAtMs: beganMs + minute * 60_000 + 500,
            person: minute % 3 === 0 ? "ou_ann" : "ou_bob",
            agent: minute % 2 === 0 ? "default" : "expert",
            model: minute < 45 ? "a/small" : "b/large",
            outcome: minute % 10 === 9 ? "api_overloaded" : minute === 5 ? "cancelled" : "answered",
            queuedMs: 20,
            firstMs: minute < 45 ? 1_000 : 8_000,
            ms: minute < 57 ? 4_000 : 60_000,
            input: 100,
            output: 50,
            usd: 0.001,
            ...(minute % 4 === 0
              ? { tools: { search: 2, ...(minute % 8 === 0 ? { page: 1 } : {}) } }
              : {}),
            ...(minute === 0 ? { failedTools: { search: 1 } } : {}),
          }),
        );
      }
      counter.countWait(250, beganMs);
    }

    it("gives known buckets for a recorded hour", async () => {
      await count(recordedHour);
      const [last, now] = await elsewhere.newest("hour", 2);
      const hour = last === undefined ? [] : [last];
      expect(now?.counts.size).toBe(0);
      expect(last?.startMs).toBe(harness.now() - (harness.now() % hourMs) - hourMs);
      const figures = [
        "answered",
        "stopped",
        "failed",
        "code|api_overloaded",
        "tokens",
        "limiter-ms",
      ];
      expect(figures.map((figure) => countIn(hour, figure))).toEqual([53, 1, 6, 6, 9_000, 250]);
      expect(usageBy(hour, "model")).toEqual([
        { name: "a/small", runs: 45, failed: 4, tokens: 6_750, usd: expect.closeTo(0.045, 6) },
        { name: "b/large", runs: 15, failed: 2, tokens: 2_250, usd: expect.closeTo(0.015, 6) },
      ]);
      expect(
        usageBy(hour, "agent").map(({ name: agent, runs, failed }) => [agent, runs, failed]),
      ).toEqual([
        ["default", 30, 0],
        ["expert", 30, 6],
      ]);
      // All that the runs have used that called it: 15 of them, and 8 of these called both.
      expect(usageBy(hour, "tool")).toEqual([
        { name: "search", runs: 30, failed: 1, tokens: 2_250, usd: expect.closeTo(0.015, 6) },
        { name: "page", runs: 8, failed: 0, tokens: 1_200, usd: expect.closeTo(0.008, 6) },
      ]);
      expect(usageBy(await elsewhere.people("hour", 2, 10), "person")).toEqual([
        { name: "ou_bob", runs: 40, failed: 0, tokens: 6_000, usd: expect.closeTo(0.04, 6) },
        { name: "ou_ann", runs: 20, failed: 0, tokens: 3_000, usd: expect.closeTo(0.02, 6) },
      ]);
      const quantiles = [
        quantileOf(hour, "total", 0.5),
        quantileOf(hour, "total", 0.99),
        quantileOf(hour, "first", 0.95),
        quantileOf(hour, "queued", 0.5),
        quantileOf(hour, "limiter", 0.5),
      ];
      const [usual = 0, longest = 0, first = 0, queued = 0, limiter = 0] = quantiles;
      // Bins are a fifth wide.
      for (const [found, real] of [
        [usual, 4_000],
        [longest, 60_000],
        [first, 8_000],
        [queued, 20],
        [limiter, 250],
      ] as const) {
        expect(Math.abs(found - real) / real).toBeLessThan(0.2);
      }
      const ofModels = ["a/small", "b/large"].map((model) => timesBy(hour, "model").get(model));
      const slow = timesBy(hour, "agent").get("expert");
      for (const [found, real] of [
        [ofModels[0]?.first(0.95), 1_000],
        [ofModels[0]?.total(0.95), 4_000],
        [ofModels[1]?.first(0.5), 8_000],
        [ofModels[1]?.total(0.5), 4_000],
        [ofModels[1]?.total(0.95), 60_000],
        [slow?.first(0.5), 1_000],
        [slow?.first(0.95), 8_000],
      ] as const) {
        expect(Math.abs((found ?? 0) - real) / real).toBeLessThan(0.2);
      }
      const minutes = await elsewhere.newest("minute", 61);
      expect(
        minutes.map(
          (minute) =>
            countIn([minute], "answered") +
            countIn([minute], "stopped") +
            countIn([minute], "failed"),
        ),
      ).toEqual([...Array.from({ length: 60 }, () => 1), 0]);
    });

    it("adds up what several processes count, and a batch that is handed in twice once", async () => {
      const counter = new UsageCounter(timeZone);
      counter.countRun(runOf({ endedAtMs: harness.now() }));
      const deltas = counter.take();
      await store.add("same", deltas);
      await elsewhere.add("same", deltas);
      await count((other) => other.countRun(runOf({ endedAtMs: harness.now() })), elsewhere);
      for (const size of ["minute", "hour", "day"] as const) {
        expect(countIn(await store.newest(size, 1), "answered")).toBe(2);
      }
      expect(counter.take()).toEqual([]);
    });

    it("begins days where the deployment is", async () => {
      const [day] = await store.newest("day", 1);
      expect(new Date(day?.startMs ?? 0).toISOString()).toMatch(/T16:00:00.000Z$/);
      expect(harness.now() - (day?.startMs ?? 0)).toBeLessThan(24 * hourMs);
    });

    it("keeps minutes for two hours and hours for two days", async () => {
      await count((counter) => counter.countRun(runOf({ endedAtMs: harness.now() })));
      const kept = async () =>
        await Promise.all(
          (
            [
              ["minute", 240],
              ["hour", 72],
              ["day", 40],
            ] as const
          ).map(async ([size, number]) => countIn(await store.newest(size, number), "answered")),
        );
      expect(await kept()).toEqual([1, 1, 1]);
      await harness.advance(2 * hourMs + 61_000);
      expect(await kept()).toEqual([0, 1, 1]);
      await harness.advance(48 * hourMs);
      expect(await kept()).toEqual([0, 0, 1]);
      await harness.advance(32 * 24 * hourMs);
      expect(await kept()).toEqual([0, 0, 0]);
    });

    it("forgets a person in all buckets, and keeps the sums", async () => {
      await count(recordedHour);
      await count((counter) =>
        counter.countRun(runOf({ endedAtMs: harness.now(), person: "ou_ann" })),
      );
      await elsewhere.erase("ou_ann");
      for (const size of ["minute", "hour", "day"] as const) {
        const people = usageBy(await store.people(size, size === "minute" ? 61 : 2, 10), "person");
        expect(people.map(({ name: person }) => person)).toEqual(["ou_bob"]);
      }
      expect(countIn(await store.newest("hour", 2), "answered")).toBe(54);
    });

    it("is bounded: names that come after thousands of others are left out", async () => {
      await count((counter) => {
        for (let at = 0; at < 3_000; at += 1) {
          counter.countRun(
            runOf({
              endedAtMs: harness.now(),
              person: `ou_${at}`,
              usd: at / 1_000,
              tools: { [`tool-${at}`]: 1 },
            }),
          );
        }
      });
      await count((counter) =>
        counter.countRun(runOf({ endedAtMs: harness.now(), tools: { late: 1 }, usd: 9 })),
      );
      const hour = await store.newest("hour", 1);
      expect(usageBy(hour, "tool").some(({ name: tool }) => tool === "late")).toBe(false);
      expect(countIn(hour, "answered")).toBe(3_001);
      const people = usageBy(await store.people("hour", 1, 10_000), "person");
      expect(people.length).toBeLessThanOrEqual(6_000);
    });
  });
}
