import { setTimeout as delay } from "node:timers/promises";
import type { ReplyView } from "@larkline/protocol";
import type { CardLedger, CardReply, OutboxTarget, ReplyMode } from "@larkline/session";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";
import { noLogger, type FeishuLogger } from "./logger.ts";
import { FencedOut, ReplyCards } from "./reply-cards.ts";

export interface LiveReplyOptions {
  api: FeishuApi;
  ledger: Pick<CardLedger, "load" | "save">;
  /** Fencing token of the session's claim. */
  epoch: string;
  session: string;
  /** Id of the turn. */
  replyId: string;
  target: OutboxTarget;
  /** The state to show, asked for when a frame is due. */
  view: () => ReplyView;
  /** The reply's idempotency key. */
  uuid: string;
  /** Called when another worker has taken the session over. */
  onLost: () => void;
  logger?: FeishuLogger;
  now?: () => number;
  /** Told when a frame reached the person, with the time since the reply began. */
  onFrame?: (sinceStartMs: number, first: boolean) => void;
}

/** A reply that types while a turn runs. Nothing here can fail the turn or make it wait. */
export interface LiveReply {
  /** There is something new to show. */
  changed(): void;
  /**
   * Stops writing and leaves the cards as they are, for whoever goes on. Resolves when nothing is on
   * its way any more, after 2 s at most.
   */
  release(): Promise<void>;
}

/**
 * Pauses between frames of one card, ms. A card takes 10 operations a second ("Streaming updates for
 * cards"); the typing effect fills the time between frames.
 */
const frameMs = 180;
const slowFrameMs = 1_000;
/** Held back this often in a row, a reply steps down to one frame a second. */
const refusalsToSlow = 3;
const framesToRecover = 5;
const releaseMs = 2_000;
const failureDelaysMs = [500, 1_000, 2_000, 5_000, 10_000];

/** Shares of the monthly calls at which replies become plainer. */
const finalOnlyFrom = 0.8;
const textOnlyFrom = 0.95;

/** How a new reply is written, with the month's calls in mind. */
export async function modeFor(api: FeishuApi): Promise<ReplyMode> {
  try {
    const { calls, limit } = await api.quota();
    if (limit === null || calls < limit * finalOnlyFrom) return "typewriter";
    return calls < limit * textOnlyFrom ? "final" : "text";
  } catch {
    return "typewriter"; // counting is a courtesy, not a condition
  }
}

function pauseOf(error: FeishuError, failures: number): number {
  const backOff = failureDelaysMs[Math.min(failures, failureDelaysMs.length) - 1] ?? 0;
  return Math.max(error.retryAfterMs, error.heldBack ? 0 : backOff);
}

class Live implements LiveReply {
  readonly #options: LiveReplyOptions;
  readonly #logger: FeishuLogger;
  readonly #now: () => number;
  readonly #closing = new AbortController();
  readonly #startedMs: number;
  #cards: ReplyCards | undefined;
  #reply: CardReply | undefined;
  #dirty = false;
  #pumping: Promise<void> | undefined;
  #refusals = 0;
  #failures = 0;
  #frames = 0;
  #framesInRow = 0;
  #stopped = false;

  constructor(options: LiveReplyOptions) {
    this.#options = options;
    this.#logger = options.logger ?? noLogger;
    this.#now = options.now ?? Date.now;
    this.#startedMs = this.#now();
  }

  changed(): void {
    this.#dirty = true;
    if (!this.#stopped) this.#pumping ??= this.#pump();
  }

  async release(): Promise<void> {
    this.#stopped = true;
    const timer = setTimeout(() => this.#closing.abort(), releaseMs);
    await this.#pumping;
    clearTimeout(timer);
    this.#closing.abort();
  }

  async #pump(): Promise<void> {
    while (this.#dirty && !this.#stopped) {
      const pauseMs = await this.#frame();
      if (pauseMs === undefined) this.#stopped = true;
      else await delay(pauseMs, undefined, { signal: this.#closing.signal }).catch(() => undefined);
    }
    this.#pumping = undefined;
  }

  /** Writes one frame; returns the pause before the next one, undefined when there is to be none. */
  async #frame(): Promise<number | undefined> {
    try {
      const cards = (this.#cards ??= await this.#open());
      if (this.#reply?.mode === "final" || this.#reply?.mode === "text") return undefined;
      this.#dirty = false;
      await cards.show(this.#options.view());
      this.#shown();
      return this.#reply?.mode === "slow" ? slowFrameMs : frameMs;
    } catch (error) {
      return this.#failed(error);
    }
  }

  async #open(): Promise<ReplyCards> {
    const { api, ledger, epoch, session, replyId, target, uuid } = this.#options;
    const reply = (await ledger.load(session, replyId)) ?? {
      v: 1,
      replyId,
      session,
      app: target.app,
      chatId: target.chatId,
      mode: await modeFor(api),
      cards: [],
      createdAtMs: this.#now(),
    };
    this.#reply = reply;
    const { signal } = this.#closing;
    return new ReplyCards({ api, ledger, fence: { epoch }, reply, target, uuid, now: this.#now, signal });
  }

  #shown(): void {
    this.#options.onFrame?.(this.#now() - this.#startedMs, this.#frames === 0);
    this.#frames += 1;
    this.#framesInRow += 1;
    this.#refusals = 0;
    this.#failures = 0;
    if (this.#reply !== undefined && this.#reply.mode === "slow" && this.#framesInRow >= framesToRecover) {
      this.#reply.mode = "typewriter";
    }
  }

  #failed(error: unknown): number | undefined {
    this.#dirty = true;
    if (error instanceof FencedOut) {
      this.#options.onLost();
      return undefined;
    }
    if (!(error instanceof FeishuError)) {
      this.#logger.warn({ err: error, session: this.#options.session }, "card not written");
      return slowFrameMs;
    }
    if (error.kind === "cancelled") return undefined;
    this.#framesInRow = 0;
    if (error.heldBack) {
      this.#refusals += 1;
      if (this.#refusals >= refusalsToSlow && this.#reply?.mode === "typewriter") this.#reply.mode = "slow";
    } else {
      this.#failures += 1;
      const { api, kind, code, logId } = error;
      this.#logger.warn({ session: this.#options.session, api, kind, code, logId }, "card not written");
      // What cannot be mended by trying again is left to the delivery of the finished answer.
      if (!error.retryable) return undefined;
    }
    return Math.max(pauseOf(error, this.#failures), this.#reply?.mode === "slow" ? slowFrameMs : frameMs);
  }
}

/** Starts nothing until the first `changed`. */
export function startLiveReply(options: LiveReplyOptions): LiveReply {
  return new Live(options);
}
