import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { BudgetStore, SpendingAccount } from "./budget-store.ts";

/** A store under test with storage of its own. */
export interface BudgetStoreHarness {
  store: BudgetStore;
  /** The same store as another process sees it. */
  elsewhere: BudgetStore;
  close(): Promise<void>;
}

const soon = Date.now() + 3_600_000;

function account(per: string, id: string, bucket = "2026-11-22"): SpendingAccount {
  return { per, id, bucket, endsAtMs: soon };
}

const ann = account("person", "ou_ann");
const bob = account("person", "ou_bob");
const chat = account("chat", "oc_1");
const all = account("deployment", "all", "2026-11");

function charge(tokens: number, usd = 0, id: string = randomUUID()) {
  return { id, tokens, usd };
}

/** What every BudgetStore promises. Call it at the top level of a test file. */
export function describeBudgetStore(
  name: string,
  makeHarness: () => Promise<BudgetStoreHarness>,
): void {
  describe(`${name}: budget store`, () => {
    let harness: BudgetStoreHarness;
    let store: BudgetStore;
    let elsewhere: BudgetStore;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ store, elsewhere } = harness);
    });
    afterEach(() => harness.close());

    it("nothing is spent in the beginning", async () => {
      expect(await store.spent([ann, all])).toEqual([
        { tokens: 0, usd: 0 },
        { tokens: 0, usd: 0 },
      ]);
      expect(await store.spent([])).toEqual([]);
    });

    it("a charge counts for each of its accounts, and its answer says what was spent by then", async () => {
      expect(await store.charge([ann, chat, all], charge(100, 0.25))).toEqual(
        Array.from({ length: 3 }, () => ({ tokens: 100, usd: 0.25 })),
      );
      expect(await elsewhere.charge([bob, all], charge(7, 1))).toEqual([
        { tokens: 7, usd: 1 },
        { tokens: 107, usd: 1.25 },
      ]);
      expect(await store.spent([bob, ann, chat])).toEqual([
        { tokens: 7, usd: 1 },
        { tokens: 100, usd: 0.25 },
        { tokens: 100, usd: 0.25 },
      ]);
    });

    it("a charge that is repeated, from wherever, counts once", async () => {
      const once = charge(10, 0.5);
      await store.charge([ann, all], once);
      expect(await store.charge([ann, all], once)).toEqual(
        await elsewhere.charge([ann, all], once),
      );
      expect(await store.spent([ann])).toEqual([{ tokens: 10, usd: 0.5 }]);
      await store.charge([ann], charge(10, 0.5));
      expect(await store.spent([ann])).toEqual([{ tokens: 20, usd: 1 }]);
    });

    it("charges of many processes at once add up to the billionth", async () => {
      const charges = Array.from({ length: 100 }, (_, index) => charge(index, 0.000_000_1));
      await Promise.all(
        charges.map(async (each, index) =>
          (index % 2 === 0 ? store : elsewhere).charge([ann], each),
        ),
      );
      expect(await store.spent([ann])).toEqual([{ tokens: 4_950, usd: 0.000_01 }]);
    });

    it("keeps kinds, ids and periods apart, whatever the ids are", async () => {
      const odd = [
        account("person", "a:b"),
        account("person", "a"),
        account("chat", "a"),
        account("person", "中 {x}"),
      ];
      for (const [index, each] of odd.entries()) await store.charge([each], charge(index + 1));
      await store.charge([{ ...ann, bucket: "2026-11-23" }], charge(50));
      expect((await store.spent(odd)).map(({ tokens }) => tokens)).toEqual([1, 2, 3, 4]);
      expect(await store.spent([ann])).toEqual([{ tokens: 0, usd: 0 }]);
    });

    it("a new period begins with nothing", async () => {
      await store.charge([ann], charge(100, 1));
      const [spent] = await store.charge([{ ...ann, bucket: "2026-11-23" }], charge(5));
      expect(spent).toEqual({ tokens: 5, usd: 0 });
    });

    it("names the biggest spenders of a period by tokens or money", async () => {
      await store.charge([ann], charge(100, 0.1));
      await store.charge([bob], charge(50, 0.9));
      await store.charge([account("person", "ou_cai")], charge(0, 0.2));
      await store.charge([chat], charge(9_999, 9));
      expect(await elsewhere.biggest(ann, "tokens", 10)).toEqual([
        { id: "ou_ann", tokens: 100, usd: 0.1 },
        { id: "ou_bob", tokens: 50, usd: 0.9 },
      ]);
      expect((await store.biggest(ann, "usd", 2)).map(({ id }) => id)).toEqual([
        "ou_bob",
        "ou_cai",
      ]);
      expect(await store.biggest({ per: "person", bucket: "2026-11-23" }, "usd", 2)).toEqual([]);
    });

    it("one process tells a spender about an account in its period", async () => {
      const tries = await Promise.all([
        store.warnOnce(ann),
        elsewhere.warnOnce(ann),
        store.warnOnce(ann),
      ]);
      expect(tries.filter(Boolean)).toHaveLength(1);
      expect(await store.warnOnce(bob)).toBe(true);
      expect(await store.warnOnce({ ...ann, per: "chat" })).toBe(true);
      expect(await elsewhere.warnOnce({ ...ann, bucket: "2026-11-23" })).toBe(true);
    });

    it("what belongs to a period that is long over is not kept", async () => {
      const over = { ...ann, bucket: "2020-01-01", endsAtMs: Date.now() - 2 * 86_400_000 };
      await store.charge([over], charge(100));
      expect(await store.spent([over])).toEqual([{ tokens: 0, usd: 0 }]);
    });
  });
}
