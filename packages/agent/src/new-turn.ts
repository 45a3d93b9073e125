import { turnIdOf, type QueuedMessage, type TurnState } from "@larkline/protocol";

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
