import type { SessionKey } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";
import { outboxFrom } from "./stored.ts";

/** Where an attempt of a call stands in the effect ledger. */
export type CallMark = "open" | "started" | "done";

/** A reply that is not delivered, without its content. */
export interface UnsentReply {
  id: string;
  attempts: number;
  createdAtMs: number;
  /** What the last try ended with. */
  problem?: string;
}

/** What one session has written down of work that is not done. */
export interface SessionLedger {
  /** By id of the attempt; calls of the running turn only. */
  calls: ReadonlyMap<string, CallMark>;
  /** Oldest first. */
  unsent: readonly UnsentReply[];
  /** When the oldest of them is tried next, epoch ms. */
  retryAtMs?: number;
}

/** Replies that are read; a session has more only while its platform is away. */
const maxUnsent = 50;

function markOf(stored: string): CallMark {
  const [word = ""] = stored.split(" ", 1);
  return word === "open" || word === "started" ? word : "done";
}

/** Reads the ledgers of a session as they stand, for people who look; nothing waits, and nothing is changed. */
export function createSessionLedgers(options: {
  redis: RedisConnection;
  namespace?: string;
}): (session: SessionKey) => Promise<SessionLedger> {
  const { redis, namespace = defaultNamespace } = options;
  const keyspace = createKeyspace(namespace);
  return async (session) => {
    const keys = keyspace.session(session);
    const [calls, outbox, dueAtMs] = await Promise.all([
      redis.hgetall(keys.calls),
      redis.lrange(keys.outbox, 0, maxUnsent - 1),
      redis.zscore(keys.due, session),
    ]);
    const unsent = outbox.map(outboxFrom).map(({ id, attempts, createdAtMs, problem }) => ({
      id,
      attempts,
      createdAtMs,
      ...(problem === undefined ? {} : { problem }),
    }));
    return {
      calls: new Map(Object.entries(calls).map(([id, stored]) => [id, markOf(stored)])),
      unsent,
      ...(dueAtMs === null || unsent.length === 0 ? {} : { retryAtMs: Number(dueAtMs) }),
    };
  };
}
