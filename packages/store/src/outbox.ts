import type { InboundMessage, SessionKey } from "@larkline/protocol";
import { type Clock, type Random, systemClock } from "@larkline/protocol/clock";
import { type RedisConnection, duePairs } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { type Keyspace, createKeyspace, type StoreOptions } from "./keys.ts";
import type {
  AppendResult,
  CardReply,
  OutboxLease,
  OutboxRecord,
  PushOptions,
  PushResult,
} from "./session-types.ts";
import { appendResultFrom, inboundFrom, needsFirst, outboxFrom, cardsFrom } from "./stored.ts";

const pushOutbox = script("push-outbox");
const release = script("release");
const leaseOutbox = script("lease-outbox");
const ackOutbox = script("ack-outbox");
const retryOutbox = script("retry-outbox");

interface OutboxOptions {
  redis: RedisConnection;
  keys: Keyspace;
  clock: Clock;
  random: Random;
  leaseMs: number;
  /** How long message ids and parked messages are kept. */
  rememberMs: number;
  maxWaiting: number;
}

/** The part of the store for outgoing replies, and for messages that are parked behind one. */
export class Outbox {
  readonly #options: OutboxOptions;

  constructor(options: OutboxOptions) {
    this.#options = options;
  }

  /**
   * Adds an answer to a message outside a turn (refusals). Does nothing when that message was
   * appended or answered so before: its id is remembered together with those of `append`. With
   * `parked` the message itself is kept for a day, for `release`.
   */
  async push(
    record: OutboxRecord,
    messageId: string,
    { parked, notBeforeMs = 0 }: PushOptions = {},
  ): Promise<PushResult> {
    const { redis, leaseMs, rememberMs, clock, random } = this.#options;
    const keys = this.#options.keys.session(record.session);
    const seen = keys.seenOf(record.target.app, messageId);
    const text = parked === undefined ? "" : needsFirst(parked);
    const token = random.uuid();
    const untilMs = clock.monotonic() + leaseMs;
    const reply = JSON.stringify(record);
    const values = {
      sid: record.session,
      reply,
      seenTtlMs: rememberMs,
      token,
      leaseMs,
      message: text,
      notBeforeMs,
    };
    const pushed = await runScript(
      redis,
      pushOutbox,
      { ...keys, seen, parked: keys.parkedOf(messageId) },
      values,
    );
    const [stored, leased = ""] = pushed as [number, string?]; // shape fixed by the script
    return {
      stored: stored === 1,
      ...(leased === "" ? {} : { lease: { token, record: outboxFrom(leased), untilMs } }),
    };
  }

  /** A parked message, while it is one. */
  async parked(session: SessionKey, messageId: string): Promise<InboundMessage | undefined> {
    const text = await this.#options.redis.get(
      this.#options.keys.session(session).parkedOf(messageId),
    );
    return text === null ? undefined : inboundFrom(text);
  }

  /**
   * Ends the parking of a message, once: appends it as if it had just come, or drops it (`accepted`
   * with number 0). Undefined when it is not parked (any more). In a full session it stays parked.
   */
  async release(
    session: SessionKey,
    messageId: string,
    action: "append" | "drop",
  ): Promise<AppendResult | undefined> {
    const { redis, rememberMs, maxWaiting, clock } = this.#options;
    // Only to learn its facts, such as the app, which the key of the seen message needs; the script decides.
    const message = await this.parked(session, messageId);
    if (message === undefined) return undefined;
    const keys = this.#options.keys.session(session);
    const reply = await runScript(
      redis,
      release,
      { ...keys, seen: keys.seenOf(message.app, messageId), parked: keys.parkedOf(messageId) },
      {
        sid: session,
        action,
        seenTtlMs: rememberMs,
        maxWaiting,
        person: message.sender.id,
        chatType: message.chatType,
      },
    );
    return reply === undefined ? undefined : appendResultFrom(session, reply, clock.now());
  }

  /** Takes the session's outbox if no process holds it. */
  async lease(session: SessionKey): Promise<OutboxLease | undefined> {
    const { redis, leaseMs, clock, random } = this.#options;
    const keys = this.#options.keys.session(session);
    const token = random.uuid();
    const untilMs = clock.monotonic() + leaseMs;
    const record = String(
      await runScript(redis, leaseOutbox, keys, { sid: session, token, leaseMs }),
    );
    return record === "" ? undefined : { token, record: outboxFrom(record), untilMs };
  }

  /** The head was sent (or given up): removes it and its cards' record; returns the next one under the same lease. */
  async ack(session: SessionKey, token: string): Promise<OutboxLease | undefined> {
    const { redis, leaseMs, clock } = this.#options;
    const keys = this.#options.keys.session(session);
    const untilMs = clock.monotonic() + leaseMs;
    const reply = await runScript(redis, ackOutbox, keys, { sid: session, token, leaseMs });
    const record = String(reply);
    return record === "" ? undefined : { token, record: outboxFrom(record), untilMs };
  }

  /** The head could not be sent now: keeps it, as `record` says, until `retryAtMs`. */
  async retry(
    { token, record }: Pick<OutboxLease, "token" | "record">,
    retryAtMs: number,
  ): Promise<void> {
    const keys = this.#options.keys.session(record.session);
    const values = { sid: record.session, token, reply: JSON.stringify(record), retryAtMs };
    await runScript(this.#options.redis, retryOutbox, keys, values);
  }
}

