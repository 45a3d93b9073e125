import { randomBytes } from "node:crypto";
import { appOfBuckets, bucketStateOf, ceilingMs, rateWindowsOf } from "./rate-windows.ts";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace, type Keyspace } from "./keys.ts";
import { time } from "./lua-fragments.ts";
import { defineScript, scriptTime, type Script } from "./script.ts";

/** Something that may be done so often in any second and any minute, by all processes together. */
export interface RateBucket {
  /** Begins with the app: `cli_1:chat:oc_1`. */
  key: string;
  perSecond?: number;
  perMinute?: number;
  /** The share of the limit that is used, above 0 and at most 1; 0.95 by default. */
  share?: number;
}

/** `final`: what a person waits for (last frames, answers, approvals); `frame` leaves room for it. */
export type RateLane = "final" | "frame";

export type RateGrant =
  | {
      granted: true;
      /** For {@link RateGovernor.ended}. */
      ticket: string;
    }
  /** `key` names the bucket that refused, `waitMs` when asking again makes sense. */
  | { granted: false; key: string; waitMs: number };

/** How full a bucket is. */
export interface BucketState {
  key: string;
  /** Grants that would be given at this moment, one after another. */
  left: number;
  /** Grants that a full bucket gives. */
  most: number;
  /** How long nothing is granted because the platform refused; 0: it is not paused. */
  pausedMs: number;
}

/** What the platform says its limits are. */
export interface RateCeiling {
  perSecond?: number;
  perMinute?: number;
}

/** Shares the platform's limits among all processes. */
export interface RateGovernor {
  /**
   * Takes a place in every bucket, or in none. The buckets are of one app, each named once. With `flightMs` the places
   * are kept until {@link ended} is told that the call is over, for `flightMs` at most.
   */
  take(buckets: readonly RateBucket[], lane: RateLane, flightMs?: number): Promise<RateGrant>;
  /** The call of this ticket, taken from these buckets with this `flightMs`, has arrived or never will. */
  ended(ticket: string, buckets: readonly RateBucket[], flightMs: number): Promise<void>;
  /**
   * The platform refused all the same: grants nothing from this bucket for that long. A limit that it named and that
   * is lower than ours is kept for ten minutes.
   */
  pause(key: string, pauseMs: number, ceiling?: RateCeiling): Promise<void>;
  /** Counts a call of the month; returns how many there were, this one included. `month` is `2026-11`. */
  countCall(app: string, month: string): Promise<number>;
  /** How full the buckets of one app are, as what a person waits for would find them. Takes nothing. */
  look(buckets: readonly RateBucket[]): Promise<BucketState[]>;
  /** Calls of the month so far. */
  callsOf(app: string, month: string): Promise<number>;
}

export interface RedisRateGovernorOptions {
  redis: RedisConnection;
  namespace?: string;
}

/** A count is of use until the month after it has been looked at. */
const callsTtlMs = 62 * 86_400_000;

/** Keys of a bucket and arguments of one of its windows, as the scripts read them. */
const keysPerBucket = 3;
const argumentsPerBucket = 8;

// Times are ms of the server's clock with a fraction: there is one clock for all processes. A window is a sorted set
// of tickets, each with the time until which it keeps its place, so it holds at most as many members as the limit.
// Scores are written with three digits: Lua would print a time of today with one.

