import { answerUuid, notesOf } from "@larkline/agent";
import { traceparentOfMessage, withoutImageMarks, type ReplyView, type TurnState } from "@larkline/protocol";
import type { OutboxRecord } from "@larkline/store";

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
