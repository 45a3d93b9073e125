import { pause, systemClock, type Clock, type ReplyView } from "@larkline/protocol";
import type { CardLedger, OutboxTarget } from "@larkline/store";
import { LRUCache } from "lru-cache";
import { imageRefsIn } from "../cards/answer.ts";
import type { FeishuApi } from "../feishu-api.ts";
import { FeishuError } from "../transport/error.ts";
import { noLogger, type FeishuLogger } from "../transport/sdk.ts";
import type { ImageResolver } from "./outbox-sender.ts";
import { ReplyCards } from "./reply-cards.ts";
import { FencedOut, newReply, ReplyRecord, type CardHandover } from "./card-writer.ts";

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
}

export interface LiveRepliesOptions {
  /** By app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  ledger: CardLedger;
  /**
   * Resolves to whether the session's earlier replies are delivered. A card that appears before them would turn
   * the order of answers around, so it waits. Default: they always are.
   */
  mayAppear?: (session: string) => Promise<boolean>;
  /** Uploads the images that answers name while they type; without it cards show names until the last frame. */
  imageOf?: ImageResolver;
  /** The one that the sender of the answers has. */
  handover?: CardHandover;
  logger?: FeishuLogger;
  clock?: Clock;
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
  readonly #suspended = new LRUCache<string, LiveReply>({ max: maxRemembered });

  constructor({ apis, imageOf, ...options }: LiveRepliesOptions) {
    const { ledger, handover, mayAppear = async () => true, onFrame = () => undefined } = options;
    const { logger = noLogger, clock = systemClock } = options;
    const onPause = (replyId: string, reply: LiveReply): void => void this.#suspended.set(replyId, reply);
    this.#parts = { ledger, handover, mayAppear, onFrame, logger, clock, onPause };
    this.#apis = apis;
    this.#images = imageOf === undefined ? undefined : new LiveImages({ imageOf });
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
    return reply;
  }
}

/**
 * Pauses between the frames of one card, ms. A card takes 10 operations a second ("Streaming updates for
 * cards"); the client's typing effect fills the time between frames.
 */
const frameMs = 180;
const slowFrameMs = 1_000;
/** After this many frames in a row that were held back, a reply steps down to one frame a second. */
const refusalsToSlow = 3;
const framesToRecover = 5;
const releaseMs = 2_000;
/** The longest pause between two checks whether a card may appear: an outage may hold up many cards for hours. */
const maxTurnedAwayMs = 5_000;
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
  mayAppear: (session: string) => Promise<boolean>;
  onFrame: (sinceStartMs: number, isFirst: boolean) => void;
  logger: FeishuLogger;
  clock: Clock;
  onPause: (replyId: string, reply: LiveReply) => void;
}

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
  #pumping: Promise<void> | undefined;
  #turnedAway = 0;
  #refusals = 0;
  #failures = 0;
  #frames = 0;
  #framesInRow = 0;

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
    const last = this.#view();
    this.#start = { ...this.#start, view: () => last };
    this.#parts.onPause(this.#start.replyId, this);
  }

  /**
   * The turn is over or handed to another worker: leaves the cards unchanged for the successor. Resolves when no call
   * is running any more, after 2 s at most.
   */
  async release(): Promise<void> {
    this.#stopped = true;
    this.#opened?.record.doubt();
    this.#stopping.abort();
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
      const pauseMs = await this.#frame();
      // A failure under an old claim says nothing about the claim that resumed the turn.
      if (pauseMs === undefined) this.#stopped ||= epoch === this.#start.epoch;
      else if (this.#paused && this.#failures > 0) break;
      else await pause(this.#parts.clock, pauseMs, this.#stopping.signal);
    }
    this.#pumping = undefined;
  }

  /** Writes one frame. Resolves to the pause before the next one in ms, to undefined when there is to be none. */
  async #frame(): Promise<number | undefined> {
    const start = this.#start;
    const images = this.#images;
    try {
      const { cards, record } = await this.#open(start);
      if (record.mode === "final" || record.mode === "text") return undefined;
      if (record.cards.length === 0 && this.#answered) return undefined;
      if (record.cards.length === 0 && !(await this.#parts.mayAppear(start.session))) return this.#turnAway();
      this.#dirty = false;
      await cards.show(this.#view(start, images));
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

  /** The state to show. The upload of images that it names begins before it is drawn. */
  #view(start = this.#start, images = this.#images): ReplyView {
    const view = start.view();
    images?.look(view.answer);
    return view;
  }

  async #open(start: ReplyStart): Promise<Opened> {
    const { session, replyId, target, uuid, epoch, traceparent } = start;
    const known = this.#opened;
    if (known?.epoch === epoch) return known;
    const api = this.#api;
    const { ledger, clock, handover } = this.#parts;
    const images = this.#images === undefined ? {} : { images: this.#images.keys };
    const stored = await ledger.load(session, replyId);
    const reply = stored ?? (await newReply(api, start, clock.now()));
    const record = new ReplyRecord({ ledger, fence: { epoch }, reply, clock });
    const { signal } = this.#closing;
    const cards = new ReplyCards({ api, record, target, uuid, clock, signal, traceparent, handover, ...images });
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
    // Other failures are left to the delivery of the finished answer.
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

/** How long a card waits for an image, ms; then it shows the name, and the last frame shows the image. */
const imageWaitMs = 5_000;
/** Keys that are remembered, so that a turn that continues shows at once the images that it showed before. */
const maxRememberedKeys = 500;

/** Uploads the images of the replies that this process types, and remembers their keys. */
export class LiveImages {
  readonly #imageOf: ImageResolver;
  readonly #waitMs: number;
  readonly #keys = new LRUCache<string, string>({ max: maxRememberedKeys });

  constructor({ imageOf, waitMs = imageWaitMs }: { imageOf: ImageResolver; waitMs?: number }) {
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
    const key = await this.#imageOf(api, reference, AbortSignal.timeout(this.#waitMs)).catch(() => null);
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
