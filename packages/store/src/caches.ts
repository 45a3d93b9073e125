import { createHash } from "node:crypto";
import { pause, sharedNow, systemClock, systemRandom, type Clock, type Random } from "@larkline/protocol";
import { type RedisConnection, runScript, script } from "./connection.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

/** Longest value that a lookup cache keeps, in bytes of UTF-8. */
const maxLookupBytes = 4_096;

/** What one app hands to another one: reactions that ingress adds and workers take back. */
const shared = "reaction";

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
  constructor({ redis, namespace, owner }: StoreOptions & { owner: "ingress" | "worker" | "console" }) {
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
    const [place, name] = kind === shared ? [kind, key.slice(kind.length + 1)] : [this.#owner, key];
    // The colon keeps hashed keys apart from plain ones, which are shorter than a hash with it.
    return this.#keys.lookup(`${place}:${isShort ? name : `:${createHash("sha256").update(name).digest("hex")}`}`);
  }
}

interface TokenCacheOptions extends StoreOptions {
  /** Longest time one process may take to fetch before another tries. Default 10 s. */
  fetchTimeoutMs?: number;
  /** The machine's if absent. */
  clock?: Clock;
}

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
  readonly #fetchTimeoutMs: number;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #local = new Map<string, { value: string; untilMs: number }>();
  readonly #inFlight = new Map<string, Promise<string>>();

  constructor(options: TokenCacheOptions) {
    const keys = createKeyspace(options.namespace);
    this.#redis = options.redis;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
    this.#keyOf = (name) => keys.global(`token:${name}`);
    this.#fetchTimeoutMs = options.fetchTimeoutMs ?? 10_000;
  }

  /**
   * The cached value under `key`, or the result of `fetch`, which at most one process runs at a
   * time; the others wait for it. A cached value equal to `rejected` (the platform refused it) is
   * dropped and fetched again once. Fails with the error of `fetch`.
   */
  async get(name: string, fetch: Fetch, rejected?: string): Promise<string> {
    const local = this.#local.get(name);
    if (local !== undefined && local.untilMs > sharedNow() && local.value !== rejected) return local.value;
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
      if ((await this.#redis.set(lock, owner, "PX", this.#fetchTimeoutMs, "NX")) === "OK") break;
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
    this.#local.set(name, { value, untilMs: sharedNow() + Math.min(Math.max(ttlMs, 0), localTtlMs) });
  }
}
