import { type SessionKey, sharedNow } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";
import { duePairs } from "./oldest-members.ts";
import { runScript, script } from "./script.ts";
import { cardsFrom } from "./stored.ts";

/** One card of a reply, as far as a writer that did not make it has to know it. */
export interface CardEntry {
  /** Empty until the platform has created it. */
  cardId: string;
  /** Message that shows it; absent until sent. */
  messageId?: string;
  /** Idempotency key of the send, at most 50 characters. */
  uuid: string;
  /** Highest operation number that may have been used; whoever goes on starts above it. */
  reservedSequence: number;
  /** Epoch ms at which streaming was last enabled; 0 while it is off. */
  streamingSinceMs: number;
  /** `closed`: shows its last frame, and that was verified. `dead`: cannot be written to any more. */
  state: "created" | "sent" | "closed" | "dead";
  /** Part of the answer that it shows, in characters; without `to` it is the open one. */
  from: number;
  to?: number;
  bytes: number;
  elements: number;
  tables: number;
  /** Replaceable elements that it shows, by id, each with a hash of what was last sent. */
  parts: Record<string, string>;
}

/** How eagerly a reply is written: each step down costs the platform fewer calls. */
export const replyModes = ["typewriter", "slow", "final", "text"] as const;
export type ReplyMode = (typeof replyModes)[number];

/** All that is known of the cards of one reply. */
export interface CardReply {
  v: 1;
  /** Id of the turn, and of its outbox record. */
  replyId: string;
  session: SessionKey;
  app: string;
  chatId: string;
  mode: ReplyMode;
  cards: CardEntry[];
  /** The file with the rest of a very long answer: its key once uploaded, its message once sent. */
  file?: { key: string; messageId?: string };
  createdAtMs: number;
}

/**
 * The right to write: of the worker whose turn the reply is, until the commit, or of whoever holds
 * the session's outbox while the reply is at its head.
 */
export type CardFence = { epoch: string } | { outboxToken: string };

/** The durable record of the cards of replies that are not delivered yet. */
export interface CardLedger {
  load(session: SessionKey, replyId: string): Promise<CardReply | undefined>;
  /** Stores the whole record. False when the fence is not the session's current one: stop writing. */
  save(reply: CardReply, fence: CardFence): Promise<boolean>;
  /**
   * Whether every earlier reply of the session is delivered or given up. Until then a new card would
   * stand above an answer that people expect before it.
   */
  mayAppear(session: SessionKey): Promise<boolean>;
  /** Replies nobody has written since `beforeMs`, oldest first: suspended, waiting in an outbox, or orphans. */
  untouched(beforeMs: number, limit: number): Promise<{ session: SessionKey; replyId: string }[]>;
  /** Somebody has looked at it and left it: it counts as written now. */
  touch(session: SessionKey, replyId: string): Promise<void>;
  /** Drops the record of cards that nobody writes to any more. */
  forget(session: SessionKey, replyId: string): Promise<void>;
}

export interface RedisCardLedgerOptions {
  redis: RedisConnection;
  /** That of the session store, whose epochs and outboxes are the fences. */
  namespace?: string;
}

const saveCards = script("save-cards");

/** The card ledger on Redis, beside the sessions that it belongs to. */
export function createRedisCardLedger(options: RedisCardLedgerOptions): CardLedger {
  const { redis } = options;
  const keyspace = createKeyspace(options.namespace ?? defaultNamespace);

  return {
    load: async (session: SessionKey, replyId: string) => {
      const text = await redis.hget(keyspace.session(session).cards, replyId);
      return text === null ? undefined : cardsFrom(text);
    },
    save: async (reply: CardReply, fence: CardFence) => {
      const { session, replyId } = reply;
      const keys = keyspace.session(session);
      const proof =
        "epoch" in fence ? { fence: "epoch", holder: fence.epoch } : { fence: "outbox", holder: fence.outboxToken };
      const values = { sid: session, replyId, reply: JSON.stringify(reply), ...proof };
      const saved = await runScript(redis, saveCards, keys, values);
      return saved === 1;
    },
    mayAppear: async (session: SessionKey) => (await redis.llen(keyspace.session(session).outbox)) === 0,
    untouched: async (beforeMs: number, limit: number) => {
      const indexes = keyspace.cells().map(({ openCards }) => openCards);
      const pairs = await duePairs(redis, indexes, { untilMs: beforeMs, limit });
      return pairs.map(([session, replyId]) => ({ session, replyId }));
    },
    touch: async (session: SessionKey, replyId: string) => {
      const { openCards } = keyspace.session(session);
      await redis.zadd(openCards, "XX", sharedNow(), `${session}|${replyId}`);
    },
    forget: async (session: SessionKey, replyId: string) => {
      const { cards, openCards } = keyspace.session(session);
      await redis.multi().hdel(cards, replyId).zrem(openCards, `${session}|${replyId}`).exec();
    },
  };
}
