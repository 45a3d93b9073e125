import { createHash } from "node:crypto";
import { maxLookupBytes, type LookupCache } from "../index.ts";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";

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
