import { outcomeText, type ControlEntry, type TurnState } from "@larkline/protocol";
import { attemptOf } from "./call-approval.ts";
import { resultShare, type TurnLimits } from "./turn-limits.ts";

/** A result that is longer than what the model gets of its call. */
export interface LargeResult {
  /** As in its entry: the id of the attempt. */
  callId: string;
  text: string;
}

/**
 * Results among the entries that `afterControl` would cut off. Keep each text somewhere and put
 * `stored` into its outcome before: then the model is told how to read the rest. Entries that count
 * for nothing have none.
 */
export function largeResults(turn: TurnState, entries: readonly ControlEntry[], limits: TurnLimits): LargeResult[] {
  const share = resultShare(limits, turn.calls.length);
  const open = new Set(turn.calls.filter(({ state }) => state === "running").map(attemptOf));
  return entries.flatMap((entry) => {
    if (entry.type !== "outcome" || !entry.outcome.ok || entry.outcome.stored !== undefined) return [];
    const text = outcomeText(entry.outcome);
    return text.length > share && open.delete(entry.callId) ? [{ callId: entry.callId, text }] : [];
  });
}