/** Takes a place in every window, or names the bucket that has none and the ms until it may have one. */
const takeLua = `${time}
-- KEYS for each bucket: its hash, its second, its minute
-- ARGV ticket, ms of flight, then for each bucket and window: limit (0 = none), usable, span, spaced from
local now = exactNow()
local ticket, flight, windows = ARGV[1], tonumber(ARGV[2]), {}
local worst, longest = 0, 0
for bucket = 1, #KEYS / ${keysPerBucket} do
  local hash = KEYS[(bucket - 1) * ${keysPerBucket} + 1]
  local stored = redis.call('HMGET', hash, 'p', 'ceilingUntil', 'ceilingSecond', 'ceilingMinute', 'lastMinute')
  local wait = tonumber(stored[1] or '0') - now
  if wait > longest then worst, longest = bucket, wait end
  for which = 0, 1 do
    local at = 3 + (bucket - 1) * ${argumentsPerBucket} + which * 4
    local limit, usable, span = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    if limit > 0 then
      local key = KEYS[(bucket - 1) * ${keysPerBucket} + 2 + which]
      local ceiling = tonumber(stored[3 + which] or '')
      if ceiling and ceiling < limit and tonumber(stored[2] or '0') > now then
        usable = math.max(1, ceiling - (limit - usable))
      end
      redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.3f', now))
      local count = redis.call('ZCARD', key)
      local spacedFrom = tonumber(ARGV[at + 3])
      wait = 0
      if count >= usable then
        local place = redis.call('ZRANGE', key, count - usable, count - usable, 'WITHSCORES')
        wait = tonumber(place[2]) - now
        -- A call that is under way most likely ends soon.
        if wait > span then wait = math.max(10, wait - flight) end
      elseif spacedFrom > 0 and count >= spacedFrom then
        local first = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) - now
        wait = tonumber(stored[5] or '0') + math.min(span, first) / (usable - count) - now
      end
      if wait > longest then worst, longest = bucket, wait end
      windows[#windows + 1] = { key = key, span = span, hash = hash, isMinute = which == 1 }
    end
  end
end
if worst > 0 then return { worst, math.ceil(longest) } end
for _, window in ipairs(windows) do
  local keeps = window.span + flight
  redis.call('ZADD', window.key, string.format('%.3f', now + keeps), ticket)
  redis.call('PEXPIRE', window.key, math.ceil(keeps) + 1)
  if window.isMinute then
    redis.call('HSET', window.hash, 'lastMinute', string.format('%.3f', now))
    if redis.call('PTTL', window.hash) < window.span then redis.call('PEXPIRE', window.hash, math.ceil(window.span)) end
  end
end
return { 0, 0 }`;

/** The call is over: its places are kept for as long as a window is, and at least for the rest of their span. */
const endedLua = `${time}
-- KEYS windows | ARGV ticket, ms of flight, then for each: ms of the window
local now = exactNow()
for i, key in ipairs(KEYS) do
  local kept = tonumber(redis.call('ZSCORE', key, ARGV[1]) or '')
  if kept then
    local keeps = math.min(kept, math.max(kept - ARGV[2], now + ARGV[2 + i]))
    redis.call('ZADD', key, string.format('%.3f', keeps), ARGV[1])
  end
end
return 1`;

const pauseLua = `${time}
-- KEYS bucket | ARGV ms, limits that the platform has named for a second and a minute (0 = none), ms they are kept
local now = exactNow()
local untilMs = math.max(now + ARGV[1], tonumber(redis.call('HGET', KEYS[1], 'p') or '0'))
local lives = math.max(redis.call('PTTL', KEYS[1]), math.ceil(untilMs - now) + 1)
redis.call('HSET', KEYS[1], 'p', string.format('%.3f', untilMs))
for which, field in ipairs({ 'ceilingSecond', 'ceilingMinute' }) do
  if tonumber(ARGV[1 + which]) > 0 then
    redis.call('HSET', KEYS[1], field, ARGV[1 + which], 'ceilingUntil', string.format('%.3f', now + ARGV[4]))
    lives = math.max(lives, tonumber(ARGV[4]))
  end
end
redis.call('PEXPIRE', KEYS[1], lives)
return 1`;

const countLua = `
-- KEYS count | ARGV ms to live
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return count`;

function argumentsOf(bucket: RateBucket, lane: RateLane): number[] {
  const { second, minute } = rateWindowsOf(bucket, lane);
  return [second, minute].flatMap((window) =>
    window === undefined ? [0, 0, 0, 0] : [window.limit, window.usable, window.spanMs, window.spacedFrom],
  );
}

/** The governor on Redis: one script call per take, by the server's clock. */
class RedisRateGovernor implements RateGovernor {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #take: Script;
  readonly #ended: Script;
  readonly #pause: Script;
  readonly #count: Script;

