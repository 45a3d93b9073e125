import type { Clock } from "@larkline/protocol/clock";
import type {
  CardEntry,
  CardFence,
  CardLedger,
  CardReply,
  OutboxTarget,
  ReplyMode,
} from "@larkline/store";
import { LRUCache } from "lru-cache";
import type { FeishuApi } from "../feishu-api.ts";

// A reply as the card ledger has it, and what a writer hands to the next one when the ledger takes nothing more.

/** Another worker owns these cards: our epoch or our outbox lease is stale. */
export class FencedOut extends Error {
  override readonly name = "FencedOut";
}

/** The card ledger could not be read or written, so nothing was done on the platform. */
export class LedgerFailure extends Error {
  override readonly name = "LedgerFailure";
}

/** For how long after the last proof a writer believes that the cards are still its own, ms. */
const proofMs = 500;

/**
 * A reply as the card ledger has it. It holds only what is stored: a change that cannot be stored is not made, so
 * that no writer acts on something that its successor cannot know.
 */
export class ReplyRecord {
  readonly #ledger: CardLedger;
  readonly #fence: CardFence;
  readonly #clock: Clock;
  #reply: CardReply;
  #mode: ReplyMode;
  readonly #noted = new Map<number, Partial<CardEntry>>();
  /** `clock.monotonic()` of the last proof that the cards are this writer's. */
  #provenMs: number;

  constructor(of: { ledger: CardLedger; fence: CardFence; reply: CardReply; clock: Clock }) {
    this.#ledger = of.ledger;
    this.#fence = of.fence;
    this.#clock = of.clock;
    this.#provenMs = of.clock.monotonic();
    this.#reply = of.reply;
    this.#mode = of.reply.mode;
  }

  get replyId(): string {
    return this.#reply.replyId;
  }

  get cards(): readonly CardEntry[] {
    return this.#reply.cards;
  }

  /** The file with the rest of the answer, once it is on the platform. */
  get file(): CardReply["file"] {
    return this.#reply.file;
  }

  get createdAtMs(): number {
    return this.#reply.createdAtMs;
  }

  /** How the reply is written now; stored with the next change. */
  get mode(): ReplyMode {
    return this.#mode;
  }

  set mode(mode: ReplyMode) {
    this.#mode = mode;
  }

  /** Whether a person may see any card of the reply. */
  get isVisible(): boolean {
    return this.cards.some(({ state }) => state === "sent" || state === "closed");
  }

  /** The last card, while buttons that decide about calls stand on it. */
  get asking(): CardReply["asking"] {
    return this.#reply.asking;
  }

  /** How many cards need no further operation. */
  get closed(): number {
    return this.cards.filter(({ state }) => state === "closed").length;
  }

  /** Whether the cards are those of `stored`: then no other writer has written since. */
  matches(stored: CardReply | undefined): boolean {
    const cards = stored?.cards ?? [];
    return JSON.stringify(cards) === JSON.stringify(this.cards);
  }

  entry(number: number): CardEntry {
    const entry = this.cards[number];
    if (entry === undefined) throw new RangeError(`no card ${number}`);
    return entry;
  }

