import {
  deadline,
  pause,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import type { ReplyView, ShownTool } from "@larkline/protocol/reply-view";
import type { AskedInReply, CardLedger, OutboxTarget } from "@larkline/store";
import { LRUCache } from "lru-cache";
import { imageRefsIn } from "../cards/answer.ts";
import type { FeishuApi } from "../feishu-api.ts";
import { FeishuError } from "../transport/error.ts";
import { noLogger, type FeishuLogger } from "../transport/sdk.ts";
import type { ImageResolver } from "./image-resolver.ts";
import { ReplyCards } from "./reply-cards.ts";
import type { CardHandover } from "./reply-record.ts";
import { FencedOut, newReply, ReplyRecord } from "./reply-record.ts";

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
  /** Returns the state to show. Called when a frame is due. */
  view: () => ReplyView;
  /** Returns what the person is asked on the card. Called when a frame is due. */
  asks?: () => readonly AskedInReply[];
  /** Called when these questions stand on the card, or, with `isPlaced` false, when they cannot be shown there. */
  onAsked?: (asks: readonly AskedInReply[], isPlaced: boolean) => void;
}

interface LiveRepliesOptions {
  /** By app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  ledger: CardLedger;
  /** Uploads the images that answers name while they type; without it cards show names until the last frame. */
  imageOf?: ImageResolver;
  /** The one that the sender of the answers has. */
  handover?: CardHandover;
  logger?: FeishuLogger;
  clock?: Clock;
  random?: Random;
  /** Called when a frame has reached the platform, with the time since the reply began. */
  onFrame?: (sinceStartMs: number, isFirst: boolean) => void;
}

/** Suspended replies that are remembered: a forgotten one costs one more operation when its turn continues. */
const maxRemembered = 500;

/** The replies that this process is typing. */
export class LiveReplies {
  readonly #parts: TyperParts;
  readonly #apis: LiveRepliesOptions["apis"];
  readonly #images: LiveImages | undefined;
  /** By the id of the reply. */
  readonly #open = new Map<string, LiveReply>();
  readonly #suspended: LRUCache<string, LiveReply>;

