import { finalView, runningView, type LiveStep, answerUuid, notesOf } from "@larkline/agent";
import type { LiveReply, FeishuApi, ImageResolver } from "@larkline/feishu";
import {
  type ReplyView,
  type TurnState,
  traceparentOfMessage,
  withoutImageMarks,
  imageBlobIdOf,
  imageTypeOf,
  maxImageBytes,
} from "@larkline/protocol";
import type { BlobStore, LookupCache, OutboxRecord } from "@larkline/store";
import type { TurnRunOptions } from "./turn-run.ts";

/** What is to be shown, asked for at the moment it is shown. */
interface ReplySource {
  turn(): TurnState;
  /** The step that streams right now. */
  live(): LiveStep | undefined;
}

type TurnReplyOptions = Pick<TurnRunOptions, "chain" | "now" | "openReply" | "viewOf">;

/** The reply to a turn's message: the card that types while it runs, and what stays of it. */
export class TurnReply {
  readonly #options: TurnReplyOptions;
  readonly #source: ReplySource;
  #reply: LiveReply | undefined;
  /** What a card of the reply shows now. */
  #view: (() => ReplyView) | undefined;

  constructor(options: TurnReplyOptions, source: ReplySource) {
    this.#options = options;
    this.#source = source;
  }

  open(epoch: string): void {
    const turn = this.#source.turn();
    const options = this.#options.viewOf(turn.message);
    if (options === undefined) return;
    const running = (): ReplyView =>
      runningView(this.#source.turn(), this.#source.live(), { ...options, nowMs: this.#options.now() });
    this.#view = running;
    this.#reply = this.#options.openReply({ turn, epoch, view: () => (this.#view ?? running)() });
    this.#reply?.changed();
  }

  changed(): void {
    this.#reply?.changed();
  }

  /** From now on the card stays as it is: how the turn ends is for the delivery of the answer to show. */
  freeze(): void {
    this.#reply?.answered();
    const seen = this.#view?.();
    if (seen !== undefined) this.#view = () => seen;
  }

  /** The turn is suspended: whoever resumes it goes on with the same card. */
  pause(): void {
    this.#reply?.pause();
    this.#reply = undefined;
  }

  /** Resolves when nothing is on its way to the card any more. */
  async release(): Promise<void> {
    await this.#reply?.release();
  }

  /** What stays of the reply; undefined where it is not shown on cards. `answeredBy`: id of the model of the last step. */
  final(reply: string | undefined, reason: string, answeredBy: string | undefined): ReplyView | undefined {
    const turn = this.#source.turn();
    const options = this.#options.viewOf(turn.message);
    if (options === undefined || reply === undefined || reply.trim() === "") return undefined;
    const answered = this.#options.chain.models.find(({ id }) => id === answeredBy);
    const model = answered?.displayName ?? options.model;
    return finalView(turn, { reply, reason }, { ...options, nowMs: this.#options.now(), model });
  }
}

/** What a turn leaves for the person. */
export interface Answer {
  text: string | undefined;
  /** Present when it is shown on cards. */
  view: ReplyView | undefined;
  nowMs: number;
}

/** Where there is no card, what stands below its answer comes after the text. */
function withNotes(text: string, turn: TurnState): string {
  return [text, ...notesOf(turn)].join("\n\n");
}

/** The record of a turn's answer; undefined when there is nothing to send or nowhere to send it. */
export function replyOf(turn: TurnState, { text, view, nowMs }: Answer): OutboxRecord | undefined {
  const { reply, session, id } = turn.message;
  if (reply.channel === "none" || text === undefined || text.trim() === "") return undefined;
  return {
    v: 1,
    id: turn.turnId,
    uuid: answerUuid(reply.app, id),
    session,
    target: { app: reply.app, chatId: reply.chatId, messageId: reply.messageId, inThread: reply.inThread },
    text: withoutImageMarks(view === undefined ? withNotes(text, turn) : text),
    ...(view === undefined ? {} : { view }),
    traceparent: traceparentOfMessage(turn.message),
    askedAtMs: turn.message.createdAtMs,
    createdAtMs: nowMs,
    attempts: 0,
    uncertainSinceMs: 0,
  };
}

interface ImageResolverDeps {
  blobs: Pick<BlobStore, "get">;
  lookups: LookupCache;
}

/** Keys of uploaded images do not expire; the blob does. */
const keptMs = 7 * 24 * 3_600_000;
/** For one upload with its repeats. Longer than a delivery has: its next attempt finds the key. */
const uploadMs = 90_000;

function keyName({ appId }: FeishuApi, blobId: string): string {
  return `image:${appId}:${blobId}`;
}

async function uploaded(api: FeishuApi, blobId: string, { blobs, lookups }: ImageResolverDeps): Promise<string | null> {
  const key = keyName(api, blobId);
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

/**
 * Uploads the stored images that an answer names, once for all processes and answers; nothing else
 * becomes an image, and no name makes this process fetch anything but a blob. An upload outlives the
 * caller that began it, so that a large image does not fail again and again at short deadlines.
 */
export function createImageResolver(deps: ImageResolverDeps): ImageResolver {
  const underWay = new Map<string, Promise<string | null>>();
  const resolve: ImageResolver = async (api, reference, signal) => {
    const blobId = imageBlobIdOf(reference);
    if (blobId === undefined) return null;
    const key = keyName(api, blobId);
    let work = underWay.get(key);
    if (work === undefined) {
      work = uploaded(api, blobId, deps).finally(() => underWay.delete(key));
      work.catch(() => undefined); // whoever waits is told; there may be nobody left
      underWay.set(key, work);
    }
    return await unlessAborted(work, signal);
  };
  return Object.assign(resolve, {
    forget: async (api: FeishuApi, reference: string): Promise<void> => {
      const blobId = imageBlobIdOf(reference);
      if (blobId !== undefined) await deps.lookups.delete(keyName(api, blobId));
    },
  });
}
