import {
  turnIdOf,
  type InboundMessage,
  type QueuedMessage,
  type ReplyLanguage,
  type TurnState,
} from "@larkline/protocol";
import { languageOfMessage, noticeText } from "./notice.ts";

/** The checkpoint of a turn that has done nothing yet. */
export function newTurn(head: QueuedMessage, nowMs: number): TurnState {
  return {
    v: 1,
    turnId: turnIdOf(head.message.session, head.seq),
    message: head.message,
    steps: 0,
    calls: [],
    callIds: [],
    totals: { inputTokens: 0, outputTokens: 0, costUsd: 0 },
    startedAtMs: nowMs,
  };
}

/** What of a stored conversation can be lost without ending it: its settings, and the summary of what was compacted. */
export type LostState = "settings" | "summary";

/**
 * The turn, with what its person is told beside the answer whatever a model says: files of the message that could not
 * be read, and what of the conversation was lost. Nothing is told twice.
 */
export function withNotes(turn: TurnState, lost: readonly LostState[], texts?: ReplyLanguage): TurnState {
  const language = languageOfMessage(turn.message, texts);
  const files = unreadFiles(turn.message);
  const told = [
    ...(turn.notes ?? []),
    ...(files.length === 0 ? [] : [noticeText("filesUnread", language, { files: files.join(", ") })]),
    ...lost.map((what) => noticeText(what === "settings" ? "settingsLost" : "summaryLost", language)),
  ];
  return told.length === 0 ? turn : { ...turn, notes: [...new Set(told)] };
}

function unreadFiles({ parts }: InboundMessage): string[] {
  return parts.flatMap((part) => (part.type === "file" && part.state !== "ready" ? [part.name] : []));
}
