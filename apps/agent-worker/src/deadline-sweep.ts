import { sharedNow, type CallState, type ToolOutcome, type TurnState } from "@larkline/protocol";
import type { TurnQueue } from "@larkline/queue";
import type { RunnerDirectory, SessionStore } from "@larkline/store";
import { builtInRunner } from "./built-in-tools.ts";
import { attemptOf } from "./call-facts.ts";
import { eachOf } from "./each-of.ts";
import { wakeAfter } from "./wake-after.ts";

export interface DeadlineSweepDeps {
  store: Pick<SessionStore, "deliver" | "dueDeadlines" | "summary" | "wakeDue">;
  directory: Pick<RunnerDirectory, "runners">;
  turns: Pick<TurnQueue, "wake">;
  onHealed: (what: "deadline", count: number) => void;
  /** Told of a call that was answered because its time was over. */
  onLate: (turn: TurnState, call: CallState) => void;
}

const batch = 200;

/** What a call is answered with that had no answer before its deadline. */
function lateAnswer(call: CallState | undefined, started: boolean, living: ReadonlySet<string>): ToolOutcome {
  const { effect, runner = builtInRunner } = call ?? {};
  const isGone = runner !== builtInRunner && !living.has(runner);
  const reason = isGone
    ? `tool_not_found: the runner '${runner}' of this tool is not there, and nobody answered the call in time.`
    : "timeout: no answer before the deadline.";
  // The ledger does not hear of the starts of pure calls, but they have no effect anyway.
  if (!started) return { ok: false, error: effect === "pure" ? reason : `${reason} The call was not run.` };
  const error = `${reason} It had been started and may have taken effect.`;
  return effect === "once" ? { ok: false, error, unknown: true } : { ok: false, error };
}

/**
 * Answers calls past their deadline: their runner is gone, or something took too long. A turn hands a call out again
 * that was not started because its runner was away. Wakes turns whose model step was put off until now.
 */
export async function sweepDeadlines(deps: DeadlineSweepDeps): Promise<void> {
  const { store, directory, turns, onHealed, onLate } = deps;
  const due = await store.dueDeadlines(sharedNow(), batch);
  if (due.length === 0) return;
  const living = new Set((await directory.runners()).map(({ runner }) => runner));
  await eachOf(due, async ({ session, callId }) => {
    // A step that was put off: nothing has gone wrong here.
    if (callId === "") return await wakeAfter({ turns }, session, await store.wakeDue(session));
    const { turn } = await store.summary(session);
    const call = turn?.calls.find((one) => attemptOf(one) === callId);
    // Whether it was started is for the ledger to say, at the moment in which it is answered. From then on nothing can
    // start the attempt; where its runner is away, the turn makes another one of it.
    const untouched = { unlessStarted: true, unstarted: true };
    const notRun = await store.deliver(session, callId, lateAnswer(call, false, living), untouched);
    const delivered = notRun.accepted ? notRun : await store.deliver(session, callId, lateAnswer(call, true, living));
    if (delivered.accepted && turn !== undefined && call !== undefined) onLate(turn, call);
    await wakeAfter({ turns }, session, delivered);
    onHealed("deadline", 1);
  });
}
