import {
  toolResultPart,
  type Approval,
  type CallState,
  type CallTiming,
  type EngineEvent,
  type Message,
  type ReplyLanguage,
  type ShownTool,
  type ToolOutcome,
  type TurnState,
  outcomeText,
  type ControlEntry,
  iterationsOf,
} from "@larkline/protocol";
import { exhaustedText } from "../texts/index.ts";
import {
  isOutOfSteps,
  isStoppedFirst,
  lastToSettle,
  shownTextOf,
  withAnswer,
  type SettledOwn,
  type TurnEnvironment,
} from "./ability.ts";
import type { NextAction, Records, Transition, TurnLimits } from "./facts.ts";
import { languageOfMessage } from "./messages.ts";
import { releasedStep } from "./held-step.ts";
import { stepEnd, stepStart } from "./step.ts";
import { answered, resultText, resultSummary } from "./results.ts";
import { attemptOf } from "./tool-call.ts";
import { endDone, assistantText, after, resultShare, withNeeds } from "./transition.ts";
import { endedTool, shownOf, withoutText, withTools } from "./view.ts";

/** A round in which something has happened. */
export interface RoundMove {
  turn: TurnState;
  /** Calls that start now. */
  started: readonly CallState[];
  /** What people are asked from now on. */
  asked: readonly Approval[];
}

/** The next action of a round: dispatch calls, wait for open ones, or settle the round. */
export function nextInRound({ turn, started, asked }: RoundMove, env: TurnEnvironment): Transition {
  const timed = withWaitingTime(turn, env.nowMs);
  if (!timed.calls.some(isOpen)) return settleRound(timed, env);
  const next: NextAction =
    started.length > 0 ? { do: "tools", calls: [...started], wait: true } : { do: "wait" };
  const waiting: Transition = { turn: timed, history: [], events: [], next };
  return asked.length === 0 ? waiting : { ...waiting, asked: [...asked] };
}

/** An outcome on its way to a call. */
export interface Answer {
  /** Of the attempt. */
  callId: string;
  outcome: ToolOutcome;
  timing?: CallTiming | undefined;
}

/** What answering depends on. `stopped`: the calls are broken off. */
type AnswerFacts = Pick<TurnEnvironment, "limits" | "nowMs" | "abilities"> & {
  texts?: ReplyLanguage | undefined;
  stopped?: boolean;
};

/** Gives open calls their outcome. The first outcome of a call counts; later ones and those of unknown calls are ignored. */
export function answerCalls(
  turn: TurnState,
  answers: readonly Answer[],
  { limits, nowMs, abilities, texts, stopped = false }: AnswerFacts,
): { turn: TurnState; events: EngineEvent[] } {
  const maxChars = resultShare(limits, turn.calls.length);
  const language = languageOfMessage(turn.message, texts);
  const calls = [...turn.calls];
  const ended: ShownTool[] = [];
  let kept = turn;
  const events: EngineEvent[] = [];
  for (const { callId, outcome, timing } of answers) {
    const index = calls.findIndex((call) => attemptOf(call) === callId && !isAnswered(call));
    const call = calls[index];
    if (call === undefined) continue;
    const done = answered(call, outcome, maxChars);
    calls[index] = done.call;
    const own = withAnswer(kept, { call, outcome, output: done.event.output }, abilities);
    kept =
      !outcome.ok && outcome.denied === true
        ? { ...own.turn, refused: (own.turn.refused ?? 0) + 1 }
        : own.turn;
    events.push(...own.events);
    const summary = resultSummary(outcome, language);
    events.push(done.event, { type: "tool_summary", id: call.id, toolName: call.name, summary });
    const isStopped =
      stopped || (turn.stopping !== undefined && isStoppedFirst(call, abilities) && !outcome.ok);
    ended.push(endedTool(call, done.outcome, { nowMs, abilities, stopped: isStopped, timing }));
  }
  return { turn: { ...kept, calls, shown: withTools(shownOf(turn), ended) }, events };
}

/**
 * Every call is answered: stores the results, then the next model step, unless the limit is reached. A call
 * that is answered last is ended here, so that one write has all of it.
 */
function settleRound(open: TurnState, env: TurnEnvironment): Transition {
  const last = lastToSettle(open, env);
  const answers =
    last === undefined ? [] : [{ callId: attemptOf(last.call), outcome: last.settled.outcome }];
  const { turn, events } = answerCalls(open, answers, env);
  const { history, events: ends } = roundRecords(turn, env.history, last?.settled);
  const records: Records = { history, events: [...events, ...ends] };
  const isOver = iterationsOf(turn) >= env.limits.maxIterations || isOutOfSteps(turn, env);
  if (isOver) return after(records, exhausted(turn, env));
  if (last?.settled.end !== undefined) return last.settled.end(turn, records);
  const { openStep: _openStep, held: _held, ...rest } = turn;
  const next: TurnState = { ...rest, calls: [] };
  if (last?.settled.next !== undefined) return after(records, last.settled.next(next));
  const start = stepStart(turn.steps, env.model);
  return after(records, {
    turn: withNeeds(next),
    history: [],
    events: [start],
    next: { do: "model" },
  });
}

