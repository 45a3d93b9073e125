import {
  type ControlEntry,
  type QueuedMessage,
  type ToolSpec,
  type TurnState,
} from "@larkline/protocol";
import {
  beforeModel,
  stoppedFirst,
  takerOf,
  type TurnEnvironment,
  ofNextAgent,
} from "./ability.ts";
import { exhaustedText } from "../texts/index.ts";
import type { Transition } from "./facts.ts";
import { userMessageOf } from "./messages.ts";
import { stepRestart } from "./step.ts";
import { attemptOf } from "./tool-call.ts";
import { newTurn } from "./start.ts";
import { isCancelOf, stopTurn } from "./cancel.ts";
import { applyControlEntries, startedSince } from "./control.ts";
import { closeRound, nextInRound, runningCalls, type RoundMove } from "./tool-round.ts";
import {
  answering,
  endError,
  errorOf,
  noticeFor,
  assistantText,
  after,
  endDone,
} from "./transition.ts";

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
 * Each function takes a checkpoint and an event, and returns the next checkpoint, the records to write
 * with it, and the action that follows the write. The functions are pure: the worker writes and acts.
 */

/** What the model is offered now: tools, and calls of abilities, whose names no tool can have. */
export function offeredSpecs(turn: TurnState, env: TurnEnvironment): ToolSpec[] {
  const specs = [...env.tools.values()].map(({ announcement }) => announcement.spec);
  return [
    ...specs.filter(({ name }) => takerOf(name, env) === undefined),
    ...env.abilities.flatMap(({ ownCalls }) => ownCalls?.specs(turn, env) ?? []),
  ];
}

/**
 * Control entries have arrived: outcomes of attempts, settled approvals and cancels, in any order. Duplicates and
 * entries of other calls are ignored: the first outcome of an attempt and the first decision of an approval count.
 * A cancel of this turn answers the open calls and ends the turn. `next` names the calls to dispatch now; calls that
 * run already are dispatched again only after a crash, by {@link resumeTurn}.
 */
export function afterControl(
  turn: TurnState,
  entries: readonly ControlEntry[],
  env: TurnEnvironment,
): Transition {
  const cancelAt = entries.findIndex((entry) => isCancelOf(entry, turn));
  const cancel = entries[cancelAt];
  // Ends of calls that are stopped first are awaited after a cancel, too: one that stands behind it comes only once.
  const awaited = new Set(stoppedFirst(turn, env.abilities).map(attemptOf));
  const isAwaited = (entry: ControlEntry): boolean =>
    entry.type === "outcome" && awaited.has(entry.callId);
  const before = entries.filter(
    (entry, at) => cancel === undefined || at < cancelAt || isAwaited(entry),
  );
  const isEnding = cancel !== undefined || turn.stopping !== undefined;
  const applied = applyControlEntries(turn, before, { env, ending: isEnding });
  const records = { history: [], events: applied.events };
  const stopping = turn.stopping ?? (cancel?.type === "cancel" ? cancel.reason : undefined);
  if (stopping !== undefined) return after(records, stopTurn(applied.turn, stopping, env));
  const next = continueTurn({ ...applied, started: startedSince(turn, applied.turn) }, env);
  return ofNextAgent(after(records, next), env);
}

/** The next action of a started turn: its open round if there is one, else the model step or the compaction. */
function continueTurn(move: RoundMove, env: TurnEnvironment): Transition {
  const { turn } = move;
  if (turn.stopping !== undefined) return stopTurn(turn, turn.stopping, env);
  if (turn.calls.length > 0) return nextInRound(move, env);
  const first = beforeModel(turn, env);
  if (first !== undefined) return { turn, history: [], events: [], next: first };
  return {
    turn,
    history: [],
    events: [],
    next: { do: turn.message.command === undefined ? "model" : "compact" },
  };
}

/**
 * Continues a turn after a crash. The model step runs again, and a `step_restarted` event voids the deltas of the
 * lost one. Running calls are dispatched again under the same ids. Approvals are not requested again.
 */
export function resumeTurn(turn: TurnState, env: TurnEnvironment): Transition {
  const resumed = continueTurn({ turn, started: runningCalls(turn), asked: [] }, env);
  return resumed.next.do === "model" && turn.calls.length === 0
    ? after(
        { history: [], events: [stepRestart(turn.steps, env.model, turn.putOff?.code ?? "crash")] },
        resumed,
      )
    : resumed;
}

/** The end of a helper's turn before another model step: the message that it works for has none left. */
export function outOfSteps(turn: TurnState): Transition {
  const history = [assistantText(exhaustedText)];
  return endDone(turn, {
    history,
    events: [],
    reply: exhaustedText,
    reason: "max_turns_reached",
    final: "",
  });
}

/**
 * Gives a message up after too many crashes, whether its turn has started or not. The `error` event carries `reason`;
 * the person gets a notice.
 */
export function abandonTurn(
  subject: TurnState | QueuedMessage,
  env: TurnEnvironment,
  reason: string,
): Transition {
  const started = "turnId" in subject;
  const turn = started ? subject : newTurn(subject, env.nowMs);
  const words = {
    maybeRun: "The turn was given up; it is not known whether this call took effect.",
    notRun: "The turn was given up before anybody allowed this call. It was not run.",
  };
  const closed = closeRound(turn, words, env);
  const reply = noticeFor(turn, "abandoned", env.texts);
  return endError(closed.turn, {
    history: answering(turn, [
      ...(started ? closed.history : [userMessageOf(subject.message)]),
      assistantText(reply),
    ]),
    events: closed.events,
    reply,
    error: errorOf("internal_error", reason),
  });
}
