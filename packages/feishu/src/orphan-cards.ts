import type { CardEntry, CardReply } from "@larkline/store";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";

/** Both languages: which one the person speaks is not known any more. */
const interruptedText = "⚠️ 这条回复已中断，不会再更新。\nThis reply was interrupted and will not be continued.";
const interruptedSummary = "回复已中断 · Interrupted";

/** Its own id, so that doing it twice adds one line. */
const lineId = "interrupted";

/** Above every number that a writer of these cards may have reserved. */
const sequenceGap = 100_000;

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
  const sequence = Math.min(reservedSequence + sequenceGap, 2_147_483_000);
  await api.cards.batch({ cardId, actions: ending(), sequence, uuid: `${cardId}-end` }, { signal });
  if (parts["stop"] === undefined) return;
  const actions = [{ action: "delete_elements", params: { element_ids: ["stop"] } }];
  await api.cards.batch({ cardId, actions, sequence: sequence + 1, uuid: `${cardId}-end-stop` }, { signal });
}

/**
 * Ends the cards of a reply that nobody will go on with: streaming off, no stop button, and an honest
 * line. Can be repeated. Rejects with a FeishuError that is worth trying again, or when `signal` broke
 * it off; whatever cannot be mended is left as it is.
 */
export async function endOrphan(api: FeishuApi, reply: CardReply, signal: AbortSignal): Promise<void> {
  for (const entry of reply.cards) {
    if (entry.state !== "sent") continue;
    try {
      await endCard(api, entry, signal);
    } catch (error) {
      if (!(error instanceof FeishuError) || error.retryable || error.kind === "cancelled") throw error;
    }
  }
}
