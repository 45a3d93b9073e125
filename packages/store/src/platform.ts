import { createHash } from "node:crypto";
import {
  systemRandom,
  type Random,
  pause,
  systemClock,
  type Clock,
} from "@larkline/protocol/clock";
import { type RedisConnection, scriptTime } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

// What all processes share of the platform: its limits, its tokens, and what they have looked up.

/** A rate limit of all processes together, in any second and any minute. */
export interface RateBucket {
  /** Begins with the app: `cli_1:chat:oc_1`. */
  key: string;
  perSecond?: number;
  perMinute?: number;
  /** The share of the limit that is used, above 0 and at most 1; 0.95 by default. */
  share?: number;
}

/** `final`: what a person waits for (last frames, answers, approvals); `frame` leaves room for it. */
export type RatePriority = "final" | "frame";

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
  /** Grants that are free at this moment. */
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
const paceRequests = script("pace-requests");

/** The limits of a bucket, as the script takes them. */
function limitsOf(bucket: RateBucket, priority: RatePriority): number[][] {
  const { second, minute } = rateWindowsOf(bucket, priority);
  return [second, minute].map((window) =>
    window === undefined
      ? [0, 0, 0, 0]
      : [window.limit, window.usable, window.spanMs, window.spacedFrom],
  );
}

/** Shares the platform's limits among all processes. */
export class RateGovernor {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #random: Random;

  constructor({ redis, namespace, random = systemRandom }: StoreOptions) {
    this.#redis = redis;
    this.#random = random;
    this.#keys = createKeyspace(namespace);
  }

  /**
   * Takes a place in every bucket, or in none. The buckets are of one app, each named once. With `flightMs` the places
   * are kept until {@link ended} reports the end of the call, for `flightMs` at most.
   */
  async take(
    buckets: readonly RateBucket[],
    priority: RatePriority,
    flightMs = 0,
  ): Promise<RateGrant> {
    const ticket = this.#random.id();
    if (buckets.length === 0) return { granted: true, ticket };
    const limits = JSON.stringify(buckets.map((bucket) => limitsOf(bucket, priority)));
    const keys = { buckets: this.#keysOf(buckets).flat() };
    const answer = await runScript(this.#redis, takePlace, keys, {
      ticket,
      flight: flightMs,
      limits,
    });
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
    await runScript(
      this.#redis,
      pauseBucket,
      { bucket },
      { pauseMs, perSecond, perMinute, keptMs: ceilingMs },
    );
  }

