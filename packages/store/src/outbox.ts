import type { InboundMessage, Random, SessionKey } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import type { Keyspace } from "./keys.ts";
import { runScript, script } from "./script.ts";
import type { AppendResult, OutboxLease, OutboxRecord } from "./session-types.ts";
import { appendResultFrom, inboundFrom, needsFirst, outboxFrom } from "./stored.ts";

const pushOutbox = script("push-outbox");
const release = script("release");
const leaseOutbox = script("lease-outbox");
const ackOutbox = script("ack-outbox");
const retryOutbox = script("retry-outbox");

interface RedisOutboxOptions {
  redis: RedisConnection;
  keys: Keyspace;
  random: Random;
  leaseMs: number;
  /** How long message ids and parked messages are kept. */
  rememberMs: number;
  maxWaiting: number;
}

/** The part of the store that deals with replies on their way out, and with messages parked behind one. */
export class RedisOutbox {
  readonly #options: RedisOutboxOptions;

  constructor(options: RedisOutboxOptions) {
    this.#options = options;
  }

  async push(record: OutboxRecord, messageId: string, parked?: InboundMessage): Promise<OutboxLease | undefined> {
    const { redis, leaseMs, rememberMs } = this.#options;
    const keys = this.#options.keys.session(record.session);
    const seen = keys.seenOf(record.target.app, messageId);
    const text = parked === undefined ? "" : needsFirst(parked);
    return await this.#lease(async (token) => {
      const reply = JSON.stringify(record);
      const values = { sid: record.session, reply, seenTtlMs: rememberMs, token, leaseMs, message: text };
      return await runScript(redis, pushOutbox, { ...keys, seen, parked: keys.parkedOf(messageId) }, values);
    });
  }

  async parked(session: SessionKey, messageId: string): Promise<InboundMessage | undefined> {
    const text = await this.#options.redis.get(this.#options.keys.session(session).parkedOf(messageId));
    return text === null ? undefined : inboundFrom(text);
  }

  async release(session: SessionKey, messageId: string, action: "append" | "drop"): Promise<AppendResult | undefined> {
    const { redis, rememberMs, maxWaiting } = this.#options;
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
    return reply === null ? undefined : appendResultFrom(session, reply);
  }

  async lease(session: SessionKey): Promise<OutboxLease | undefined> {
    const { redis, leaseMs } = this.#options;
    const keys = this.#options.keys.session(session);
    return await this.#lease(
      async (token) => await runScript(redis, leaseOutbox, keys, { sid: session, token, leaseMs }),
    );
  }

  async ack(session: SessionKey, token: string): Promise<OutboxLease | undefined> {
    const { redis, leaseMs } = this.#options;
    const keys = this.#options.keys.session(session);
    const reply = await runScript(redis, ackOutbox, keys, { sid: session, token, leaseMs });
    const record = String(reply);
    return record === "" ? undefined : { token, record: outboxFrom(record) };
  }

  async retry({ token, record }: OutboxLease, retryAtMs: number): Promise<void> {
    const keys = this.#options.keys.session(record.session);
    const values = { sid: record.session, token, reply: JSON.stringify(record), retryAtMs };
    await runScript(this.#options.redis, retryOutbox, keys, values);
  }

  async #lease(take: (token: string) => Promise<unknown>): Promise<OutboxLease | undefined> {
    const token = this.#options.random.uuid();
    const record = String(await take(token));
    return record === "" ? undefined : { token, record: outboxFrom(record) };
  }
}
