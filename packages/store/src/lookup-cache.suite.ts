import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { forgetKeptResponses, isKeptFor, noteKeptResponse } from "./kept-response.ts";
import type { LookupCache } from "./platform.ts";

/** A cache under test with storage of its own. */
export interface LookupCacheHarness {
  cache: LookupCache;
  /** The same cache as another process sees it. */
  elsewhere: LookupCache;
  /** That of another app. */
  ofIngress: LookupCache;
  /** A time to live that `expire` can wait for, ms. */
  ttlMs: number;
  /** Returns when values set for `ttlMs` have run out. */
  expire(): Promise<void>;
  close(): Promise<void>;
}

const longMs = 3_600_000;

/** What every LookupCache promises. Call it at the top level of a test file. */
export function describeLookupCache(
  name: string,
  makeHarness: () => Promise<LookupCacheHarness>,
): void {
  describe(`${name}: lookup cache`, () => {
    let harness: LookupCacheHarness;
    let cache: LookupCache;
    let elsewhere: LookupCache;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ cache, elsewhere } = harness);
    });
    afterEach(() => harness.close());

    it("shares a value with every process", async () => {
      expect(await elsewhere.get("name:ou_1")).toBeUndefined();
      await cache.set("name:ou_1", "陈 😀", longMs);
      expect(await elsewhere.get("name:ou_1")).toBe("陈 😀");
      await elsewhere.set("name:ou_1", "", longMs);
      expect(await cache.get("name:ou_1")).toBe("");
    });

    it("believes nothing that another app has looked up, but for what one hands to the other", async () => {
      const { ofIngress } = harness;
      for (const key of ["groups:ou_1", `groups:${"k".repeat(150)}`]) {
        await ofIngress.set(key, "boss", longMs);
        expect(await cache.get(key)).toBeUndefined();
        await cache.set(key, "clerk", longMs);
        expect(await ofIngress.get(key)).toBe("boss");
      }
      await ofIngress.set("reaction:om_1", "r", longMs);
      expect(await cache.take("reaction:om_1")).toBe("r");
    });

    it("keeps keys apart, short and long ones, of any text", async () => {
      const long = "k".repeat(199);
      const keys = [
        "a",
        "A",
        "a b",
        "a:b",
        "{a}",
        "{b}:a",
        "群",
        "a\u0000",
        `${long}1`,
        `${long}2`,
      ];
      for (const key of keys) await cache.set(key, `value of ${key}`, longMs);
      for (const key of keys) expect(await elsewhere.get(key)).toBe(`value of ${key}`);
    });

    it("forgets a value in time, and starts anew when it is set again", async () => {
      await cache.set("a", "1", harness.ttlMs);
      await cache.set("b", "1", harness.ttlMs);
      await cache.set("b", "2", longMs);
      await harness.expire();
      expect(await elsewhere.get("a")).toBeUndefined();
      expect(await elsewhere.take("a")).toBeUndefined();
      expect(await elsewhere.get("b")).toBe("2");
    });

    it("hands a value to one taker", async () => {
      await cache.set("reaction:om_1", "r1", longMs);
      const taken = await Promise.all(
        Array.from({ length: 10 }, (_, i) =>
          (i % 2 === 0 ? cache : elsewhere).take("reaction:om_1"),
        ),
      );
      expect(taken.filter((each) => each !== undefined)).toEqual(["r1"]);
      expect(await cache.get("reaction:om_1")).toBeUndefined();
      await cache.set("reaction:om_1", "r2", longMs);
      expect(await elsewhere.take("reaction:om_1")).toBe("r2");
    });

    it("forgets a value that was deleted", async () => {
      await cache.set("a", "1", longMs);
      await elsewhere.delete("a");
      await elsewhere.delete("a");
      expect(await cache.get("a")).toBeUndefined();
    });

    it("keeps 4 KB, and does not keep more, nor the value before", async () => {
      const longest = "好".repeat(1_365);
      await cache.set("a", longest, longMs);
      expect(await elsewhere.get("a")).toBe(longest);
      await cache.set("a", `${longest}好`, longMs);
      expect(await elsewhere.get("a")).toBeUndefined();
    });

    it("knows for whom a vendor keeps an answer, until its conversation is deleted or expires", async () => {
      const kept = {
        responseId: "resp_1",
        caller: "api:ann",
        session: "api.s",
        atMs: 1_000,
        conversationMs: longMs,
      };
      const askers = ["api:ann", "api:bob", ""];
      const known = async (responseId: string) =>
        await Promise.all(
          askers.map(async (caller) => await isKeptFor(elsewhere, responseId, caller)),
        );
      expect(await known("resp_1")).toEqual([false, false, false]);
      await noteKeptResponse(cache, kept);
      await noteKeptResponse(cache, { ...kept, responseId: "resp_2", session: "api.other" });
      await noteKeptResponse(cache, {
        ...kept,
        responseId: "resp_3",
        conversationMs: harness.ttlMs,
      });
      expect(await known("resp_1")).toEqual([true, false, false]);
      await forgetKeptResponses(elsewhere, "api.s", 2_000);
      expect(await known("resp_1")).toEqual([false, false, false]);
      expect(await known("resp_2")).toEqual([true, false, false]);
      await noteKeptResponse(cache, { ...kept, responseId: "resp_4", atMs: 100_000 });
      expect(await known("resp_4")).toEqual([true, false, false]);
      await harness.expire();
      expect(await known("resp_3")).toEqual([false, false, false]);
    });

    it("takes any time to live above 0", async () => {
      await cache.set("a", "1", 0.4);
      await harness.expire();
      expect(await elsewhere.get("a")).toBeUndefined();
      await cache.set("a", "2", longMs + 0.5);
      expect(await elsewhere.get("a")).toBe("2");
    });
  });
}