  async change(number: number, change: Partial<CardEntry>): Promise<CardEntry> {
    return await this.put(number, { ...this.entry(number), ...this.#noted.get(number), ...change });
  }

  /** A fact that is not worth a write of its own: stored with the card's next change. */
  note(number: number, change: Partial<CardEntry>): void {
    this.#noted.set(number, change);
  }

  /** Rejects with {@link FencedOut} or {@link LedgerFailure}; then the record is unchanged. */
  async put(number: number, entry: CardEntry): Promise<CardEntry> {
    const cards = [...this.cards];
    cards[number] = entry;
    await this.#save({ ...this.#reply, mode: this.#mode, cards });
    this.#noted.delete(number);
    return entry;
  }

  /** The platform took an operation under our numbers, so no other writer has used higher ones. */
  proven(): void {
    this.#provenMs = this.#clock.monotonic();
  }

  /** The turn or the process was suspended, so another worker may have taken over. */
  doubt(): void {
    this.#provenMs = Number.NEGATIVE_INFINITY;
  }

  /**
   * Must be called right before a call leaves. Rejects with {@link FencedOut} when another writer has taken over while
   * the call waited, so that the call is not made.
   */
  async stillOurs(): Promise<void> {
    if (this.#clock.monotonic() - this.#provenMs > proofMs) await this.save();
  }

  async putFile(file: NonNullable<CardReply["file"]>): Promise<void> {
    await this.#save({ ...this.#reply, mode: this.#mode, file });
  }

  /** Stores the card that has buttons from now on; undefined: none has. */
  async putAsking(asking: CardReply["asking"]): Promise<void> {
    const { asking: known, ...reply } = this.#reply;
    if (JSON.stringify(known) === JSON.stringify(asking)) return;
    await this.#save({ ...reply, mode: this.#mode, ...(asking === undefined ? {} : { asking }) });
  }

  /** Stores the mode. */
  async save(): Promise<void> {
    await this.#save({ ...this.#reply, mode: this.#mode });
  }

  async #save(reply: CardReply): Promise<void> {
    const saved = await this.#ledger.save(reply, this.#fence).catch((cause: unknown) => {
      throw new LedgerFailure("the card ledger could not be written", { cause });
    });
    if (!saved) throw new FencedOut("another writer owns these cards");
    this.#reply = reply;
    this.proven();
  }
}

/** Shares of the monthly calls from which on new replies become plainer. */
const finalOnlyFrom = 0.8;
const textOnlyFrom = 0.95;

/** A reply of which no card exists yet. Its mode depends on how many calls the month has left. */
export async function newReply(
  api: FeishuApi,
  of: { session: string; replyId: string; target: OutboxTarget },
  nowMs: number,
): Promise<CardReply> {
  const { session, replyId, target } = of;
  const mode = await modeFor(api);
  return {
    v: 1,
    replyId,
    session,
    app: target.app,
    chatId: target.chatId,
    mode,
    cards: [],
    createdAtMs: nowMs,
  };
}

async function modeFor(api: FeishuApi): Promise<ReplyMode> {
  try {
    const { calls, limit } = await api.quota.read();
    if (limit === null || calls < limit * finalOnlyFrom) return "typewriter";
    return calls < limit * textOnlyFrom ? "final" : "text";
  } catch {
    return "typewriter"; // replies do not depend on the count
  }
}

/** Entries are taken within moments; more than these belong to turns that another process delivers. */
const maxKept = 500;

/**
 * What a live reply of this process has done on the platform when the ledger did not take the record of it any more,
 * because the turn had ended. The delivery of the answer takes it from here: no card is made and thrown away, and
 * none is sent twice. Lost with the process; then the card is made again, and the platform recognises the repeated
 * send by its `uuid`.
 */
export class CardHandover {
  readonly #cards = new LRUCache<string, string>({ max: maxKept });
  readonly #sent = new LRUCache<string, string>({ max: maxKept });

  /** Keeps the id of a card that was made for this page and was not sent. */
  keepCard(replyId: string, page: number, cardId: string): void {
    this.#cards.set(`${replyId} ${page}`, cardId);
  }

  takeCard(replyId: string, page: number): string | undefined {
    return take(this.#cards, `${replyId} ${page}`);
  }

  /** Keeps the id of the message that shows the card. */
  keepSent(cardId: string, messageId: string): void {
    this.#sent.set(cardId, messageId);
  }

  takeSent(cardId: string): string | undefined {
    return take(this.#sent, cardId);
  }
}

function take(map: LRUCache<string, string>, key: string): string | undefined {
  const value = map.get(key);
  map.delete(key);
  return value;
}
