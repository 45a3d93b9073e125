import { sharedNow, type SessionKey } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";

export interface RedisPresenceOptions {
  redis: RedisConnection;
  namespace?: string;
}

/** Which processes are alive, as told by their own heartbeats. */
export interface Presence {
  /** Says once that `id` lives; forgotten after `ttlMs`. Processes say it again and again by `Renewals`. */
  beat(id: string, ttlMs: number): Promise<void>;
  /** Says that `id` ends in an orderly way; kept for an hour. */
  leave(id: string): Promise<void>;
  /** Whether it has left in the last hour. */
  hasLeft(id: string): Promise<boolean>;
  /**
   * Says that `id` could not give a session back, since its part of Redis took no writes: the run of this epoch is to
   * be excused before it counts. Kept for an hour, outside of that part.
   */
  noteUnexcused(id: string, session: SessionKey, epoch: string): Promise<void>;
  /** The epoch of such a run. */
  unexcused(id: string, session: SessionKey): Promise<string | undefined>;
  /** Those of `ids` that live. */
  alive(ids: readonly string[]): Promise<Set<string>>;
  /** All that live. For diagnosis: it may miss one that began a moment ago. */
  members(): Promise<string[]>;
  /** Takes a periodic duty for `ttlMs`; false when somebody else has it. */
  takeDuty(duty: string, id: string, ttlMs: number): Promise<boolean>;
}

const forgetMs = 24 * 3_600_000;
/** Sessions of a worker that has left are taken up within seconds. */
const leftKeptMs = 3_600_000;
/** Longer than a sweeper needs to find a session once it can be written again; noted anew while it cannot. */
const unexcusedKeptMs = 3_600_000;

export function createRedisPresence({ redis, namespace = defaultNamespace }: RedisPresenceOptions): Presence {
  const keys = createKeyspace(namespace);
  const keyOf = (id: string): string => keys.global(`alive:${id}`);
  const leftKeyOf = (id: string): string => keys.global(`alive:${id}:left`);
  const unexcusedKeyOf = (id: string, session: SessionKey): string => keys.global(`alive:${id}:unexcused:${session}`);
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
      await redis.set(leftKeyOf(id), "1", "PX", leftKeptMs);
      await redis.del(keyOf(id));
      await redis.zrem(index, id);
      // Those that died without a word.
      await redis.zremrangebyscore(index, "-inf", String(sharedNow() - forgetMs));
    },
    hasLeft: async (id) => (await redis.mget(leftKeyOf(id)))[0] !== null,
    noteUnexcused: async (id, session, epoch) => {
      await redis.set(unexcusedKeyOf(id, session), epoch, "PX", unexcusedKeptMs);
    },
    unexcused: async (id, session) => (await redis.mget(unexcusedKeyOf(id, session)))[0] ?? undefined,
    alive,
    members: async () => [...(await alive(await redis.zrange(index, "0", "-1")))],
    takeDuty: async (duty, id, ttlMs) => (await redis.set(keys.global(`duty:${duty}`), id, "PX", ttlMs, "NX")) === "OK",
  };
}
