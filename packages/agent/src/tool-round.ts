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
  argumentsHashOf,
  textOf,
  type HeldStep,
  type ToolCall,
  outcomeText,
  type ControlEntry,
} from "@larkline/protocol";
import { type StepResult, blockEvents, stepEnd, stepStart } from "./step.ts";
import { answered, resultText, attemptOf, prepareCalls, signatureOf, toolUseEvent } from "./tool-call.ts";
import { exhaustedText, textHead } from "./texts/index.ts";
import { isSendable, userMessageOf } from "./messages.ts";
import { endedTool, shownOf, withoutText, withTools } from "./reply-view.ts";
import {
  endDone,
  assistantText,
  after,
  type NextAction,
  type Records,
  type Transition,
  type TurnEnvironment,
  resultShare,
  type TurnLimits,
} from "./transition.ts";
import { isSummary } from "./compaction.ts";

/*
 * A step that asks for calls is not written into the history at once. Its turn may have to wait for people, for
 * a day, and meanwhile the turns of other people in the group write there: a message between a call and its
 * results is refused by every vendor. So the checkpoint holds the step, and it enters the history together with
 * the results. Two notes keep what models read in between and afterwards in order:
 *
 *   user      Ann: deploy it
 *   assistant (pause note)                     written by the first turn of another person
 *   user      Bob: what is 2 + 2?
 *   assistant 4
 *   user      (resume note, with Ann's words)  written with the held step, where something came in between
 *   assistant tool_use deploy                  the held step
 *   tool      deployed
 */

/** Opens a round: stores the calls of the step, answers those that must not run, dispatches the others. */
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
  return after(records, nextInRound({ turn: round.turn, started: runningCalls(round.turn), approvals }, env));
}

/** A round in which something has happened. */
export interface RoundMove {
  turn: TurnState;
  /** Calls that start now. */
  started: readonly CallState[];
  /** Questions that calls wait for from now on. */
  approvals: readonly Approval[];
}

/** The next action of a round: dispatch calls, wait for open ones, or settle the round. */
export function nextInRound({ turn, started, approvals }: RoundMove, env: TurnEnvironment): Transition {
  const timed = withWaitingTime(turn, env.nowMs);
  if (!timed.calls.some(isOpen)) return settleRound(timed, env);
  const next: NextAction = started.length > 0 ? { do: "tools", calls: [...started], wait: true } : { do: "wait" };
  const waiting: Transition = { turn: timed, history: [], events: [], next };
  return approvals.length === 0 ? waiting : { ...waiting, approvals: [...approvals] };
}

/** An outcome on its way to a call. */
export interface Answer {
  /** Of the attempt. */
  callId: string;
  outcome: ToolOutcome;
  timing?: CallTiming | undefined;
}

/** What answering depends on. `stopped`: the calls are broken off. */
type RoundFacts = Pick<TurnEnvironment, "limits" | "nowMs"> & { stopped?: boolean };

/** Gives open calls their outcome. The first outcome of a call counts; later ones and those of unknown calls are ignored. */
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

