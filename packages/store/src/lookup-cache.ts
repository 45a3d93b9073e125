import { createHash } from "node:crypto";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";

/** Longest value that a lookup cache keeps, in bytes of UTF-8. */
export const maxLookupBytes = 4_096;

/**
 * Small facts that cost a call to find out (names, kinds of chats, ids of reactions), shared by all
 * processes and forgotten in time. Losing one is harmless.
 */
export interface LookupCache {
  /** `key` is any text up to 200 characters. */
  get(key: string): Promise<string | undefined>;
  /** A value longer than {@link maxLookupBytes} is not kept. */
  set(key: string, value: string, ttlMs: number): Promise<void>;
  /** Removes and returns it: at most one caller gets it. */
  take(key: string): Promise<string | undefined>;
  delete(key: string): Promise<void>;
}

export interface RedisLookupCacheOptions {
  redis: RedisConnection;
  namespace?: string;
  /** Whose facts these are: what another app has looked up is not believed. */
  owner: "ingress" | "worker" | "console";
}

/** What one app hands to another one: reactions that ingress adds and workers take back. */
const shared = "reaction";

const longestPlainKey = 64;

/** The lookup cache on Redis; expiry is Redis's. */
export function createRedisLookupCache(options: RedisLookupCacheOptions): LookupCache {
  const { redis, owner } = options;
  const keyspace = createKeyspace(options.namespace ?? defaultNamespace);

  function keyOf(key: string): string {
    const isShort = key.length <= longestPlainKey;
    const [kind = ""] = key.split(":", 1);
    const [place, name] = kind === shared ? [kind, key.slice(kind.length + 1)] : [owner, key];
    // The colon keeps hashed keys apart from plain ones, which are shorter than a hash with it.
    return keyspace.lookup(`${place}:${isShort ? name : `:${createHash("sha256").update(name).digest("hex")}`}`);
  }

  return {
    get: async (key) => (await redis.get(keyOf(key))) ?? undefined,
    set: async (key, value, ttlMs) => {
      if (Buffer.byteLength(value) > maxLookupBytes) await redis.del(keyOf(key));
      else await redis.set(keyOf(key), value, "PX", Math.max(1, Math.floor(ttlMs)));
    },
    take: async (key) => (await redis.getdel(keyOf(key))) ?? undefined,
    delete: async (key) => {
      await redis.del(keyOf(key));
    },
  };
}
