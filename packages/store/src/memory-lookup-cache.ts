import { maxLookupBytes, type LookupCache } from "./lookup-cache.ts";

/** Looked-up facts in the memory of this process; `now` is the clock, epoch ms. */
export function createMemoryLookupCache({ now = Date.now }: { now?: () => number } = {}): LookupCache {
  const entries = new Map<string, { value: string; untilMs: number }>();

  function read(key: string): string | undefined {
    const entry = entries.get(key);
    if (entry === undefined || entry.untilMs > now()) return entry?.value;
    entries.delete(key);
    return undefined;
  }

  return {
    get: async (key) => read(key),
    set: async (key, value, ttlMs) => {
      if (Buffer.byteLength(value) > maxLookupBytes) entries.delete(key);
      else entries.set(key, { value, untilMs: now() + ttlMs });
    },
    take: async (key) => {
      const value = read(key);
      entries.delete(key);
      return value;
    },
    delete: async (key) => {
      entries.delete(key);
    },
  };
}
