import type { Clock } from "@larkline/protocol/clock";
import { PlatformError } from "./open-api.ts";

/**
 * Sliding windows: a call is refused when the window that ends with it holds the limit already. Every aligned window
 * lies within a sliding one, so whichever way the platform counts, what passes here passes there.
 */
export interface RateLimiter {
  /** Gateway limits per API and app; beyond them HTTP 429 with 99991400 and the `x-ogw-ratelimit-*` headers. */
  checkApi(call: { appId: string; api: string }, limits?: ApiLimits): void;
  /** Business limit of a user, chat, message or card (`chat oc_…`); beyond it HTTP 400 with 230020. */
  checkBusiness(key: string, perSecond: number): void;
}

export interface ApiLimits {
  perSecond?: number;
  perMinute?: number;
}

/** A call that a limit refused. */
export interface LimitRefusal {
  /** Method and path for a gateway limit; what is limited (`chat`, `user`, `patch`, `card`) for a business limit. */
  api: string;
  /** The app, or the id of the chat, person, message or card. */
  key: string;
  code: number;
  /** Milliseconds since the epoch. */
  at: number;
}

interface RateLimiterParts {
  clock: Clock;
  enforced: boolean;
  onRefusal: (refusal: LimitRefusal) => void;
}

/** The times of the last admitted calls, as many as the limit: a ring whose `next` is the oldest. */
interface Window {
  times: Float64Array;
  next: number;
  lastAt: number;
}

/** The tier of most messaging calls: 50 a second and 1,000 a minute (rate limit guide, tier 4). */
const tier4: Required<ApiLimits> = { perSecond: 50, perMinute: 1000 };
const sweepSize = 10_000;
const longestWindowMs = 60_000;

export function createRateLimiter({ clock, enforced, onRefusal }: RateLimiterParts): RateLimiter {
  const windows = new Map<string, Window>();
  let sweepAt = sweepSize;

  const sweep = (time: number): void => {
    for (const [key, window] of windows) {
      if (window.lastAt + longestWindowMs <= time) windows.delete(key);
    }
    sweepAt = Math.max(sweepSize, windows.size * 2);
  };

  const opened = (key: string, limit: number, time: number): Window => {
    const window = windows.get(key);
    if (window !== undefined) return window;
    if (windows.size >= sweepAt) sweep(time);
    const fresh = {
      times: new Float64Array(limit).fill(Number.NEGATIVE_INFINITY),
      next: 0,
      lastAt: time,
    };
    windows.set(key, fresh);
    return fresh;
  };

  /** Counts the call, or returns the milliseconds until the next one may come. */
  const take = (key: string, limit: number, lengthMs: number): number | undefined => {
    const time = clock.now();
    const window = opened(`${key} ${lengthMs}`, limit, time);
    const oldest = window.times[window.next] ?? Number.NEGATIVE_INFINITY;
    if (time - oldest < lengthMs) return oldest + lengthMs - time;
    window.times[window.next] = time;
    window.next = (window.next + 1) % limit;
    window.lastAt = time;
    return undefined;
  };

  const checkGateway = (
    call: { appId: string; api: string },
    limit: number | undefined,
    lengthMs: number,
  ): void => {
    if (limit === undefined) return;
    const waitMs = take(`${call.appId} ${call.api}`, limit, lengthMs);
    if (waitMs === undefined) return;
    const code = 99991400;
    onRefusal({ api: call.api, key: call.appId, code, at: clock.now() });
    const reset = String(Math.max(1, Math.ceil(waitMs / 1000)));
    const headers = { "x-ogw-ratelimit-limit": String(limit), "x-ogw-ratelimit-reset": reset };
    throw new PlatformError(code, "request trigger frequency limit", { status: 429, headers });
  };

  return {
    checkApi(call, limits = tier4) {
      if (!enforced) return;
      checkGateway(call, limits.perSecond, 1000);
      checkGateway(call, limits.perMinute, 60_000);
    },
    checkBusiness(key, perSecond) {
      if (!enforced || take(key, perSecond, 1000) === undefined) return;
      const code = 230020;
      const [api = key, id = key] = key.split(" ");
      onRefusal({ api, key: id, code, at: clock.now() });
      throw new PlatformError(code, "This operation triggers the frequency limit.", {
        status: 400,
      });
    },
  };
}

/** The calls that a tenant of the free edition may make in a month. */
export interface MonthlyQuota {
  /** Counts a call, or refuses it with 99991403. Auth, event and contact calls are exempt. */
  check(path: string): void;
}

const exempt = /^\/(open-apis\/(auth|authen|event|contact)|callback)\//;
/** Months begin by the platform's clock, UTC+8. */
const zoneMs = 8 * 3_600_000;

export function createMonthlyQuota(clock: Clock, limit: number): MonthlyQuota {
  let current = { month: "", calls: 0 };
  return {
    check(path) {
      if (exempt.test(path)) return;
      const month = new Date(clock.now() + zoneMs).toISOString().slice(0, 7);
      if (current.month !== month) current = { month, calls: 0 };
      if (current.calls >= limit) {
        throw new PlatformError(99991403, "This month's API call quota has been exceeded.");
      }
      current.calls += 1;
    },
  };
}
