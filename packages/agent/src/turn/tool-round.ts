import type { ReplyLanguage, ControlEntry } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { type AssistantPart, type Message, toolResultPart } from "@larkline/protocol/content";
import type { EngineEvent, McpOrigin } from "@larkline/protocol/event";
import type { ShownTool } from "@larkline/protocol/reply-view";
import { type CallTiming, type ToolOutcome, outcomeText, denial } from "@larkline/protocol/tool";
import {
  type CallState,
  type TurnState,
  iterationsOf,
  type OpenStep,
} from "@larkline/protocol/turn";
import {
  needsOfCalls,
  withOpened,
  type TurnEnvironment,
  isOutOfSteps,
  isStoppedFirst,
  lastToSettle,
  withAnswer,
  type SettledOwn,
  decidedAbout,
  type CallFacts,
  entryEffect,
  firstOnOutcome,
  type DecisionEntry,
  type OutcomeEntry,
} from "./ability.ts";
import type { StepResult, Records, Transition, NextAction, TurnLimits } from "./facts.ts";
import { callIdsOf, isOpaque, isSendable, languageOfMessage } from "./messages.ts";
import {
  blockEvents,
  leftOutOf,
  stepEnd,
  stepStart,
  after,
  needsOf,
  resultShare,
  withNeeds,
  endAtLimit,
} from "./step.ts";
import {
  prepareCalls,
  uniqueCallIds,
  toolUseEvent,
  type PreparedCall,
  signatureOf,
  answered,
  resultText,
  resultSummary,
  attemptOf,
  type WaitingCall,
  waitingFor,
  hashOf,
  startedNow,
  startUnlessObjected,
  attemptAfter,
  retried,
  isOpen,
} from "./tool-call.ts";
import { endedTool, withTools } from "./view.ts";
import { isWhole, heldStep, releasedStep } from "./context.ts";

// A step has asked for calls: its round begins.

/** Opens a round: stores the calls of the step, answers those that must not run, dispatches the others. */
export function openRound(
  turn: TurnState,
  { step, numbers }: { step: StepResult; numbers: OpenStep },
  env: TurnEnvironment,
): Transition {
  const known = turn.called.ids;
  const taken = new Set([...known, ...callIdsOf(env.history ?? [])]);
  // Ids of steps that are held back are in no history yet.
  const trusted =
    env.othersWait !== true && (env.history === undefined || isWhole(env.history, turn));
  // One more than is run: its result says what of the step was left out.
  const toolCalls = step.toolCalls.slice(0, env.limits.maxCallsPerStep + 1);
  const beyond = step.toolCalls.length - env.limits.maxCallsPerStep;
  const wanted = trusted ? toolCalls : toolCalls.map((call) => ({ ...call, id: "" }));
  const ids = uniqueCallIds(wanted, { turnId: turn.turnId, step: turn.steps }, taken);
  const prepared = prepareCalls(toolCalls, ids, { turn, env: withStepRead(env, step), beyond });
  const said: Message = {
    role: "assistant",
    content: contentOf(step, prepared),
    ...leftOutOf(step),
  };
  const held = heldStep(said, env.history);
  const signatures = new Set(toolCalls.map(signatureOf));
  const repeated = Object.fromEntries(
    [...signatures].map((one) => [one, (turn.called.repeated[one] ?? 0) + 1]),
  );
  const calls = prepared.map(({ call }) => call);
  const before = withOpened(turn, calls, env);
  const mcpServers = serversOf(calls, turn, env);
  const open = {
    ...before,
    calls,
    called: { ...before.called, ids: [...known, ...ids], repeated, mcpServers },
    round: { step: numbers, held },
    needs: needsOf({ ...before, calls }, ...needsOfCalls(calls, env.abilities), "held-step"),
  };
  const outcomes = prepared.flatMap(({ call, outcome }) =>
    outcome === undefined ? [] : [{ callId: call.id, outcome }],
  );
  const round = answerCalls(open, outcomes, env);
  const records: Records = {
    history: [],
    events: [
      ...blockEvents(step),
      ...toolUseEvents(prepared, step, { numbers, named: turn.called.mcpServers, env }),
      ...prepared.flatMap(({ events }) => events),
      ...round.events,
    ],
  };
  const asked = prepared.flatMap((one) => one.asked ?? []);
  return after(
    records,
    nextInRound({ turn: round.turn, started: runningCalls(round.turn), asked }, env),
  );
}