  constructor({ apis, imageOf, ...options }: LiveRepliesOptions) {
    const { ledger, handover, onFrame = () => undefined } = options;
    const { logger = noLogger, clock = systemClock, random = systemRandom } = options;
    this.#suspended = new LRUCache({ max: maxRemembered, dispose: (reply) => reply.forget() });
    const onEnd = (replyId: string, reply: LiveReply, isPaused: boolean): void => {
      if (this.#open.get(replyId) === reply) this.#open.delete(replyId);
      if (isPaused) this.#suspended.set(replyId, reply);
    };
    this.#parts = { ledger, handover, onFrame, logger, clock, random, onEnd };
    this.#apis = apis;
    this.#images = imageOf === undefined ? undefined : new LiveImages({ imageOf, clock });
  }

  /** Begins the reply of a turn, or continues it. Undefined when this process has no credentials for its app. */
  open(start: ReplyStart): LiveReply | undefined {
    const { replyId, target } = start;
    const api = this.#apis.get(target.app);
    if (api === undefined) return undefined;
    const images = this.#images?.ofReply(api, () => reply.changed());
    const known = this.#suspended.get(replyId);
    this.#suspended.delete(replyId);
    known?.resume(start, images);
    const reply: LiveReply = known ?? new LiveReply({ api, start, images }, this.#parts);
    this.#open.set(replyId, reply);
    return reply;
  }

  /** A call of a turn has reported its progress. Without effect where this process does not type its reply. */
  progress(replyId: string, callId: string, progress: CallProgress): void {
    (this.#open.get(replyId) ?? this.#suspended.peek(replyId))?.progress(callId, progress);
  }

  /** Replies of suspended turns are not drawn any more. */
  close(): void {
    for (const reply of this.#suspended.values()) reply.forget();
  }
}

/**
 * From the beginning of one frame of a card to that of the next, ms: no frame begins before the one before has been
 * answered. A card takes 10 operations a second ("Streaming updates for cards"); the client's typing effect fills the
 * time between frames.
 */
const frameMs = 190;
const slowFrameMs = 1_000;
/** After this many frames in a row that were held back, a reply steps down to one frame a second. */
const refusalsToSlow = 3;
const framesToRecover = 5;
const releaseMs = 2_000;
/** The longest pause between two checks whether a card may appear: an outage may hold up many cards for hours. */
const maxTurnedAwayMs = 5_000;
/** A call that runs is drawn again after a sixth of the time that it has run, within these bounds, ms. */
const [minTickMs, maxTickMs] = [2_000, 30_000];
/** Least time between two frames of which the second is drawn because a call has reported its progress. */
const progressMs = 1_000;
/** How many failures of an unknown kind in a row are tolerated. */
const maxUnknownFailures = 3;
const failureDelaysMs = [500, 1_000, 2_000, 5_000, 10_000];

/** What a reply writes with under one claim of its turn. A later claim gets its own, because a fence never changes. */
interface Opened {
  epoch: string;
  record: ReplyRecord;
  cards: ReplyCards;
}

/** What all replies of a process share. */
interface TyperParts {
  ledger: CardLedger;
  handover: CardHandover | undefined;
  onFrame: (sinceStartMs: number, isFirst: boolean) => void;
  logger: FeishuLogger;
  clock: Clock;
  random: Random;
  onEnd: (replyId: string, reply: LiveReply, isPaused: boolean) => void;
}

/** What a call has reported of itself: how much is done, 0 to 1, and what it does. */
export type CallProgress = NonNullable<ShownTool["progress"]>;

/**
 * A reply that types while a turn runs. It never fails the turn and never makes it wait. It outlives suspensions of
 * the turn in the same process.
 */
export class LiveReply {
  readonly #api: FeishuApi;
  readonly #parts: TyperParts;
  /** Aborts running calls. */
  readonly #closing = new AbortController();
  /** Ends pauses. */
  readonly #stopping = new AbortController();
  readonly #startedMs: number;
  #start: ReplyStart;
  #images: ReplyImages | undefined;
  #opened: Opened | undefined;
  #dirty = false;
  #paused = false;
  #answered = false;
  #stopped = false;
  #isFenced = false;
  #pumping: Promise<void> | undefined;
  #turnedAway = 0;
  #refusals = 0;
  #failures = 0;
  #frames = 0;
  #framesInRow = 0;
  /** By call. */
  readonly #progress = new Map<string, CallProgress>();
  /** `clock.monotonic()` of the last frame. */
  #drawnMs = Number.NEGATIVE_INFINITY;
  #cancelTick: (() => void) | undefined;

  constructor(
    { api, start, images }: { api: FeishuApi; start: ReplyStart; images: ReplyImages | undefined },
    parts: TyperParts,
  ) {
    this.#api = api;
    this.#start = start;
    this.#images = images;
    this.#parts = parts;
    this.#startedMs = parts.clock.now();
  }

  /** The turn continues under a new claim. */
  resume(start: ReplyStart, images: ReplyImages | undefined): void {
    this.#start = start;
    this.#images = images;
    this.#paused = false;
    this.#stopped = false;
    this.#isFenced = false;
    this.#turnedAway = 0;
  }

  /** There is something new to show. */
  changed(): void {
    this.#dirty = true;
    if (!this.#stopped) this.#pumping ??= this.#pump();
  }

  /** The turn has its answer: a card that exists is still typed on, but no first card is created any more. */
  answered(): void {
    this.#answered = true;
  }

  /** The turn is suspended: what is new is still shown, once, in the background. */
  pause(): void {
    this.#paused = true;
    this.#opened?.record.doubt();
    // The suspension may last for days, so nothing of the turn is kept except its last view.
    const last = this.#start.view();
    const asks = this.#start.asks?.() ?? [];
    this.#start = { ...this.#start, view: () => last, asks: () => asks };
    this.#parts.onEnd(this.#start.replyId, this, true);
  }

  /** A call that runs has reported its progress. */
  progress(callId: string, progress: CallProgress): void {
    this.#progress.set(callId, progress);
    this.#tickIn(Math.max(0, this.#drawnMs + progressMs - this.#parts.clock.monotonic()));
  }

  /** The card is not drawn again because time passes. */
  forget(): void {
    this.#cancelTick?.();
  }

  /**
   * The turn is over or handed to another worker: leaves the cards unchanged for the successor. Resolves when no call
   * is running any more, after 2 s at most. Where the turn has its answer, an update of a card that people see is not
   * waited for: the last frame replaces the whole card, under a higher number.
   */
  async release(): Promise<void> {
    this.#stopped = true;
    this.forget();
    this.#parts.onEnd(this.#start.replyId, this, false);
    this.#opened?.record.doubt();
    this.#stopping.abort();
    const onlyUpdates = this.#opened?.cards.leave() ?? false;
    const quiet = this.#quiet();
    if (!onlyUpdates || !this.#answered) await quiet;
  }

  /** Resolves when no call is running any more; those that run after 2 s are aborted. */
  async #quiet(): Promise<void> {
    const late = Promise.withResolvers<void>();
    const cancel = this.#parts.clock.after(releaseMs, late.resolve);
    // Also a ledger that hangs is not waited for longer: what it may still write is fenced.
    await Promise.race([this.#pumping, late.promise]);
    cancel();
    this.#closing.abort();
  }

  async #pump(): Promise<void> {
    while (this.#dirty && !this.#stopped) {
      const { epoch } = this.#start;
      const beganMs = this.#parts.clock.monotonic();
      const pauseMs = await this.#frame(beganMs);
      // A failure under an old claim says nothing about the claim that resumed the turn.
      if (pauseMs === undefined) this.#stopped ||= epoch === this.#start.epoch;
      else if (this.#paused && this.#failures > 0) break;
      else await pause(this.#parts.clock, pauseMs, this.#stopping.signal);
    }
    this.#pumping = undefined;
    // What could not be shown is not left to the next frame: the turn waits for it.
    if (this.#dirty && !this.#isFenced && !this.#stopping.signal.aborted) {
      this.#reportAsked(this.#start.asks?.() ?? [], []);
    }
  }

  /** Reports which of the questions are on the card, and which are not. */
  #reportAsked(asks: readonly AskedInReply[], asked: readonly AskedInReply[]): void {
    const { onAsked } = this.#start;
    const others = asks.filter(
      (each) => !asked.some(({ approval }) => approval.id === each.approval.id),
    );
    if (asked.length > 0) onAsked?.(asked, true);
    if (others.length > 0) onAsked?.(others, false);
  }

  /** Writes one frame. Resolves to the pause before the next one in ms, to undefined when there is to be none. */
  async #frame(beganMs: number): Promise<number | undefined> {
    const start = this.#start;
    const images = this.#images;
    try {
      const { cards, record } = await this.#open(start);
      if (record.mode === "final" || record.mode === "text") {
        this.#reportAsked(start.asks?.() ?? [], []);
        return undefined;
      }
      if (record.cards.length === 0 && this.#answered) return undefined;
      // A card that appears before the session's earlier replies would turn the order of answers around, so it waits.
      const isFirst = record.cards.length === 0;
      if (isFirst && !(await this.#parts.ledger.mayAppear(start.session))) return this.#turnAway();
      this.#dirty = false;
      const view = this.#view(start, images);
      const asks = start.asks?.() ?? [];
      this.#reportAsked(asks, await cards.show(view, asks));
      this.#wrote(record);
      this.#tickAfter(view);
      return Math.max(0, beganMs + this.#frameMs() - this.#parts.clock.monotonic());
    } catch (error) {
      return this.#failed(error, start.session);
    }
  }

  #turnAway(): number {
    this.#turnedAway += 1;
    return Math.min(maxTurnedAwayMs, frameMs * 2 ** (this.#turnedAway - 1));
  }

  /** The state to show. The upload of images that it names begins before it is drawn. */
  #view(start = this.#start, images = this.#images): ReplyView {
    const view = start.view();
    images?.look(view.answer);
    if (!view.tools.some(runsNow)) return view;
    const nowMs = this.#parts.clock.now();
    return {
      ...view,
      tools: view.tools.map((tool) => (runsNow(tool) ? this.#withTimes(tool, nowMs) : tool)),
    };
  }

  #withTimes(tool: ShownTool, nowMs: number): ShownTool {
    const progress = this.#progress.get(tool.id);
    const elapsedMs = Math.max(0, nowMs - tool.startedAtMs);
    return { ...tool, elapsedMs, ...(progress === undefined ? {} : { progress }) };
  }

  /** While calls run the card shows for how long, also when the turn is suspended: until another worker draws it. */
  #tickAfter({ state, tools }: ReplyView): void {
    this.forget();
    this.#drawnMs = this.#parts.clock.monotonic();
    const elapsed = tools.filter(runsNow).map(({ elapsedMs = 0 }) => elapsedMs);
    if (state !== "running" || elapsed.length === 0) return;
    this.#tickIn(Math.min(maxTickMs, Math.max(minTickMs, Math.max(...elapsed) / 6)));
  }

  #tickIn(waitMs: number): void {
    this.forget();
    if (this.#stopped) return;
    // Keeps no process alive.
    const cancel = this.#parts.clock.every(waitMs, () => {
      cancel();
      this.changed();
    });
    this.#cancelTick = cancel;
  }

  async #open(start: ReplyStart): Promise<Opened> {
    const { session, replyId, target, uuid, epoch, traceparent } = start;
    const known = this.#opened;
    if (known?.epoch === epoch) return known;
    const api = this.#api;
    const { ledger, clock, random, handover } = this.#parts;
    const images = this.#images === undefined ? {} : { images: this.#images.keys };
    const stored = await ledger.load(session, replyId);
    const reply = stored ?? (await newReply(api, start, clock.now()));
    const record = new ReplyRecord({ ledger, fence: { epoch }, reply, clock });
    const { signal } = this.#closing;
    const cards = new ReplyCards({
      api,
      record,
      target,
      uuid,
      clock,
      random,
      signal,
      traceparent,
      handover,
      ...images,
    });
    // No other process has written since, so what the earlier writer knows of the platform is still true.
    if (known?.record.matches(stored) === true) cards.continueFrom(known.cards);
    this.#opened = { epoch, record, cards };
    return this.#opened;
  }

  #wrote(record: ReplyRecord): void {
    this.#parts.onFrame(this.#parts.clock.now() - this.#startedMs, this.#frames === 0);
    this.#frames += 1;
    this.#framesInRow += 1;
    this.#refusals = 0;
    this.#failures = 0;
    if (record.mode === "slow" && this.#framesInRow >= framesToRecover) record.mode = "typewriter";
  }

  #failed(error: unknown, session: string): number | undefined {
    const { logger } = this.#parts;
    this.#dirty = true;
    this.#framesInRow = 0;
    // Another worker owns the cards. Whether it owns the turn too is found out by the turn's own writes.
    if (error instanceof FencedOut) {
      this.#isFenced = true;
      return undefined;
    }
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
    // Other failures are left to the delivery of the finished answer.
    const mayPass =
      error.retryable || (error.kind === "unknown" && this.#failures < maxUnknownFailures);
    return mayPass ? this.#backOffMs(Math.max(error.retryAfterMs, this.#frameMs())) : undefined;
  }

  #frameMs(): number {
    return this.#opened?.record.mode === "slow" ? slowFrameMs : frameMs;
  }

  #backOffMs(leastMs: number): number {
    return Math.max(
      leastMs,
      failureDelaysMs[Math.min(this.#failures, failureDelaysMs.length) - 1] ?? 0,
    );
  }
}

function runsNow({ state, isAway = false }: ShownTool): boolean {
  return state === "running" && !isAway;
}

/** How long a card waits for an image, ms; then it shows the name, and the last frame shows the image. */
const imageWaitMs = 5_000;
/** Keys that are remembered, so that a turn that continues shows at once the images that it showed before. */
const maxRememberedKeys = 500;

/** Uploads the images of the replies that this process types, and remembers their keys. */
export class LiveImages {
  readonly #imageOf: ImageResolver;
  readonly #waitMs: number;
  readonly #clock: Clock;
  readonly #keys = new LRUCache<string, string>({ max: maxRememberedKeys });

  constructor({
    imageOf,
    clock,
    waitMs = imageWaitMs,
  }: {
    imageOf: ImageResolver;
    clock: Clock;
    waitMs?: number;
  }) {
    this.#clock = clock;
    this.#imageOf = imageOf;
    this.#waitMs = waitMs;
  }

  /** `onResolved` is called when the keys of the reply have grown, so that its card can continue. */
  ofReply(api: FeishuApi, onResolved: () => void): ReplyImages {
    return new ReplyImages(api, this, onResolved);
  }

  /** The key of an image that was uploaded before. */
  known(api: FeishuApi, reference: string): string | undefined {
    return this.#keys.get(`${api.appId} ${reference}`);
  }

  /** Resolves to the key, to null when there is none in time. Never rejects. */
  async upload(api: FeishuApi, reference: string): Promise<string | null> {
    const key = await this.#imageOf(api, reference, deadline(this.#clock, this.#waitMs)).catch(
      () => null,
    );
    if (key === null) return null;
    this.#keys.set(`${api.appId} ${reference}`, key);
    return key;
  }
}

/**
 * The images of one reply while it types. They are uploaded as soon as the answer has named them: otherwise people
 * would read names and see the text change at the end. Nothing here fails a reply or holds it for long.
 */
class ReplyImages {
  /** By what the answer calls them; `null`: none to show; missing: being uploaded, the card waits. */
  readonly keys = new Map<string, string | null>();
  readonly #api: FeishuApi;
  readonly #images: LiveImages;
  readonly #onResolved: () => void;
  readonly #asked = new Set<string>();

  constructor(api: FeishuApi, images: LiveImages, onResolved: () => void) {
    this.#api = api;
    this.#images = images;
    this.#onResolved = onResolved;
  }

  /** Begins to upload the images of an answer. Must be called before it is drawn with `keys`. */
  look(answer: string): void {
    for (const reference of imageRefsIn(answer)) {
      if (this.#asked.has(reference)) continue;
      this.#asked.add(reference);
      const key = this.#images.known(this.#api, reference);
      if (key === undefined) void this.#upload(reference);
      else this.keys.set(reference, key);
    }
  }

  async #upload(reference: string): Promise<void> {
    this.keys.set(reference, await this.#images.upload(this.#api, reference));
    this.#onResolved();
  }
}
