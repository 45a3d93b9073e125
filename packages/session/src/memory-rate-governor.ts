import type { RateBucket, RateGovernor, RateLane } from "./rate-governor.ts";
import { appOfBuckets, bucketStateOf, ratePacesOf, type BucketTimes, type RatePace } from "./rate-pace.ts";

interface Asked {
  key: string;
  state: BucketTimes;
  second: RatePace | undefined;
  minute: RatePace | undefined;
}

const sweepSize = 10_000;

function waitOf({ state, second, minute }: Asked, nowMs: number): number {
  const waits = [state.pausedUntil - nowMs];
  if (second !== undefined) waits.push(state.second - second.toleranceMs - nowMs);
  if (minute !== undefined) waits.push(state.minute - minute.toleranceMs - nowMs);
  return Math.max(...waits);
}

/** A governor for one process. `now` is the clock, ms. */
export function createMemoryRateGovernor({ now = Date.now }: { now?: () => number } = {}): RateGovernor {
  const states = new Map<string, BucketTimes>();
  const calls = new Map<string, number>();

  function sweep(nowMs: number): void {
    for (const [key, { second, minute, pausedUntil }] of states) {
      if (Math.max(second, minute, pausedUntil) <= nowMs) states.delete(key);
    }
  }

  function stateOf(key: string): BucketTimes {
    return states.get(key) ?? { second: 0, minute: 0, pausedUntil: 0 };
  }

  function askedOf(bucket: RateBucket, lane: RateLane): Asked {
    const { second, minute } = ratePacesOf(bucket, lane);
    return { key: bucket.key, state: stateOf(bucket.key), second, minute };
  }

  return {
    take: async (buckets, lane) => {
      if (buckets.length > 0) appOfBuckets(buckets);
      const nowMs = now();
      if (states.size > sweepSize) sweep(nowMs);
      const asked = buckets.map((bucket) => askedOf(bucket, lane));
      let longest = { key: "", waitMs: 0 };
      for (const one of asked) {
        const waitMs = waitOf(one, nowMs);
        if (waitMs > longest.waitMs) longest = { key: one.key, waitMs };
      }
      if (longest.waitMs > 0) return { granted: false, key: longest.key, waitMs: Math.ceil(longest.waitMs) };
      for (const { key, state, second, minute } of asked) {
        states.set(key, {
          ...state,
          second: Math.max(state.second, nowMs) + (second?.intervalMs ?? 0),
          minute: Math.max(state.minute, nowMs) + (minute?.intervalMs ?? 0),
        });
      }
      return { granted: true };
    },
    pause: async (key, pauseMs) => {
      appOfBuckets([{ key }]);
      const state = stateOf(key);
      states.set(key, { ...state, pausedUntil: Math.max(state.pausedUntil, now() + pauseMs) });
    },
    look: async (buckets) => {
      if (buckets.length > 0) appOfBuckets(buckets);
      return buckets.map((bucket) => bucketStateOf(bucket, stateOf(bucket.key), now()));
    },
    countCall: async (app, month) => {
      const count = (calls.get(`${app} ${month}`) ?? 0) + 1;
      calls.set(`${app} ${month}`, count);
      return count;
    },
    callsOf: async (app, month) => calls.get(`${app} ${month}`) ?? 0,
  };
}