  constructor({ redis, namespace = defaultNamespace }: RedisRateGovernorOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#take = defineScript(redis, "rate_take", takeLua);
    this.#ended = defineScript(redis, "rate_ended", endedLua);
    this.#pause = defineScript(redis, "rate_pause", pauseLua);
    this.#count = defineScript(redis, "rate_count", countLua);
  }

  async take(buckets: readonly RateBucket[], lane: RateLane, flightMs = 0): Promise<RateGrant> {
    const ticket = randomBytes(9).toString("base64url");
    if (buckets.length === 0) return { granted: true, ticket };
    const windows = buckets.flatMap((bucket) => argumentsOf(bucket, lane));
    const answer = await this.#take(this.#keysOf(buckets).flat(), [ticket, flightMs, ...windows]);
    const [refused, waitMs] = answer as [number, number]; // what the script returns
    const key = buckets[refused - 1]?.key;
    return key === undefined ? { granted: true, ticket } : { granted: false, key, waitMs };
  }

  async ended(ticket: string, buckets: readonly RateBucket[], flightMs: number): Promise<void> {
    if (buckets.length === 0) return;
    const keys = this.#keysOf(buckets);
    const windows = buckets.flatMap((bucket, at) => {
      const { second, minute } = rateWindowsOf(bucket, "final");
      const [, secondKey = "", minuteKey = ""] = keys[at] ?? [];
      return [
        ...(second === undefined ? [] : [{ key: secondKey, lengthMs: second.lengthMs }]),
        ...(minute === undefined ? [] : [{ key: minuteKey, lengthMs: minute.lengthMs }]),
      ];
    });
    const lengths = windows.map(({ lengthMs }) => lengthMs);
    await this.#ended(
      windows.map(({ key }) => key),
      [ticket, flightMs, ...lengths],
    );
  }

  async pause(key: string, pauseMs: number, ceiling: RateCeiling = {}): Promise<void> {
    const [[bucket = ""] = []] = this.#keysOf([{ key }]);
    await this.#pause([bucket], [pauseMs, ceiling.perSecond ?? 0, ceiling.perMinute ?? 0, ceilingMs]);
  }

  async look(buckets: readonly RateBucket[]): Promise<BucketState[]> {
    if (buckets.length === 0) return [];
    const nowMs = await scriptTime(this.#redis);
    const keys = this.#keysOf(buckets);
    return await Promise.all(buckets.map(async (bucket, at) => await this.#lookAt(bucket, keys[at] ?? [], nowMs)));
  }

  async countCall(app: string, month: string): Promise<number> {
    return Number(await this.#count([this.#callsKey(app, month)], [callsTtlMs]));
  }

  async callsOf(app: string, month: string): Promise<number> {
    return Number((await this.#redis.get(this.#callsKey(app, month))) ?? 0);
  }

  async #lookAt(bucket: RateBucket, keys: string[], nowMs: number): Promise<BucketState> {
    const [hash = "", second = "", minute = ""] = keys;
    const from = `(${nowMs.toFixed(3)}`;
    const [stored, ...counts] = await Promise.all([
      this.#redis.hmget(hash, "p", "ceilingUntil", "ceilingSecond", "ceilingMinute"),
      this.#redis.zcount(second, from, "+inf"),
      this.#redis.zcount(minute, from, "+inf"),
    ]);
    const [pausedUntil = 0, ceilingUntil = 0, ...named] = stored.map(Number);
    const ceilings = ceilingUntil > nowMs ? { second: named[0] || undefined, minute: named[1] || undefined } : {};
    return bucketStateOf(bucket, { second: counts[0], minute: counts[1], pausedUntil, ceilings }, nowMs);
  }

  /** Of each bucket its hash and the sets of its second and its minute. */
  #keysOf(asked: readonly { key: string }[]): string[][] {
    const app = appOfBuckets(asked);
    return asked.map(({ key }) => {
      const bucket = this.#keys.rates(app, `bucket:${key.slice(app.length + 1)}`);
      return [bucket, `${bucket}:second`, `${bucket}:minute`];
    });
  }

  #callsKey(app: string, month: string): string {
    return this.#keys.rates(app, `calls:${month}`);
  }
}

export function createRedisRateGovernor(options: RedisRateGovernorOptions): RateGovernor {
  return new RedisRateGovernor(options);
}
