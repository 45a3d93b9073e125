import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";

export { beatForStalled } from "./presence.ts";

/** Longer than its session waits for the next worker, also over a night without one. */
const keptMs = 24 * 3_600_000;

/** Notes, from the last moment of a process, that it ended because its event loop stood still. */
export class StallNotes {
  readonly #redis: RedisConnection;
  readonly #keyOf: (id: string) => string;

  constructor({ redis, namespace }: StoreOptions) {
    this.#redis = redis;
    this.#keyOf = keysOf(namespace);
  }

  /** Why this process ended; undefined where it left no note. */
  async read(id: string): Promise<string | undefined> {
    return (await this.#redis.mget(this.#keyOf(id)))[0] ?? undefined;
  }
}

/** Leaves a note by a connection of its own, from a thread of the process that is about to end. */
export async function noteStall(
  { redisUrl, namespace, id }: { redisUrl: string; namespace: string; id: string },
  reason: string,
): Promise<void> {
  const redis = connectRedis(redisUrl);
  try {
    await redis.set(keysOf(namespace)(id), reason, "PX", keptMs);
  } finally {
    await closeRedis(redis);
  }
}

function keysOf(namespace: string | undefined): (id: string) => string {
  const keys = createKeyspace(namespace);
  return keys.stalledOf;
}
