import type { SessionKey } from "@larkline/protocol";
import {
  deadLetterLimits,
  letterFactsOf,
  letterOfReply,
  replyAgain,
  type DeadLetter,
  type DeadLetterFacts,
  type DeadLetters,
} from "./dead-letters.ts";
import type { MemoryCardLedger } from "./memory-card-ledger.ts";
import type { MemoryOutboxes } from "./memory-outbox.ts";
import type { OutboxLease } from "./session-store.ts";

function keyOf(session: SessionKey, id: string): string {
  return JSON.stringify([session, id]);
}

/** The dead letters of a memory store: one cell. */
export class MemoryDeadLetters implements DeadLetters {
  readonly #letters = new Map<string, DeadLetter>();
  readonly #now: () => number;
  readonly #outboxes: MemoryOutboxes;
  readonly #cards: MemoryCardLedger;

  constructor(now: () => number, outboxes: MemoryOutboxes, cards: MemoryCardLedger) {
    this.#now = now;
    this.#outboxes = outboxes;
    this.#cards = cards;
  }

  async add(letter: DeadLetter): Promise<void> {
    const key = keyOf(letter.session, letter.id);
    this.#letters.delete(key);
    this.#letters.set(key, structuredClone(letter));
    this.#forget();
  }

  #forget(): void {
    const { keptMs, perCell } = deadLetterLimits;
    for (const [key, { atMs }] of this.#letters) {
      if (atMs > this.#now() - keptMs && this.#letters.size <= perCell) return;
      this.#letters.delete(key);
    }
  }

  async bury({ token, record }: OutboxLease, reason: string): Promise<OutboxLease | undefined> {
    const { session } = record;
    const { sent, next } = this.#outboxes.ack(session, token);
    if (sent === undefined) return undefined;
    const cards = await this.#cards.load(session, sent.id);
    this.#cards.remove(session, sent.id);
    const letter = letterOfReply(record, reason, this.#now());
    await this.add(cards === undefined ? letter : { ...letter, cards });
    return structuredClone(next);
  }

  async resend(session: SessionKey, id: string): Promise<boolean> {
    const letter = this.#living(session, id);
    if (letter?.kind !== "reply") return false;
    this.#letters.delete(keyOf(session, id));
    if (letter.cards !== undefined) this.#cards.restore(letter.cards);
    this.#outboxes.push(structuredClone(replyAgain(letter, this.#now())));
    return true;
  }

  async find(session: SessionKey, id: string): Promise<DeadLetter | undefined> {
    return structuredClone(this.#living(session, id));
  }

  #living(session: SessionKey, id: string): DeadLetter | undefined {
    const letter = this.#letters.get(keyOf(session, id));
    return letter !== undefined && letter.atMs > this.#now() - deadLetterLimits.keptMs ? letter : undefined;
  }

  async discard(session: SessionKey, id: string): Promise<boolean> {
    return this.#letters.delete(keyOf(session, id));
  }

  async count(): Promise<number> {
    return this.#kept().length;
  }

  #kept(): DeadLetter[] {
    const oldestMs = this.#now() - deadLetterLimits.keptMs;
    return [...this.#letters.values()].filter(({ atMs }) => atMs > oldestMs);
  }

  async list(limit: number): Promise<DeadLetterFacts[]> {
    return this.#kept()
      .sort((one, other) => other.atMs - one.atMs)
      .slice(0, limit)
      .map(letterFactsOf);
  }
}
