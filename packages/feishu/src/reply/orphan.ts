import type { CardEntry, CardReply } from "@larkline/store";
import { askRowsOf } from "../cards/ask-in-reply.ts";
import type { CardBatchRequest, FeishuApi } from "../feishu-api.ts";
import { FeishuError } from "../transport/error.ts";

/**
 * Ends the cards of a reply whose turn is gone: streaming off, no stop button, and a line that says so. May be
 * repeated. Rejects with a FeishuError that may pass, or when `signal` is aborted; what the platform refuses for good
 * is left as it is.
 */
export async function endOrphan(
  api: FeishuApi,
  reply: CardReply,
  signal: AbortSignal,
): Promise<void> {
  for (const entry of reply.cards) {
    if (entry.state !== "sent") continue;
    await endCard(api, entry, signal);
    await endAsks(api, entry, reply.asking, signal);
  }
}

/**
 * One operation on a card. An earlier try may have done it and failed at the next one: it is refused then, as applied
 * before or behind, and those that follow are still to be done.
 */
async function operate(
  api: FeishuApi,
  request: CardBatchRequest,
  signal: AbortSignal,
): Promise<void> {
  try {
    await api.cards.batch(request, { signal });
  } catch (error) {
    if (!(error instanceof FeishuError) || error.retryable || error.kind === "cancelled") {
      throw error;
    }
  }
}

/** In both languages: the language of the person is not known any more. */
const interruptedText =
  "⚠️ 这条回复已中断，不会再更新。\nThis reply was interrupted and will not be continued.";
const interruptedSummary = "回复已中断 · Interrupted";

/** The line has an id of its own, so that doing it twice adds one line. */
const lineId = "interrupted";

/** Leads above every number that a writer of these cards may have reserved. */
const sequenceGap = 100_000;
const maxSequence = 2_147_483_000;

function ending(): { action: string; params: Record<string, unknown> }[] {
  const config = { streaming_mode: false, summary: { content: interruptedSummary } };
  const line = { tag: "markdown", element_id: lineId, content: interruptedText };
  return [
    { action: "partial_update_setting", params: { settings: { config } } },
    { action: "add_elements", params: { type: "append", elements: [line] } },
  ];
}

async function endCard(
  api: FeishuApi,
  { cardId, reservedSequence, parts }: CardEntry,
  signal: AbortSignal,
): Promise<void> {
  const sequence = Math.min(reservedSequence + sequenceGap, maxSequence);
  await operate(api, { cardId, actions: ending(), sequence, uuid: `${cardId}-end` }, signal);
  if (parts["stop"] === undefined) return;
  const actions = [{ action: "delete_elements", params: { element_ids: ["stop"] } }];
  await operate(
    api,
    { cardId, actions, sequence: sequence + 1, uuid: `${cardId}-end-stop` },
    signal,
  );
}

/** Takes away buttons that decide about calls of the turn. */
async function endAsks(
  api: FeishuApi,
  { cardId, reservedSequence }: CardEntry,
  asking: CardReply["asking"],
  signal: AbortSignal,
): Promise<void> {
  const rows = asking === undefined ? [] : askRowsOf(asking);
  for (const [at, id] of rows.entries()) {
    const actions = [{ action: "delete_elements", params: { element_ids: [id] } }];
    const sequence = Math.min(reservedSequence + sequenceGap + 2 + at, maxSequence);
    await operate(api, { cardId, actions, sequence, uuid: `${cardId}-end-${id}` }, signal);
  }
}
