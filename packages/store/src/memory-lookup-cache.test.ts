import { describeLookupCache } from "./lookup-cache.suite.ts";
import { createMemoryLookupCache } from "./memory-lookup-cache.ts";

describeLookupCache("memory", async () => {
  let nowMs = 1_700_000_000_000;
  const cache = createMemoryLookupCache({ now: () => nowMs });
  return {
    cache,
    elsewhere: cache,
    ttlMs: 10_000,
    async expire() {
      nowMs += 10_000;
    },
    async close() {},
  };
});
