import {
  type QueuedMessage,
  turnIdOf,
  type InboundMessage,
  type ReplyLanguage,
  type ControlEntry,
  cancelReasons,
  type CancelReason,
} from "@larkline/protocol";
import type { Message } from "@larkline/protocol/content";
import type { EventOf } from "@larkline/protocol/event";
import type { ToolCall, ToolSpec } from "@larkline/protocol/tool";
import { type TurnState, agentOfTurn, blankTurn } from "@larkline/protocol/turn";
import {
  type Ability,
  type AbilityFacts,
  type TurnEnvironment,
  shownTextOf,
  ofNextAgent,
  beforeModel,
  firstMoveOf,
  offeredCalls,
  taskEvents,
  stoppedFirst,
  takerOf,
} from "./ability.ts";
import { noticeText } from "../texts/index.ts";
import type { Transition, TurnModel, StepResult } from "./facts.ts";
import {
  type UserMessage,
  slashCommandIn,
  userMessageOf,
  languageOfMessage,
  personMessageOf,
  joinedTexts,
} from "./messages.ts";
import {
  stepStart,
  endError,
  errorOf,
  after,
  withNeeds,
  finalAnswer,
  stepFailure,
  stepRestart,
  answering,
  noticeFor,
  assistantText,
  endDone,
  withUnanswered,
  putOffStep,
  withStep,
} from "./step.ts";
import {
  openRound,
  applyControlEntries,
  startedSince,
  closeRound,
  nextInRound,
  runningCalls,
  type RoundMove,
} from "./tool-round.ts";
import { pauseNote } from "./context.ts";
import { parseArguments, attemptOf } from "./tool-call.ts";
import { withText, withThinking, cancelReport } from "./view.ts";

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
 * the checkpoint: see tool-round.ts. Orders to the session take `commandTurn` in place of all this.
 *
 * Each function takes a checkpoint and an event, and returns the next checkpoint, the records to write
 * with it, and the action that follows the write. The functions are pure: the worker writes and acts.
 */

// A waiting message begins its turn.

/** Begins the turn of a waiting message: stores it and asks for the first model step. */
export function startTurn({
  head,
  nowMs,
  model,
  agent,
  known = {},
  texts,
  overheard,
  othersWait = false,
  history = [],
  abilities = [],
}: {
  head: QueuedMessage;
  abilities?: readonly Ability[];
  nowMs: number;
  model: TurnModel;
  /** Who answers, where that is not the agent that the message is for. */
  agent?: string | undefined;
  known?: AbilityFacts | undefined;
  texts?: ReplyLanguage | undefined;
  /** What was said in the group since the message before; undefined where the agent does not read along. */
  overheard?: readonly UserMessage[] | undefined;
} & Pick<TurnEnvironment, "othersWait" | "history">): Transition {
  const command = head.message.task === undefined ? slashCommandIn(head.message) : undefined;
  const turn = newTurn(head, nowMs, agent);
  const asked = userMessageOf(head.message);
  const said = [
    ...givenHistory(head.message, history),
    ...(othersWait ? pauseNote(history) : []),
    ...(overheard ?? []),
    overheard === undefined ? asked : { ...asked, atMs: head.message.createdAtMs },
  ];
  const events = [
    ...taskEvents(head.message, agentOfTurn(turn), abilities),
    ...(command === undefined ? [] : [command]),
  ];
  const first = firstMoveOf(turn, { known, texts }, abilities);
  if (first !== undefined) return after({ history: said, events }, first);
  return { turn, history: said, events: [stepStart(0, model), ...events], next: { do: "model" } };
}

/** The history that a message brings. It counts only where the conversation is still empty. */
function givenHistory(
  { history: given = [] }: InboundMessage,
  history: readonly Message[],
): readonly Message[] {
  return history.length === 0 ? given : [];
}

/** The checkpoint of a turn that has done nothing yet. */
export function newTurn(head: QueuedMessage, nowMs: number, agent?: string): TurnState {
  const { history: _given, needs: _needs, ...message } = head.message; // in the history with the first write
  const turnId = turnIdOf(head.message.session, head.seq);
  return withNeeds({
    ...blankTurn({ turnId, message, startedAtMs: nowMs }),
    ...(agent === undefined ? {} : { agent }),
  });
}

/** The turn of agents that operators had changed when it began. */
export function atRevision(turn: TurnState, revision: number): TurnState {
  return withNeeds({ ...turn, revision });
}