function roundRecords(
  turn: TurnState,
  history: readonly Message[] | undefined,
  last?: SettledOwn,
): Records {
  const { steps, openStep } = turn;
  return {
    history: [...releasedStep(turn, history), resultsMessage(turn, last)],
    events: openStep === undefined ? [] : [stepEnd(steps, openStep)],
  };
}

/** The one message that answers a round, in call order. */
function resultsMessage(turn: TurnState, { handoff }: Pick<SettledOwn, "handoff"> = {}): Message {
  const content = turn.calls.flatMap(({ id, outcome }) =>
    outcome === undefined ? [] : [toolResultPart(id, resultText(outcome), !outcome.ok)],
  );
  return { role: "tool", content, ...(handoff === undefined ? {} : { handoff }) };
}

/** The last words of the model may be a preamble ("let me look..."), so the notice always follows them. */
function exhausted(turn: TurnState, { abilities, known }: TurnEnvironment): Transition {
  const final = turn.openStep?.text ?? "";
  const shown = shownTextOf(final, abilities, known);
  return endDone(withoutText(turn, final), {
    history: [assistantText(exhaustedText)],
    historyNote: exhaustedText,
    events: [],
    reply: shown.trim() === "" ? exhaustedText : `${shown}\n\n${exhaustedText}`,
    reason: "max_turns_reached",
    final,
  });
}

/** What the model reads of calls that are open when a turn ends. */
interface ClosingWords {
  /** Of calls that may have started. */
  maybeRun: string;
  /** Of calls that still waited to be allowed. */
  notRun: string;
}

/** Closes the round of a turn that ends: answers its open calls with an error and stores the results. */
export function closeRound(
  turn: TurnState,
  words: ClosingWords,
  {
    limits,
    nowMs,
    abilities,
    texts,
    history: before,
  }: AnswerFacts & Pick<TurnEnvironment, "history">,
): Pick<Transition, "turn" | "history" | "events"> {
  if (turn.calls.length === 0) return { turn, history: [], events: [] };
  const answers = turn.calls
    .filter((call) => !isAnswered(call))
    .map((call): Answer => ({ callId: attemptOf(call), outcome: closedOutcome(call, words) }));
  const round = answerCalls(turn, answers, { limits, nowMs, abilities, texts, stopped: true });
  const { history, events } = roundRecords(round.turn, before);
  return {
    turn: withWaitingTime(round.turn, nowMs),
    history,
    events: [...round.events, ...events],
  };
}

/** The outcome of a call that is still open when its turn ends. A known outcome stays. */
function closedOutcome(
  { state, outcome }: CallState,
  { maybeRun, notRun }: ClosingWords,
): ToolOutcome {
  const hasNotRun = state === "waiting_approval" || state === "done";
  return outcome ?? { ok: false, error: hasNotRun ? notRun : maybeRun };
}

/** Calls that runners should be working on. */
export function runningCalls({ calls }: TurnState): CallState[] {
  return calls.filter(({ state }) => state === "running");
}

/** Whether the call still waits for its outcome. */
export function isOpen({ state }: CallState): boolean {
  return state !== "done";
}

/** A call that waits for nothing itself may be answered last. */
function isAnswered(call: CallState): boolean {
  return !isOpen(call) && call.outcome !== undefined;
}

/** A result that is longer than what the model gets of its call. */
export interface LargeResult {
  /** As in its entry: the id of the attempt. */
  callId: string;
  text: string;
}

/**
 * Results among the entries that `afterControl` would cut off. Keep each text somewhere and put
 * `stored` into its outcome before: then the model reads how to get the rest. Entries that count
 * for nothing have none.
 */
export function largeResults(
  turn: TurnState,
  entries: readonly ControlEntry[],
  limits: TurnLimits,
): LargeResult[] {
  const share = resultShare(limits, turn.calls.length);
  const open = new Set(turn.calls.filter(({ state }) => state === "running").map(attemptOf));
  return entries.flatMap((entry) => {
    if (entry.type !== "outcome" || !entry.outcome.ok || entry.outcome.stored !== undefined) {
      return [];
    }
    const text = outcomeText(entry.outcome);
    return text.length > share && open.delete(entry.callId) ? [{ callId: entry.callId, text }] : [];
  });
}

/** Starts or stops the turn's waiting time after its calls have changed. */
function withWaitingTime(turn: TurnState, nowMs: number): TurnState {
  const { waitingSinceMs, ...rest } = turn;
  const waits = waitsForPeople(turn);
  if (waits === (waitingSinceMs !== undefined)) return turn;
  if (waitingSinceMs === undefined) return { ...turn, waitingSinceMs: nowMs };
  return { ...rest, waitedMs: (turn.waitedMs ?? 0) + Math.max(0, nowMs - waitingSinceMs) };
}

/** Whether the turn waits for people only: no call is running. */
function waitsForPeople({ calls }: TurnState): boolean {
  const open = calls.filter(({ state }) => state !== "done");
  return open.length > 0 && open.every(({ state }) => state !== "running");
}
