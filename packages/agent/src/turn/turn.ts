import {
  type ControlEntry,
  type EngineEvent,
  type ModelFailure,
  type PutOffStep,
  type ToolCall,
  type QueuedMessage,
  type ToolSpec,
  type TurnState,
} from "@larkline/protocol";
import {
  beforeModel,
  shownTextOf,
  stoppedFirst,
  takerOf,
  withoutAnswerState,
  type TurnEnvironment,
} from "./ability.ts";
import { exhaustedText } from "../texts/index.ts";
import { addUse, noUse, requestTokens } from "./context.ts";
import type { StepResult, Transition } from "./facts.ts";
import { userMessageOf, languageOfMessage } from "./messages.ts";
import { kindsOf, leftOutNote } from "./refusal.ts";
import { finalAnswer, stepFailure, counted, measured, stepRestart, warningEvent } from "./step.ts";
import { attemptOf, parseArguments } from "./tool-call.ts";
import { newTurn } from "./start.ts";
import { isCancelOf, stopTurn } from "./cancel.ts";
import { applyControlEntries, startedSince } from "./control.ts";
import { openRound } from "./open-round.ts";
import { closeRound, nextInRound, runningCalls, type RoundMove } from "./tool-round.ts";
import {
  answering,
  endError,
  errorOf,
  noticeFor,
  assistantText,
  after,
  endDone,
  needsOf,
} from "./transition.ts";
import { withText, withThinking } from "./view.ts";

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
 * A model step has ended, with an answer or a final failure: decides between tool calls, the answer and an error.
 * Do not call it for an aborted step: its stream has no end.
 */
export function afterStep(turn: TurnState, step: StepResult, env: TurnEnvironment): Transition {
  const { failure } = step;
  if (failure?.retryInMs !== undefined) {
    return putOffStep(turn, step, { failure, waitMs: failure.retryInMs, nowMs: env.nowMs });
  }
  if (failure !== undefined) return stepFailure(turn, { ...step, failure }, env);
  const numbers = measured(step, turn, env);
  const { turn: said, events: told } = withLeftOutNote(turn, step, env);
  const pauses = (turn.pauses ?? 0) + (step.pauses ?? 0);
  const made = { ...counted(said, numbers), ...(pauses === 0 ? {} : { pauses }) };
  const { turn: next, events: warned } = warnFullWindow(withThinking(made, step), step, env);
  const events = [...told, ...warned];
  const decided = hasCompleteCalls(step)
    ? openRound(
        {
          ...withText(next, shownTextOf(step.text, env.abilities, env.known)),
          openStep: numbers,
        },
        withoutCutCalls(step),
        env,
      )
    : finalAnswer(next, step, { env, numbers });
  return ofNextAgent({ ...decided, events: [...events, ...decided.events] }, env);
}

/** Where another agent answers from now on, what abilities keep about the answer before is dropped. */
function ofNextAgent(transition: Transition, { abilities }: TurnEnvironment): Transition {
  if (transition.handedOver !== true) return transition;
  return { ...transition, turn: withoutAnswerState(transition.turn, abilities) };
}

/** Notes for the person, once, what a vendor has refused and the step was made without. */
function withLeftOutNote(
  turn: TurnState,
  { leftOut }: StepResult,
  { texts }: TurnEnvironment,
): { turn: TurnState; events: EngineEvent[] } {
  if (leftOut === undefined) return { turn, events: [] };
  const note = leftOutNote(leftOut, languageOfMessage(turn.message, texts));
  const message = `The vendor refused the request; it was made without: ${kindsOf(leftOut).join(", ")}.`;
  const events: EngineEvent[] = [
    { type: "warning", code: "left_out", message, detail: kindsOf(leftOut).join(",") },
  ];
  return { turn: { ...turn, notes: [...new Set([...(turn.notes ?? []), note])] }, events };
}

/** Whether calls of a step run: those that are complete do, whatever the vendor says of its end. */
function hasCompleteCalls({ stopReason, toolCalls }: StepResult): boolean {
  if (stopReason === "tool_use") return toolCalls.length > 0;
  return toolCalls.some((call) => !isCutCall(call, stopReason));
}

/** The step whose calls that were cut off are answered with an error: no arguments at all would be taken for `{}`. */
function withoutCutCalls(step: StepResult): StepResult {
  const { stopReason, toolCalls } = step;
  if (!toolCalls.some((call) => isCutCall(call, stopReason))) return step;
  const marked = toolCalls.map((call) =>
    isCutCall(call, stopReason) ? { ...call, arguments: call.arguments || "{" } : call,
  );
  return { ...step, toolCalls: marked };
}

/** At the length limit the last call may have been cut off before its arguments. */
function isCutCall(
  { name, arguments: text }: ToolCall,
  stopReason: StepResult["stopReason"],
): boolean {
  if (stopReason === "tool_use") return false;
  return (
    name === "" || !parseArguments(text).ok || (stopReason === "max_tokens" && text.trim() === "")
  );
}

/** A request that takes this share of the model's window is warned of. */
const highShare = 0.8;

/** Warns, once in a turn, of a window that is nearly full. */
function warnFullWindow(
  turn: TurnState,
  { usage }: StepResult,
  { model: { info } }: TurnEnvironment,
): { turn: TurnState; events: EngineEvent[] } {
  const tokens = requestTokens(usage) ?? 0;
  if (turn.tokensWarned === true || tokens < info.contextWindow * highShare) {
    return { turn, events: [] };
  }
  const percent = Math.round((tokens / info.contextWindow) * 100);
  const message = `The request took ${percent} % of the model's window.`;
  const detail = `${tokens}/${info.contextWindow}`;
  return {
    turn: { ...turn, tokensWarned: true },
    events: [{ type: "warning", code: "token_usage_high", message, detail }],
  };
}

/**
 * No model has answered, but a later try may succeed: the turn waits without a slot. The checkpoint holds the time of
 * the next try, so that any worker can continue the turn.
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
    turn: { needs: needsOf(turn, "put-off-step"), ...rest, putOff },
    history: [],
    events: warnings.map(warningEvent),
    next: { do: "wait" },
  };
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
