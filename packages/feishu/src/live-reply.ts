import { setTimeout as delay } from "node:timers/promises";
import type { ReplyView } from "@larkline/protocol";
import type { CardLedger, CardReply, OutboxTarget, ReplyMode } from "@larkline/session";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";
import type { FeishuLogger } from "./logger.ts";
import { FencedOut, ReplyCards } from "./reply-cards.ts";

/** One run of a turn, as its reply has to know it. */
export interface ReplyStart {
  session: string;
  /** Id of the turn. */
  replyId: string;
  /** Fencing token of the session's claim. */
  epoch: string;
  target: OutboxTarget;
  /** The reply's idempotency key, at most 50 characters. */
  uuid: string;
  /** The state to show, asked for when a frame is due. */
  view: () => ReplyView;
}

/** A reply that types while a turn runs. Nothing here can fail the turn or make it wait. */
export interface LiveReply {
  /** There is something new to show. */
  changed(): void;
  /** The turn is suspended: what is new is still shown, once, in the background. */
  pause(): void;
  /**
   * The turn is over or handed on: leaves the cards as they are, for whoever goes on. Resolves when
   * nothing is on its way any more, after 2 s at most.
   */
  release(): Promise<void>;
}

export interface LiveReplyDeps {
  api: FeishuApi;
  ledger: Pick<CardLedger, "load" | "save">;
  /** Whether the session's earlier replies are delivered. */
  mayAppear: (session: string) => Promise<boolean>;
  logger: FeishuLogger;
  now: () => number;
  /** Told when a frame has reached the platform, with the time since the reply began. */
  onFrame: (sinceStartMs: number, isFirst: boolean) => void;
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

export function newReply(
  start: Pick<ReplyStart, "session" | "replyId" | "target">,
  mode: ReplyMode,
  nowMs: number,
): CardReply {
  const { session, replyId, target } = start;
  return { v: 1, replyId, session, app: target.app, chatId: target.chatId, mode, cards: [], createdAtMs: nowMs };
}

/** The writer behind one {@link LiveReply}; it outlives suspensions of the turn in the same process. */
export class ReplyTyper implements LiveReply {
  readonly #deps: LiveReplyDeps;
  readonly #fence: { epoch: string };
  readonly #closing = new AbortController();
  readonly #startedMs: number;
  #start: ReplyStart;
  #cards: ReplyCards | undefined;
  #reply: CardReply | undefined;
  /** Somebody else may have written since. */
  #doubtful = false;
  #dirty = false;
  #paused = false;
  #stopped = false;
  #pumping: Promise<void> | undefined;
  #refusals = 0;
  #failures = 0;
  #frames = 0;
  #framesInRow = 0;

  constructor(start: ReplyStart, deps: LiveReplyDeps) {
    this.#start = start;
    this.#deps = deps;
    this.#fence = { epoch: start.epoch };
    this.#startedMs = deps.now();
  }

  /** The turn goes on under a new claim. */
  resume(start: ReplyStart): void {
    this.#start = start;
    this.#fence.epoch = start.epoch;
    this.#doubtful = true;
    this.#paused = false;
    this.#stopped = false;
  }

  changed(): void {
    this.#dirty = true;
    if (!this.#stopped) this.#pumping ??= this.#pump();
  }

  pause(): void {
    this.#paused = true;
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
      else if (this.#paused && this.#failures > 0) break;
      else await delay(pauseMs, undefined, { signal: this.#closing.signal }).catch(() => undefined);
    }
    this.#pumping = undefined;
  }

  /** Writes one frame; returns the pause before the next one, undefined when there is to be none. */
  async #frame(): Promise<number | undefined> {
    const { epoch } = this.#fence;
    try {
      const cards = await this.#opened();
      if (this.#reply?.mode === "final" || this.#reply?.mode === "text") return undefined;
      if (this.#reply?.cards.length === 0 && !(await this.#deps.mayAppear(this.#start.session))) return frameMs;
      this.#dirty = false;
      await cards.show(this.#start.view());
      this.#shown();
      return this.#reply?.mode === "slow" ? slowFrameMs : frameMs;
    } catch (error) {
      this.#dirty = true;
      this.#framesInRow = 0;
      return error instanceof FencedOut ? this.#fencedOut(epoch) : this.#failed(error);
    }
  }

  /**
   * Somebody holds the session under a newer epoch. When that is this process, under the claim that
   * resumed the turn meanwhile, the next frame looks at the ledger anew; otherwise the cards are theirs.
   * Whether the turn itself is lost is for its own writes to find out.
   */
  #fencedOut(epoch: string): number | undefined {
    this.#doubtful = true;
    return this.#fence.epoch === epoch ? undefined : 0;
  }

  async #opened(): Promise<ReplyCards> {
    if (this.#cards !== undefined && !this.#doubtful) return this.#cards;
    const { api, ledger, now } = this.#deps;
    const { session, replyId, target, uuid } = this.#start;
    const stored = await ledger.load(session, replyId);
    this.#doubtful = false;
    if (this.#cards !== undefined && JSON.stringify(stored) === JSON.stringify(this.#reply)) return this.#cards;
    const reply = stored ?? newReply(this.#start, await modeFor(api), now());
    this.#reply = reply;
    const { signal } = this.#closing;
    this.#cards = new ReplyCards({ api, ledger, fence: this.#fence, reply, target, uuid, now, signal });
    return this.#cards;
  }

  #shown(): void {
    this.#deps.onFrame(this.#deps.now() - this.#startedMs, this.#frames === 0);
    this.#frames += 1;
    this.#framesInRow += 1;
    this.#refusals = 0;
    this.#failures = 0;
    if (this.#reply?.mode === "slow" && this.#framesInRow >= framesToRecover) this.#reply.mode = "typewriter";
  }

  #failed(error: unknown): number | undefined {
    const { logger } = this.#deps;
    const { session } = this.#start;
    if (!(error instanceof FeishuError)) {
      this.#failures += 1;
      logger.warn({ err: error, session }, "card not written");
      return slowFrameMs;
    }
    if (error.kind === "cancelled") return undefined;
    if (error.heldBack) this.#heldBack();
    else {
      this.#failures += 1;
      const { api, kind, code, logId } = error;
      logger.warn({ session, api, kind, code, logId }, "card not written");
      // What cannot be mended by trying again is left to the delivery of the finished answer.
      if (!error.retryable) return undefined;
    }
    return this.#pauseAfter(error);
  }

  #heldBack(): void {
    this.#refusals += 1;
    if (this.#refusals >= refusalsToSlow && this.#reply?.mode === "typewriter") this.#reply.mode = "slow";
  }

  #pauseAfter(error: FeishuError): number {
    const backOff = failureDelaysMs[Math.min(this.#failures, failureDelaysMs.length) - 1] ?? 0;
    const leastMs = this.#reply?.mode === "slow" ? slowFrameMs : frameMs;
    return Math.max(error.retryAfterMs, error.heldBack ? 0 : backOff, leastMs);
  }
}
