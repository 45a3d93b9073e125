import { pause, systemRandom, type Clock } from "@larkline/protocol";
import type { CardEntry, CardFence, CardLedger, CardReply, OutboxTarget, RateLane, ReplyMode } from "@larkline/store";
import { LRUCache } from "lru-cache";
import type { CardOperation } from "../cards/reply-card.ts";
import type { FeishuApi } from "../feishu-api.ts";
import type { CallOptions } from "../transport/api-call.ts";
import { FeishuError, isKind } from "../transport/error.ts";

interface CardWriterOptions {
  api: FeishuApi;
  record: ReplyRecord;
  clock: Clock;
  signal: AbortSignal;
  /** Of the message that is answered. */
  traceparent?: string | undefined;
}

/**
 * Streaming mode ends 10 minutes after it was last enabled ("Streaming updates for cards"); we enable it again
 * well before.
 */
const streamingLifetimeMs = 8 * 60_000;
/** Operation numbers that are reserved in the ledger at a time: a successor starts above them. */
const sequenceBlock = 64;
/** How far to jump, each time, when the platform knows a higher operation number than the ledger. */
const sequenceJumps = [10_000, 10_000_000, 1_000_000_000];
const maxSequence = 2_147_483_647;
const lockedRetryMs = 300;
const lockedRetries = 8;
const maxDoubts = 2;
/**
 * The longest wait of an operation that changes the structure of a card: it keeps its place in the rate limiter's
 * line. When 300 replies begin at once the last one waits for 9 s. The caller's signal may end the wait earlier.
 */
const structureWaitMs = 30_000;

/** How a call about a reply's cards is made: it leaves only while the cards are still ours. */
export function callOf(
  lane: RateLane,
  { signal, traceparent, record }: { signal: AbortSignal; traceparent?: string | undefined; record: ReplyRecord },
): CallOptions {
  const beforeLeaving = async (): Promise<void> => await record.stillOurs();
  return { signal, traceparent, lane, maxWaitMs: lane === "frame" ? 0 : structureWaitMs, beforeLeaving };
}

/** How often one operation was refused, by reason. */
interface Troubles {
  locked: number;
  behind: number;
  doubts: number;
  closed: number;
}

type Run = (id: { cardId: string; sequence: number; uuid: string }) => Promise<void>;

/**
 * Operations on the cards of one reply, each under a number of its own. Numbers only grow, so the platform refuses
 * a late operation of a writer that was replaced, and the ledger refuses the writer.
 */
export class CardWriter {
  readonly #options: CardWriterOptions;
  /** Last operation number used, by card. */
  readonly #used = new Map<string, number>();
  /** Cards on which this writer has put text. */
  readonly #typed = new Set<string>();
  /** Part of every idempotency key, so that `applied_before` always means an operation of this writer. */
  readonly #writerId = systemRandom.id().slice(0, 8);

  constructor(options: CardWriterOptions) {
    this.#options = options;
  }

