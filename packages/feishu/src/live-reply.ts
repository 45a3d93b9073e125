import { setTimeout as delay } from "node:timers/promises";
import type { ReplyView } from "@larkline/protocol";
import type { CardLedger, OutboxTarget } from "@larkline/store";
import type { CardHandover } from "./card-handover.ts";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";
import type { FeishuLogger } from "./logger.ts";
import { ReplyCards } from "./reply-cards.ts";
import { modeFor, newReply } from "./reply-mode.ts";
import { FencedOut, ReplyRecord } from "./reply-record.ts";

/** One run of a turn, as its reply has to know it. */
export interface ReplyStart {
  session: string;
  /** Id of the turn. */
  replyId: string;
  /** Fencing token of the session's claim. */
  epoch: string;
  target: OutboxTarget;
  /** Of the message that is answered. */
  traceparent?: string;
  /** The reply's idempotency key, at most 50 characters. */
  uuid: string;
  /** The state to show, asked for when a frame is due. */
  view: () => ReplyView;
  /** Keys of the images that the view names; may change while the reply runs. Without it none are shown while it types. */
  images?: ReadonlyMap<string, string | null>;
}

/** A reply that types while a turn runs. Nothing here can fail the turn or make it wait. */
export interface LiveReply {
  /** There is something new to show. */
  changed(): void;
  /** The turn has its answer: what is on a card is still typed on, but no first card is begun any more. */
  answered(): void;
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
  /** For the delivery of the answer. */
  handover?: CardHandover | undefined;
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
/** A card that may not appear yet asks more and more rarely: an outage holds up many of them for hours. */
const maxTurnedAwayMs = 5_000;
/** Failures in a row that nobody understands. */
const maxUnknownFailures = 3;
const failureDelaysMs = [500, 1_000, 2_000, 5_000, 10_000];

/** What one claim of the turn writes with. A later claim gets its own: a fence is never changed. */
interface Opened {
  epoch: string;
  record: ReplyRecord;
  cards: ReplyCards;
}

/** The writer behind one {@link LiveReply}; it outlives suspensions of the turn in the same process. */
export class ReplyTyper implements LiveReply {
  readonly #deps: LiveReplyDeps;
  /** Ends what is on its way. */
  readonly #closing = new AbortController();
  /** Ends pauses. */
  readonly #stopping = new AbortController();
  readonly #startedMs: number;
  #start: ReplyStart;
  #opened: Opened | undefined;
  #dirty = false;
  #paused = false;
  #answered = false;
  #stopped = false;
  #pumping: Promise<void> | undefined;
  #turnedAway = 0;
  #refusals = 0;
  #failures = 0;
  #frames = 0;
  #framesInRow = 0;

  constructor(start: ReplyStart, deps: LiveReplyDeps) {
    this.#start = start;
    this.#deps = deps;
    this.#startedMs = deps.now();
  }

  /** The turn goes on under a new claim. */
  resume(start: ReplyStart): void {
    this.#start = start;
    this.#paused = false;
    this.#stopped = false;
    this.#turnedAway = 0;
  }

