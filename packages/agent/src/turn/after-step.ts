import {
  type EngineEvent,
  type ModelFailure,
  type PutOffStep,
  type ToolCall,
  type TurnState,
} from "@larkline/protocol";
import { shownTextOf, type TurnEnvironment, ofNextAgent } from "./ability.ts";
import { addUse, noUse, requestTokens } from "./context.ts";
import type { StepResult, Transition } from "./facts.ts";
import { languageOfMessage } from "./messages.ts";
import { kindsOf, leftOutNote } from "./refusal.ts";
import { finalAnswer, stepFailure, counted, measured, warningEvent } from "./step.ts";
import { parseArguments } from "./arguments.ts";
import { openRound } from "./open-round.ts";
import { needsOf } from "./transition.ts";
import { withText, withThinking } from "./view.ts";

// A model step has ended: with calls, an answer, or a failure.

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
