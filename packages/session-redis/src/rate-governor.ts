import {
  appOfBuckets,
  bucketStateOf,
  ratePacesOf,
  type RateBucket,
  type RateGovernor,
  type RateLane,
} from "@larkline/session";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";
import { defineScript } from "./script.ts";

export interface RedisRateGovernorOptions {
  redis: RedisConnection;
  namespace?: string;
}

/** A count is of use until the month after it has been looked at. */
const callsTtlMs = 62 * 86_400_000;

// Times are ms of the server's clock with a fraction: there is one clock for all processes. A bucket
// is gone when its times have passed, because then they say nothing any more.
const takeLua = `
-- KEYS buckets | ARGV for each: interval and tolerance of the second, interval and tolerance of the minute; 0 = none
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local second, minute, paused = {}, {}, {}
local worst, longest = 0, 0
for i, key in ipairs(KEYS) do
  local stored = redis.call('HMGET', key, 's', 'm', 'p')
  second[i] = math.max(now, tonumber(stored[1] or '0'))
  minute[i] = math.max(now, tonumber(stored[2] or '0'))
  paused[i] = tonumber(stored[3] or '0')
  local at = (i - 1) * 4
  local wait = math.max(paused[i], second[i] - ARGV[at + 2], minute[i] - ARGV[at + 4]) - now
  if wait > longest then worst, longest = i, wait end
end
if worst > 0 then return { worst, math.ceil(longest) } end
for i, key in ipairs(KEYS) do
  local at = (i - 1) * 4
  local s, m = second[i] + ARGV[at + 1], minute[i] + ARGV[at + 3]
  redis.call('HSET', key, 's', string.format('%.3f', s), 'm', string.format('%.3f', m))
  redis.call('PEXPIRE', key, math.ceil(math.max(s, m, paused[i]) - now) + 1)
end
return { 0, 0 }`;

const pauseLua = `
-- KEYS bucket | ARGV ms
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local untilMs = math.max(now + ARGV[1], tonumber(redis.call('HGET', KEYS[1], 'p') or '0'))
local lives = redis.call('PTTL', KEYS[1])
redis.call('HSET', KEYS[1], 'p', string.format('%.3f', untilMs))
redis.call('PEXPIRE', KEYS[1], math.max(lives, math.ceil(untilMs - now) + 1))
return 1`;

const countLua = `
-- KEYS count | ARGV ms to live
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return count`;

function argumentsOf(bucket: RateBucket, lane: RateLane): number[] {
  const { second, minute } = ratePacesOf(bucket, lane);
  return [second, minute].flatMap((pace) => (pace === undefined ? [0, 0] : [pace.intervalMs, pace.toleranceMs]));
}

/** The governor on Redis: one script call per take, by the server's clock. */
export function createRedisRateGovernor(options: RedisRateGovernorOptions): RateGovernor {
  const { redis } = options;
  const keys = createKeyspace(options.namespace ?? defaultNamespace);
  const take = defineScript(redis, "rate_take", takeLua);
  const pause = defineScript(redis, "rate_pause", pauseLua);
  const count = defineScript(redis, "rate_count", countLua);
  const keysOf = (asked: readonly { key: string }[]): string[] => {
    const app = appOfBuckets(asked);
    return asked.map(({ key }) => keys.rates(app, `bucket:${key.slice(app.length + 1)}`));
  };
  const callsKey = (app: string, month: string): string => keys.rates(app, `calls:${month}`);

  return {
    take: async (buckets, lane) => {
      if (buckets.length === 0) return { granted: true };
      const answer = await take(
        keysOf(buckets),
        buckets.flatMap((bucket) => argumentsOf(bucket, lane)),
      );
      const [refused, waitMs] = answer as [number, number]; // what the script returns
      const key = buckets[refused - 1]?.key;
      return key === undefined ? { granted: true } : { granted: false, key, waitMs };
    },
    pause: async (key, pauseMs) => {
      await pause(keysOf([{ key }]), [pauseMs]);
    },
    look: async (buckets) => {
      if (buckets.length === 0) return [];
      const keysAsked = keysOf(buckets);
      const stored = await Promise.all(keysAsked.map(async (key) => await redis.hmget(key, "s", "m", "p")));
      const [seconds, microseconds] = await redis.time();
      const nowMs = Number(seconds) * 1_000 + Number(microseconds) / 1_000;
      return buckets.map((bucket, at) => {
        const [second, minute, pausedUntil] = stored[at]?.map(Number) ?? [];
        return bucketStateOf(
          bucket,
          { second: second ?? 0, minute: minute ?? 0, pausedUntil: pausedUntil ?? 0 },
          nowMs,
        );
      });
    },
    countCall: async (app, month) => Number(await count([callsKey(app, month)], [callsTtlMs])),
    callsOf: async (app, month) => Number((await redis.get(callsKey(app, month))) ?? 0),
  };
}
