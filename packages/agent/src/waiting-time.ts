import type { TurnState } from "@larkline/protocol";

/** Whether people are waited for while nothing else is going on. */
function waitsForPeople({ calls }: TurnState): boolean {
  const open = calls.filter(({ state }) => state !== "done");
  return open.length > 0 && open.every(({ state }) => state !== "running");
}

/** The turn with its waiting begun or ended, after its calls have changed. */
export function withWaitingTime(turn: TurnState, nowMs: number): TurnState {
  const { waitingSinceMs, ...rest } = turn;
  const waits = waitsForPeople(turn);
  if (waits === (waitingSinceMs !== undefined)) return turn;
  if (waitingSinceMs === undefined) return { ...turn, waitingSinceMs: nowMs };
  return { ...rest, waitedMs: (turn.waitedMs ?? 0) + Math.max(0, nowMs - waitingSinceMs) };
}