/** The parts of a step and its calls: in the order of the vendor where it wants that, the calls last otherwise. */
function contentOf(
  { parts, callPlaces }: StepResult,
  prepared: readonly PreparedCall[],
): AssistantPart[] {
  const content: AssistantPart[] = [];
  let taken = 0;
  for (const [at, { use }] of prepared.entries()) {
    const before = callPlaces?.[at]?.parts ?? parts.length;
    content.push(...parts.slice(taken, before), use);
    taken = Math.max(taken, before);
  }
  return [...content, ...parts.slice(taken)].filter(isSendable);
}

/** The same with what tools of the vendor have read in this step, before they led to its calls. */
function withStepRead(env: TurnEnvironment, { parts }: StepResult): TurnEnvironment {
  const read = parts.filter(isOpaque);
  return read.length === 0
    ? env
    : { ...env, history: [...(env.history ?? []), { role: "assistant", content: read }] };
}

/** The first call carries what the step has used; each the items of the vendor that come before it. */
function toolUseEvents(
  prepared: readonly PreparedCall[],
  { vendorItems = [], callPlaces }: StepResult,
  about: { numbers: OpenStep; named: readonly string[]; env: TurnEnvironment },
): EngineEvent[] {
  const named = new Set(about.named);
  const last = callPlaces === undefined ? 0 : prepared.length - 1;
  const [first, ...rest] = prepared.map((each, at) => {
    const mcp = mcpOriginOf(each.call, about.env, named);
    const place = callPlaces?.[at];
    const items = [...(place?.vendorItems ?? []), ...(at === last ? vendorItems : [])];
    return {
      ...toolUseEvent(each),
      ...(mcp === undefined ? {} : { mcp }),
      ...(items.length === 0 ? {} : { vendorItems: items }),
      ...(place === undefined ? {} : { blocksBefore: place.blocks }),
    };
  });
  if (first === undefined) return [];
  const { inputTokens, outputTokens, cacheReadTokens, cacheCreationTokens } = about.numbers;
  const step = {
    calls: prepared.length,
    inputTokens,
    outputTokens,
    cacheReadTokens,
    cacheCreationTokens,
  };
  return [{ ...first, step }, ...rest];
}

/** Servers may describe a thousand tools at length: then only the one that is called is named. */
const maxListedCharacters = 100_000;

/** The server that gives the tool of a call; its first call in a run names all of its tools. Adds it to `named`. */
function mcpOriginOf(
  { name }: CallState,
  { tools }: TurnEnvironment,
  named: Set<string>,
): McpOrigin | undefined {
  const server = tools.get(name)?.announcement.mcp;
  if (server === undefined || named.has(server)) {
    return server === undefined ? undefined : { server };
  }
  named.add(server);
  const all = [...tools.values()].filter(({ announcement }) => announcement.mcp === server);
  const listed = all.map(({ announcement: { spec } }) => spec);
  return JSON.stringify(listed).length > maxListedCharacters
    ? { server }
    : { server, tools: listed };
}

