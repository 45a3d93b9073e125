import {
  type ControlEntry,
  type ModelFailure,
  type PutOffStep,
  type QueuedMessage,
  type TurnState,
} from "@larkline/protocol";
import type { StepResult } from "./accumulate.ts";
import { cancelTurn } from "./cancel-turn.ts";
import { pauseNote } from "./held-step.ts";
import { newTurn } from "./new-turn.ts";
import { withText, withThinking } from "./shown-so-far.ts";
import { slashCommandIn } from "./slash-command.ts";
import { finalAnswer, stepFailure } from "./step-ending.ts";
import { counted, measured, stepRestart, stepStart, warningEvent } from "./step-report.ts";
import { hear, startedSince } from "./round-control.ts";
import { closeRound, goOn, openRound, runningCalls, type RoundMove } from "./tool-round.ts";
import { answering, endError, errorOf, noticeFor, spoken } from "./turn-ending.ts";
import { after, type Transition, type TurnEnvironment, type TurnModel } from "./turn-environment.ts";
import { addUse, noUse } from "./used-tokens.ts";
import { userMessageOf } from "./user-message.ts";

/*
 * A turn answers one user message:
 *
 *   startTurn -> model -> afterStep -> finish
 *                  ^          |
 *                  |          v
 *                  +--- afterControl (outcomes, decisions, cancel) -> finish
 *
 * Before a model step, `absorb` adds messages that arrived meanwhile and `compactedTransition` cuts
 * a context that has grown too long. While calls are open, what the model said with them is held in
 * the checkpoint: see `held-step.ts`. Orders to the session take `commandTurn` in place of all this.
 *
 * Each function looks at a checkpoint and at what happened, and returns the next checkpoint, what
 * to write with it, and what to do after the write. Nothing here does anything.
 */

/** Begins the turn of a waiting message: stores it and asks for the first model step. */
export function startTurn({
  head,
  nowMs,
  model,
  othersWait = false,
  history = [],
}: {
  head: QueuedMessage;
  nowMs: number;
  model: TurnModel;
} & Pick<TurnEnvironment, "othersWait" | "history">): Transition {
  const command = slashCommandIn(head.message);
  return {
    turn: newTurn(head, nowMs),
    history: [...(othersWait ? pauseNote(history) : []), userMessageOf(head.message)],
    events: [stepStart(0, model), ...(command === undefined ? [] : [command])],
    next: { do: "model" },
  };
}

/**
 * A model step ended, well or in a failure for good: decides between tools, the answer and giving
 * up. Not for a step that was aborted: its stream has no end.
 */
export function afterStep(turn: TurnState, step: StepResult, env: TurnEnvironment): Transition {
  const { failure } = step;
  if (failure?.retryInMs !== undefined) {
    return putOffStep(turn, step, { failure, waitMs: failure.retryInMs, nowMs: env.nowMs });
  }
  if (failure !== undefined) return stepFailure(turn, { ...step, failure }, env);
  const numbers = measured(step, turn, env);
  const next = withThinking(counted(turn, numbers), step);
  return step.stopReason === "tool_use" && step.toolCalls.length > 0
    ? openRound({ ...withText(next, step.text), openStep: numbers }, step, env)
    : finalAnswer(next, step, { env, numbers });
}

/**
 * No model has answered, but one may later: the turn waits without a slot. The time is in the checkpoint, so that it
 * holds for whichever worker goes on.
 */
function putOffStep(
  turn: TurnState,
  { warnings, use = noUse, model = "" }: StepResult,
  { failure, waitMs, nowMs }: { failure: ModelFailure; waitMs: number; nowMs: number },
): Transition {
  const { needs: _needs, ...rest } = turn;
  const before = turn.putOff;
  const putOff: PutOffStep = {
    atMs: nowMs + Math.round(waitMs),
    sinceMs: before?.sinceMs ?? nowMs,
    rounds: (before?.rounds ?? 0) + 1,
    askedWaitMs: Math.round(failure.askedWaitMs ?? 0),
    model,
    code: failure.code,
    used: addUse(before?.used ?? noUse, use),
  };
  return {
    turn: { needs: ["put-off-step"], ...rest, putOff },
    history: [],
    events: warnings.map(warningEvent),
    next: { do: "wait" },
  };
}

/**
 * Entries arrived: outcomes of attempts and settled approvals in any order, duplicates and strangers
 * included, and cancels. The first outcome of an attempt and the first decision of an approval count;
 * a cancel of this turn answers the open calls and ends the turn. `next` names the calls that start
 * now; those that run already need no new dispatch, except after a crash: see {@link resumeTurn}.
 */
export function afterControl(turn: TurnState, entries: readonly ControlEntry[], env: TurnEnvironment): Transition {
  const cancelAt = entries.findIndex((entry) => cancels(entry, turn));
  const cancel = entries[cancelAt];
  const before = cancel === undefined ? entries : entries.slice(0, cancelAt);
  const heard = hear(turn, before, { env, ending: cancel !== undefined });
  const records = { history: [], events: heard.events };
  if (cancel?.type === "cancel") return after(records, cancelTurn(heard.turn, cancel.reason, env));
  return after(records, inTheMiddle({ ...heard, started: startedSince(turn, heard.turn) }, env));
}

/**
 * After a crash: what must be commanded again. A model step runs anew, and an event voids the deltas
 * of the lost one; running calls are dispatched anew under the same ids. Nobody is asked again.
 */
export function resumeTurn(turn: TurnState, env: TurnEnvironment): Transition {
  const resumed = inTheMiddle({ turn, started: runningCalls(turn), approvals: [] }, env);
  return resumed.next.do === "model" && turn.calls.length === 0
    ? after({ history: [], events: [stepRestart(turn.steps, env.model, turn.putOff?.code ?? "crash")] }, resumed)
    : resumed;
}

/**
 * Gives a message up after too many crashes, whether its turn has started or not. `reason` is the
 * message of the `error` event; the person gets a notice.
 */
export function abandonTurn(subject: TurnState | QueuedMessage, env: TurnEnvironment, reason: string): Transition {
  const started = "turnId" in subject;
  const turn = started ? subject : newTurn(subject, env.nowMs);
  const words = {
    maybeRun: "The turn was given up; it is not known whether this call took effect.",
    notRun: "The turn was given up before anybody allowed this call. It was not run.",
  };
  const closed = closeRound(turn, words, env);
  const reply = noticeFor(turn, "abandoned", env.texts);
  return endError(closed.turn, {
    history: answering(turn, [...(started ? closed.history : [userMessageOf(subject.message)]), spoken(reply)]),
    events: closed.events,
    reply,
    error: errorOf("internal_error", reason),
  });
}

/** A cancel of a message that has joined the turn ends the turn: its words cannot be taken out of it. */
function cancels(entry: ControlEntry, { turnId, absorbed = [] }: TurnState): boolean {
  if (entry.type !== "cancel") return false;
  return entry.turnId === undefined || entry.turnId === turnId || absorbed.includes(entry.turnId);
}

/** A turn in the middle: its own work where no round is open. */
function inTheMiddle(move: RoundMove, env: TurnEnvironment): Transition {
  const { turn } = move;
  if (turn.calls.length > 0) return goOn(move, env);
  return { turn, history: [], events: [], next: { do: turn.message.command === undefined ? "model" : "compact" } };
}
