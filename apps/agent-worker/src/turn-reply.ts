import { answerUuid, finalView, languageOfMessage, notesOf, runningView, type ViewOptions } from "@larkline/agent";
import type { FeishuApi, ImageResolver, LiveReply } from "@larkline/feishu";
import {
  imageBlobIdOf,
  imageTypeOf,
  maxImageBytes,
  traceparentOfMessage,
  withoutImageMarks,
  type InboundMessage,
  type ReplyView,
} from "@larkline/protocol";
import type { BlobStore, LookupCache, OutboxRecord } from "@larkline/store";
import type { Services } from "./services.ts";
import type { RunningTurn } from "./turn-run.ts";

/** What the person of a turn sees: the card that types while the turn runs, and the record of its answer. */
export class TurnReply {
  readonly #services: Services;
  readonly #run: RunningTurn;
  #card: LiveReply | undefined;
  /** What the card shows now. */
  #view: (() => ReplyView) | undefined;

  constructor(services: Services, run: RunningTurn) {
    this.#services = services;
    this.#run = run;
  }

  /** Begins the card, or continues it. Nothing where the answer is sent whole, or to no person. */
  open(epoch: string): void {
    const { message, turnId } = this.#run.stored.turn;
    const options = this.#viewOptions();
    const { reply, session, id } = message;
    if (options === undefined || reply.channel !== "feishu") return;
    const { clock, liveReplies } = this.#services;
    const { options: asked, stored } = this.#run;
    // An answer with fields is shown when it is complete: until then it is JSON.
    const live = () =>
      asked.form === undefined || stored.live === undefined ? stored.live : { ...stored.live, text: "" };
    const running = (): ReplyView => runningView(stored.turn, live(), { ...options, nowMs: clock.now() });
    this.#view = running;
    const { channel: _channel, ...target } = reply;
    this.#card = liveReplies.open({
      session,
      replyId: turnId,
      epoch,
      target,
      uuid: answerUuid(reply.app, id),
      view: () => (this.#view ?? running)(),
      traceparent: traceparentOfMessage(message),
    });
    this.#card?.changed();
  }

  /** What the card shows beside the answer; undefined where the answer is its text and nothing else. */
  #viewOptions(): ViewOptions | undefined {
    const { message } = this.#run.stored.turn;
    const { command, reply } = message;
    const { config, speech } = this.#run.agent;
    if (config.reply !== "card" || reply.channel !== "feishu" || command !== undefined) return undefined;
    const { bots, settings } = this.#services;
    return {
      language: languageOfMessage(message, speech.texts),
      bilingual: speech.texts === undefined && message.chatType === "group",
      show: config.card,
      nowMs: this.#services.clock.now(),
      model: this.#run.model.chain.primary.displayName,
      stoppable: true,
      maxCards: (bots.get(reply.app)?.settings ?? settings.bots.default).feishu.maxCards,
    };
  }

  /** Something of the turn is another one now. */
  changed(): void {
    this.#card?.changed();
  }

  /** From now on the card stays as it is: the delivery of the answer shows how the turn ended. */
  freeze(): void {
    this.#card?.answered();
    const seen = this.#view?.();
    if (seen !== undefined) this.#view = () => seen;
  }

  /** The turn is suspended: the worker that resumes it continues the same card. */
  pause(): void {
    this.#card?.pause();
    this.#card = undefined;
  }

  /** Resolves when nothing is on its way to the card any more. */
  async release(): Promise<void> {
    await this.#card?.release();
  }

  /**
   * The record of the turn's answer for the outbox; undefined when there is nothing to send or no place to send it to.
   * `answeredBy`: id of the model of the last step.
   */
  outboxRecord(text: string | undefined, reason: string, answeredBy: string | undefined): OutboxRecord | undefined {
    const { turn } = this.#run.stored;
    const { reply, session, id } = turn.message;
    if (reply.channel === "none" || text === undefined || text.trim() === "") return undefined;
    const view = this.#finalView(text, reason, answeredBy);
    // Where there is no card, what stands below its answer comes after the text.
    const whole = view === undefined ? [text, ...notesOf(turn)].join("\n\n") : text;
    return {
      v: 1,
      id: turn.turnId,
      uuid: answerUuid(reply.app, id),
      session,
      target: { app: reply.app, chatId: reply.chatId, messageId: reply.messageId, inThread: reply.inThread },
      text: withoutImageMarks(whole),
      ...(view === undefined ? {} : { view }),
      traceparent: traceparentOfMessage(turn.message),
      askedAtMs: turn.message.createdAtMs,
      createdAtMs: this.#services.clock.now(),
      attempts: 0,
      uncertainSinceMs: 0,
    };
  }

  #finalView(reply: string, reason: string, answeredBy: string | undefined): ReplyView | undefined {
    const options = this.#viewOptions();
    if (options === undefined) return undefined;
    const answered = this.#run.model.chain.models.find(({ id }) => id === answeredBy);
    const model = answered?.displayName ?? options.model;
    return finalView(this.#run.stored.turn, { reply, reason }, { ...options, model });
  }
}

