import { sharedNow } from "@larkline/protocol";
import { silentInstanceMs, type InstanceDirectory, type KnownInstance } from "../index.ts";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";

export interface RedisInstanceDirectoryOptions {
  redis: RedisConnection;
  namespace?: string;
}

/**
 * The instance directory on Redis: one hash. Times are of the clocks of the processes, which are
 * compared with each other only for people who look.
 */
export function createRedisInstanceDirectory(options: RedisInstanceDirectoryOptions): InstanceDirectory {
  const { redis } = options;
  const key = createKeyspace(options.namespace ?? defaultNamespace).global("instances");
  const known = async (): Promise<KnownInstance[]> =>
    Object.values(await redis.hgetall(key)).map((text) => JSON.parse(text) as KnownInstance); // written by announce
  /** Those that nobody is shown any more are removed by whoever comes and goes. */
  const purge = async (): Promise<void> => {
    const old = (await known()).filter(({ expiresAtMs }) => expiresAtMs <= sharedNow() - silentInstanceMs);
    if (old.length > 0) await redis.hdel(key, ...old.map(({ id }) => id));
  };
  return {
    announce: async (instance, ttlMs) => {
      const stored: KnownInstance = { ...instance, expiresAtMs: sharedNow() + ttlMs };
      if ((await redis.hset(key, instance.id, JSON.stringify(stored))) > 0) await purge();
    },
    withdraw: async (id) => {
      await redis.hdel(key, id);
      await purge();
    },
    instances: async () => (await known()).filter(({ expiresAtMs }) => expiresAtMs > sharedNow() - silentInstanceMs),
  };
}