/** The servers of calls, with those of earlier events. */
function serversOf(
  calls: readonly CallState[],
  { called }: TurnState,
  { tools }: TurnEnvironment,
): string[] {
  const now = calls.flatMap(({ name }) => tools.get(name)?.announcement.mcp ?? []);
  return [...new Set([...called.mcpServers, ...now])];
}

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
interface Answer {
  /** The id of the attempt. */
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
function answerCalls(
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
        ? { ...own.turn, called: { ...own.turn.called, refused: own.turn.called.refused + 1 } }
        : own.turn;
    events.push(...own.events);
    const summary = resultSummary(outcome, language);
    events.push(done.event, { type: "tool_summary", id: call.id, toolName: call.name, summary });
    const isStopped =
      stopped || (turn.stopping !== undefined && isStoppedFirst(call, abilities) && !outcome.ok);
    ended.push(endedTool(call, done.outcome, { nowMs, abilities, stopped: isStopped, timing }));
  }
  return { turn: { ...kept, calls, shown: withTools(turn.shown, ended) }, events };
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
  if (isOver) return after(records, endAtLimit(turn, env));
  if (last?.settled.end !== undefined) return last.settled.end(turn, records);
  const { round: _round, ...rest } = turn;
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
  const { steps, round } = turn;
  return {
    history: [...releasedStep(turn, history), resultsMessage(turn, last)],
    events: round === undefined ? [] : [stepEnd(steps, round.step)],
  };
}

/** The one message that answers a round, in call order. */
function resultsMessage(turn: TurnState, { handoff }: Pick<SettledOwn, "handoff"> = {}): Message {
  const content = turn.calls.flatMap(({ id, outcome }) =>
    outcome === undefined ? [] : [toolResultPart(id, resultText(outcome), !outcome.ok)],
  );
  return { role: "tool", content, ...(handoff === undefined ? {} : { handoff }) };
}

