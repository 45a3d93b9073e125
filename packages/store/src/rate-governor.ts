import { randomBytes } from "node:crypto";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";
import { appOfBuckets, bucketStateOf, ceilingMs, rateWindowsOf } from "./rate-windows.ts";
import { runScript, script, scriptTime } from "./script.ts";

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

/** A count is of use until the month after it has been looked at. */
const callsTtlMs = 62 * 86_400_000;

const takePlace = script("take-place");
const endPlace = script("end-place");
const pauseBucket = script("pause-bucket");
const countCall = script("count-call");

/** The limits of a bucket, as the script takes them. */
function limitsOf(bucket: RateBucket, lane: RateLane): number[][] {
  const { second, minute } = rateWindowsOf(bucket, lane);
  return [second, minute].map((window) =>
    window === undefined ? [0, 0, 0, 0] : [window.limit, window.usable, window.spanMs, window.spacedFrom],
  );
}

/** Shares the platform's limits among all processes. */
export class RateGovernor {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;

  constructor({ redis, namespace }: StoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
  }

  /**
   * Takes a place in every bucket, or in none. The buckets are of one app, each named once. With `flightMs` the places
   * are kept until {@link ended} is told that the call is over, for `flightMs` at most.
   */
  async take(buckets: readonly RateBucket[], lane: RateLane, flightMs = 0): Promise<RateGrant> {
    const ticket = randomBytes(9).toString("base64url");
    if (buckets.length === 0) return { granted: true, ticket };
    const limits = JSON.stringify(buckets.map((bucket) => limitsOf(bucket, lane)));
    const keys = { buckets: this.#keysOf(buckets).flat() };
    const answer = await runScript(this.#redis, takePlace, keys, { ticket, flight: flightMs, limits });
    const [refused, waitMs] = answer as [number, number]; // what the script returns
    const key = buckets[refused - 1]?.key;
    return key === undefined ? { granted: true, ticket } : { granted: false, key, waitMs };
  }

  /** The call of this ticket, taken from these buckets with this `flightMs`, has arrived or never will. */
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
    const lengths = JSON.stringify(windows.map(({ lengthMs }) => lengthMs));
    const values = { ticket, flight: flightMs, lengths };
    await runScript(this.#redis, endPlace, { windows: windows.map(({ key }) => key) }, values);
  }

  /**
   * The platform refused all the same: grants nothing from this bucket for that long. A limit that it named and that
   * is lower than ours is kept for ten minutes.
   */
  async pause(key: string, pauseMs: number, ceiling: RateCeiling = {}): Promise<void> {
    const [[bucket = ""] = []] = this.#keysOf([{ key }]);
    const { perSecond = 0, perMinute = 0 } = ceiling;
    await runScript(this.#redis, pauseBucket, { bucket }, { pauseMs, perSecond, perMinute, keptMs: ceilingMs });
  }

  /** How full the buckets of one app are, as what a person waits for would find them. Takes nothing. */
  async look(buckets: readonly RateBucket[]): Promise<BucketState[]> {
    if (buckets.length === 0) return [];
    const nowMs = await scriptTime(this.#redis);
    const keys = this.#keysOf(buckets);
    return await Promise.all(buckets.map(async (bucket, at) => await this.#lookAt(bucket, keys[at] ?? [], nowMs)));
  }

  /** Counts a call of the month; returns how many there were, this one included. `month` is `2026-11`. */
  async countCall(app: string, month: string): Promise<number> {
    return Number(
      await runScript(this.#redis, countCall, { count: this.#callsKey(app, month) }, { ttlMs: callsTtlMs }),
    );
  }

  /** Calls of the month so far. */
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
