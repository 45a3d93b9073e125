import {
  toolResultPart,
  type Approval,
  type CallState,
  type CallTiming,
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
import { attemptOf } from "./call-approval.ts";
import { prepareCalls, signatureOf, toolUseEvent } from "./prepared-call.ts";
import { isSendable } from "./sendable-part.ts";
import { endedTool, shownOf, withoutText, withTools } from "./shown-so-far.ts";
import { blockEvents, stepEnd, stepStart } from "./step-report.ts";
import { endDone, spoken } from "./turn-ending.ts";
import { after, type NextAction, type Records, type Transition, type TurnEnvironment } from "./turn-environment.ts";
import { resultShare } from "./turn-limits.ts";
import { heldStep, releasedStep } from "./held-step.ts";
import { withWaitingTime } from "./waiting-time.ts";

/** An outcome on its way to a call. */
export interface Answer {
  /** Of the attempt. */
  callId: string;
  outcome: ToolOutcome;
  timing?: CallTiming | undefined;
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
  // Ids of steps that are held back are in no history yet.
  const trusted = env.othersWait !== true && (env.history === undefined || isWhole(env.history, turn));
  const wanted = trusted ? step.toolCalls : step.toolCalls.map((call) => ({ ...call, id: "" }));
  const ids = uniqueCallIds(wanted, { turnId: turn.turnId, step: turn.steps }, taken);
  const prepared = prepareCalls(step.toolCalls, ids, { turn, env });
  const said: Message = {
    role: "assistant",
    content: [...step.parts.filter(isSendable), ...prepared.map(({ use }) => use)],
  };
  const held = heldStep(said, env.history);
  const signatures = new Set(step.toolCalls.map(signatureOf));
  const repeated = Object.fromEntries([...signatures].map((one) => [one, (turn.repeated?.[one] ?? 0) + 1]));
  const open = {
    ...turn,
    repeated,
    calls: prepared.map(({ call }) => call),
    callIds: [...known, ...ids],
    held,
    needs: ["held-step"],
  };
  const refusals = prepared.flatMap(({ call, refusal }) =>
    refusal === undefined ? [] : [{ callId: call.id, outcome: refusal }],
  );
  const round = answerCalls(open, refusals, env);
  const records: Records = {
    history: [],
    events: [
      ...blockEvents(step),
      ...prepared.map(toolUseEvent),
      ...prepared.flatMap(({ events }) => events),
      ...round.events,
    ],
  };
  const approvals = prepared.flatMap(({ approval }) => approval ?? []);
  return after(records, goOn({ turn: round.turn, started: runningCalls(round.turn), approvals }, env));
}

/** A round in which something has happened. */
export interface RoundMove {
  turn: TurnState;
  /** Calls that start now. */
  started: readonly CallState[];
  /** Questions that calls wait for from now on. */
  approvals: readonly Approval[];
}

/** What comes next in a round: calls that start, others that are waited for, or its end. */
export function goOn({ turn, started, approvals }: RoundMove, env: TurnEnvironment): Transition {
  const timed = withWaitingTime(turn, env.nowMs);
  if (!timed.calls.some(isOpen)) return settleRound(timed, env);
  const next: NextAction = started.length > 0 ? { do: "tools", calls: [...started], wait: true } : { do: "wait" };
  const waiting: Transition = { turn: timed, history: [], events: [], next };
  return approvals.length === 0 ? waiting : { ...waiting, approvals: [...approvals] };
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
  for (const { callId, outcome, timing } of answers) {
    const index = calls.findIndex((call) => attemptOf(call) === callId && isOpen(call));
    const call = calls[index];
    if (call === undefined) continue;
    const done = answered(call, outcome, maxChars);
    calls[index] = done.call;
    events.push(done.event);
    ended.push(endedTool(call, done.outcome, { nowMs, stopped, timing }));
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

function roundRecords(turn: TurnState, history: readonly Message[] | undefined): Records {
  const { calls, steps, openStep } = turn;
  return {
    history: [...releasedStep(turn, history), resultsMessage(calls)],
    events: openStep === undefined ? [] : [stepEnd(steps, openStep)],
  };
}

/** Every call is answered: stores the results, then the next model step, unless the limit is reached. */
export function settleRound(turn: TurnState, env: TurnEnvironment): Transition {
  const records = roundRecords(turn, env.history);
  if (turn.steps >= env.limits.maxIterations) return after(records, exhausted(turn));
  const { openStep: _openStep, held: _held, needs: _needs, ...rest } = turn;
  return after(records, {
    turn: { ...rest, calls: [] },
    history: [],
    events: [stepStart(turn.steps, env.model)],
    next: { do: "model" },
  });
}

/** What the model reads of calls that are open when a turn ends. */
export interface ClosingWords {
  /** Of calls that may have started. */
  maybeRun: string;
  /** Of calls that still waited to be allowed. */
  notRun: string;
}

/** The outcome of a call that nobody waits for any more; what was known of it by then stays. */
function closedOutcome({ state, outcome }: CallState, { maybeRun, notRun }: ClosingWords): ToolOutcome {
  return outcome ?? { ok: false, error: state === "waiting_approval" ? notRun : maybeRun };
}

/** The turn ends in the middle of a round: answers what is open with an error and stores the results. */
export function closeRound(
  turn: TurnState,
  words: ClosingWords,
  { limits, nowMs, history: before }: RoundFacts & Pick<TurnEnvironment, "history">,
): Pick<Transition, "turn" | "history" | "events"> {
  if (turn.calls.length === 0) return { turn, history: [], events: [] };
  const answers = turn.calls
    .filter(isOpen)
    .map((call): Answer => ({ callId: attemptOf(call), outcome: closedOutcome(call, words) }));
  const round = answerCalls(turn, answers, { limits, nowMs, stopped: true });
  const { history, events } = roundRecords(round.turn, before);
  return { turn: withWaitingTime(round.turn, nowMs), history, events: [...round.events, ...events] };
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
