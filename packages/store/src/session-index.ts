import type { SessionKey } from "@larkline/protocol";
import type { OutboxRecord } from "./session-store.ts";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace, type CellKeys } from "./keys.ts";
import { outboxFrom } from "./stored.ts";

/** A session in a list. */
export interface IndexedSession {
  session: SessionKey;
  /** Epoch ms at which something last happened to it, as far as the index knows. */
  atMs: number;
}

/** Finds sessions without going through all of them: for people who look. Every read is bounded. */
export interface SessionIndex {
  /** Those that are queued, running, wait for tools or people, or hold unsent replies; each once, in no certain order. */
  busy(limit: number): Promise<SessionKey[]>;
  /**
   * Those that finished a turn last, newest first; with `prefixes` only those whose key begins with one of them, as
   * far as they are among the newest few thousand.
   */
  recent(limit: number, prefixes?: readonly string[]): Promise<IndexedSession[]>;
  /** Those that somebody has written in, in no certain order. */
  ofPerson(person: string, limit: number): Promise<SessionKey[]>;
  /** Replies of a session that are not delivered, oldest first. */
  unsent(session: SessionKey, limit: number): Promise<OutboxRecord[]>;
}

export interface RedisSessionIndexOptions {
  redis: RedisConnection;
  /** That of the session store. */
  namespace?: string;
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

/** The session index on Redis: reads the sorted sets of the sixteen cells. */
export function createRedisSessionIndex({ redis, namespace }: RedisSessionIndexOptions): SessionIndex {
  const keyspace = createKeyspace(namespace ?? defaultNamespace);

  async function recentOf({ ended }: CellKeys): Promise<IndexedSession[]> {
    const list = await redis.zrevrange(ended, 0, recentPerCell - 1, "WITHSCORES");
    return list.flatMap((session, at) => (at % 2 === 0 ? [{ session, atMs: Number(list[at + 1]) }] : []));
  }

  return {
    busy: async (limit) => {
      const keys = keyspace.cells().flatMap(indexesOf);
      const members = await Promise.all(keys.map(async (key) => await redis.zrange(key, "0", String(limit - 1))));
      return [...new Set(members.flat().map(sessionIn))].slice(0, limit);
    },
    recent: async (limit, prefixes = [""]) => {
      const lists = await Promise.all(keyspace.cells().map(recentOf));
      return lists
        .flat()
        .filter(({ session }) => prefixes.some((prefix) => session.startsWith(prefix)))
        .sort((one, other) => other.atMs - one.atMs)
        .slice(0, limit);
    },
    ofPerson: async (person, limit) => {
      const [from, to] = [`[${person}|`, `(${person}}`]; // the bar, and what comes after it
      const keys = keyspace.cells().map(({ people }) => people);
      const members = await Promise.all(
        keys.map(async (key) => await redis.zrangebylex(key, from, to, "LIMIT", 0, limit)),
      );
      return members
        .flat()
        .map((member) => member.slice(person.length + 1))
        .slice(0, limit);
    },
    unsent: async (session, limit) => {
      const records = await redis.lrange(keyspace.session(session).outbox, 0, limit - 1);
      return records.map(outboxFrom);
    },
  };
}
