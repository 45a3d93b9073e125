import { randomUUID } from "node:crypto";
import type { InboundMessage, SessionKey } from "@larkline/protocol";
import type { AppendResult, OutboxLease, OutboxRecord } from "./session-store.ts";
import type { RedisConnection } from "./connection.ts";
import type { GateScripts } from "./gate-scripts.ts";
import type { Keyspace } from "./keys.ts";
import { appendResultFrom, inboundFrom, needsFirst, outboxFrom } from "./stored.ts";

interface RedisOutboxOptions {
  redis: RedisConnection;
  scripts: GateScripts;
  keys: Keyspace;
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
    const { scripts, leaseMs, rememberMs } = this.#options;
    const keys = this.#options.keys.session(record.session);
    const seen = keys.seenOf(record.target.app, messageId);
    const text = parked === undefined ? "" : needsFirst(parked);
    return await this.#lease(async (token) => {
      const args = [record.session, JSON.stringify(record), rememberMs, token, leaseMs, text];
      return await scripts.pushOutbox([keys.session, keys.outbox, keys.due, seen, keys.parkedOf(messageId)], args);
    });
  }

  async parked(session: SessionKey, messageId: string): Promise<InboundMessage | undefined> {
    const text = await this.#options.redis.get(this.#options.keys.session(session).parkedOf(messageId));
    return text === null ? undefined : inboundFrom(text);
  }

  async release(session: SessionKey, messageId: string, action: "append" | "drop"): Promise<AppendResult | undefined> {
    const { scripts, rememberMs, maxWaiting } = this.#options;
    // Only to learn its facts, such as the app, which the key of the seen message needs; the script decides.
    const message = await this.parked(session, messageId);
    if (message === undefined) return undefined;
    const keys = this.#options.keys.session(session);
    const reply = await scripts.release(
      [
        keys.session,
        keys.inbox,
        keys.dirty,
        keys.seenOf(message.app, messageId),
        keys.parkedOf(messageId),
        keys.floor,
        keys.who,
        keys.people,
        keys.state,
      ],
      [session, action, rememberMs, maxWaiting, message.sender.id, message.chatType],
    );
    return reply === null ? undefined : appendResultFrom(session, reply);
  }

  async lease(session: SessionKey): Promise<OutboxLease | undefined> {
    const { scripts, leaseMs } = this.#options;
    const keys = this.#options.keys.session(session);
    return await this.#lease(
      async (token) => await scripts.leaseOutbox([keys.session, keys.outbox, keys.due], [session, token, leaseMs]),
    );
  }

  async ack(session: SessionKey, token: string): Promise<OutboxLease | undefined> {
    const { scripts, leaseMs } = this.#options;
    const keys = this.#options.keys.session(session);
    const reply = await scripts.ackOutbox(
      [keys.session, keys.outbox, keys.due, keys.cards, keys.openCards],
      [session, token, leaseMs],
    );
    const record = String(reply);
    return record === "" ? undefined : { token, record: outboxFrom(record) };
  }

  async retry({ token, record }: OutboxLease, retryAtMs: number): Promise<void> {
    const keys = this.#options.keys.session(record.session);
    const args = [record.session, token, JSON.stringify(record), retryAtMs];
    await this.#options.scripts.retryOutbox([keys.session, keys.outbox, keys.due], args);
  }

  async #lease(take: (token: string) => Promise<unknown>): Promise<OutboxLease | undefined> {
    const token = randomUUID();
    const record = String(await take(token));
    return record === "" ? undefined : { token, record: outboxFrom(record) };
  }
}
