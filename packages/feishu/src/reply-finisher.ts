import { imageRefsIn } from "@larkline/cards";
import type { ReplyView } from "@larkline/protocol";
import type { CardLedger, CardReply, OutboxLease } from "@larkline/session";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";
import type { FeishuLogger } from "./logger.ts";
import { modeFor, newReply } from "./live-reply.ts";
import { FencedOut, ReplyCards } from "./reply-cards.ts";
import { blockedText, deliverRecord } from "./reply-delivery.ts";

/** Gives the platform's key of an image that an answer names; `null` when there is none to show. */
export type ImageResolver = (api: FeishuApi, reference: string, signal: AbortSignal) => Promise<string | null>;

export interface ReplyFinisherOptions {
  ledger: Pick<CardLedger, "load" | "save">;
  imageOf?: ImageResolver;
  logger: FeishuLogger;
  now: () => number;
}

/** What {@link finishReply} works with besides its options. */
export interface FinishContext {
  api: FeishuApi;
  lease: OutboxLease;
  signal: AbortSignal;
}

function isVisible({ cards }: CardReply): boolean {
  return cards.some(({ state }) => state === "sent" || state === "closed");
}

async function imagesOf(
  { imageOf, logger }: ReplyFinisherOptions,
  { api, signal }: FinishContext,
  view: ReplyView,
): Promise<Map<string, string | null>> {
  const images = new Map<string, string | null>();
  if (imageOf === undefined) return images;
  for (const reference of imageRefsIn(view.answer)) {
    if (images.has(reference)) continue;
    const key = await imageOf(api, reference, signal).catch((error: unknown) => {
      if (error instanceof FeishuError && error.retryable) throw error;
      logger.warn({ err: error }, "image not shown");
      return null;
    });
    images.set(reference, key);
  }
  return images;
}

/** Failures for which a plain message may still get through where a card does not. */
const textMayHelp: ReadonlySet<FeishuError["kind"]> = new Set([
  "app_setup",
  "bad_request",
  "card_full",
  "card_gone",
  "card_invalid",
  "card_too_old",
  "content_blocked",
  "too_long",
  "unknown",
]);

/**
 * Gets the last state of a reply to the person: on the cards that already show its beginning, on new
 * ones, or as plain text where cards are refused for good. Can be repeated by anybody after any
 * crash; only one holder of the outbox gets through. Rejects with the FeishuError that stopped it.
 */
export async function finishReply(options: ReplyFinisherOptions, context: FinishContext): Promise<void> {
  const { ledger, now } = options;
  const { api, lease, signal } = context;
  const { record, token } = lease;
  if (record.view === undefined) return await deliverPlain(options, context);
  const known = await ledger.load(record.session, record.id);
  const reply = known ?? newReply({ ...record, replyId: record.id }, await modeFor(api), now());
  if (reply.mode === "text") return await deliverPlain(options, context);
  const images = await imagesOf(options, context, record.view);
  const { target, uuid } = record;
  const fence = { outboxToken: token };
  const cards = new ReplyCards({ api, ledger, fence, reply, target, uuid, images, now, signal });
  try {
    await cards.finish(record.view);
  } catch (error) {
    if (!(error instanceof FeishuError) || !textMayHelp.has(error.kind)) throw error;
    options.logger.warn({ session: record.session, kind: error.kind, code: error.code }, "no card, sending text");
    await stepDown(options, context, { reply, cards, error });
  }
}

interface Refused {
  reply: CardReply;
  cards: ReplyCards;
  error: FeishuError;
}

/**
 * Cards are refused. One that people already see says what happened, as far as the platform lets it;
 * the answer itself goes out as text. From then on it stays text: a crash in between repeats the
 * text under the same `uuid`, not the card.
 */
async function stepDown(
  options: ReplyFinisherOptions,
  context: FinishContext,
  { reply, cards, error }: Refused,
): Promise<void> {
  const { view } = context.lease.record;
  if (error.kind === "content_blocked" && isVisible(reply) && view !== undefined) {
    return await cards.finish({ ...view, answer: blockedText, thinking: "", tools: [], state: "failed" });
  }
  reply.mode = "text";
  const saved = await options.ledger.save(reply, { outboxToken: context.lease.token });
  if (!saved) throw new FencedOut("another sender has this reply");
  await deliverPlain(options, context);
}

async function deliverPlain({ logger, now }: ReplyFinisherOptions, context: FinishContext): Promise<void> {
  const { api, lease, signal } = context;
  await deliverRecord({ api, logger, nowMs: now() }, lease.record, signal);
}
