import { sharedNow } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";

/** How one process gets the events of one app. */
export interface AppFeed {
  app: string;
  transport: "websocket" | "webhook";
  /** Of a long connection: its state. A webhook listens as long as its process lives. */
  state: string;
  /** Epoch ms; absent before the first event. */
  lastEventAtMs?: number;
}

/** One process of a deployment, as it tells about itself. */
export interface Instance {
  id: string;
  /** Such as `ingress`. */
  service: string;
  host: string;
  version: string;
  /** The form of what it stores, see {@link stateVersion}; absent: the first. */
  stateVersion?: number;
  startedAtMs: number;
  /** Apps as which it speaks. */
  apps: readonly string[];
  /** Apps whose events it takes. */
  feeds: readonly AppFeed[];
  /** Which clocks it finds to differ, in English; absent: none. */
  clock?: string | undefined;
}

/** One that has not said goodbye. */
export interface KnownInstance extends Instance {
  /** Epoch ms; past: it has gone without a word. */
  expiresAtMs: number;
}

/** Which processes there are: for people who look, and for workers that wait until older ones have stopped. */
export interface InstanceDirectory {
  /** Announces or renews an instance; it counts as gone after `ttlMs` without another word. */
  announce(instance: Instance, ttlMs: number): Promise<void>;
  withdraw(id: string): Promise<void>;
  /** The living ones, and those that went silent within the last hour. */
  instances(): Promise<KnownInstance[]>;
}

/**
 * The form in which sessions are stored. Raised when processes of an older form must have stopped before those of a
 * newer one may begin.
 */
export const stateVersion = 2;

/** How long an instance that went silent is still shown. */
export const silentInstanceMs = 3_600_000;

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
