import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";

/** Names of people and chats that are kept; of more the ones that were written longest ago go. */
const maxNames = 50_000;
const longestName = 80;
/** Names that are read at once when one is looked for. */
const readAtOnce = 1_000;

const keepNames = script("keep-names");

/** What people and chats are called, by their ids at the platform: for people who look at ids. Never content. */
export class NameBook {
  readonly #redis: RedisConnection;
  readonly #names: string;
  readonly #byTime: string;
  readonly #maxNames: number;

  constructor({ redis, namespace, most = maxNames }: StoreOptions & { most?: number }) {
    const keys = createKeyspace(namespace);
    this.#redis = redis;
    this.#names = keys.names;
    this.#byTime = keys.namesByTime;
    this.#maxNames = most;
  }

  /** Writes names down; an empty one says that the platform does not tell. */
  async keep(names: ReadonlyMap<string, string>, nowMs: number): Promise<void> {
    if (names.size === 0) return;
    const entries = [...names].flatMap(([id, name]) => [
      id,
      name.slice(0, longestName).toWellFormed(),
    ]);
    const keys = { names: this.#names, byTime: this.#byTime };
    await runScript(this.#redis, keepNames, keys, { nowMs, most: this.#maxNames, entries });
  }

  /** Those ids that nothing was written about since, in their order. */
  async unknown(ids: readonly string[], sinceMs: number): Promise<string[]> {
    if (ids.length === 0) return [];
    const times = await this.#redis.zmscore(this.#byTime, [...ids]);
    return ids.filter((_, at) => Number(times[at] ?? 0) < sinceMs);
  }

  /** Names by id; those that are not known are missing. */
  async of(ids: Iterable<string>): Promise<ReadonlyMap<string, string>> {
    const wanted = [...new Set(ids)].filter((id) => id !== "");
    if (wanted.length === 0) return new Map();
    const names = await this.#redis.hmget(this.#names, ...wanted);
    return new Map(
      wanted.flatMap((id, at): [string, string][] => (names[at] ? [[id, names[at]]] : [])),
    );
  }

  /** Ids of those whose name has the text in it, however it is written. */
  async find(text: string, limit: number): Promise<string[]> {
    const wanted = text.toLowerCase();
    const found: string[] = [];
    let cursor = "0";
    do {
      const [next, read] = await this.#redis.hscan(this.#names, cursor, "COUNT", readAtOnce);
      for (let at = 0; at < read.length; at += 2) {
        const [id = "", name = ""] = read.slice(at, at + 2);
        if (name.toLowerCase().includes(wanted) && !found.includes(id)) found.push(id);
      }
      cursor = next;
    } while (cursor !== "0" && found.length < limit);
    return found.slice(0, limit);
  }

  async erase(ids: readonly string[]): Promise<void> {
    if (ids.length === 0) return;
    await this.#redis.hdel(this.#names, ...ids);
    await this.#redis.zrem(this.#byTime, ...ids);
  }
}
