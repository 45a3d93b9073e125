import type { BucketState, RateBucket, RateLane } from "./rate-governor.ts";

/**
 * One window of a bucket: at most `limit` calls in any stretch of `lengthMs`, wherever it begins.
 *
 * The platform counts a call when it arrives, which is some time between the grant and the end of the call. So a
 * grant takes its place from the moment it is given until `lengthMs` after the call has ended: whatever calls spend on
 * their way, no window of the platform can hold more than `limit` of them. It also keeps its place for `spanMs` from
 * the grant on, which is what leaves a share of the limit unused: `limit / spanMs` is the lasting pace.
 */
export interface RateWindow {
  limit: number;
  lengthMs: number;
  spanMs: number;
  /** Places that this lane may fill; frames leave the last ones to what a person waits for. */
  usable: number;
  /**
   * Once so many places are taken, frames share the others out over the time until a place gets free, so that a crowd
   * of typing cards does not use up a minute in its first twenty seconds. 0: they need not.
   */
  spacedFrom: number;
}

/** The share of a limit that is used where no one else draws on it. */
const defaultShare = 0.95;

function windowOf(
  { share = defaultShare }: RateBucket,
  lane: RateLane,
  [limit, lengthMs]: [number, number],
): RateWindow {
  const reserve = lane === "frame" && limit > 1 ? Math.max(1, Math.floor(limit / 50)) : 0;
  return {
    limit,
    lengthMs,
    spanMs: lengthMs / share,
    usable: limit - reserve,
    spacedFrom: lane === "frame" && lengthMs > 1_000 ? Math.max(1, Math.floor(limit / 2)) : 0,
  };
}

/** The windows that a grant of this bucket has to fit into. Throws a RangeError on a limit below 1. */
export function rateWindowsOf(bucket: RateBucket, lane: RateLane): { second?: RateWindow; minute?: RateWindow } {
  const { perSecond, perMinute } = bucket;
  for (const limit of [perSecond, perMinute]) {
    if (limit !== undefined && !(limit >= 1)) throw new RangeError(`the limit of bucket ${bucket.key} is below 1`);
  }
  return {
    ...(perSecond === undefined ? {} : { second: windowOf(bucket, lane, [perSecond, 1_000]) }),
    ...(perMinute === undefined ? {} : { minute: windowOf(bucket, lane, [perMinute, 60_000]) }),
  };
}

/** What the windows of a bucket hold at one moment. */
export interface BucketCounts {
  second: number;
  minute: number;
  /** Clock ms; 0 or past: not paused. */
  pausedUntil: number;
  /** What the platform has named as its limit, where it is lower than ours. */
  ceilings: { second?: number | undefined; minute?: number | undefined };
}

/** How full a bucket is at `nowMs`, as what a person waits for finds it. */
export function bucketStateOf(bucket: RateBucket, counts: BucketCounts, nowMs: number): BucketState {
  const { second, minute } = rateWindowsOf(bucket, "final");
  const places = [
    ...(second === undefined ? [] : [[usableOf(second, counts.ceilings.second), counts.second] as const]),
    ...(minute === undefined ? [] : [[usableOf(minute, counts.ceilings.minute), counts.minute] as const]),
  ];
  const pausedMs = Math.max(0, Math.ceil(counts.pausedUntil - nowMs));
  const left = Math.min(...places.map(([usable, taken]) => Math.max(0, usable - taken)));
  return {
    key: bucket.key,
    left: pausedMs > 0 ? 0 : left,
    most: Math.min(...places.map(([usable]) => usable)),
    pausedMs,
  };
}

/** Places of a window when the platform allows fewer than we knew. */
export function usableOf({ limit, usable }: RateWindow, ceiling: number | undefined): number {
  return ceiling === undefined || ceiling >= limit ? usable : Math.max(1, ceiling - (limit - usable));
}

/** How long a limit that the platform has named is believed, ms. */
export const ceilingMs = 10 * 60_000;

/** The app of these buckets: their keys up to the first colon. Throws a RangeError when it is not one app. */
export function appOfBuckets(buckets: readonly { key: string }[]): string {
  const apps = new Set(buckets.map(({ key }) => key.slice(0, Math.max(0, key.indexOf(":")))));
  const [app = ""] = apps;
  if (app !== "" && apps.size === 1) return app;
  throw new RangeError(`the buckets ${buckets.map(({ key }) => key).join(", ")} do not begin with one app`);
}
