import { PlatformError } from "./platform-error.ts";

/** Fixed windows, as the gateway counts them. */
export interface RateLimiter {
  /** Gateway limits per API and app; beyond them HTTP 429 with 99991400 and the `x-ogw-ratelimit-*` headers. */
  checkApi(key: string, limits?: ApiLimits): void;
  /** Business limit of a user, chat or message; beyond it HTTP 400 with 230020. */
  checkBusiness(key: string, perSecond: number): void;
}

export interface ApiLimits {
  perSecond?: number;
  perMinute?: number;
}

interface Window {
  start: number;
  count: number;
}

/** The tier of most messaging calls: 50 a second and 1,000 a minute (rate limit guide, tier 4). */
const tier4: Required<ApiLimits> = { perSecond: 50, perMinute: 1000 };
const sweepSize = 10_000;
const longestWindowMs = 60_000;

export function createRateLimiter(now: () => number, enforced: boolean): RateLimiter {
  const windows = new Map<string, Window>();
  let sweepAt = sweepSize;

  const sweep = (time: number): void => {
    for (const [key, window] of windows) if (window.start + longestWindowMs <= time) windows.delete(key);
    sweepAt = Math.max(sweepSize, windows.size * 2);
  };

  const take = (key: string, limit: number, lengthMs: number): number | undefined => {
    const time = now();
    const start = time - (time % lengthMs);
    const window = windows.get(key);
    if (window === undefined || window.start !== start) {
      if (windows.size >= sweepAt) sweep(time);
      windows.set(key, { start, count: 1 });
      return undefined;
    }
    window.count += 1;
    return window.count > limit ? Math.max(1, Math.ceil((start + lengthMs - time) / 1000)) : undefined;
  };

  const checkWindow = (key: string, limit: number | undefined, lengthMs: number): void => {
    if (limit === undefined) return;
    const reset = take(`${key} ${lengthMs}`, limit, lengthMs);
    if (reset === undefined) return;
    const headers = { "x-ogw-ratelimit-limit": String(limit), "x-ogw-ratelimit-reset": String(reset) };
    throw new PlatformError(99991400, "request trigger frequency limit", { status: 429, headers });
  };

  return {
    checkApi(key, limits = tier4) {
      if (!enforced) return;
      checkWindow(key, limits.perSecond, 1000);
      checkWindow(key, limits.perMinute, 60_000);
    },
    checkBusiness(key, perSecond) {
      if (!enforced || take(key, perSecond, 1000) === undefined) return;
      throw new PlatformError(230020, "This operation triggers the frequency limit.", { status: 400 });
    },
  };
}
