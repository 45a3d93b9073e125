import type { BucketState, RateBucket, RateLane } from "./rate-governor.ts";

/**
 * One window of a bucket as the generic cell rate algorithm counts it: every grant moves the bucket's
 * theoretical arrival time by `intervalMs`; a grant is refused while that time is more than
 * `toleranceMs` ahead of the clock.
 */
export interface RatePace {
  intervalMs: number;
  toleranceMs: number;
}

interface Shape {
  burst: number;
  perWindow: number;
  windowMs: number;
}

/**
 * How N a second or a minute are handed out.
 *
 * This way of counting grants at most `burst + floor(perWindow * length / windowMs)` in any stretch of
 * time, wherever it begins. What counts for the platform is when calls arrive, though: when they are
 * on their way for different times, up to `jitter` apart, a window of the platform holds what was
 * granted within `windowMs + jitter`. So `burst + perWindow` stays below N by as much as jitter needs:
 *
 *     N        burst  per window   sum     N is kept while jitter stays below
 *     1/s      1      0.7          1.7     0.42 s
 *     5/s      2      2.55         4.55    0.56 s
 *     10/s     2      6.8          8.8     0.32 s
 *     50/s     8      35.7         43.7    0.2 s
 *     1000/min 350    617          967     3.2 s
 *
 * The burst of a minute is large: many chats that ask at the same moment each need a card at once,
 * and up to a minute of such a load gets more calls through this way than with a steadier pace.
 */
function shapeOf(limit: number, windowMs: number): Shape {
  if (windowMs > 1_000) {
    const burst = Math.max(1, Math.floor(limit * 0.35));
    return { burst, perWindow: Math.max(0.7, (limit - burst) * 0.95), windowMs };
  }
  const burst = limit < 3 ? 1 : Math.max(2, Math.floor(limit * 0.16));
  return { burst, perWindow: Math.max(0.7, (limit - burst) * 0.85), windowMs };
}

/** The part of the burst that frames leave to what a person waits for. */
function reserveOf(burst: number): number {
  return burst === 1 ? 0 : Math.max(1, Math.floor(burst / 4));
}

/** Clock times in ms take most of a double: sums of intervals come back a fraction of a microsecond off. */
const roundingMs = 0.01;

function paceOf({ burst, perWindow, windowMs }: Shape, lane: RateLane): RatePace {
  const intervalMs = windowMs / perWindow;
  const usable = lane === "frame" ? burst - reserveOf(burst) : burst;
  return { intervalMs, toleranceMs: (usable - 1) * intervalMs + roundingMs };
}

/** The windows that a grant of this bucket has to fit into. Throws a RangeError on a limit below 1. */
export function ratePacesOf(bucket: RateBucket, lane: RateLane): { second?: RatePace; minute?: RatePace } {
  const { perSecond, perMinute } = bucket;
  for (const limit of [perSecond, perMinute]) {
    if (limit !== undefined && !(limit >= 1)) throw new RangeError(`the limit of bucket ${bucket.key} is below 1`);
  }
  return {
    ...(perSecond === undefined ? {} : { second: paceOf(shapeOf(perSecond, 1_000), lane) }),
    ...(perMinute === undefined ? {} : { minute: paceOf(shapeOf(perMinute, 60_000), lane) }),
  };
}

/** What a bucket's windows have counted: their theoretical arrival times, and the end of a pause. Clock ms. */
export interface BucketTimes {
  second: number;
  minute: number;
  pausedUntil: number;
}

/** How full a bucket is at `nowMs`. */
export function bucketStateOf(bucket: RateBucket, times: BucketTimes, nowMs: number): BucketState {
  const { second, minute } = ratePacesOf(bucket, "final");
  const grantsOf = ({ intervalMs, toleranceMs }: RatePace, arrivalMs: number): number =>
    Math.max(0, Math.floor((toleranceMs - Math.max(0, arrivalMs - nowMs)) / intervalMs) + 1);
  const windows = [
    ...(second === undefined ? [] : [[second, times.second] as const]),
    ...(minute === undefined ? [] : [[minute, times.minute] as const]),
  ];
  const pausedMs = Math.max(0, Math.ceil(times.pausedUntil - nowMs));
  const left = Math.min(...windows.map(([pace, arrivalMs]) => grantsOf(pace, arrivalMs)));
  const most = Math.min(...windows.map(([pace]) => grantsOf(pace, 0)));
  return { key: bucket.key, left: pausedMs > 0 ? 0 : left, most, pausedMs };
}

/** The app of these buckets: their keys up to the first colon. Throws a RangeError when it is not one app. */
export function appOfBuckets(buckets: readonly { key: string }[]): string {
  const apps = new Set(buckets.map(({ key }) => key.slice(0, Math.max(0, key.indexOf(":")))));
  const [app = ""] = apps;
  if (app !== "" && apps.size === 1) return app;
  throw new RangeError(`the buckets ${buckets.map(({ key }) => key).join(", ")} do not begin with one app`);
}
