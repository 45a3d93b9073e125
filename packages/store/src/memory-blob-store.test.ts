import { describeBlobStore } from "./blob-store.suite.ts";
import { createMemoryBlobStore } from "./memory-blob-store.ts";

describeBlobStore("memory", async ({ ttlMs, maxBytes }) => {
  let nowMs = 1_700_000_000_000;
  const store = createMemoryBlobStore({ ttlMs, maxBytes, now: () => nowMs });
  return {
    store,
    elsewhere: store,
    async advance(ms) {
      nowMs += ms;
    },
    async close() {},
  };
});
