import {
  toolResultPart,
  type CallState,
  type EngineEvent,
  type Message,
  type ShownTool,
  type ToolOutcome,
  type TurnState,
} from "@larkline/protocol";
import type { StepResult } from "./accumulate.ts";
import { callIdsOf, isWhole, uniqueCallIds } from "./call-id.ts";
import { answered, resultText } from "./call-outcome.ts";
import { exhaustedText } from "./notice.ts";
import { prepareCalls, toolUseEvent } from "./prepared-call.ts";
import { isSendable } from "./sendable-part.ts";
import { endedTool, shownOf, withoutText, withTools } from "./shown-so-far.ts";
import { blockEvents, stepEnd, stepStart } from "./step-report.ts";
import { endDone, spoken } from "./turn-ending.ts";
import { after, type Records, type Transition, type TurnEnvironment } from "./turn-environment.ts";
import { resultShare } from "./turn-limits.ts";

/** An outcome on its way to a call. */
export interface Answer {
  callId: string;
  outcome: ToolOutcome;
}

/** What answering depends on. `stopped`: the calls are broken off. */
export type RoundFacts = Pick<TurnEnvironment, "limits" | "nowMs"> & { stopped?: boolean };

/** Whether the call still waits for its outcome. */
export function isOpen({ state }: CallState): boolean {
  return state !== "done";
}

/** Calls that runners should be working on. */
export function runningCalls({ calls }: TurnState): CallState[] {
  return calls.filter(({ state }) => state === "running");
}

/** The model asked for tools: stores the calls, answers those that must not run, dispatches the others. */
export function openRound(turn: TurnState, step: StepResult, env: TurnEnvironment): Transition {
  const known = turn.callIds ?? [];
  const taken = new Set([...known, ...callIdsOf(env.history ?? [])]);
  const trusted = env.history === undefined || isWhole(env.history, turn);
  const wanted = trusted ? step.toolCalls : step.toolCalls.map((call) => ({ ...call, id: "" }));
  const ids = uniqueCallIds(wanted, { turnId: turn.turnId, step: turn.steps }, taken);
  const prepared = prepareCalls(step.toolCalls, ids, env);
  const open = { ...turn, calls: prepared.map(({ call }) => call), callIds: [...known, ...ids] };
  const refusals = prepared.flatMap(({ call, refusal }) =>
    refusal === undefined ? [] : [{ callId: call.id, outcome: refusal }],
  );
  const round = answerCalls(open, refusals, env);
  const records: Records = {
    history: [{ role: "assistant", content: [...step.parts.filter(isSendable), ...prepared.map(({ use }) => use)] }],
    events: [...blockEvents(step), ...prepared.map(toolUseEvent), ...round.events],
  };
  const calls = runningCalls(round.turn);
  return after(
    records,
    calls.length > 0
      ? { turn: round.turn, history: [], events: [], next: { do: "tools", calls, wait: true } }
      : settleRound(round.turn, env),
  );
}

/** Gives open calls their outcome. The first one wins; later ones and those of unknown calls are ignored. */
export function answerCalls(
  turn: TurnState,
  answers: readonly Answer[],
  { limits, nowMs, stopped = false }: RoundFacts,
): { turn: TurnState; events: EngineEvent[] } {
  const maxChars = resultShare(limits, turn.calls.length);
  const calls = [...turn.calls];
  const ended: ShownTool[] = [];
  const events: EngineEvent[] = [];
  for (const { callId, outcome } of answers) {
    const index = calls.findIndex((call) => call.id === callId && isOpen(call));
    const call = calls[index];
    if (call === undefined) continue;
    const done = answered(call, outcome, maxChars);
    calls[index] = done.call;
    events.push(done.event);
    ended.push(endedTool(call, done.outcome, { nowMs, stopped }));
  }
  return { turn: { ...turn, calls, shown: withTools(shownOf(turn), ended) }, events };
}

/** The one message that answers a round, in call order. */
function resultsMessage(calls: readonly CallState[]): Message {
  const content = calls.flatMap(({ id, outcome }) =>
    outcome === undefined ? [] : [toolResultPart(id, resultText(outcome), !outcome.ok)],
  );
  return { role: "tool", content };
}

function roundRecords({ calls, steps, openStep }: TurnState): Records {
  return { history: [resultsMessage(calls)], events: openStep === undefined ? [] : [stepEnd(steps, openStep)] };
}

/** Every call is answered: stores the results, then the next model step, unless the limit is reached. */
export function settleRound(turn: TurnState, env: TurnEnvironment): Transition {
  const records = roundRecords(turn);
  if (turn.steps >= env.limits.maxIterations) return after(records, exhausted(turn));
  const { openStep: _openStep, ...rest } = turn;
  return after(records, {
    turn: { ...rest, calls: [] },
    history: [],
    events: [stepStart(turn.steps, env.model)],
    next: { do: "model" },
  });
}

/** The turn ends in the middle of a round: answers what is open with an error and stores the results. */
export function closeRound(
  turn: TurnState,
  error: string,
  { limits, nowMs }: RoundFacts,
): Pick<Transition, "turn" | "history" | "events"> {
  if (turn.calls.length === 0) return { turn, history: [], events: [] };
  const errors = turn.calls.map(({ id }): Answer => ({ callId: id, outcome: { ok: false, error } }));
  const round = answerCalls(turn, errors, { limits, nowMs, stopped: true });
  const { history, events } = roundRecords(round.turn);
  return { turn: round.turn, history, events: [...round.events, ...events] };
}

/** The last words of the model may be a preamble ("let me look..."), so the notice always follows them. */
function exhausted(turn: TurnState): Transition {
  const final = turn.openStep?.text ?? "";
  return endDone(withoutText(turn, final), {
    history: [spoken(exhaustedText)],
    events: [],
    reply: final.trim() === "" ? exhaustedText : `${final}\n\n${exhaustedText}`,
    reason: "max_turns_reached",
    final,
  });
}
