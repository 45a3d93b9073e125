import type { SessionKey } from "@larkline/protocol";
import type { OutboxLease, OutboxRecord } from "./session-store.ts";

const leaseMs = 30_000;

interface Outbox {
  waiting: OutboxRecord[];
  /** The head must not be sent before. */
  dueAtMs: number;
  lease: { token: string; untilMs: number } | undefined;
}

/** The outboxes of all sessions: first in, first out, one sender at a time. Not copied: the store copies. */
export class MemoryOutboxes {
  readonly #outboxes = new Map<SessionKey, Outbox>();
  readonly #now: () => number;
  #leases = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  push(record: OutboxRecord): void {
    const outbox = this.#outboxes.get(record.session) ?? { waiting: [], dueAtMs: 0, lease: undefined };
    outbox.waiting.push(record);
    this.#outboxes.set(record.session, outbox);
  }

  unsent(session: SessionKey, limit: number): OutboxRecord[] {
    return structuredClone(this.#outboxes.get(session)?.waiting.slice(0, limit) ?? []);
  }

  /** Sessions with unsent replies. */
  sessions(): SessionKey[] {
    return [...this.#outboxes.keys()];
  }

  clear(session: SessionKey): void {
    this.#outboxes.delete(session);
  }

  count(session: SessionKey): number {
    return this.#outboxes.get(session)?.waiting.length ?? 0;
  }

  lease(session: SessionKey): OutboxLease | undefined {
    const outbox = this.#outboxes.get(session);
    if (!outbox || !this.#isFree(outbox, this.#now())) return undefined;
    return this.#grant(outbox);
  }

  #isFree({ lease, dueAtMs }: Outbox, nowMs: number): boolean {
    return dueAtMs <= nowMs && (lease === undefined || lease.untilMs <= nowMs);
  }

  #grant(outbox: Outbox): OutboxLease | undefined {
    const record = outbox.waiting[0];
    if (!record) return undefined;
    this.#leases += 1;
    const token = `lease-${this.#leases}`;
    outbox.lease = { token, untilMs: this.#now() + leaseMs };
    return { token, record };
  }

  /** `sent` is the record that was removed, if the token was the right one. */
  ack(session: SessionKey, token: string): { sent?: OutboxRecord; next?: OutboxLease } {
    const outbox = this.#heldBy(session, token);
    const sent = outbox?.waiting.shift();
    if (!outbox || !sent) return {};
    outbox.lease = undefined;
    outbox.dueAtMs = 0;
    const next = this.#grant(outbox);
    if (next) return { sent, next };
    this.#outboxes.delete(session);
    return { sent };
  }

  /** Whether the token's holder is the one who sends this record now. */
  isSending(session: SessionKey, recordId: string, token: string): boolean {
    return this.#heldBy(session, token)?.waiting[0]?.id === recordId;
  }

  retry({ token, record }: OutboxLease, retryAtMs: number): void {
    const outbox = this.#heldBy(record.session, token);
    if (!outbox) return;
    outbox.waiting[0] = record;
    outbox.lease = undefined;
    outbox.dueAtMs = retryAtMs;
  }

  /** A late holder counts as long as nobody took over: what it sent must not be sent again. */
  #heldBy(session: SessionKey, token: string): Outbox | undefined {
    const outbox = this.#outboxes.get(session);
    return outbox?.lease?.token === token ? outbox : undefined;
  }

  due(nowMs: number, limit: number): SessionKey[] {
    return [...this.#outboxes]
      .filter(([, outbox]) => this.#isFree(outbox, nowMs))
      .map(([session]) => session)
      .slice(0, limit);
  }
}
