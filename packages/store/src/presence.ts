import { sharedNow, type SessionKey } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

const forgetMs = 24 * 3_600_000;
/** Sessions of a worker that has left are taken up within seconds. */
const leftKeptMs = 3_600_000;
/** Longer than a sweeper needs to find a session once it can be written again; noted anew while it cannot. */
const unreleasedKeptMs = 3_600_000;

/** Which processes are alive, by their own heartbeats. */
export class Presence {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #workers: string;

  constructor({ redis, namespace }: StoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#workers = this.#keys.global("workers");
  }

  /** Says once that `id` lives; forgotten after `ttlMs`. Processes say it again and again by `Renewals`. */
  async beat(id: string, ttlMs: number): Promise<void> {
    await this.#redis.set(this.#aliveKey(id), "1", "PX", ttlMs);
    await this.#redis.zadd(this.#workers, String(sharedNow()), id);
  }

  /** Says that `id` ends in an orderly way; kept for an hour. */
  async leave(id: string): Promise<void> {
    await this.#redis.set(this.#leftKey(id), "1", "PX", leftKeptMs);
    await this.#redis.del(this.#aliveKey(id));
    await this.#redis.zrem(this.#workers, id);
    // Those that died without a word.
    await this.#redis.zremrangebyscore(this.#workers, "-inf", String(sharedNow() - forgetMs));
  }

  /** Whether it has left in the last hour. */
  async hasLeft(id: string): Promise<boolean> {
    return (await this.#redis.mget(this.#leftKey(id)))[0] !== null;
  }

  /**
   * Says that `id` could not give a session back, since its part of Redis took no writes: the run of this epoch
   * must not count as a try. Kept for an hour, outside of that part.
   */
  async noteUnreleased(id: string, session: SessionKey, epoch: string): Promise<void> {
    await this.#redis.set(this.#unreleasedKey(id, session), epoch, "PX", unreleasedKeptMs);
  }

  /** The epoch of such a run. */
  async unreleased(id: string, session: SessionKey): Promise<string | undefined> {
    return (await this.#redis.mget(this.#unreleasedKey(id, session)))[0] ?? undefined;
  }

  /** Those of `ids` that live. */
  async alive(ids: readonly string[]): Promise<Set<string>> {
    if (ids.length === 0) return new Set();
    const values = await this.#redis.mget(ids.map((id) => this.#aliveKey(id)));
    return new Set(ids.filter((_, at) => values[at] !== null));
  }

  /** All that live. For diagnosis: it may miss one that began a moment ago. */
  async members(): Promise<string[]> {
    return [...(await this.alive(await this.#redis.zrange(this.#workers, "0", "-1")))];
  }

  /** Takes a periodic duty for `ttlMs`; false when another process has it. */
  async takeDuty(duty: string, id: string, ttlMs: number): Promise<boolean> {
    return (await this.#redis.set(this.#keys.global(`duty:${duty}`), id, "PX", ttlMs, "NX")) === "OK";
  }

  #aliveKey(id: string): string {
    return this.#keys.global(`alive:${id}`);
  }

  #leftKey(id: string): string {
    return this.#keys.global(`alive:${id}:left`);
  }

  #unreleasedKey(id: string, session: SessionKey): string {
    return this.#keys.global(`alive:${id}:unexcused:${session}`);
  }
}