/** The turn of a message that no agent answers: nothing of it enters the history. `notice`: what the person reads. */
export function refuseTurn(head: QueuedMessage, nowMs: number, notice: string): Transition {
  const suggestion = "Ask the operator who may use this agent.";
  const error = {
    ...errorOf("permission_denied", "This agent does not answer this person here."),
    suggestion,
  };
  return endError(newTurn(head, nowMs), { history: [], events: [], reply: notice, error });
}

/** Stored state that a conversation can lose and still continue: its settings, and the summary of compacted messages. */
type LostState = "settings" | "summary";

/**
 * Adds the notes that the person sees beside the answer: files of the message that could not be read, and stored state
 * of the conversation that was lost. Each note appears once.
 */
export function withNotes(
  turn: TurnState,
  lost: readonly LostState[],
  texts?: ReplyLanguage,
  more: readonly string[] = [],
): TurnState {
  const language = languageOfMessage(turn.message, texts);
  const files = unreadFiles(turn.message);
  const notes = [
    ...turn.shown.notes,
    ...(files.length === 0
      ? []
      : [noticeText("filesUnread", language, { files: files.join(", ") })]),
    ...lost.map((what) =>
      noticeText(what === "settings" ? "settingsLost" : "summaryLost", language),
    ),
    ...more,
  ];
  return notes.length === 0
    ? turn
    : { ...turn, shown: { ...turn.shown, notes: [...new Set(notes)] } };
}

function unreadFiles({ parts }: InboundMessage): string[] {
  return parts.flatMap((part) =>
    part.type === "file" && part.state !== "ready" ? [part.name] : [],
  );
}

// Messages that come while a turn runs may become part of it.

/**
 * Joins waiting messages to the turn before its next model step: call it with the oldest waiting messages
 * whenever `next` is `model`. It takes them in order up to the first that needs a turn of its own: a command, another agent's or another person's message, one whose references are
 * not fetched, or one over the limit of a turn. While a call is open it takes none, so that results follow their calls.
 */
export function absorb(
  turn: TurnState,
  waiting: readonly QueuedMessage[],
  env: TurnEnvironment,
): Transition {
  if (turn.calls.length > 0) return { turn, history: [], events: [], next: { do: "wait" } };
  const first = beforeModel(turn, env);
  if (first !== undefined) return { turn, history: [], events: [], next: first };
  const before = turn.absorbed;
  const stop = waiting.findIndex(({ message }) => !joins(message, turn));
  const taken = waiting.slice(
    0,
    Math.min(
      stop === -1 ? waiting.length : stop,
      Math.max(0, env.limits.maxAbsorbed - before.length),
    ),
  );
  if (taken.length === 0) return { turn, history: [], events: [], next: { do: "model" } };
  const absorbed = taken.map(({ seq, message }) => ({
    seq,
    runId: turnIdOf(message.session, seq),
    person: personMessageOf(message),
  }));
  return {
    turn: { ...turn, absorbed: [...before, ...absorbed.map(({ runId }) => runId)] },
    history: taken.map(({ message }) => userMessageOf(message)),
    events: taken.flatMap(({ message }) => slashCommandIn(message) ?? []),
    next: { do: "model" },
    absorbed,
  };
}

/** The end of the run of a message that has become part of another one. */
export function joinedEvent(takenBy: string, agent: string): EventOf<"done"> {
  const reason = "joined";
  return {
    type: "done",
    totalInputTokens: 0,
    totalOutputTokens: 0,
    totalCacheReadTokens: 0,
    totalCacheCreationTokens: 0,
    totalCostUsd: 0,
    turnCount: 0,
    reason,
    final: "",
    agent,
    takenBy,
  };
}

/**
 * Whether the message may join the turn: tools act for the person who began it, the answer goes to
 * one place, and what a message refers to must have been fetched before a model sees it.
 */
function joins(waiting: InboundMessage, { message }: TurnState): boolean {
  const { agent, command, references, reply, sender, session } = waiting;
  return (
    command === undefined &&
    references === undefined &&
    !hasOptions(waiting) &&
    !hasOptions(message) &&
    waiting.previousResponseId === undefined &&
    agent === message.agent &&
    session === message.session &&
    sender.id === message.sender.id &&
    reply.channel === message.reply.channel
  );
}

