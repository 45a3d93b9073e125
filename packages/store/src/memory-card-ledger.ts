import type { SessionKey } from "@larkline/protocol";
import type { CardFence, CardLedger, CardReply } from "./card-ledger.ts";

/** Whether a fence is the current one of the session, for that reply. */
type MayWrite = (session: SessionKey, replyId: string, fence: CardFence) => boolean;

interface Entry {
  reply: CardReply;
  writtenAtMs: number;
}

function keyOf(session: SessionKey, replyId: string): string {
  return JSON.stringify([session, replyId]);
}

/** The cards of the replies of a memory store. */
export class MemoryCardLedger implements CardLedger {
  readonly #entries = new Map<string, Entry>();
  readonly #now: () => number;
  readonly #mayWrite: MayWrite;
  readonly #unsent: (session: SessionKey) => number;

  /** `unsent`: how many replies wait in a session's outbox. */
  constructor(now: () => number, mayWrite: MayWrite, unsent: (session: SessionKey) => number) {
    this.#now = now;
    this.#mayWrite = mayWrite;
    this.#unsent = unsent;
  }

  async load(session: SessionKey, replyId: string): Promise<CardReply | undefined> {
    return structuredClone(this.#entries.get(keyOf(session, replyId))?.reply);
  }

  async save(reply: CardReply, fence: CardFence): Promise<boolean> {
    const { session, replyId } = reply;
    if (!this.#mayWrite(session, replyId, fence)) return false;
    this.#entries.set(keyOf(session, replyId), { reply: structuredClone(reply), writtenAtMs: this.#now() });
    return true;
  }

  /** What a reply that is tried again was known by. */
  restore(reply: CardReply): void {
    this.#entries.set(keyOf(reply.session, reply.replyId), {
      reply: structuredClone(reply),
      writtenAtMs: this.#now(),
    });
  }

  remove(session: SessionKey, replyId: string): void {
    this.#entries.delete(keyOf(session, replyId));
  }

  knows(session: SessionKey, replyId: string): boolean {
    return this.#entries.has(keyOf(session, replyId));
  }

  has(session: SessionKey): boolean {
    return [...this.#entries.values()].some(({ reply }) => reply.session === session);
  }

  clear(session: SessionKey): void {
    for (const [key, { reply }] of this.#entries) if (reply.session === session) this.#entries.delete(key);
  }

  async mayAppear(session: SessionKey): Promise<boolean> {
    return this.#unsent(session) === 0;
  }

  async touch(session: SessionKey, replyId: string): Promise<void> {
    const entry = this.#entries.get(keyOf(session, replyId));
    if (entry !== undefined) entry.writtenAtMs = this.#now();
  }

  async forget(session: SessionKey, replyId: string): Promise<void> {
    this.remove(session, replyId);
  }

  async untouched(beforeMs: number, limit: number): Promise<{ session: SessionKey; replyId: string }[]> {
    return [...this.#entries.values()]
      .filter(({ writtenAtMs }) => writtenAtMs <= beforeMs)
      .sort((a, b) => a.writtenAtMs - b.writtenAtMs)
      .slice(0, limit)
      .map(({ reply: { session, replyId } }) => ({ session, replyId }));
  }
}
