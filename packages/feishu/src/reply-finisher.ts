import { imageRefsIn } from "./cards/index.ts";
import type { ReplyView } from "@larkline/protocol";
import type { CardLedger, OutboxLease } from "@larkline/store";
import type { CardHandover } from "./card-handover.ts";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";
import type { FeishuLogger } from "./logger.ts";
import { ReplyCards } from "./reply-cards.ts";
import { blockedText, deliverRecord } from "./reply-delivery.ts";
import { modeFor, newReply } from "./reply-mode.ts";
import { FencedOut, LedgerFailure, ReplyRecord } from "./reply-record.ts";

/** Knows the images that answers name. */
export interface ImageResolver {
  /** The platform's key of the image; `null` when there is none to show. */
  (api: FeishuApi, reference: string, signal: AbortSignal): Promise<string | null>;
  /** The platform does not know the key: the image has to be uploaded anew. */
  forget?: (api: FeishuApi, reference: string) => Promise<void>;
}

export interface ReplyFinisherOptions {
  ledger: Pick<CardLedger, "load" | "save">;
  imageOf?: ImageResolver;
  handover?: CardHandover | undefined;
  logger: FeishuLogger;
  now: () => number;
}

/** What {@link finishReply} works with besides its options. */
export interface FinishContext {
  api: FeishuApi;
  lease: OutboxLease;
  signal: AbortSignal;
  /** Told how many cards are done that were not: a delivery that was cut short has got somewhere. */
  onProgress?: (cards: number) => void;
}

/** A reply on its way to its cards. */
interface Finish {
  options: ReplyFinisherOptions;
  context: FinishContext;
  view: ReplyView;
  record: ReplyRecord;
  cards: ReplyCards;
}

/** Deliveries that wait for images whose upload may succeed later: an answer is worth more than its pictures. */
const patientAttempts = 2;
/** What a later delivery still waits for all images together, ms. */
const impatientMs = 2_000;

async function imagesOf(
  { imageOf, logger }: ReplyFinisherOptions,
  { api, lease, signal }: FinishContext,
  view: ReplyView,
): Promise<Map<string, string | null>> {
  const images = new Map<string, string | null>();
  const references = imageRefsIn(view.answer);
  if (imageOf === undefined || references.length === 0) return images;
  const isPatient = lease.record.attempts < patientAttempts;
  const waiting = isPatient ? signal : AbortSignal.any([signal, AbortSignal.timeout(impatientMs)]);
  for (const reference of references) {
    const key = await imageOf(api, reference, waiting).catch((error: unknown) => {
      const mayPass = error instanceof FeishuError && (error.retryable || error.kind === "cancelled");
      if (isPatient && mayPass) throw error;
      logger.warn({ err: error }, "image not shown");
      return null;
    });
    images.set(reference, key);
  }
  return images;
}

/** Failures for which a plain message may still get through where a card does not. */
const textMayHelp: ReadonlySet<FeishuError["kind"]> = new Set([
  "bad_request",
  "card_full",
  "card_gone",
  "card_invalid",
  "card_too_old",
  "content_blocked",
  "sequence_behind",
  "too_long",
  "unknown",
]);

/** The app lacks a right; others than that for messages may be the ones for cards ("Common error codes"). */
const missingScopeCodes: ReadonlySet<number> = new Set([99991672, 99991679]);

function mayTextHelp(error: unknown): boolean {
  // Whatever broke in drawing a card is no reason to leave the person without the answer.
  if (!(error instanceof FeishuError)) return true;
  return textMayHelp.has(error.kind) || (error.kind === "app_setup" && missingScopeCodes.has(error.code));
}

/**
 * Gives the last state of a reply to the person: on the cards that already show its beginning, on new
 * ones, or as plain text where cards are refused for good. Can be repeated by anybody after any
 * crash; only one holder of the outbox gets through. Rejects with the FeishuError that stopped it, a
 * FencedOut or a LedgerFailure.
 */
export async function finishReply(options: ReplyFinisherOptions, context: FinishContext): Promise<void> {
  const { view } = context.lease.record;
  if (view === undefined) return await deliverPlain(options, context);
  const finish = await opened(options, context, view);
  const before = finish.record.closed;
  try {
    await finishCards(finish);
    if (finish.cards.imagesRefused) await finishWithNewImages(finish);
  } finally {
    context.onProgress?.(finish.record.closed - before);
  }
}

/**
 * Keys that were good once are refused when another platform answers under the same app id. The answer
 * is there, without its images; they are uploaded anew, once.
 */
async function finishWithNewImages({ options, context, view }: Finish): Promise<void> {
  const { imageOf } = options;
  for (const reference of imageRefsIn(view.answer)) await imageOf?.forget?.(context.api, reference);
  await finishCards(await opened(options, context, view));
}

async function opened(options: ReplyFinisherOptions, context: FinishContext, view: ReplyView): Promise<Finish> {
  const { ledger, now, handover } = options;
  const { api, lease, signal } = context;
  const { id: replyId, session, target, uuid, traceparent } = lease.record;
  const known = await ledger.load(session, replyId).catch((cause: unknown) => {
    throw new LedgerFailure("the card ledger could not be read", { cause });
  });
  const reply = known ?? newReply({ session, replyId, target }, await modeFor(api), now());
  const record = new ReplyRecord({ ledger, fence: { outboxToken: lease.token }, reply });
  const images = record.mode === "text" ? new Map<string, null>() : await imagesOf(options, context, view);
  const cards = new ReplyCards({ api, record, target, uuid, images, now, signal, traceparent, handover });
  return { options, context, view, record, cards };
}

async function finishCards(finish: Finish): Promise<void> {
  const { options, context, view, record, cards } = finish;
  if (record.mode === "text") return await asText(finish);
  try {
    await cards.finish(view);
  } catch (error) {
    if (error instanceof FencedOut || error instanceof LedgerFailure || !mayTextHelp(error)) throw error;
    const facts = error instanceof FeishuError ? { kind: error.kind, code: error.code } : { err: error };
    options.logger.warn({ session: context.lease.record.session, ...facts }, "no card, sending text");
    const blocked = error instanceof FeishuError && error.kind === "content_blocked";
    if (blocked && record.isVisible) return await showBlocked(finish);
    // From now on it stays text: a crash in between repeats the text under the same `uuid`, not the card.
    record.mode = "text";
    await record.save();
    await asText(finish);
  }
}

/** People see the card already: it says what happened. */
async function showBlocked({ cards, view }: Finish): Promise<void> {
  await cards.finish({ ...view, answer: blockedText, thinking: "", tools: [], state: "failed" });
}

/** What cards showed of the answer goes, as far as the platform lets it, so that it does not stand there twice. */
async function asText({ options, context, cards, view }: Finish): Promise<void> {
  try {
    await cards.retire(view.language);
  } catch (error) {
    if (!(error instanceof FeishuError) || error.retryable || error.kind === "cancelled") throw error;
  }
  await deliverPlain(options, context);
}

async function deliverPlain({ logger, now }: ReplyFinisherOptions, context: FinishContext): Promise<void> {
  const { api, lease, signal } = context;
  await deliverRecord({ api, logger, nowMs: now() }, lease.record, signal);
}
