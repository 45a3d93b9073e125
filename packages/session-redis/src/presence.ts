import { sharedNow } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";

export interface RedisPresenceOptions {
  redis: RedisConnection;
  namespace?: string;
}

/** Which processes are alive, as told by their own heartbeats. */
export interface Presence {
  /** Says that `id` lives; forgotten after `ttlMs` without another beat. */
  beat(id: string, ttlMs: number): Promise<void>;
  leave(id: string): Promise<void>;
  /** Those of `ids` that live. */
  alive(ids: readonly string[]): Promise<Set<string>>;
  /** All that live. For diagnosis: it may miss one that began a moment ago. */
  members(): Promise<string[]>;
  /** Takes a periodic duty for `ttlMs`; false when somebody else has it. */
  takeDuty(duty: string, id: string, ttlMs: number): Promise<boolean>;
}

const forgetMs = 24 * 3_600_000;

export function createRedisPresence({ redis, namespace = defaultNamespace }: RedisPresenceOptions): Presence {
  const keys = createKeyspace(namespace);
  const keyOf = (id: string): string => keys.global(`alive:${id}`);
  const index = keys.global("workers");
  const alive = async (ids: readonly string[]): Promise<Set<string>> => {
    if (ids.length === 0) return new Set();
    const values = await redis.mget(ids.map(keyOf));
    return new Set(ids.filter((_, at) => values[at] !== null));
  };
  return {
    beat: async (id, ttlMs) => {
      await redis.set(keyOf(id), "1", "PX", ttlMs);
      await redis.zadd(index, String(sharedNow()), id);
    },
    leave: async (id) => {
      await redis.del(keyOf(id));
      await redis.zrem(index, id);
      // Those that died without a word.
      await redis.zremrangebyscore(index, "-inf", String(sharedNow() - forgetMs));
    },
    alive,
    members: async () => [...(await alive(await redis.zrange(index, "0", "-1")))],
    takeDuty: async (duty, id, ttlMs) => (await redis.set(keys.global(`duty:${duty}`), id, "PX", ttlMs, "NX")) === "OK",
  };
}
