import { createMemoryTokenCache } from "./memory-token-cache.ts";
import { describeTokenCache } from "./token-cache.suite.ts";

describeTokenCache("memory", async () => {
  let nowMs = 1_700_000_000_000;
  const cache = createMemoryTokenCache({ now: () => nowMs });
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
