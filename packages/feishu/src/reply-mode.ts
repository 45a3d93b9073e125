import type { CardReply, OutboxTarget, ReplyMode } from "@larkline/store";
import type { FeishuApi } from "./feishu-api.ts";

/** Shares of the monthly calls at which new replies become plainer. */
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

/** A reply of which nothing is shown yet. */
export function newReply(
  of: { session: string; replyId: string; target: OutboxTarget },
  mode: ReplyMode,
  nowMs: number,
): CardReply {
  const { session, replyId, target } = of;
  return { v: 1, replyId, session, app: target.app, chatId: target.chatId, mode, cards: [], createdAtMs: nowMs };
}
