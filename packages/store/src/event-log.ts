import type { SessionKey } from "@larkline/protocol";
import type { EventRecord, NewEvent } from "@larkline/protocol/event";
import { type RedisConnection, subscriberOf } from "./connection.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

function recordsOf(batch: string, lastSeq: number): EventRecord[] {
  const events = JSON.parse(batch) as NewEvent[]; // written by the emit script's caller
  const firstSeq = lastSeq - events.length + 1;
  return events.map((event, index) => ({ seq: firstSeq + index, ...event }));
}

/** Live batches of one follower, waiting to be taken. */
class Mailbox {
  readonly #batches: EventRecord[][] = [];
  readonly #signal: AbortSignal;
  #arrived: (() => void) | undefined;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#arrived?.(), { once: true });
  }

  push(batch: EventRecord[]): void {
    this.#batches.push(batch);
    this.#arrived?.();
  }

  /** The oldest batch, when there is one; undefined once the signal aborts. */
  async take(): Promise<EventRecord[] | undefined> {
    while (this.#batches.length === 0 && !this.#signal.aborted) {
      await new Promise<void>((resolve) => {
        this.#arrived = resolve;
      });
    }
    return this.#signal.aborted ? undefined : this.#batches.shift();
  }

  /** Wakes the follower after the subscription was lost: an empty batch makes it read again. */
  poke(): void {
    this.push([]);
  }
}

/** Reading and following the events of a session. */
export class EventLog {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #followers = new Map<string, Set<Mailbox>>();
  #subscriber: RedisConnection | undefined;

  constructor(options: StoreOptions) {
    this.#redis = options.redis;
    this.#keys = createKeyspace(options.namespace);
  }

  /** Events with `seq` greater than `afterSeq`, oldest first. */
  async read(session: SessionKey, afterSeq: number, limit: number): Promise<EventRecord[]> {
    const from = `${afterSeq + 1}-0`;
    const entries = await this.#redis.xrange(
      this.#keys.session(session).events,
      from,
      "+",
      "COUNT",
      limit,
    );
    const records: EventRecord[] = [];
    for (const [id, fields] of entries) {
      const batch = fields[fields.indexOf("d") + 1] ?? "[]";
      for (const record of recordsOf(batch, Number(id.slice(0, id.indexOf("-"))))) {
        if (record.seq > afterSeq && records.length < limit) records.push(record);
      }
    }
    return records;
  }

  /**
   * Events with `seq` greater than `afterSeq`, then new ones as they come, in order and without
   * gaps; ends when `signal` aborts. Yields `undefined` once if older events are no longer kept.
   */
  async *follow(
    session: SessionKey,
    afterSeq: number,
    signal: AbortSignal,
  ): AsyncIterable<EventRecord | undefined> {
    const { channel } = this.#keys.session(session);
    const mailbox = new Mailbox(signal);
    await this.#join(channel, mailbox);
    try {
      let last = afterSeq;
      let batch: EventRecord[] | undefined = [];
      while (batch !== undefined && !signal.aborted) {
        // A gap before this batch: read the missed ones from the stream.
        const first = batch[0];
        const continues = first !== undefined && first.seq <= last + 1;
        for await (const record of continues ? batch : this.#stored(session, last)) {
          if (signal.aborted) return;
          if (record.seq <= last) continue;
          if (record.seq > last + 1) yield undefined;
          last = record.seq;
          yield record;
        }
        batch = await mailbox.take();
      }
    } finally {
      await this.#leave(channel, mailbox);
    }
  }

  async *#stored(session: SessionKey, afterSeq: number): AsyncIterable<EventRecord> {
    const pageSize = 200;
    let last = afterSeq;
    for (;;) {
      const page = await this.read(session, last, pageSize);
      yield* page;
      const end = page.at(-1);
      if (end === undefined || page.length < pageSize) return;
      last = end.seq;
    }
  }

  async #join(channel: string, mailbox: Mailbox): Promise<void> {
    const subscriber = this.#connect();
    const mailboxes = this.#followers.get(channel) ?? new Set();
    this.#followers.set(channel, mailboxes);
    mailboxes.add(mailbox);
    await subscriber.subscribe(channel);
  }

  async #leave(channel: string, mailbox: Mailbox): Promise<void> {
    const mailboxes = this.#followers.get(channel);
    mailboxes?.delete(mailbox);
    if (mailboxes?.size !== 0) return;
    this.#followers.delete(channel);
    await this.#subscriber?.unsubscribe(channel).catch(() => undefined); // closing anyway
  }

  #connect(): RedisConnection {
    if (this.#subscriber !== undefined) return this.#subscriber;
    const subscriber = subscriberOf(this.#redis);
    subscriber.on("error", () => undefined); // ioredis reconnects and subscribes again by itself
    subscriber.on("message", (channel: string, message: string) => this.#publish(channel, message));
    subscriber.on("ready", () => {
      for (const mailboxes of this.#followers.values()) {
        for (const mailbox of mailboxes) mailbox.poke();
      }
    });
    this.#subscriber = subscriber;
    return subscriber;
  }

  #publish(channel: string, message: string): void {
    const mailboxes = this.#followers.get(channel);
    if (mailboxes === undefined) return;
    const colon = message.indexOf(":");
    const events = JSON.parse(message.slice(colon + 1)) as NewEvent[];
    const firstSeq = Number(message.slice(0, colon));
    const records = events.map((event, index) => ({ seq: firstSeq + index, ...event }));
    for (const mailbox of mailboxes) mailbox.push(records);
  }

  close(): void {
    this.#subscriber?.disconnect();
    for (const mailboxes of this.#followers.values()) {
      for (const mailbox of mailboxes) mailbox.poke();
    }
  }
}