/** Takes back a reaction that ingress has put on a message, when it stops being true. Waits for nothing; never throws. */
export function takeBackReaction(
  { bots }: Services,
  { app, reply }: InboundMessage,
  purpose: "queued" | "typing",
): void {
  const bot = bots.get(app);
  if (bot === undefined || reply.channel !== "feishu" || reply.messageId === "") return;
  const { queueNotice, typing } = bot.settings.feishu;
  const isShown = purpose === "queued" ? queueNotice === "reaction" : typing;
  if (isShown) void bot.reactions.remove(reply.messageId, purpose);
}

/** Keys of uploaded images do not expire; the blob does. */
const keptMs = 7 * 24 * 3_600_000;
/** For one upload with its repeats. Longer than a delivery has: its next attempt finds the key. */
const uploadMs = 90_000;

/**
 * Uploads the stored images that an answer names, once for all processes and answers; nothing else
 * becomes an image, and no name makes this process fetch anything but a blob. An upload outlives the
 * caller that began it, so that a large image does not fail again and again at short deadlines.
 */
export function createImageResolver(blobs: BlobStore, lookups: LookupCache): ImageResolver {
  const underWay = new Map<string, Promise<string | null>>();
  const resolve: ImageResolver = async (api, reference, signal) => {
    const blobId = imageBlobIdOf(reference);
    if (blobId === undefined) return null;
    const key = imageKeyName(api, blobId);
    let work = underWay.get(key);
    if (work === undefined) {
      work = uploadImage(api, blobId, blobs, lookups).finally(() => underWay.delete(key));
      work.catch(() => undefined); // those who wait are told; all may have left
      underWay.set(key, work);
    }
    return await unlessAborted(work, signal);
  };
  return Object.assign(resolve, {
    forget: async (api: FeishuApi, reference: string): Promise<void> => {
      const blobId = imageBlobIdOf(reference);
      if (blobId !== undefined) await lookups.delete(imageKeyName(api, blobId));
    },
  });
}

function imageKeyName({ appId }: FeishuApi, blobId: string): string {
  return `image:${appId}:${blobId}`;
}

async function uploadImage(
  api: FeishuApi,
  blobId: string,
  blobs: BlobStore,
  lookups: LookupCache,
): Promise<string | null> {
  const key = imageKeyName(api, blobId);
  const known = await lookups.get(key);
  if (known !== undefined) return known;
  const stored = await blobs.get(blobId);
  // What people send is stored as well, under types that they choose: only what is an image leaves as one.
  if (stored === undefined || stored.bytes.byteLength > maxImageBytes || imageTypeOf(stored.bytes) === undefined) {
    return null;
  }
  const imageKey = await api.files.uploadImage(Buffer.from(stored.bytes), { signal: AbortSignal.timeout(uploadMs) });
  await lookups.set(key, imageKey, keptMs);
  return imageKey;
}

/** Settles like `work`, or rejects with the signal's reason as soon as it aborts. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const stop = (): void => reject(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
