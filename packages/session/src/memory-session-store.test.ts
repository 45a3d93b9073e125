import { createMemorySessionStore } from "./memory-stores.ts";
import { describeSessionStore, type SessionStoreDemands, type SessionStoreHarness } from "./session-store.suite.ts";

async function makeHarness({ maxWaiting }: SessionStoreDemands): Promise<SessionStoreHarness> {
  let nowMs = 1_700_000_000_000;
  const dedupTtlMs = 24 * 60 * 60 * 1_000;
  return {
    ...createMemorySessionStore({
      now: () => nowMs,
      limits: { ...(maxWaiting !== undefined && { maxWaiting }) },
      dedupTtlMs,
    }),
    leaseMs: 30_000,
    dedupTtlMs,
    now: () => nowMs,
    async advance(ms) {
      nowMs += ms;
    },
    async close() {},
  };
}

describeSessionStore("memory", makeHarness, 300);
