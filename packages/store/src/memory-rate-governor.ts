import { randomUUID } from "node:crypto";
import type { BucketState, RateBucket, RateCeiling, RateGovernor, RateGrant, RateLane } from "./rate-governor.ts";
import { appOfBuckets, bucketStateOf, ceilingMs, rateWindowsOf, usableOf, type RateWindow } from "./rate-windows.ts";

/** Until when each grant keeps its place, by ticket. */
type Places = Map<string, number>;

interface State {
  second: Places;
  minute: Places;
  lastMinuteMs: number;
  pausedUntil: number;
  ceiling: RateCeiling;
  ceilingUntil: number;
}

interface Asked {
  state: State;
  window: RateWindow;
  places: Places;
  ceiling: number | undefined;
}

function freed(places: Places, nowMs: number): Places {
  for (const [ticket, untilMs] of places) if (untilMs <= nowMs) places.delete(ticket);
  return places;
}

/** How long until one more fits, 0: now. */
function waitOf({ state, window, places, ceiling }: Asked, nowMs: number, flightMs: number): number {
  const usable = usableOf(window, ceiling);
  if (places.size >= usable) {
    const untilMs = [...places.values()].toSorted((a, b) => a - b)[places.size - usable] ?? nowMs;
    const waitMs = untilMs - nowMs;
    // A call that is under way most likely ends soon.
    return waitMs > window.spanMs ? Math.max(10, waitMs - flightMs) : waitMs;
  }
  if (window.spacedFrom === 0 || places.size < window.spacedFrom) return 0;
  const firstMs = Math.min(...places.values()) - nowMs;
  return state.lastMinuteMs + Math.min(window.spanMs, firstMs) / (usable - places.size) - nowMs;
}

/** Clock and memory of one governor. */
class Buckets {
  readonly #now: () => number;
  readonly #states = new Map<string, State>();

  constructor(now: () => number) {
    this.#now = now;
  }

  state(key: string): State {
    const fresh = { pausedUntil: 0, lastMinuteMs: 0, ceiling: {}, ceilingUntil: 0 };
    const state = this.#states.get(key) ?? { second: new Map(), minute: new Map(), ...fresh };
    this.#states.set(key, state);
    return state;
  }

  take(buckets: readonly RateBucket[], lane: RateLane, flightMs: number): RateGrant {
    const nowMs = this.#now();
    const asked = buckets.map((bucket) => this.#asked(bucket, lane, nowMs));
    let longest = { key: "", waitMs: 0 };
    for (const [index, { key }] of buckets.entries()) {
      const waits = (asked[index] ?? []).map((one) => waitOf(one, nowMs, flightMs));
      const waitMs = Math.max(this.state(key).pausedUntil - nowMs, ...waits);
      if (waitMs > longest.waitMs) longest = { key, waitMs };
    }
    if (longest.waitMs > 0) return { granted: false, key: longest.key, waitMs: Math.ceil(longest.waitMs) };
    const ticket = randomUUID();
    for (const { state, window, places } of asked.flat()) {
      places.set(ticket, nowMs + window.spanMs + flightMs);
      if (window.lengthMs > 1_000) state.lastMinuteMs = nowMs;
    }
    return { granted: true, ticket };
  }

  ended(ticket: string, buckets: readonly RateBucket[], flightMs: number): void {
    const nowMs = this.#now();
    for (const { window, places } of buckets.flatMap((bucket) => this.#asked(bucket, "final", nowMs))) {
      const untilMs = places.get(ticket);
      if (untilMs === undefined) continue;
      places.set(ticket, Math.min(untilMs, Math.max(untilMs - flightMs, nowMs + window.lengthMs)));
    }
  }

  pause(key: string, pauseMs: number, ceiling: RateCeiling | undefined): void {
    const nowMs = this.#now();
    const state = this.state(key);
    state.pausedUntil = Math.max(state.pausedUntil, nowMs + pauseMs);
    if (ceiling === undefined) return;
    state.ceiling = { ...ceilingOf(state, nowMs), ...ceiling };
    state.ceilingUntil = nowMs + ceilingMs;
  }

  look(bucket: RateBucket): BucketState {
    const nowMs = this.#now();
    const state = this.state(bucket.key);
    const { perSecond, perMinute } = ceilingOf(state, nowMs);
    const counts = {
      second: freed(state.second, nowMs).size,
      minute: freed(state.minute, nowMs).size,
      pausedUntil: state.pausedUntil,
      ceilings: { second: perSecond, minute: perMinute },
    };
    return bucketStateOf(bucket, counts, nowMs);
  }

  #asked(bucket: RateBucket, lane: RateLane, nowMs: number): Asked[] {
    const state = this.state(bucket.key);
    const { second, minute } = rateWindowsOf(bucket, lane);
    const { perSecond, perMinute } = ceilingOf(state, nowMs);
    const places = (of: Places): Places => freed(of, nowMs);
    return [
      ...(second === undefined ? [] : [{ state, window: second, places: places(state.second), ceiling: perSecond }]),
      ...(minute === undefined ? [] : [{ state, window: minute, places: places(state.minute), ceiling: perMinute }]),
    ];
  }
}

function ceilingOf(state: State, nowMs: number): RateCeiling {
  return state.ceilingUntil > nowMs ? state.ceiling : {};
}

/** A governor for one process. `now` is the clock, ms. */
export function createMemoryRateGovernor({ now = Date.now }: { now?: () => number } = {}): RateGovernor {
  const memory = new Buckets(now);
  const calls = new Map<string, number>();

  return {
    take: async (buckets, lane, flightMs = 0) => {
      if (buckets.length > 0) appOfBuckets(buckets);
      return memory.take(buckets, lane, flightMs);
    },
    ended: async (ticket, buckets, flightMs) => memory.ended(ticket, buckets, flightMs),
    pause: async (key, pauseMs, ceiling) => {
      appOfBuckets([{ key }]);
      memory.pause(key, pauseMs, ceiling);
    },
    look: async (buckets) => {
      if (buckets.length > 0) appOfBuckets(buckets);
      return buckets.map((bucket) => memory.look(bucket));
    },
    countCall: async (app, month) => {
      const count = (calls.get(`${app} ${month}`) ?? 0) + 1;
      calls.set(`${app} ${month}`, count);
      return count;
    },
    callsOf: async (app, month) => calls.get(`${app} ${month}`) ?? 0,
  };
}
