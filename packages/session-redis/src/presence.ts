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
  /** Takes a periodic duty for `ttlMs`; false when somebody else has it. */
  takeDuty(duty: string, id: string, ttlMs: number): Promise<boolean>;
}

export function createRedisPresence({ redis, namespace = defaultNamespace }: RedisPresenceOptions): Presence {
  const keys = createKeyspace(namespace);
  const keyOf = (id: string): string => keys.global(`alive:${id}`);
  return {
    beat: async (id, ttlMs) => {
      await redis.set(keyOf(id), "1", "PX", ttlMs);
    },
    leave: async (id) => {
      await redis.del(keyOf(id));
    },
    alive: async (ids) => {
      if (ids.length === 0) return new Set();
      const values = await redis.mget(ids.map(keyOf));
      return new Set(ids.filter((_, index) => values[index] !== null));
    },
    takeDuty: async (duty, id, ttlMs) => (await redis.set(keys.global(`duty:${duty}`), id, "PX", ttlMs, "NX")) === "OK",
  };
}
