import {
  turnIdOf,
  type ControlEntry,
  type EngineEvent,
  type Message,
  type QueuedMessage,
  type ToolOutcome,
  type TurnState,
} from "@larkline/protocol";
import type { StepResult } from "./accumulate.ts";
import { answer } from "./call-outcome.ts";
import { callIdsOf, uniqueCallIds } from "./call-id.ts";
import { answerRestarted } from "./delta-event.ts";
import { exhaustedText } from "./notice.ts";
import { finalAnswer, stepFailure } from "./step-ending.ts";
import { blockEvents, counted, measured, stepEnd, stepStart, storableParts } from "./step-report.ts";
import { callsToDispatch, isOpen, prepareCalls, resultsMessage, toolUseEvents } from "./tool-batch.ts";
import { endDone, endError, errorOf, noticeFor, spoken } from "./turn-ending.ts";
import type { Transition, TurnEnvironment, TurnModel } from "./turn-environment.ts";

function newTurn(head: QueuedMessage, nowMs: number): TurnState {
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

/** The user message as stored. Vendors refuse blank text and messages without parts. */
function userMessage({ message }: QueuedMessage): Message {
  const content = message.parts.filter((part) => part.type !== "text" || part.text.trim() !== "");
  return { role: "user", content: content.length > 0 ? content : [{ type: "text", text: "[empty message]" }] };
}

/** Begins the turn of a waiting message: stores it and asks for the first model step. */
export function startTurn(start: { head: QueuedMessage; nowMs: number; model: TurnModel }): Transition {
  return {
    turn: newTurn(start.head, start.nowMs),
    history: [userMessage(start.head)],
    events: [stepStart(0, start.model)],
    next: { do: "model" },
  };
}

/** A model step ended, well or not: decides between tools, the answer and giving up. */
export function afterStep(turn: TurnState, step: StepResult, env: TurnEnvironment): Transition {
  if (step.failure !== undefined) return stepFailure(turn, step, env);
  const numbers = measured(step, env);
  const next = counted(turn, numbers);
  return step.stopReason === "tool_use" && step.toolCalls.length > 0
    ? openBatch({ ...next, openStep: numbers }, step, env)
    : finalAnswer(next, step, { env, numbers });
}

/** Stores the calls of a step, answers those that must not run, and dispatches the others. */
function openBatch(turn: TurnState, step: StepResult, env: TurnEnvironment): Transition {
  const taken = new Set([...callIdsOf(env.history ?? []), ...(turn.callIds ?? [])]);
  const ids = uniqueCallIds(step.toolCalls, { turnId: turn.turnId, step: turn.steps }, taken);
  const prepared = prepareCalls(step.toolCalls, ids, env);
  const asked: Message = { role: "assistant", content: [...storableParts(step), ...prepared.map(({ use }) => use)] };
  const refusals = prepared.flatMap(({ call, outcome }) =>
    outcome === undefined ? [] : [{ callId: call.id, outcome }],
  );
  const open = { ...turn, calls: prepared.map(({ call }) => call), callIds: [...(turn.callIds ?? []), ...ids] };
  const answered = answerCalls(open, refusals, env);
  return prepend(
    { history: [asked], events: [...blockEvents(step), ...toolUseEvents(prepared), ...answered.events] },
    answered.turn.calls.some(isOpen)
      ? continueWith(answered.turn, { do: "tools", calls: callsToDispatch(answered.turn.calls), wait: true })
      : settleBatch(answered.turn, env),
  );
}

/**
 * Entries arrived: outcomes in any order, duplicates and strangers included, and cancels. The
 * first outcome of a call wins; a cancel of this turn answers the open calls and ends the turn.
 */
export function afterControl(turn: TurnState, entries: readonly ControlEntry[], env: TurnEnvironment): Transition {
  const cancelAt = entries.findIndex(
    (entry) => entry.type === "cancel" && (entry.turnId === undefined || entry.turnId === turn.turnId),
  );
  const heard = cancelAt === -1 ? entries : entries.slice(0, cancelAt);
  const outcomes = heard.filter((entry) => entry.type === "outcome");
  const answered = answerCalls(turn, outcomes, env);
  const { calls } = answered.turn;
  if (cancelAt !== -1) return prepend(answered, cancelTurn(answered.turn, env));
  if (calls.some(isOpen)) return prepend(answered, continueWith(answered.turn, { do: "wait" }));
  return prepend(answered, calls.length > 0 ? settleBatch(answered.turn, env) : continueWith(turn, { do: "model" }));
}

/**
 * After a crash: what must be commanded again. A model step runs anew, and a warning voids the
 * deltas of the lost one; open calls are dispatched anew under the same ids.
 */
export function resumeTurn(turn: TurnState, env: TurnEnvironment): Transition {
  if (turn.calls.length === 0) {
    const warning = { code: answerRestarted, message: "The answer begins anew.", detail: env.model.info.id };
    return { ...continueWith(turn, { do: "model" }), events: [{ type: "warning", ...warning }] };
  }
  if (!turn.calls.some(isOpen)) return settleBatch(turn, env);
  const calls = callsToDispatch(turn.calls);
  return continueWith(turn, calls.length > 0 ? { do: "tools", calls, wait: true } : { do: "wait" });
}

/** Gives a message up after too many crashes. `reason` is for operators; the person gets a notice. */
export function abandonTurn(subject: TurnState | QueuedMessage, env: TurnEnvironment, reason: string): Transition {
  const started = "turnId" in subject;
  const turn = started ? subject : newTurn(subject, env.nowMs);
  const closed = closeBatch(turn, "The turn was given up; it is not known whether this call took effect.", env);
  const reply = noticeFor(turn, "abandoned", env.texts);
  return endError(turn, {
    history: [...(started ? closed.history : [userMessage(subject)]), spoken(reply)],
    events: closed.events,
    reply,
    error: errorOf("internal_error", reason),
  });
}

function cancelTurn(turn: TurnState, env: TurnEnvironment): Transition {
  const closed = closeBatch(turn, "cancelled: the user stopped this turn; the call may have taken effect.", env);
  const reply = noticeFor(turn, "cancelled", env.texts);
  return endDone(turn, {
    ...closed,
    history: [...closed.history, spoken(reply)],
    reply,
    reason: "cancelled",
    final: turn.openStep?.text ?? "",
  });
}

type Records = Pick<Transition, "history" | "events">;

/** Answers what is open with an error and stores the batch; nothing when there is none. */
function closeBatch(turn: TurnState, error: string, env: TurnEnvironment): Records {
  if (turn.calls.length === 0) return { history: [], events: [] };
  const outcomes = turn.calls.map(({ id }) => ({ callId: id, outcome: { ok: false, error } satisfies ToolOutcome }));
  const answered = answerCalls(turn, outcomes, env);
  return { history: [resultsMessage(answered.turn.calls)], events: [...answered.events, ...stepEndOf(turn)] };
}

function stepEndOf(turn: TurnState): EngineEvent[] {
  return turn.openStep === undefined ? [] : [stepEnd(turn.steps, turn.openStep)];
}

/** Gives open calls their outcome; the first one wins, others and those of unknown calls are ignored. */
function answerCalls(
  turn: TurnState,
  outcomes: readonly { callId: string; outcome: ToolOutcome }[],
  { limits }: TurnEnvironment,
): Records & { turn: TurnState } {
  const calls = [...turn.calls];
  const events: EngineEvent[] = [];
  for (const { callId, outcome } of outcomes) {
    const index = calls.findIndex((call) => call.id === callId && isOpen(call));
    const call = calls[index];
    if (call === undefined) continue;
    const answered = answer(call, outcome, limits.maxResultChars);
    calls[index] = answered.call;
    events.push(answered.event);
  }
  return { turn: { ...turn, calls }, history: [], events };
}

/** Every call is answered: stores the results, then the next model step, unless the limit is reached. */
function settleBatch(turn: TurnState, env: TurnEnvironment): Transition {
  const { openStep, ...rest } = turn;
  const history = [resultsMessage(turn.calls)];
  const events = stepEndOf(turn);
  if (turn.steps >= env.limits.maxIterations) return exhausted(turn, { history, events });
  return {
    turn: { ...rest, calls: [] },
    history,
    events: [...events, stepStart(turn.steps, env.model)],
    next: { do: "model" },
  };
}

/** The last words of the model may be a preamble ("let me look..."), so the notice always follows them. */
function exhausted(turn: TurnState, { history, events }: Records): Transition {
  const final = turn.openStep?.text ?? "";
  return endDone(turn, {
    history: [...history, spoken(exhaustedText)],
    events,
    reply: final.trim() === "" ? exhaustedText : `${final}\n\n${exhaustedText}`,
    reason: "max_turns_reached",
    final,
  });
}

function continueWith(turn: TurnState, next: Transition["next"]): Transition {
  return { turn, history: [], events: [], next };
}

function prepend(before: Records, after: Transition): Transition {
  return {
    ...after,
    history: [...before.history, ...after.history],
    events: [...before.events, ...after.events],
  };
}
