import { createHash } from "node:crypto";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

/** Longest value that a lookup cache keeps, in bytes of UTF-8. */
export const maxLookupBytes = 4_096;

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
