import type { TokenCache, TokenValidity } from "./token-cache.ts";

type Fetch = Parameters<TokenCache["get"]>[1];

/** A token cache for one process. `now` is the clock, epoch ms. */
export function createMemoryTokenCache({ now = Date.now }: { now?: () => number } = {}): TokenCache & TokenValidity {
  const values = new Map<string, { value: string; untilMs: number }>();
  const running = new Map<string, Promise<string>>();

  async function fill(key: string, fetch: Fetch): Promise<string> {
    const { value, ttlMs } = await fetch();
    values.set(key, { value, untilMs: now() + ttlMs });
    return value;
  }

  return {
    async get(key, fetch, rejected) {
      const cached = values.get(key);
      if (cached && cached.untilMs > now() && cached.value !== rejected) return cached.value;
      const shared = running.get(key) ?? fill(key, fetch).finally(() => running.delete(key));
      running.set(key, shared);
      return shared;
    },
    async validity(name) {
      const leftMs = (values.get(name)?.untilMs ?? 0) - now();
      return leftMs > 0 ? leftMs : undefined;
    },
  };
}