  /** Continues with the numbers that another writer of this process had reserved and not used. */
  continueFrom(other: CardWriter): void {
    for (const [cardId, sequence] of other.#used) this.#used.set(cardId, sequence);
  }

  /** Replaces the whole card. */
  async redraw(number: number, card: Record<string, unknown>, lane: RateLane): Promise<void> {
    const { api } = this.#options;
    await this.#numbered(number, true, async (id) => {
      await api.cards.update({ ...id, card }, callOf(lane, this.#options));
    });
  }

  /** Runs one operation of a frame. */
  async operate(number: number, operation: CardOperation): Promise<void> {
    const { api } = this.#options;
    const { kind } = operation;
    await this.#numbered(number, kind === "content", async (id) => {
      if (kind === "batch") {
        await api.cards.batch({ ...id, actions: operation.actions }, callOf("frame", this.#options));
      } else {
        const { elementId, content } = operation;
        // A person waits for the first text, so it is no mere frame.
        const lane = this.#typed.has(id.cardId) ? "frame" : "final";
        await api.cards.content({ ...id, elementId, content }, callOf(lane, this.#options));
        this.#typed.add(id.cardId);
      }
    });
  }

  /** Enables streaming when it is off or about to end. */
  async keepStreaming(number: number): Promise<void> {
    const { clock, record } = this.#options;
    if (clock.now() - record.entry(number).streamingSinceMs >= streamingLifetimeMs) await this.#enable(number);
  }

  async #enable(number: number): Promise<void> {
    const { api, clock, record } = this.#options;
    const sinceMs = clock.now();
    await this.#numbered(number, true, async (id) => {
      const settings = { config: { streaming_mode: true } };
      await api.cards.settings({ ...id, settings }, callOf("final", this.#options));
    });
    await record.change(number, { streamingSinceMs: sinceMs });
  }

  /**
   * Runs an operation under the next number. `repeatable`: running it twice has the effect of running it once, so
   * an uncertain attempt is repeated.
   */
  async #numbered(number: number, repeatable: boolean, run: Run): Promise<void> {
    const { record } = this.#options;
    const troubles: Troubles = { locked: 0, behind: 0, doubts: 0, closed: 0 };
    for (;;) {
      const sequence = await this.#nextSequence(number);
      const { cardId } = record.entry(number);
      try {
        await run({ cardId, sequence, uuid: `${cardId}-${sequence}-${this.#writerId}` });
        return record.proven();
      } catch (error) {
        // The answer to the first attempt was lost; the platform has applied it and refuses the repeat.
        if (isKind(error, "applied_before")) return;
        if (!(await this.#mayRepeat(number, error, { troubles, repeatable }))) throw error;
      }
    }
  }

  async #mayRepeat(
    number: number,
    error: unknown,
    { troubles, repeatable }: { troubles: Troubles; repeatable: boolean },
  ): Promise<boolean> {
    if (!(error instanceof FeishuError)) return false;
    switch (error.kind) {
      case "card_locked": {
        troubles.locked += 1;
        if (troubles.locked > lockedRetries) return false;
        await pause(this.#options.clock, lockedRetryMs, this.#options.signal);
        return !this.#options.signal.aborted;
      }
      case "sequence_behind":
        if (error.uncertain) {
          troubles.doubts += 1;
          return repeatable && troubles.doubts <= maxDoubts;
        }
        return this.#jump(number, troubles);
      case "streaming_closed":
        troubles.closed += 1;
        if (troubles.closed > 1) return false;
        await this.#enable(number);
        return true;
      default:
        return false;
    }
  }

  #jump(number: number, troubles: Troubles): boolean {
    const jump = sequenceJumps[troubles.behind];
    if (jump === undefined) return false;
    troubles.behind += 1;
    const { cardId, reservedSequence } = this.#options.record.entry(number);
    this.#used.set(cardId, reservedSequence + jump);
    return true;
  }

  async #nextSequence(number: number): Promise<number> {
    const { record } = this.#options;
    const { cardId, reservedSequence } = record.entry(number);
    const used = this.#used.get(cardId);
    const next = (used ?? reservedSequence) + 1;
    if (next > maxSequence) {
      const reason = "no operation numbers left";
      throw new FeishuError({ api: "cardkit", kind: "card_gone", code: 0, httpStatus: 0, reason });
    }
    if (next > reservedSequence) {
      await record.change(number, { reservedSequence: Math.min(maxSequence, next + sequenceBlock - 1) });
    }
    this.#used.set(cardId, next);
    return next;
  }
}

/**
 * Ends the cards of a reply whose turn is gone: streaming off, no stop button, and a line that says so. May be
 * repeated. Rejects with a FeishuError that may pass, or when `signal` is aborted; a card that the platform
 * refuses for good is left unchanged.
 */
export async function endOrphan(api: FeishuApi, reply: CardReply, signal: AbortSignal): Promise<void> {
  for (const entry of reply.cards) {
    if (entry.state !== "sent") continue;
    try {
      await endCard(api, entry, signal);
    } catch (error) {
      if (!(error instanceof FeishuError) || error.retryable || error.kind === "cancelled") throw error;
    }
  }
}

/** In both languages: the language of the person is not known any more. */
const interruptedText = "⚠️ 这条回复已中断，不会再更新。\nThis reply was interrupted and will not be continued.";
const interruptedSummary = "回复已中断 · Interrupted";

/** The line has an id of its own, so that doing it twice adds one line. */
const lineId = "interrupted";

/** Leads above every number that a writer of these cards may have reserved. */
const sequenceGap = 100_000;

function ending(): { action: string; params: Record<string, unknown> }[] {
  const config = { streaming_mode: false, summary: { content: interruptedSummary } };
  const line = { tag: "markdown", element_id: lineId, content: interruptedText };
  return [
    { action: "partial_update_setting", params: { settings: { config } } },
    { action: "add_elements", params: { type: "append", elements: [line] } },
  ];
}

async function endCard(
  api: FeishuApi,
  { cardId, reservedSequence, parts }: CardEntry,
  signal: AbortSignal,
): Promise<void> {
  const sequence = Math.min(reservedSequence + sequenceGap, 2_147_483_000);
  await api.cards.batch({ cardId, actions: ending(), sequence, uuid: `${cardId}-end` }, { signal });
  if (parts["stop"] === undefined) return;
  const actions = [{ action: "delete_elements", params: { element_ids: ["stop"] } }];
  await api.cards.batch({ cardId, actions, sequence: sequence + 1, uuid: `${cardId}-end-stop` }, { signal });
}

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
  return { v: 1, replyId, session, app: target.app, chatId: target.chatId, mode, cards: [], createdAtMs: nowMs };
}

async function modeFor(api: FeishuApi): Promise<ReplyMode> {
  try {
    const { calls, limit } = await api.quota();
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