/** What the model reads of calls that are open when a turn ends. */
interface ClosingWords {
  /** The outcome of calls that may have started. */
  maybeRun: string;
  /** The outcome of calls that still waited to be allowed. */
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

/** A call that waits for nothing itself may be answered last. */
function isAnswered(call: CallState): boolean {
  return !isOpen(call) && call.outcome !== undefined;
}

/** A result that is longer than what the model gets of its call. */
interface LargeResult {
  /** The id of the attempt, as in its entry. */
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
  const { ms, sinceMs } = turn.waiting;
  const waits = waitsForPeople(turn);
  if (waits === (sinceMs !== undefined)) return turn;
  if (sinceMs === undefined) return { ...turn, waiting: { ms, sinceMs: nowMs } };
  return { ...turn, waiting: { ms: ms + Math.max(0, nowMs - sinceMs) } };
}

/** Whether the turn waits for people only: no call is running. */
function waitsForPeople({ calls }: TurnState): boolean {
  const open = calls.filter(({ state }) => state !== "done");
  return open.length > 0 && open.every(({ state }) => state !== "running");
}

// Control entries: outcomes of attempts and decisions of people, as they change the open round.

/** `ending`: the turn is about to end, so no call starts and no person is asked. */
type ApplyFacts = Required<Omit<CallFacts, "turn">>;

/** The round after its entries. */
interface Applied {
  turn: TurnState;
  events: EngineEvent[];
  /** What people are asked from now on. */
  asked: Approval[];
}

/** Applies control entries to the open round, in order. Unknown and repeated entries change nothing. */
export function applyControlEntries(
  turn: TurnState,
  entries: readonly ControlEntry[],
  facts: ApplyFacts,
): Applied {
  let applied: Applied = { turn, events: [], asked: [] };
  for (const entry of entries) {
    if (entry.type === "outcome") applied = applyOutcome(applied, entry, facts);
    else if (entry.type === "decision") applied = applyDecision(applied, entry, facts);
    else {
      const { turn: next, events } = entryEffect(entry, applied.turn, facts.env.abilities);
      applied = { ...applied, turn: next, events: [...applied.events, ...events] };
    }
  }
  return applied;
}

/** Applies an outcome from a runner or from recovery. Only running attempts take one, and the first one counts. */
function applyOutcome(applied: Applied, entry: OutcomeEntry, facts: ApplyFacts): Applied {
  const { callId, timing, outcome } = entry;
  const call = applied.turn.calls.find(
    (one) => one.state === "running" && attemptOf(one) === callId,
  );
  if (call === undefined) return applied;
  const next = facts.ending
    ? undefined
    : attemptAfter(entry, call, { ...facts, turn: applied.turn });
  if (next !== undefined) return { ...applied, turn: withCall(applied.turn, next) };
  const own = firstOnOutcome(call, entry, { ...facts, turn: applied.turn });
  if (own !== undefined) {
    const { made, by } = own;
    const kept = { ...applied, turn: made.turn ?? applied.turn };
    if ("ask" in made) {
      return withWaiting(kept, waitingFor(made.call, made.ask, by), facts.env);
    }
    return answer(kept, { callId, outcome: made.outcome }, facts);
  }
  return answer(applied, { callId, outcome, timing }, facts);
}

function withWaiting(
  applied: Applied,
  { call, asked, events }: WaitingCall,
  { abilities }: TurnEnvironment,
): Applied {
  const needs = [...new Set([...(applied.turn.needs ?? []), ...needsOfCalls([call], abilities)])];
  return {
    turn: { ...withCall(applied.turn, call), ...(needs.length === 0 ? {} : { needs }) },
    events: [...applied.events, ...events],
    asked: [...applied.asked, asked],
  };
}

function withCall(turn: TurnState, changed: CallState): TurnState {
  return { ...turn, calls: turn.calls.map((call) => (call.id === changed.id ? changed : call)) };
}

function answer(applied: Applied, given: Answer, { env }: ApplyFacts): Applied {
  const { turn, events } = answerCalls(applied.turn, [given], env);
  return { ...applied, turn, events: [...applied.events, ...events] };
}

/** Applies the answer of people. It is ignored unless a call waits for it. */
function applyDecision(applied: Applied, entry: DecisionEntry, facts: ApplyFacts): Applied {
  const call = applied.turn.calls.find(({ approvalId }) => approvalId === entry.approvalId);
  if (call === undefined || !isOpen(call)) return applied;
  const { env, ending } = facts;
  const found = decidedAbout(call, entry, { turn: applied.turn, env, ending });
  if (found === undefined) return applied;
  const { by, decided } = found;
  const end = (outcome: ToolOutcome, turn = applied.turn): Applied =>
    answer({ ...applied, turn }, { callId: attemptOf(call), outcome }, facts);
  if ("ok" in decided) return end(decided);
  if ("outcome" in decided) return end(decided.outcome, decided.turn);
  if ("ask" in decided) {
    if (ending) return applied;
    const kept = { ...applied, turn: decided.turn ?? applied.turn };
    return withWaiting(kept, waitingFor(decided.call, decided.ask, by), env);
  }
  if (entry.argumentsHash !== hashOf(call)) return end(denial(otherArguments));
  if (ending) return applied;
  const started = "again" in decided ? retried(decided.again, env) : startedNow(decided.start, env);
  return withStart(applied, started, facts);
}

const otherArguments = "the approval was given for other arguments. The call was not run.";

/** People have let a call start: it does, unless an ability objects. */
function withStart(applied: Applied, call: CallState, { env, ending }: ApplyFacts): Applied {
  const { turn } = applied;
  const started = startUnlessObjected(call, { turn, env });
  if ("start" in started) return { ...applied, turn: withCall(turn, started.start) };
  if ("end" in started) {
    const waited = { ...applied, turn: withCall(turn, call) };
    return answer(waited, { callId: attemptOf(call), outcome: started.end }, { env, ending });
  }
  return withWaiting(applied, started.wait, env);
}

/** Calls to dispatch now: the attempts that did not run before. */
export function startedSince(before: TurnState, { calls }: TurnState): CallState[] {
  const running = new Set(before.calls.filter(({ state }) => state === "running").map(attemptOf));
  return calls.filter((call) => call.state === "running" && !running.has(attemptOf(call)));
}