/**
 * The right to write: of the worker whose turn the reply is, until the commit, then of the process that holds
 * the session's outbox while the reply is at its head.
 */
export type CardFence = { epoch: string } | { outboxToken: string };

const saveCards = script("save-cards");

/** The durable record of the cards of replies that are not delivered yet, beside the sessions that they belong to. */
export class CardLedger {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #clock: Clock;

  constructor({ redis, namespace, clock = systemClock }: StoreOptions) {
    this.#clock = clock;
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
  }

  async load(session: SessionKey, replyId: string): Promise<CardReply | undefined> {
    const text = await this.#redis.hget(this.#keys.session(session).cards, replyId);
    return text === null ? undefined : cardsFrom(text);
  }

  /** Stores the whole record. False when the fence is not the session's current one: stop writing. */
  async save(reply: CardReply, fence: CardFence): Promise<boolean> {
    const { session, replyId } = reply;
    const keys = this.#keys.session(session);
    const proof =
      "epoch" in fence
        ? { fence: "epoch", holder: fence.epoch }
        : { fence: "outbox", holder: fence.outboxToken };
    const values = { sid: session, replyId, reply: JSON.stringify(reply), ...proof };
    const saved = await runScript(this.#redis, saveCards, keys, values);
    return saved === 1;
  }

  /**
   * Whether every earlier reply of the session is delivered or given up. Until then a new card would
   * stand above an answer that people expect before it.
   */
  async mayAppear(session: SessionKey): Promise<boolean> {
    return (await this.#redis.llen(this.#keys.session(session).outbox)) === 0;
  }

  /** Replies that were last written before `beforeMs`, oldest first: suspended, waiting in an outbox, or orphans. */
  async untouched(
    beforeMs: number,
    limit: number,
  ): Promise<{ session: SessionKey; replyId: string }[]> {
    const indexes = this.#keys.cells().map(({ openCards }) => openCards);
    const pairs = await duePairs(this.#redis, indexes, { untilMs: beforeMs, limit });
    return pairs.map(([session, replyId]) => ({ session, replyId }));
  }

  /** Counts as written now, so that the sweep leaves it alone for a while. */
  async touch(session: SessionKey, replyId: string): Promise<void> {
    const { openCards } = this.#keys.session(session);
    await this.#redis.zadd(openCards, "XX", this.#clock.now(), `${session}|${replyId}`);
  }

  /** Drops the record of cards that are not written any more. */
  async forget(session: SessionKey, replyId: string): Promise<void> {
    const { cards, openCards } = this.#keys.session(session);
    await this.#redis.multi().hdel(cards, replyId).zrem(openCards, `${session}|${replyId}`).exec();
  }
}
