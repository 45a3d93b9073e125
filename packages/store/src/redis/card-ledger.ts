import { sharedNow, type SessionKey } from "@larkline/protocol";
import type { CardFence, CardLedger, CardReply } from "../index.ts";
import type { RedisConnection } from "./connection.ts";
import { saveCardsLua } from "./gate-lua.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";
import { duePairs } from "./oldest-members.ts";
import { defineScript } from "./script.ts";
import { cardsFrom } from "./stored.ts";

export interface RedisCardLedgerOptions {
  redis: RedisConnection;
  /** That of the session store, whose epochs and outboxes are the fences. */
  namespace?: string;
}

/** The card ledger on Redis, beside the sessions that it belongs to. */
export function createRedisCardLedger(options: RedisCardLedgerOptions): CardLedger {
  const { redis } = options;
  const keyspace = createKeyspace(options.namespace ?? defaultNamespace);
  const saveCards = defineScript(redis, "cards_save", saveCardsLua);

  return {
    load: async (session: SessionKey, replyId: string) => {
      const text = await redis.hget(keyspace.session(session).cards, replyId);
      return text === null ? undefined : cardsFrom(text);
    },
    save: async (reply: CardReply, fence: CardFence) => {
      const { session, replyId } = reply;
      const keys = keyspace.session(session);
      const proof = "epoch" in fence ? ["epoch", fence.epoch] : ["outbox", fence.outboxToken];
      const saved = await saveCards(
        [keys.session, keys.inbox, keys.outbox, keys.cards, keys.openCards, keys.state],
        [session, replyId, JSON.stringify(reply), ...proof],
      );
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