  changed(): void {
    this.#dirty = true;
    if (!this.#stopped) this.#pumping ??= this.#pump();
  }

  answered(): void {
    this.#answered = true;
  }

  pause(): void {
    this.#paused = true;
    this.#opened?.record.doubt();
    // Nothing of the turn is kept for as long as it is suspended, which may be days.
    const last = this.#start.view();
    this.#start = { ...this.#start, view: () => last };
  }

  async release(): Promise<void> {
    this.#stopped = true;
    this.#opened?.record.doubt();
    this.#stopping.abort();
    const late = Promise.withResolvers<void>();
    const timer = setTimeout(late.resolve, releaseMs);
    // A ledger that hangs is waited for no longer either: what it may still write is fenced.
    await Promise.race([this.#pumping, late.promise]);
    clearTimeout(timer);
    this.#closing.abort();
  }

  async #pump(): Promise<void> {
    while (this.#dirty && !this.#stopped) {
      const { epoch } = this.#start;
      const pauseMs = await this.#frame();
      // What happened to a claim that is over says nothing about the one that resumed the turn.
      if (pauseMs === undefined) this.#stopped ||= epoch === this.#start.epoch;
      else if (this.#paused && this.#failures > 0) break;
      else await delay(pauseMs, undefined, { signal: this.#stopping.signal }).catch(() => undefined);
    }
    this.#pumping = undefined;
  }

  /** Writes one frame; returns the pause before the next one, undefined when there is to be none. */
  async #frame(): Promise<number | undefined> {
    const start = this.#start;
    try {
      const { cards, record } = await this.#open(start);
      if (record.mode === "final" || record.mode === "text") return undefined;
      if (record.cards.length === 0 && this.#answered) return undefined;
      if (record.cards.length === 0 && !(await this.#deps.mayAppear(start.session))) return this.#turnAway();
      this.#dirty = false;
      await cards.show(start.view());
      this.#wrote(record);
      return record.mode === "slow" ? slowFrameMs : frameMs;
    } catch (error) {
      return this.#failed(error, start.session);
    }
  }

  #turnAway(): number {
    this.#turnedAway += 1;
    return Math.min(maxTurnedAwayMs, frameMs * 2 ** (this.#turnedAway - 1));
  }

  async #open(start: ReplyStart): Promise<Opened> {
    const { session, replyId, target, uuid, epoch, images, traceparent } = start;
    const known = this.#opened;
    if (known?.epoch === epoch) return known;
    const { api, ledger, now, handover } = this.#deps;
    const stored = await ledger.load(session, replyId);
    const reply = stored ?? newReply(start, await modeFor(api), now());
    const record = new ReplyRecord({ ledger, fence: { epoch }, reply });
    const { signal } = this.#closing;
    const cards = new ReplyCards({
      api,
      record,
      target,
      uuid,
      now,
      signal,
      traceparent,
      handover,
      ...(images === undefined ? {} : { images }),
    });
    // Nobody else has written since: what is known of the platform is still true.
    if (known?.record.matches(stored) === true) cards.goOnFrom(known.cards);
    this.#opened = { epoch, record, cards };
    return this.#opened;
  }

  #wrote(record: ReplyRecord): void {
    this.#deps.onFrame(this.#deps.now() - this.#startedMs, this.#frames === 0);
    this.#frames += 1;
    this.#framesInRow += 1;
    this.#refusals = 0;
    this.#failures = 0;
    if (record.mode === "slow" && this.#framesInRow >= framesToRecover) record.mode = "typewriter";
  }

  #failed(error: unknown, session: string): number | undefined {
    const { logger } = this.#deps;
    this.#dirty = true;
    this.#framesInRow = 0;
    // The cards are somebody else's. Whether the turn itself is lost is for its own writes to find out.
    if (error instanceof FencedOut) return undefined;
    if (!(error instanceof FeishuError)) {
      this.#failures += 1;
      logger.warn({ err: error, session }, "card not written");
      return this.#backOffMs(slowFrameMs);
    }
    if (error.kind === "cancelled") return undefined;
    if (error.heldBack) {
      this.#refusals += 1;
      const record = this.#opened?.record;
      if (this.#refusals >= refusalsToSlow && record?.mode === "typewriter") record.mode = "slow";
      return Math.max(error.retryAfterMs, this.#frameMs());
    }
    this.#failures += 1;
    const { api, kind, code, logId } = error;
    logger.warn({ session, api, kind, code, logId }, "card not written");
    // What cannot be mended by trying again is left to the delivery of the finished answer.
    const mayPass = error.retryable || (error.kind === "unknown" && this.#failures < maxUnknownFailures);
    return mayPass ? this.#backOffMs(Math.max(error.retryAfterMs, this.#frameMs())) : undefined;
  }

  #frameMs(): number {
    return this.#opened?.record.mode === "slow" ? slowFrameMs : frameMs;
  }

  #backOffMs(leastMs: number): number {
    return Math.max(leastMs, failureDelaysMs[Math.min(this.#failures, failureDelaysMs.length) - 1] ?? 0);
  }
}
