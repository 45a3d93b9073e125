import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { TokenCache } from "./platform.ts";

/** A cache under test with storage of its own. */
export interface TokenCacheHarness {
  cache: TokenCache;
  /** The same cache as another process sees it. */
  elsewhere: TokenCache;
  /** A time to live that `expire` can wait for, ms. */
  ttlMs: number;
  /** Returns when values fetched for `ttlMs` have run out. */
  expire(): Promise<void>;
  close(): Promise<void>;
}

const longMs = 3_600_000;

/** A source of values `t1`, `t2`, ... that counts how many fetches ran, and how many at once. */
class TokenSource {
  fetched = 0;
  atOnce = 0;
  #running = 0;

  readonly fetch = (ttlMs = longMs) => {
    return async (): Promise<{ value: string; ttlMs: number }> => {
      this.#running += 1;
      this.atOnce = Math.max(this.atOnce, this.#running);
      // Long enough for the others to arrive: the fetch is a request over the network.
      await new Promise((resolve) => setTimeout(resolve, 20));
      this.#running -= 1;
      this.fetched += 1;
      return { value: `t${this.fetched}`, ttlMs };
    };
  };
}

/** What every TokenCache promises. Call it at the top level of a test file. */
export function describeTokenCache(
  name: string,
  makeHarness: () => Promise<TokenCacheHarness>,
): void {
  describe(`${name}: token cache`, () => {
    let harness: TokenCacheHarness;
    let cache: TokenCache;
    let elsewhere: TokenCache;
    let source: TokenSource;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ cache, elsewhere } = harness);
      source = new TokenSource();
    });
    afterEach(() => harness.close());

    it("tells how long a value is still good for, without fetching one", async () => {
      expect(await elsewhere.validity("app")).toBeUndefined();
      await cache.get("app", source.fetch());
      expect(await elsewhere.validity("app")).toBeGreaterThan(longMs / 2);
      expect(await elsewhere.validity("app")).toBeLessThanOrEqual(longMs);
      expect(await elsewhere.validity("other")).toBeUndefined();
      expect(source.fetched).toBe(1);
    });

    it("fetches a value once and shares it with every process", async () => {
      expect(await cache.get("app", source.fetch())).toBe("t1");
      expect(await cache.get("app", source.fetch())).toBe("t1");
      expect(await elsewhere.get("app", source.fetch())).toBe("t1");
    });

    it("callers at once, in any process, share one fetch", async () => {
      const values = await Promise.all(
        Array.from({ length: 20 }, (_, i) =>
          (i % 2 === 0 ? cache : elsewhere).get("app", source.fetch()),
        ),
      );
      expect(new Set(values)).toEqual(new Set(["t1"]));
      expect(source.fetched).toBe(1);
    });

    it("keeps keys apart", async () => {
      expect(await cache.get("app-1", source.fetch())).toBe("t1");
      expect(await cache.get("app-2", source.fetch())).toBe("t2");
      expect(await elsewhere.get("app-1", source.fetch())).toBe("t1");
    });

    it("fetches again when the value has run out", async () => {
      await cache.get("app", source.fetch(harness.ttlMs));
      await harness.expire();
      expect(await cache.get("app", source.fetch())).toBe("t2");
      expect(await elsewhere.get("app", source.fetch())).toBe("t2");
    });

    it("drops a value that was refused and fetches another", async () => {
      await cache.get("app", source.fetch());
      expect(await elsewhere.get("app", source.fetch(), "t1")).toBe("t2");
      expect(await elsewhere.get("app", source.fetch())).toBe("t2");
    });

    it("keeps a value newer than the one that was refused", async () => {
      await cache.get("app", source.fetch());
      await cache.get("app", source.fetch(), "t1");
      expect(await elsewhere.get("app", source.fetch(), "t1")).toBe("t2");
      expect(source.fetched).toBe(2);
    });

    it("callers that were refused the same value at once share one fetch", async () => {
      await cache.get("app", source.fetch());
      const values = await Promise.all(
        Array.from({ length: 10 }, (_, i) =>
          (i % 2 === 0 ? cache : elsewhere).get("app", source.fetch(), "t1"),
        ),
      );
      expect(new Set(values)).toEqual(new Set(["t2"]));
      expect(source.fetched).toBe(2);
    });

    it("returns a fetched value that equals the refused one instead of fetching again and again", async () => {
      let fetched = 0;
      const same = async (): Promise<{ value: string; ttlMs: number }> => {
        fetched += 1;
        return { value: "same", ttlMs: longMs };
      };
      await cache.get("app", same);
      expect(await cache.get("app", same, "same")).toBe("same");
      expect(fetched).toBe(2);
    });

    it("fails with the error of the fetch, and tries again the next time", async () => {
      const failing = async (): Promise<never> => {
        throw new Error("app_secret invalid");
      };
      await expect(cache.get("app", failing)).rejects.toThrow("app_secret invalid");
      expect(await elsewhere.get("app", source.fetch())).toBe("t1");
    });

    it("a fetch that throws at once does not block the key", async () => {
      const throwing = (): never => {
        throw new Error("no network");
      };
      await expect(cache.get("app", throwing)).rejects.toThrow("no network");
      expect(await cache.get("app", source.fetch())).toBe("t1");
    });

    it("never runs two fetches of a key at the same time", async () => {
      for (let round = 0; round < 3; round += 1) {
        const refused = `t${source.fetched}`;
        await Promise.all(
          [cache, elsewhere, cache].map((each) => each.get("app", source.fetch(), refused)),
        );
      }
      expect(source.atOnce).toBe(1);
    });
  });
}