  /** How full the buckets of one app are, as what a person waits for would find them. Takes nothing. */
  async look(buckets: readonly RateBucket[]): Promise<BucketState[]> {
    if (buckets.length === 0) return [];
    const nowMs = await scriptTime(this.#redis);
    const keys = this.#keysOf(buckets);
    return await Promise.all(
      buckets.map(async (bucket, at) => await this.#lookAt(bucket, keys[at] ?? [], nowMs)),
    );
  }

  /** Counts a call of the month; returns how many there were, this one included. `month` is `2026-11`. */
  async countCall(app: string, month: string): Promise<number> {
    return Number(
      await runScript(
        this.#redis,
        countCall,
        { count: this.#callsKey(app, month) },
        { ttlMs: callsTtlMs },
      ),
    );
  }

  /**
   * Counts a request of a caller of `app`, who may make so many in a minute, or another span, all at once if they like.
   * Resolves with 0, or with the ms after which one may pass. The key has a hash of the caller's name.
   */
  async takeRequest(app: string, caller: string, most: number, spanMs = 60_000): Promise<number> {
    const pace = this.#keys.requestPaceOf(
      app,
      createHash("sha256").update(caller).digest("base64url").slice(0, 22),
    );
    return Number(await runScript(this.#redis, paceRequests, { pace }, { most, spanMs }));
  }

  /** Calls of the month so far. */
  async callsOf(app: string, month: string): Promise<number> {
    return Number((await this.#redis.get(this.#callsKey(app, month))) ?? 0);
  }

  async #lookAt(bucket: RateBucket, keys: string[], nowMs: number): Promise<BucketState> {
    const [hash = "", second = "", minute = ""] = keys;
    const from = `(${nowMs.toFixed(3)}`;
    const [stored, ...counts] = await Promise.all([
      this.#redis.hmget(hash, "pausedUntil", "ceilingUntil", "ceilingSecond", "ceilingMinute"),
      this.#redis.zcount(second, from, "+inf"),
      this.#redis.zcount(minute, from, "+inf"),
    ]);
    const [pausedUntil = 0, ceilingUntil = 0, ...named] = stored.map(Number);
    const ceilings =
      ceilingUntil > nowMs ? { second: named[0] || undefined, minute: named[1] || undefined } : {};
    return bucketStateOf(
      bucket,
      { second: counts[0], minute: counts[1], pausedUntil, ceilings },
      nowMs,
    );
  }

  /** Of each bucket its hash and the sets of its second and its minute. */
  #keysOf(asked: readonly { key: string }[]): string[][] {
    const app = appOfBuckets(asked);
    return asked.map(({ key }) => {
      const bucket = key.slice(app.length + 1);
      const windows = ["second", "minute"].map((window) =>
        this.#keys.rateWindowOf(app, bucket, window),
      );
      return [this.#keys.rateBucketOf(app, bucket), ...windows];
    });
  }

  #callsKey(app: string, month: string): string {
    return this.#keys.platformCallsOf(app, month);
  }
}

/**
 * One window of a bucket: at most `limit` calls in any stretch of `lengthMs`, wherever it begins.
 *
 * The platform counts a call when it arrives, which is some time between the grant and the end of the call. So a
 * grant takes its place from the moment it is given until `lengthMs` after the call has ended: whatever calls spend on
 * their way, no window of the platform can hold more than `limit` of them. It also keeps its place for `spanMs` from
 * the grant on, which is what leaves a share of the limit unused: `limit / spanMs` is the lasting pace.
 */
interface RateWindow {
  limit: number;
  lengthMs: number;
  spanMs: number;
  /** Places that calls of this priority may fill; frames leave the last ones to calls that a person waits for. */
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
  priority: RatePriority,
  [limit, lengthMs]: [number, number],
): RateWindow {
  const reserve = priority === "frame" && limit > 1 ? Math.max(1, Math.floor(limit / 50)) : 0;
  return {
    limit,
    lengthMs,
    spanMs: lengthMs / share,
    usable: limit - reserve,
    spacedFrom: priority === "frame" && lengthMs > 1_000 ? Math.max(1, Math.floor(limit / 2)) : 0,
  };
}

/** The windows that a grant of this bucket has to fit into. Throws a RangeError on a limit below 1. */
export function rateWindowsOf(
  bucket: RateBucket,
  priority: RatePriority,
): { second?: RateWindow; minute?: RateWindow } {
  const { perSecond, perMinute } = bucket;
  for (const limit of [perSecond, perMinute]) {
    if (limit !== undefined && !(limit >= 1)) {
      throw new RangeError(`the limit of bucket ${bucket.key} is below 1`);
    }
  }
  return {
    ...(perSecond === undefined ? {} : { second: windowOf(bucket, priority, [perSecond, 1_000]) }),
    ...(perMinute === undefined ? {} : { minute: windowOf(bucket, priority, [perMinute, 60_000]) }),
  };
}

/** What the windows of a bucket hold at one moment. */
interface BucketCounts {
  second: number;
  minute: number;
  /** Clock ms; 0 or past: not paused. */
  pausedUntil: number;
  /** What the platform has named as its limit, where it is lower than ours. */
  ceilings: { second?: number | undefined; minute?: number | undefined };
}

/** How full a bucket is at `nowMs`, as what a person waits for finds it. */
function bucketStateOf(bucket: RateBucket, counts: BucketCounts, nowMs: number): BucketState {
  const { second, minute } = rateWindowsOf(bucket, "final");
  const places = [
    ...(second === undefined
      ? []
      : [[usableOf(second, counts.ceilings.second), counts.second] as const]),
    ...(minute === undefined
      ? []
      : [[usableOf(minute, counts.ceilings.minute), counts.minute] as const]),
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
function usableOf({ limit, usable }: RateWindow, ceiling: number | undefined): number {
  return ceiling === undefined || ceiling >= limit
    ? usable
    : Math.max(1, ceiling - (limit - usable));
}

/** How long a limit that the platform has named is believed, ms. */
const ceilingMs = 10 * 60_000;

/** The app of these buckets: their keys up to the first colon. Throws a RangeError when it is not one app. */
function appOfBuckets(buckets: readonly { key: string }[]): string {
  const apps = new Set(buckets.map(({ key }) => key.slice(0, Math.max(0, key.indexOf(":")))));
  const [app = ""] = apps;
  if (app !== "" && apps.size === 1) return app;
  throw new RangeError(
    `the buckets ${buckets.map(({ key }) => key).join(", ")} do not begin with one app`,
  );
}

/** Longest value that a lookup cache keeps, in bytes of UTF-8. */
const maxLookupBytes = 4_096;

/**
 * What one app hands to another one: reactions that ingress adds and workers remove, for whom workers have had a vendor
 * keep a `response`, and the time `zone` that the platform names for a person.
 */
const shared: ReadonlySet<string> = new Set(["reaction", "response", "zone"]);

const longestPlainKey = 64;

/**
 * Small facts that cost a call to find out (names, kinds of chats, ids of reactions), shared by all
 * processes and forgotten in time. Losing one is harmless.
 */
export class LookupCache {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #owner: string;

  /** `owner`: whose facts these are. What another app has looked up is not believed. */
  constructor({
    redis,
    namespace,
    owner,
  }: StoreOptions & { owner: "ingress" | "worker" | "console" }) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#owner = owner;
  }

  /** `key` is any text up to 200 characters. */
  async get(key: string): Promise<string | undefined> {
    return (await this.#redis.get(this.#keyOf(key))) ?? undefined;
  }

  /** A value longer than {@link maxLookupBytes} is not kept. */
  async set(key: string, value: string, ttlMs: number): Promise<void> {
    if (Buffer.byteLength(value) > maxLookupBytes) await this.#redis.del(this.#keyOf(key));
    else await this.#redis.set(this.#keyOf(key), value, "PX", Math.max(1, Math.floor(ttlMs)));
  }

  /** Removes and returns it: at most one caller gets it. */
  async take(key: string): Promise<string | undefined> {
    return (await this.#redis.getdel(this.#keyOf(key))) ?? undefined;
  }

  async delete(key: string): Promise<void> {
    await this.#redis.del(this.#keyOf(key));
  }

  #keyOf(key: string): string {
    const isShort = key.length <= longestPlainKey;
    const [kind = ""] = key.split(":", 1);
    const [place, name] = shared.has(kind)
      ? [kind, key.slice(kind.length + 1)]
      : [this.#owner, key];
    // The colon keeps hashed keys apart from plain ones, which are shorter than a hash with it.
    return this.#keys.lookupOf(
      place,
      isShort ? name : `:${createHash("sha256").update(name).digest("hex")}`,
    );
  }
}

/** Longest time one process may take to fetch before another tries. */
const fetchTimeoutMs = 10_000;

type Fetch = () => Promise<{ value: string; ttlMs: number }>;

// A local copy spares Redis a read per platform call; a refused token is dropped at once anyway.
const localTtlMs = 30_000;
const pollMs = 25;

const unlockToken = script("unlock-token");

/** Where access tokens come from: the cache that all processes share, or the caller's own memory. */
export interface TokenSource {
  get(name: string, fetch: Fetch, rejected?: string): Promise<string>;
}

/** A value that all processes share and only one fetches at a time (vendor access tokens). */
export class TokenCache implements TokenSource {
  readonly #redis: RedisConnection;
  readonly #keyOf: (name: string) => string;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #local = new Map<string, { value: string; untilMs: number }>();
  readonly #inFlight = new Map<string, Promise<string>>();

  constructor(options: StoreOptions) {
    const keys = createKeyspace(options.namespace);
    this.#redis = options.redis;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
    this.#keyOf = keys.tokenOf;
  }

  /**
   * The cached value under `key`, or the result of `fetch`, which at most one process runs at a
   * time; the others wait for it. A cached value equal to `rejected` (the platform refused it) is
   * dropped and fetched again once. Fails with the error of `fetch`.
   */
  async get(name: string, fetch: Fetch, rejected?: string): Promise<string> {
    const local = this.#local.get(name);
    if (local !== undefined && local.untilMs > this.#clock.now() && local.value !== rejected) {
      return local.value;
    }
    const flight = `${name} ${rejected ?? ""}`;
    const running = this.#inFlight.get(flight) ?? this.#load(name, fetch, rejected);
    this.#inFlight.set(flight, running);
    try {
      return await running;
    } finally {
      this.#inFlight.delete(flight);
    }
  }

  /** How long the value that is kept under a name is still good for, ms; undefined when none is. Fetches nothing. */
  async validity(name: string): Promise<number | undefined> {
    const ttlMs = await this.#redis.pttl(this.#keyOf(name));
    return ttlMs > 0 ? ttlMs : undefined;
  }

  async #load(name: string, fetch: Fetch, rejected: string | undefined): Promise<string> {
    const lock = this.#keyOf(`${name}:lock`);
    const owner = this.#random.uuid();
    for (;;) {
      const known = await this.#read(name, rejected);
      if (known !== undefined) return known;
      if ((await this.#redis.set(lock, owner, "PX", fetchTimeoutMs, "NX")) === "OK") break;
      await pause(this.#clock, pollMs); // ends at the latest when the lock expires
    }
    try {
      return (await this.#read(name, rejected)) ?? (await this.#fetch(name, fetch));
    } finally {
      await runScript(this.#redis, unlockToken, { lock }, { owner }).catch(() => undefined); // it expires by itself
    }
  }

  async #read(name: string, rejected: string | undefined): Promise<string | undefined> {
    const key = this.#keyOf(name);
    const [value, ttlMs] = await Promise.all([this.#redis.get(key), this.#redis.pttl(key)]);
    if (value === null || value === rejected) return undefined;
    this.#keep(name, value, ttlMs);
    return value;
  }

  async #fetch(name: string, fetch: Fetch): Promise<string> {
    const { value, ttlMs } = await fetch();
    await this.#redis.set(this.#keyOf(name), value, "PX", Math.max(1, Math.floor(ttlMs)));
    this.#keep(name, value, ttlMs);
    return value;
  }

  #keep(name: string, value: string, ttlMs: number): void {
    this.#local.set(name, {
      value,
      untilMs: this.#clock.now() + Math.min(Math.max(ttlMs, 0), localTtlMs),
    });
  }
}
