import type { SessionKey } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { type CellKeys, createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";
import type { OutboxRecord } from "./session-types.ts";
import { outboxFrom } from "./stored.ts";

/** A session in a list. */
export interface IndexedSession {
  session: SessionKey;
  /** Epoch ms at which something last happened to it, as far as the index knows. */
  atMs: number;
}

/** Members of some indexes begin with the session and a bar, which session keys do not have. */
function sessionIn(member: string): string {
  const bar = member.indexOf("|");
  return bar < 0 ? member : member.slice(0, bar);
}

function indexesOf({ dirty, deadlines, expiries, due }: CellKeys): string[] {
  return [dirty, deadlines, expiries, due];
}

/** How many of the newest sessions of a cell are looked through. */
const recentPerCell = 500;

/** Finds sessions without going through all of them: for people who look. Every read is bounded. */
export class SessionIndex {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;

  constructor({ redis, namespace }: StoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
  }

  /** Those that are queued, running, wait for tools or people, or hold unsent replies; each once, in no certain order. */
  async busy(limit: number): Promise<SessionKey[]> {
    const keys = this.#keys.cells().flatMap(indexesOf);
    const members = await Promise.all(keys.map(async (key) => await this.#redis.zrange(key, "0", String(limit - 1))));
    return [...new Set(members.flat().map(sessionIn))].slice(0, limit);
  }

  /**
   * Those that finished a turn last, newest first; with `prefixes` only those whose key begins with one of them, as
   * far as they are among the newest few thousand.
   */
  async recent(limit: number, prefixes: readonly string[] = [""]): Promise<IndexedSession[]> {
    const lists = await Promise.all(this.#keys.cells().map(async ({ ended }) => await this.#recentIn(ended)));
    return lists
      .flat()
      .filter(({ session }) => prefixes.some((prefix) => session.startsWith(prefix)))
      .sort((one, other) => other.atMs - one.atMs)
      .slice(0, limit);
  }

  async #recentIn(ended: string): Promise<IndexedSession[]> {
    const list = await this.#redis.zrevrange(ended, 0, recentPerCell - 1, "WITHSCORES");
    return list.flatMap((session, at) => (at % 2 === 0 ? [{ session, atMs: Number(list[at + 1]) }] : []));
  }

  /** Those that a person has written in, in no certain order. */
  async ofPerson(person: string, limit: number): Promise<SessionKey[]> {
    const [from, to] = [`[${person}|`, `(${person}}`]; // the bar, and what comes after it
    const keys = this.#keys.cells().map(({ people }) => people);
    const members = await Promise.all(
      keys.map(async (key) => await this.#redis.zrangebylex(key, from, to, "LIMIT", 0, limit)),
    );
    return members
      .flat()
      .map((member) => member.slice(person.length + 1))
      .slice(0, limit);
  }

  /** Replies of a session that are not delivered, oldest first. */
  async unsent(session: SessionKey, limit: number): Promise<OutboxRecord[]> {
    const records = await this.#redis.lrange(this.#keys.session(session).outbox, 0, limit - 1);
    return records.map(outboxFrom);
  }
}
