import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { CardOperation } from "./cards/index.ts";
import type { RateLane } from "@larkline/store";
import type { CallOptions } from "./api-caller.ts";
import { FeishuError } from "./error.ts";
import type { FeishuErrorKind } from "./error-kind.ts";
import type { FeishuApi } from "./feishu-api.ts";
import type { ReplyRecord } from "./reply-record.ts";

export interface CardWriterOptions {
  api: FeishuApi;
  record: ReplyRecord;
  now: () => number;
  signal: AbortSignal;
  /** Of the message that is answered. */
  traceparent?: string | undefined;
}

/**
 * Streaming mode ends 10 minutes after it was last enabled ("Streaming updates for cards"); it is
 * enabled again well before.
 */
const streamingLifetimeMs = 8 * 60_000;
/** Operation numbers reserved in the ledger at a time: a successor starts above them. */
const sequenceBlock = 64;
/** How far to jump, each time, when the platform knows a higher operation number than the ledger. */
const sequenceJumps = [10_000, 10_000_000, 1_000_000_000];
const maxSequence = 2_147_483_647;
const lockedRetryMs = 300;
const lockedRetries = 8;
const maxDoubts = 2;
/**
 * A card that waits for its turn keeps its place in the line; whoever shortens the wait aborts it. With
 * 300 replies that begin at once the last one waits for 9 s.
 */
const structureWaitMs = 30_000;

export function isKind(error: unknown, ...kinds: FeishuErrorKind[]): error is FeishuError {
  return error instanceof FeishuError && kinds.includes(error.kind);
}

export function callOf(
  lane: RateLane,
  { signal, traceparent, record }: Pick<CardWriterOptions, "signal" | "traceparent" | "record">,
): CallOptions {
  const beforeLeaving = async (): Promise<void> => await record.stillOurs();
  return { signal, traceparent, lane, maxWaitMs: lane === "frame" ? 0 : structureWaitMs, beforeLeaving };
}

/** What has gone wrong so far with one operation. */
interface Troubles {
  locked: number;
  behind: number;
  doubts: number;
  closed: number;
}

type Run = (id: { cardId: string; sequence: number; uuid: string }) => Promise<void>;

/**
 * Operations on the cards of one reply, each under a number of its own. Numbers only grow: the late
 * operation of a writer that was replaced is refused by the platform, and the writer by the ledger.
 */
export class CardWriter {
  readonly #options: CardWriterOptions;
  /** Last operation number used, by card. */
  readonly #used = new Map<string, number>();
  /** Cards on which this writer has put text. */
  readonly #typed = new Set<string>();
  /** No other writer makes the same keys, so that a known key means this writer's own operation. */
  readonly #writerId = randomBytes(6).toString("base64url");

  constructor(options: CardWriterOptions) {
    this.#options = options;
  }

  /** Goes on with the numbers that another writer of this process had reserved and not used. */
  goOnFrom(other: CardWriter): void {
    for (const [cardId, sequence] of other.#used) this.#used.set(cardId, sequence);
  }

  /** Replaces the whole card. */
  async redraw(number: number, card: Record<string, unknown>, lane: RateLane): Promise<void> {
    const { api } = this.#options;
    await this.#numbered(number, true, async (id) => {
      await api.cards.update({ ...id, card }, callOf(lane, this.#options));
    });
  }

  async operate(number: number, operation: CardOperation): Promise<void> {
    const { api } = this.#options;
    const { kind } = operation;
    await this.#numbered(number, kind === "content", async (id) => {
      if (kind === "batch") {
        await api.cards.batch({ ...id, actions: operation.actions }, callOf("frame", this.#options));
      } else {
        const { elementId, content } = operation;
        // The first text is what a person waits for.
        const lane = this.#typed.has(id.cardId) ? "frame" : "final";
        await api.cards.content({ ...id, elementId, content }, callOf(lane, this.#options));
        this.#typed.add(id.cardId);
      }
    });
  }

  /** Enables streaming where it is off or about to end. */
  async keepStreaming(number: number): Promise<void> {
    const { now, record } = this.#options;
    if (now() - record.entry(number).streamingSinceMs >= streamingLifetimeMs) await this.#enable(number);
  }

  async #enable(number: number): Promise<void> {
    const { api, now, record } = this.#options;
    const sinceMs = now();
    await this.#numbered(number, true, async (id) => {
      const settings = { config: { streaming_mode: true } };
      await api.cards.settings({ ...id, settings }, callOf("final", this.#options));
    });
    await record.change(number, { streamingSinceMs: sinceMs });
  }

  /** `repeatable`: done twice it is as if done once, so that a doubt is removed by doing it again. */
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
        // After a lost answer the platform refuses the repeat: the first one was applied.
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
        return await delay(lockedRetryMs, true, { signal: this.#options.signal }).catch(() => false);
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
