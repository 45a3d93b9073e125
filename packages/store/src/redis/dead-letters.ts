import { sharedNow, type SessionKey } from "@larkline/protocol";
import {
  deadLetterLimits,
  letterFactsOf,
  letterOfReply,
  replyAgain,
  type DeadLetter,
  type DeadLetterFacts,
  type DeadLetters,
  type OutboxLease,
} from "../index.ts";
import type { RedisConnection } from "./connection.ts";
import { addLetterLua, buryLua, resendLua } from "./dead-letters-lua.ts";
import { createKeyspace, defaultNamespace, type CellKeys, type Keyspace } from "./keys.ts";
import { defineScript, type Script } from "./script.ts";
import { cardsFrom, outboxFrom } from "./stored.ts";

export interface RedisDeadLettersOptions {
  redis: RedisConnection;
  /** That of the session store, whose outboxes letters come from. */
  namespace?: string;
  /** How long the right to send the next reply lasts. Default 10 s. */
  outboxLeaseMs?: number;
}

const { keptMs, perCell } = deadLetterLimits;

/** Session keys have no bar. */
function memberOf(session: SessionKey, id: string): string {
  return `${session}|${id}`;
}

function letterFrom(text: string, cards: string | null): DeadLetter {
  const letter = JSON.parse(text) as DeadLetter; // written by add and bury from the same type
  return letter.kind === "reply" && cards !== null ? { ...letter, cards: cardsFrom(cards) } : letter;
}

/** The dead letters on Redis, in the cells of their sessions. */
export function createRedisDeadLetters(options: RedisDeadLettersOptions): DeadLetters {
  return new RedisDeadLetters(options);
}

class RedisDeadLetters implements DeadLetters {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #leaseMs: number;
  readonly #scripts: { add: Script; bury: Script; resend: Script };

  constructor({ redis, namespace = defaultNamespace, outboxLeaseMs = 10_000 }: RedisDeadLettersOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#leaseMs = outboxLeaseMs;
    this.#scripts = {
      add: defineScript(redis, "letters_add", addLetterLua),
      bury: defineScript(redis, "letters_bury", buryLua),
      resend: defineScript(redis, "letters_resend", resendLua),
    };
  }

  async add(letter: DeadLetter): Promise<void> {
    const { letters, lettersByTime } = this.#keys.session(letter.session);
    const member = memberOf(letter.session, letter.id);
    await this.#scripts.add([letters, lettersByTime], [member, JSON.stringify(letter), keptMs, perCell]);
  }

  async bury({ token, record }: OutboxLease, reason: string): Promise<OutboxLease | undefined> {
    const { session } = record;
    const keys = this.#keys.session(session);
    const letter = letterOfReply(record, reason, sharedNow());
    const reply = await this.#scripts.bury(
      [keys.session, keys.outbox, keys.due, keys.cards, keys.openCards, keys.letters, keys.lettersByTime],
      [session, token, this.#leaseMs, memberOf(session, letter.id), JSON.stringify(letter), keptMs, perCell],
    );
    const next = String(reply);
    return next === "" ? undefined : { token, record: outboxFrom(next) };
  }

  async resend(session: SessionKey, id: string): Promise<boolean> {
    const letter = await this.find(session, id);
    if (letter?.kind !== "reply") return false;
    const keys = this.#keys.session(session);
    const again = replyAgain(letter, sharedNow());
    const done = await this.#scripts.resend(
      [keys.outbox, keys.due, keys.cards, keys.openCards, keys.letters, keys.lettersByTime],
      [session, memberOf(session, id), JSON.stringify(again), again.id],
    );
    return done === 1;
  }

  async find(session: SessionKey, id: string): Promise<DeadLetter | undefined> {
    const { letters } = this.#keys.session(session);
    const member = memberOf(session, id);
    const [text = null, cards = null] = await this.#redis.hmget(letters, member, `${member}|cards`);
    return text === null ? undefined : letterFrom(text, cards);
  }

  async discard(session: SessionKey, id: string): Promise<boolean> {
    const { letters, lettersByTime } = this.#keys.session(session);
    const member = memberOf(session, id);
    const removed = await this.#redis.hdel(letters, member, `${member}|cards`);
    await this.#redis.zrem(lettersByTime, member);
    return removed > 0;
  }

  async list(limit: number): Promise<DeadLetterFacts[]> {
    const lists = await Promise.all(this.#keys.cells().map(async (cell) => await this.#newestOf(cell, limit)));
    return lists
      .flat()
      .sort((one, other) => other.atMs - one.atMs)
      .slice(0, limit);
  }

  async count(): Promise<number> {
    const oldestMs = sharedNow() - keptMs;
    const counts = this.#keys
      .cells()
      .map(async (cell) => await this.#redis.zcount(cell.lettersByTime, oldestMs, "+inf"));
    return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
  }

  async #newestOf({ letters, lettersByTime }: CellKeys, limit: number): Promise<DeadLetterFacts[]> {
    const oldestMs = sharedNow() - keptMs;
    const members = await this.#redis.zrevrangebyscore(lettersByTime, "+inf", oldestMs, "LIMIT", 0, limit);
    if (members.length === 0) return [];
    const texts = await this.#redis.hmget(letters, ...members);
    return texts.flatMap((text) => (text === null ? [] : [letterFactsOf(letterFrom(text, null))]));
  }
}