/** Every call is answered: stores the results, then the next model step, unless the limit is reached. */
function settleRound(turn: TurnState, env: TurnEnvironment): Transition {
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

function roundRecords(turn: TurnState, history: readonly Message[] | undefined): Records {
  const { calls, steps, openStep } = turn;
  return {
    history: [...releasedStep(turn, history), resultsMessage(calls)],
    events: openStep === undefined ? [] : [stepEnd(steps, openStep)],
  };
}

/** The one message that answers a round, in call order. */
function resultsMessage(calls: readonly CallState[]): Message {
  const content = calls.flatMap(({ id, outcome }) =>
    outcome === undefined ? [] : [toolResultPart(id, resultText(outcome), !outcome.ok)],
  );
  return { role: "tool", content };
}

/** The last words of the model may be a preamble ("let me look..."), so the notice always follows them. */
function exhausted(turn: TurnState): Transition {
  const final = turn.openStep?.text ?? "";
  return endDone(withoutText(turn, final), {
    history: [assistantText(exhaustedText)],
    events: [],
    reply: final.trim() === "" ? exhaustedText : `${final}\n\n${exhaustedText}`,
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

/** The outcome of a call that is still open when its turn ends. A known outcome stays. */
function closedOutcome({ state, outcome }: CallState, { maybeRun, notRun }: ClosingWords): ToolOutcome {
  return outcome ?? { ok: false, error: state === "waiting_approval" ? notRun : maybeRun };
}

/** Calls that runners should be working on. */
export function runningCalls({ calls }: TurnState): CallState[] {
  return calls.filter(({ state }) => state === "running");
}

/** Whether the call still waits for its outcome. */
export function isOpen({ state }: CallState): boolean {
  return state !== "done";
}

/** A result that is longer than what the model gets of its call. */
export interface LargeResult {
  /** As in its entry: the id of the attempt. */
  callId: string;
  text: string;
}

/**
 * Results among the entries that `afterControl` would cut off. Keep each text somewhere and put
 * `stored` into its outcome before: then the model is told how to read the rest. Entries that count
 * for nothing have none.
 */
export function largeResults(turn: TurnState, entries: readonly ControlEntry[], limits: TurnLimits): LargeResult[] {
  const share = resultShare(limits, turn.calls.length);
  const open = new Set(turn.calls.filter(({ state }) => state === "running").map(attemptOf));
  return entries.flatMap((entry) => {
    if (entry.type !== "outcome" || !entry.outcome.ok || entry.outcome.stored !== undefined) return [];
    const text = outcomeText(entry.outcome);
    return text.length > share && open.delete(entry.callId) ? [{ callId: entry.callId, text }] : [];
  });
}

/** What the model said in a step whose calls are open now; `history` is the conversation before it. */
function heldStep(message: Message, history: readonly Message[] = []): HeldStep {
  const last = history.at(-1);
  return last === undefined ? { message } : { message, after: fingerprintOf(last) };
}

function fingerprintOf(message: Message): string {
  return argumentsHashOf(JSON.stringify(message));
}

const maxQuoteChars = 4_000;

const resumeTitle = "[People have answered what an earlier message waited for, so the work on that message continues.";

/**
 * What enters the history before the results of a round: the held step, and before it a note where other
 * messages have come in between. Nothing for checkpoints of earlier versions, whose step is stored already.
 */
function releasedStep({ held, message }: TurnState, history: readonly Message[] | undefined): Message[] {
  if (held === undefined) return [];
  const last = history?.at(-1);
  const isNext = history === undefined || (last === undefined ? undefined : fingerprintOf(last)) === held.after;
  if (isNext) return [held.message];
  const quoted = textHead(textOf(userMessageOf(message)), maxQuoteChars);
  const note = `${resumeTitle} It was:]\n${quoted}`;
  return [{ role: "user", content: [{ type: "text", text: note }] }, held.message];
}

const pauseText =
  "(I have asked people about something that I need for the message above, and wait for their answer. " +
  "I answer that message when they have decided; nothing is to be done about it until then.)";

/** The note that another person's turn writes before its message while the message before it is unanswered. */
export function pauseNote(history: readonly Message[]): Message[] {
  const last = history.at(-1);
  if (last === undefined || last.role === "assistant") return [];
  return [{ role: "assistant", content: [{ type: "text", text: pauseText }] }];
}

/** Whether a user message is the system's note about a turn that continues. */
function isResumeNote({ role, content }: Message): boolean {
  const [first] = content;
  return role === "user" && first?.type === "text" && first.text.startsWith(resumeTitle);
}

/** Ids of all calls of a conversation. */
export function callIdsOf(history: readonly Message[]): Set<string> {
  const ids = new Set<string>();
  for (const { role, content } of history) {
    if (role !== "assistant") continue;
    for (const part of content) if (part.type === "tool_use") ids.add(part.id);
  }
  return ids;
}

/**
 * Whether a history holds every message up to the turn. After a cut of the context it does not, and
 * an id that looks new may be that of a call of an earlier turn, whose late outcome it would catch.
 */
export function isWhole(history: readonly Message[], { turnId, absorbed = [] }: TurnState): boolean {
  const asked = history.filter((message) => message.role === "user" && !isSystemMessage(message));
  return asked.length - absorbed.length >= Number(turnNumberOf(turnId));
}

function isSystemMessage(message: Message): boolean {
  return isSummary(message) || isResumeNote(message);
}

/** A number that no other turn of the session has: the tail of `<session>-<seq>`. */
function turnNumberOf(turnId: string): string {
  return turnId.slice(turnId.lastIndexOf("-") + 1);
}

/** What every vendor accepts as the id of a call. */
const acceptedId = /^[A-Za-z0-9_-]{1,40}$/;

/**
 * One id per call, in order: the model's own where it can be used, otherwise a new one. No id is
 * in `taken` or given twice. Deterministic, so a repeated step gets the same ids.
 */
function uniqueCallIds(
  calls: readonly ToolCall[],
  place: { turnId: string; step: number },
  taken: ReadonlySet<string>,
): string[] {
  const given = new Set(taken);
  return calls.map(({ id }, index) => {
    let unique =
      acceptedId.test(id) && !given.has(id) ? id : `call_${turnNumberOf(place.turnId)}_${place.step}_${index}`;
    while (given.has(unique)) unique += "x";
    given.add(unique);
    return unique;
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
