import { createHash } from "node:crypto";
import type { TurnState } from "@larkline/protocol";
import type { OutboxRecord } from "@larkline/session";

/**
 * The record of a turn's answer; undefined when there is nothing to send or nowhere to send it.
 * The `uuid` comes from the message that is answered: whoever sends it, again or elsewhere, the
 * platform takes it once (within an hour; Feishu, "Send a message").
 */
export function replyOf(turn: TurnState, text: string | undefined, nowMs: number): OutboxRecord | undefined {
  const { reply, session, id } = turn.message;
  if (reply.channel === "none" || text === undefined || text.trim() === "") return undefined;
  const digest = createHash("sha256").update(`${reply.app} ${id} answer`).digest("base64url");
  return {
    v: 1,
    id: turn.turnId,
    uuid: `lk-${digest.slice(0, 40)}`,
    session,
    target: { app: reply.app, chatId: reply.chatId, messageId: reply.messageId, inThread: reply.inThread },
    text,
    createdAtMs: nowMs,
    attempts: 0,
    uncertainSinceMs: 0,
  };
}
