import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { RatingStore } from "./runs.ts";

export interface RatingStoreHarness {
  store: RatingStore;
  /** The same as another process sees it; both keep four ratings. */
  elsewhere: RatingStore;
  now(): number;
  advance(ms: number): Promise<void>;
  /** Names and values of all keys. */
  keys(): Promise<string>;
  close(): Promise<void>;
}

const dayMs = 86_400_000;
const ttlMs = 90 * dayMs;
const run = { turn: "cli_1.oc_1-7", agent: "default", model: "m/large", tools: ["search"] };
const ann = { ...run, app: "cli_1", person: "ou_ann" };

/** What every RatingStore promises. Call it at the top level of a test file. */
export function describeRatingStore(
  name: string,
  makeHarness: () => Promise<RatingStoreHarness>,
): void {
  describe(`${name}: ratings of answers`, () => {
    let harness: RatingStoreHarness;
    let store: RatingStore;
    let elsewhere: RatingStore;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ store, elsewhere } = harness);
    });
    afterEach(async () => await harness.close());

    async function all() {
      const found = [];
      for await (const rating of elsewhere.newest()) found.push(rating);
      return found;
    }

    it("knows for 14 days which run a message shows, and then no more", async () => {
      await store.keepReplies([{ sent: ["om_1", "om_2"], of: run }]);
      expect(await elsewhere.runOf("om_2")).toEqual(run);
      expect(await elsewhere.runOf("om_3")).toBeUndefined();
      await harness.advance(14 * dayMs);
      expect(await elsewhere.runOf("om_1")).toEqual(run);
      await harness.advance(2 * dayMs);
      expect(await elsewhere.runOf("om_1")).toBeUndefined();
    });

    it("keeps one rating of each person and run: the last counts, and a reason stays with it", async () => {
      expect(await store.rate(ann, { rating: "up" }, ttlMs)).toBe(true);
      expect(await elsewhere.rate(ann, { rating: "down" }, ttlMs)).toBe(true);
      expect(await store.rate(ann, { reason: "too long" }, ttlMs)).toBe(true);
      await store.rate({ ...ann, person: "ou_bob" }, { rating: "up" }, ttlMs);
      expect(await all()).toEqual([
        { ...ann, person: "ou_bob", rating: "up", atMs: expect.any(Number) },
        { ...ann, rating: "down", reason: "too long", atMs: expect.any(Number) },
      ]);
    });

    it("takes words in the order in which they were said, whatever order they come in", async () => {
      const saidMs = harness.now() - 10_000;
      expect(await store.rate(ann, { rating: "down", saidMs }, ttlMs)).toBe(true);
      expect(await store.rate(ann, { rating: "up", saidMs: saidMs - 1 }, ttlMs)).toBe(false);
      expect(await all()).toMatchObject([{ rating: "down" }]);
      // A reaction is taken away before word of it has come.
      const bob = { ...ann, person: "ou_bob" };
      expect(await store.rate(bob, { rating: "none", instead: "up", saidMs }, ttlMs)).toBe(true);
      expect(await store.rate(bob, { rating: "up", saidMs: saidMs - 1 }, ttlMs)).toBe(false);
      expect(await all()).toMatchObject([{ person: "ou_ann" }]);
    });

    it("takes back only the rating that is meant", async () => {
      await store.rate(ann, { rating: "down" }, ttlMs);
      expect(await store.rate(ann, { rating: "none", instead: "up" }, ttlMs)).toBe(false);
      expect(await all()).toMatchObject([{ rating: "down" }]);
      expect(await store.rate(ann, { rating: "none", instead: "down" }, ttlMs)).toBe(true);
      expect(await all()).toEqual([]);
    });

    it("keeps the newest, for as long as it is set to", async () => {
      for (let number = 1; number <= 6; number += 1) {
        await store.rate({ ...ann, turn: `cli_1.oc_1-${number}` }, { rating: "up" }, ttlMs);
        await harness.advance(10);
      }
      expect((await all()).map(({ turn }) => turn.at(-1))).toEqual(["6", "5", "4", "3"]);
      await harness.advance(ttlMs);
      expect(await all()).toEqual([]);
    });

    it("gives out and takes away what one person has said, and all about sessions that are given up", async () => {
      await store.keepReplies([
        { sent: ["om_1"], of: run },
        { sent: ["om_2"], of: { ...run, turn: "cli_1.oc_2-1" } },
      ]);
      await store.rate(ann, { rating: "up", reason: "because of ou_ann" }, ttlMs);
      await store.rate({ ...ann, person: "ou_bob" }, { rating: "up" }, ttlMs);
      await store.rate(
        { ...ann, person: "ou_bob", turn: "cli_1.oc_2-1" },
        { rating: "down" },
        ttlMs,
      );
      expect(await store.ofPerson("cli_1", "ou_ann")).toMatchObject([
        { reason: "because of ou_ann" },
      ]);
      expect(await store.ofPerson("cli_2", "ou_ann")).toEqual([]);
      expect(await store.erase("cli_1", "ou_ann", ["cli_1.oc_2"])).toBe(2);
      expect(await all()).toMatchObject([{ person: "ou_bob", turn: "cli_1.oc_1-7" }]);
      expect(await elsewhere.runOf("om_1")).toEqual(run);
      const left = await harness.keys();
      expect(left).not.toContain("ou_ann");
      expect(left).not.toContain("oc_2");
    });
  });
}
