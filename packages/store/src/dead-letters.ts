import type { InboundMessage, SessionKey } from "@larkline/protocol";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import type { CardReply } from "./session-types.ts";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { type CellKeys, createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";
import type { OutboxLease, OutboxRecord } from "./session-types.ts";
import { cardsFrom, outboxFrom } from "./stored.ts";

interface LetterFacts {
  v: 1;
  /** Unique in its session: reporting the same failure twice gives one letter. */
  id: string;
  session: SessionKey;
  /** Why it was given up: codes and kinds of errors, never content. */
  reason: string;
  /** Epoch ms. */
  atMs: number;
  app?: string;
  turnId?: string;
  /** The person's message that it is about. */
  messageId?: string;
  traceId?: string;
}

/** An abandoned reply, message or question, with the data for a retry. */
export type DeadLetter =
  /** An answer or a notice that did not reach its person, as it was in the outbox, and its card record. */
  | (LetterFacts & { kind: "reply"; record: OutboxRecord; cards?: CardReply })
  /** A message whose runs crashed again and again. */
  | (LetterFacts & { kind: "message"; message: InboundMessage })
  /** A question that could be shown to no person. Its call has ended, so it cannot be retried. */
  | (LetterFacts & { kind: "approval"; approvalId: string; tool: string });

/** A letter in a list: without what people and models wrote. */
export type DeadLetterFacts = LetterFacts & { kind: DeadLetter["kind"] };

/** How many letters are kept, and for how long: the oldest go first. */
export const deadLetterLimits = { perCell: 100, keptMs: 14 * 24 * 60 * 60 * 1_000 } as const;

/** The letter of a reply that was given up. A turn's answer has the id of its turn. */
function letterOfReply(
  record: OutboxRecord,
  reason: string,
  atMs: number,
): DeadLetter & { kind: "reply" } {
  const { id, session, target } = record;
  return {
    v: 1,
    kind: "reply",
    id: `reply:${id}`,
    session,
    reason,
    atMs,
    app: target.app,
    ...(id.startsWith(`${session}-`) ? { turnId: id } : {}),
    ...(target.messageId === "" ? {} : { messageId: target.messageId }),
    ...traceOf(record),
    record,
  };
}

function traceOf({ view }: OutboxRecord): { traceId?: string } {
  const traceId = view?.footer.traceId;
  return traceId === undefined ? {} : { traceId };
}

/** The reply of a letter as it goes into the outbox again: its tries and its time count anew. */
function replyAgain({ record }: DeadLetter & { kind: "reply" }, nowMs: number): OutboxRecord {
  return { ...record, attempts: 0, againAtMs: nowMs };
}

/** A letter without its content. */
function letterFactsOf(letter: DeadLetter): DeadLetterFacts {
  const { v, id, session, kind, reason, atMs, app, turnId, messageId, traceId } = letter;
  return {
    v,
    id,
    session,
    kind,
    reason,
    atMs,
    ...(app === undefined ? {} : { app }),
    ...(turnId === undefined ? {} : { turnId }),
    ...(messageId === undefined ? {} : { messageId }),
    ...(traceId === undefined ? {} : { traceId }),
  };
}

interface DeadLettersOptions extends StoreOptions {
  /** How long the right to send the next reply lasts. Default 10 s. */
  outboxLeaseMs?: number;
}

const { keptMs, perCell } = deadLetterLimits;
const [addLetter, moveReply, resend] = [
  script("add-letter"),
  script("move-to-dead-letters"),
  script("resend"),
];

/** Session keys have no bar. */
function memberOf(session: SessionKey, id: string): string {
  return `${session}|${id}`;
}

function letterFrom(text: string, cards: string | null): DeadLetter {
  const letter = JSON.parse(text) as DeadLetter; // written by add and moveToDeadLetters from the same type
  return letter.kind === "reply" && cards !== null
    ? { ...letter, cards: cardsFrom(cards) }
    : letter;
}

/**
 * Messages and questions that were given up, until an operator deals with them. Bounded and expiring: a deployment that gives up
 * everything must not fill its store with it.
 */
export class DeadLetters {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #leaseMs: number;
  readonly #clock: Clock;

  constructor({
    redis,
    namespace,
    outboxLeaseMs = 10_000,
    clock = systemClock,
  }: DeadLettersOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#leaseMs = outboxLeaseMs;
    this.#clock = clock;
  }

  /** Keeps a letter. One with the id of another letter of the session takes its place. */
  async add(letter: DeadLetter): Promise<void> {
    const keys = this.#keys.session(letter.session);
    const member = memberOf(letter.session, letter.id);
    await runScript(this.#redis, addLetter, keys, {
      member,
      letter: JSON.stringify(letter),
      keptMs,
      most: perCell,
    });
  }

  /**
   * The head of a leased outbox is given up: it leaves the outbox as after an `Outbox.ack`, and is kept as
   * a letter with its cards in the same step. Returns what `Outbox.ack` does. Does nothing under a lease that is lost.
   */
  async moveToDeadLetters(
    { token, record }: OutboxLease,
    reason: string,
  ): Promise<OutboxLease | undefined> {
    const { session } = record;
    const letter = letterOfReply(record, reason, this.#clock.now());
    const untilMs = this.#clock.monotonic() + this.#leaseMs;
    const reply = await runScript(this.#redis, moveReply, this.#keys.session(session), {
      sid: session,
      token,
      leaseMs: this.#leaseMs,
      member: memberOf(session, letter.id),
      letter: JSON.stringify(letter),
      keptMs,
      most: perCell,
    });
    const next = String(reply);
    return next === "" ? undefined : { token, record: outboxFrom(next), untilMs };
  }

  /**
   * Puts a reply back into its outbox, last, under the same id, keys and cards, and removes its letter
   * in the same step. False when there is no such letter (any more).
   */
  async resend(session: SessionKey, id: string): Promise<boolean> {
    const letter = await this.find(session, id);
    if (letter?.kind !== "reply") return false;
    const again = replyAgain(letter, this.#clock.now());
    const done = await runScript(this.#redis, resend, this.#keys.session(session), {
      sid: session,
      member: memberOf(session, id),
      reply: JSON.stringify(again),
      replyId: again.id,
    });
    return done === 1;
  }

  async find(session: SessionKey, id: string): Promise<DeadLetter | undefined> {
    const { letters } = this.#keys.session(session);
    const member = memberOf(session, id);
    const [text = null, cards = null] = await this.#redis.hmget(letters, member, `${member}|cards`);
    return text === null ? undefined : letterFrom(text, cards);
  }

  /** False when there is no such letter (any more). */
  async discard(session: SessionKey, id: string): Promise<boolean> {
    const { letters, lettersByTime } = this.#keys.session(session);
    const member = memberOf(session, id);
    const removed = await this.#redis.hdel(letters, member, `${member}|cards`);
    await this.#redis.zrem(lettersByTime, member);
    return removed > 0;
  }

  /** Newest first. */
  async list(limit: number): Promise<DeadLetterFacts[]> {
    const lists = await Promise.all(
      this.#keys.cells().map(async (cell) => await this.#newestOf(cell, limit)),
    );
    return lists
      .flat()
      .sort((one, other) => other.atMs - one.atMs)
      .slice(0, limit);
  }

  /** How many there are. */
  async count(): Promise<number> {
    const oldestMs = this.#clock.now() - keptMs;
    const counts = this.#keys
      .cells()
      .map(async (cell) => await this.#redis.zcount(cell.lettersByTime, oldestMs, "+inf"));
    return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
  }

  async #newestOf({ letters, lettersByTime }: CellKeys, limit: number): Promise<DeadLetterFacts[]> {
    const oldestMs = this.#clock.now() - keptMs;
    const members = await this.#redis.zrevrangebyscore(
      lettersByTime,
      "+inf",
      oldestMs,
      "LIMIT",
      0,
      limit,
    );
    if (members.length === 0) return [];
    const texts = await this.#redis.hmget(letters, ...members);
    return texts.flatMap((text) => (text === null ? [] : [letterFactsOf(letterFrom(text, null))]));
  }
}