/** Its answer has a form of its own, or its requests have options that other messages do not ask for. */
function hasOptions({ output, model }: InboundMessage): boolean {
  return output !== undefined || model !== undefined;
}

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
  const { turn: next, numbers, events } = withStep(turn, step, env);
  const decided = hasCompleteCalls(step)
    ? openRound(
        withText(next, shownTextOf(step.text, env.abilities, env.known)),
        { step: withoutCutCalls(step), numbers },
        env,
      )
    : finalAnswer(next, step, { env, numbers });
  return ofNextAgent({ ...decided, events: [...events, ...decided.events] }, env);
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

/**
 * Whether a call was cut off: at the length limit the last one may have ended before its arguments.
 */
function isCutCall(
  { name, arguments: text }: ToolCall,
  stopReason: StepResult["stopReason"],
): boolean {
  if (stopReason === "tool_use") return false;
  return (
    name === "" || !parseArguments(text).ok || (stopReason === "max_tokens" && text.trim() === "")
  );
}

/** What the model is offered now: tools, and calls of abilities, whose names no tool can have. */
export function offeredSpecs(turn: TurnState, env: TurnEnvironment): ToolSpec[] {
  const specs = [...env.tools.values()].map(({ announcement }) => announcement.spec);
  return [
    ...specs.filter(({ name }) => takerOf(name, env) === undefined),
    ...offeredCalls(turn, env),
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
        {
          history: [],
          events: [stepRestart(turn.steps, env.model, turn.requests.putOff?.code ?? "crash")],
        },
        resumed,
      )
    : resumed;
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

// A turn is cancelled: calls that stop first, then its end, with a report of what was done.

/** A cancel of a message that has joined the turn ends the turn: the joined text cannot be removed from it. */
export function isCancelOf(entry: ControlEntry, { turnId, absorbed }: TurnState): boolean {
  if (entry.type !== "cancel") return false;
  return entry.turnId === undefined || entry.turnId === turnId || absorbed.includes(entry.turnId);
}

/** Ends a cancelled turn, once the calls that stop first have ended: so nothing of it runs any more when it says so. */
function stopTurn(turn: TurnState, reason: string, env: TurnEnvironment): Transition {
  const calls = stoppedFirst(turn, env.abilities);
  if (calls.length === 0) return cancelTurn(turn, reason, env);
  return {
    turn: { ...turn, stopping: reason },
    history: [],
    events: [],
    next: { do: "stop", calls },
  };
}

/** What the model reads as the result of a call that was broken off. */
const reasonsForModel: Readonly<Record<CancelReason, string>> = {
  stopped: "the user stopped this turn",
  recalled: "the user took the message back",
  superseded: "the user wrote a newer message",
  cancelled: "this turn was cancelled",
};

/**
 * Ends the turn because it was cancelled. The text of the aborted step stays, in the reply and in history. The reply
 * lists the calls that were stopped and those that had finished.
 */
function cancelTurn(turn: TurnState, wanted: string, env: TurnEnvironment): Transition {
  const reason = knownReason(wanted);
  const cancelled = `cancelled: ${reasonsForModel[reason]}.`;
  const words = {
    maybeRun: `${cancelled} If the call had started, it may have taken effect.`,
    notRun: `${cancelled} The call was not run.`,
  };
  const { stopping: _stopping, ...rest } = turn;
  const closed = closeRound(rest, words, env);
  const reply = cancelReport(turn, reason, languageOfMessage(turn.message, env.texts));
  const live = turn.calls.length === 0 ? env.live : undefined;
  const said = live?.text ?? "";
  const used =
    turn.calls.length > 0
      ? { turn: closed.turn, events: [] }
      : withUnanswered(
          closed.turn,
          { text: said, use: live?.broken?.use, step: live?.broken ?? {} },
          env,
        );
  const parts = live === undefined ? [] : [{ type: "thinking" as const, text: live.thinking }];
  const thought = { parts, thinkingMs: live?.thinkingMs };
  const shown = shownTextOf(said, env.abilities, env.known);
  return endDone(withText(withThinking(used.turn, thought), shown), {
    history: answering(turn, [...closed.history, assistantText(joinedTexts(said, reply))]),
    events: [...closed.events, ...used.events],
    reply,
    reason: "cancelled",
    final: live === undefined ? (turn.round?.step.text ?? "") : said,
  });
}

function knownReason(reason: string): CancelReason {
  return cancelReasons.find((known) => known === reason) ?? "stopped";
}
