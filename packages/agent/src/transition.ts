import { languageOfMessage, joinedTexts } from "./messages.ts";
import {
  agentOfTurn,
  type Approval,
  type CallState,
  type EngineEvent,
  type Message,
  type OutputForm,
  type PersonMessage,
  type ReplyLanguage,
  type TurnState,
  type Usage,
  newEngineError,
  errorCodes,
  type ErrorCode,
  type EventOf,
  traceIdOf,
  traceparentOfMessage,
  type ReplyFooter,
  type ReplyView,
  type SchemaCheck,
  withoutImageMarks,
  type CallTiming,
  builtInRunner,
  sendFileName,
  todoToolName,
  type ShownMemory,
  type ShownTodo,
  type ShownSoFar,
  type ShownTool,
  type EndTexts,
  type ToolOutcome,
} from "@larkline/protocol";
import type { ModelInfo } from "@larkline/model";
import type { AddressContext, Question, Verdict } from "./permissions/index.ts";
import type { StepResult } from "./step.ts";
import type { HelperFacts } from "./helper.ts";
import type { TransferTarget } from "./transfer.ts";
import type { TeamFacts } from "./team.ts";
import type { QuestionSettings } from "./question.ts";
import { isQuestion, type OfferedTool, plainResultText } from "./tool-call.ts";
import { noticeText, type NoticeName, exhaustedText, textHead, textTail } from "./texts/index.ts";

/*
 * How turns end. Every ending leaves an assistant text in history, so that the user message is
 * answered and the next turn begins well.
 *
 *   ending            stored text            reply                  last event
 *   answer            the text               the text               done, reason ""
 *   blank answer      notice                 notice                 done, reason ""
 *   refusal           the text, or notice    text and notice        done, refusal
 *   not of its form   the text               the text               done, output_invalid
 *   length limit      the text, or notice    text and notice        done, max_tokens
 *   ... inside a call text and notice        text and notice        done, max_tokens
 *   calls dropped     text and notice        text and notice        done, reason ""
 *   step limit        fixed text             last text, fixed text  done, max_turns_reached
 *   team: its words   the text               the text               done, reason ""
 *   team: its limit   the text               text and notice        done, team_limit
 *   cancel            live text and notice   notice                 done, cancelled
 *   model failure     notice                 notice                 error, the failure's code
 *   budget spent      notice                 notice                 error, budget_exceeded
 *   agent paused      notice                 notice                 error, permission_denied
 *   given up          notice                 notice                 error, internal_error
 *
 * `shown.text` of the turn that ended is what a person saw before the reply: the last step's text
 * is in it only where the reply does not repeat it.
 */

/** A decision. Write `turn`, `history` and `events` together, then do `next`. */
export interface Transition {
  turn: TurnState;
  /** Messages to append. */
  history: Message[];
  events: EngineEvent[];
  next: NextAction;
  /** Approvals of calls that wait from now on; they are created by the same write. */
  approvals?: Approval[];
  /** Waiting messages that have joined this turn, and their runs, which end here. */
  absorbed?: AbsorbedMessage[];
  /**
   * The context of models from now on: `summary`, if given, and the last `keep` messages, including those
   * of this write. Save it before other messages are added to the history.
   */
  context?: { keep: number; summary?: Message };
  /** The choices of the session from now on. */
  settings?: SessionChoices;
  /** Another agent answers from now on, or is to be chosen: the write comes before the next request to a model. */
  handedOver?: true;
}

/** Choices of a session that outlive its turns. */
export interface SessionChoices {
  /** `<provider>/<id>` in place of the agent's model. */
  model?: string;
  /** The agent that answers in messages that are for the agent `from`. */
  agent?: { from: string; to: string };
}

/** A message that has become part of the turn of another one. */
export interface AbsorbedMessage {
  seq: number;
  runId: string;
  person: PersonMessage;
}

/** What the worker does after it has saved a transition. */
export type NextAction =
  /** Run a model step on the whole history, then call `afterStep`. */
  | { do: "model" }
  /** Hand these calls to their runners, then wait for entries. */
  | { do: "tools"; calls: CallState[]; wait: true }
  /** Tell these helpers to stop, then wait for entries: the turn is cancelled, and ends when they have. */
  | { do: "stop"; calls: CallState[] }
  /** Nothing to start: wait for entries. */
  | { do: "wait" }
  /** Compact the conversation because a person asked for it, then call `commandDone`. */
  | { do: "compact" }
  /** Ask the model of the team who speaks next, then call `speakerChosen`. */
  | { do: "choose" }
  /** The turn is over. `reply` is the text for the person; `reason` as in the `done` event, or the error's code. */
  | { do: "finish"; reply: string | undefined; reason: string };

/** What a decision depends on besides the turn itself. */
export interface TurnEnvironment {
  nowMs: number;
  limits: TurnLimits;
  tools: ReadonlyMap<string, OfferedTool>;
  callPolicy: CallPolicy;
  schemas: SchemaFacts;
  /** Notes of earlier conversations are in the request: text of others, which may name addresses. */
  readsNotes?: boolean;
  model: TurnModel;
  /** The hand-overs of the agent that answers, by the name of their call; absent where it has none. */
  transfers?: ReadonlyMap<string, TransferTarget>;
  /** The team that answers; absent where a single agent does. */
  team?: TeamFacts;
  /** Of an agent that may ask people; absent where it may not. */
  questions?: QuestionSettings;
  /** How long people may take over what the server of a call asks, ms; absent: they are not asked. */
  serverQuestionsMs?: number;
  /** The helpers that it may call; absent where it has none. */
  helpers?: HelperFacts;
  /** The form that the answer is to have; absent: free text. */
  output?: OutputForm;
  /** Language of notices; without it that of the user's message. */
  texts?: ReplyLanguage;
  /** The conversation so far. With it no call gets an id that an earlier turn used. */
  history?: readonly Message[];
  /** Turns of other people are set aside and wait for answers. Their held steps are not in the history yet. */
  othersWait?: boolean;
  /** Output of the aborted model step; a cancel keeps it. */
  live?: LiveStep;
}

/** Bounds of one turn. */
export interface TurnLimits {
  /** Model steps per turn, whatever happens in between. */
  maxIterations: number;
  /** Calls of one step that are run; the rest get an error result. */
  maxCallsPerStep: number;
  /** Calls of one step that people are asked about; further ones get an error result. */
  maxQuestionsPerStep: number;
  /** Longest time one call may run, in ms, whatever its tool announces. */
  toolTimeoutMs: number;
  /** Time a call may wait for a runner, in ms, on top of its running time. */
  toolWaitMs: number;
  /** Longest tool result the model gets, in characters; the rest is cut off with a marker. */
  maxResultChars: number;
  /** Longest results of one step together, shared equally by its calls. */
  maxStepResultChars: number;
  /** Later messages that may join one turn, so that a busy chat cannot keep it running. */
  maxAbsorbed: number;
  /** Rejections in one turn after which further calls are refused without asking. */
  maxDenials: number;
  /** Hand-overs of one turn. */
  maxTransfers: number;
  /** Helpers that one turn may call. */
  maxHelpers: number;
  /** Model steps of a person's message and of all helpers below it, where it has any. */
  maxStepsWithHelpers: number;
}

/**
 * The policy of the deployment for the person, chat and time of the turn. Must not throw. In a worker it is
 * `TurnPolicy` (apps/agent-worker/src/call-policy.ts), which asks `decideCall` (permissions/decide-call.ts).
 */
export interface CallPolicy {
  /** Whether a call runs, needs an approval or is refused. `name` is one of the offered tools. */
  verdict(call: WantedCall): Verdict;
  /** The question to people about a `once` call that may have taken effect. Undefined: the model learns that the outcome is unknown. */
  unknownOutcome(call: WantedCall): Question | undefined;
}

/**
 * Whether values fit schemas that others wrote. A decision runs none of them: where the driver does not know the answer
 * yet it gives any, finds it out, and decides again.
 */
export interface SchemaFacts {
  check(schema: object, value: unknown): SchemaCheck;
}

/** A tool call as the policy sees it. */
export interface WantedCall {
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** Addresses that people named, and whether text from outside was read. */
  readonly addressContext?: AddressContext;
}

/** The model of a turn: facts, and the price of what it used. */
export interface TurnModel {
  info: Pick<ModelInfo, "id" | "contextWindow" | "maxOutputTokens">;
  /** USD; `model` is the one that answered, when it said so (a fallback may differ from `info`). */
  costUsd(usage: Usage, model?: string): number;
}

/** The step that is streaming right now. */
export interface LiveStep {
  text: string;
  thinking: string;
  /** Its usage, set once it was aborted. */
  broken?: Pick<StepResult, "use" | "model" | "maxTokens">;
}

/** The records that a decision adds to the session. */
export type Records = Pick<Transition, "history" | "events">;

/** The transition with `records` in front of its own. */
export function after(records: Records, transition: Transition): Transition {
  return {
    ...transition,
    history: [...records.history, ...transition.history],
    events: [...records.events, ...transition.events],
  };
}

/** Fills in defaults. Throws when a limit is not a whole number above 0, naming it and its value. */
export function turnLimits(partial: Partial<TurnLimits> = {}): TurnLimits {
  const limits = { ...defaults, ...partial };
  for (const [name, value] of Object.entries(limits)) {
    if (Number.isSafeInteger(value) && value >= 1) continue;
    throw newEngineError("internal_error", `${name} must be a whole number of at least 1, got ${String(value)}.`, {
      suggestion: `Correct ${name} in the configuration.`,
    });
  }
  return limits;
}

/** Characters one of `calls` results of a step may have. */
export function resultShare(limits: TurnLimits, calls: number): number {
  return Math.max(1, Math.min(limits.maxResultChars, Math.floor(limits.maxStepResultChars / Math.max(1, calls))));
}

/** The end of a turn in a `done` event: an answer, a limit or a cancel. */
export interface DoneEnding {
  history: Message[];
  events: EngineEvent[];
  reply: string;
  /** Empty for a normal end. */
  reason: string;
  /** Text of the last model step. */
  final: string;
  /** The value of an answer that has a form. */
  output?: { value: unknown; form: OutputForm };
  /** The notice that is part of the reply. */
  notice?: NoticeName;
  /** The notice as the history holds it behind the answer. */
  historyNote?: string;
  /** The words by which a member of a team has ended it. */
  mention?: string;
}

/** Ends the turn with its `done` event, the last one of the run. */
export function endDone(turn: TurnState, ending: DoneEnding): Transition {
  const { reason, final, output, reply, notice, historyNote, mention } = ending;
  const texts = {
    ...endTextsOf(turn, reply, final),
    ...(notice === undefined ? {} : { notice }),
    ...(historyNote === undefined ? {} : { historyNote }),
  };
  const said = mention === undefined ? {} : { mention };
  const done: EventOf<"done"> = {
    type: "done",
    ...countsOf(turn),
    reason,
    final,
    ...structured(output),
    ...said,
    ...texts,
  };
  return {
    turn: withoutCalls(turn),
    history: ending.history,
    events: [...ending.events, done],
    next: { do: "finish", reply: ending.reply, reason: ending.reason },
  };
}

/** What people read that the event does not say otherwise. */
function endTextsOf(turn: TurnState, reply: string, said: string): EndTexts {
  const notes = notesOf(turn);
  return { ...(reply === said || reply === "" ? {} : { reply }), ...(notes.length === 0 ? {} : { notes }) };
}

function structured(output: DoneEnding["output"]): Pick<EventOf<"done">, "output" | "outputName" | "outputFormat"> {
  if (output === undefined) return {};
  const { name, format } = output.form;
  return { output: output.value, outputName: name, ...(format === undefined ? {} : { outputFormat: format }) };
}

/** What a process has to know to continue the turn: what its message asks for, which agent answers, and `features`. */
export function needsOf(
  { message, agent, calls, team, helpers, revision }: TurnState,
  ...features: string[]
): string[] {
  const { output, model, task } = message;
  const hasOptions = output !== undefined || model !== undefined;
  const handsOver = agent !== undefined || calls.some(({ handoff }) => handoff !== undefined);
  const asks = calls.some((call) => isQuestion(call) && call.state !== "done");
  const hasServerQuestion = calls.some(({ input, state }) => input !== undefined && state !== "done");
  return [
    ...(hasOptions ? ["run-options"] : []),
    ...(handsOver ? ["hand-over"] : []),
    ...(team === undefined ? [] : ["team"]),
    ...(asks ? ["question"] : []),
    ...(task !== undefined || helpers !== undefined ? ["helpers"] : []),
    ...(hasServerQuestion ? ["server-question"] : []),
    ...(calls.some(isSending) ? ["send-file"] : []),
    ...(revision === undefined ? [] : ["agent-versions"]),
    ...features,
  ];
}

function isSending({ name, runner, state }: CallState): boolean {
  return name === sendFileName && runner === builtInRunner && state !== "done";
}

/** The turn in a state that needs no more than its message does. */
export function withNeeds({ needs: _needs, ...turn }: TurnState): TurnState {
  const needs = needsOf(turn);
  return needs.length === 0 ? turn : { needs, ...turn };
}

/** Ended calls have been copied to `shown` before. */
function withoutCalls({
  openStep: _openStep,
  putOff: _putOff,
  held: _held,
  needs: _needs,
  ...turn
}: TurnState): TurnState {
  return { ...turn, calls: [] };
}

/** The end of a turn in an `error` event. */
interface ErrorEnding {
  history: Message[];
  events: EngineEvent[];
  reply: string;
  error: Omit<EventOf<"error">, "type">;
  /** What the run is counted as; absent: the code of the error. */
  reason?: string;
}

/** Ends the turn with its `error` event, the last one of the run. */
export function endError(turn: TurnState, ending: ErrorEnding): Transition {
  const texts = endTextsOf(turn, ending.reply, ending.error.message);
  return {
    turn: withoutCalls(turn),
    history: ending.history,
    events: [...ending.events, { type: "error", ...ending.error, ...countsOf(turn), ...texts }],
    next: { do: "finish", reply: ending.reply, reason: ending.reason ?? ending.error.code },
  };
}

/** The fields of an `error` event from our own table. */
export function errorOf(code: ErrorCode, message: string): Omit<EventOf<"error">, "type"> {
  return { code, message, ...errorCodes[code] };
}

/** A notice in the language of the turn. */
export function noticeFor(turn: TurnState, name: NoticeName, texts: ReplyLanguage | undefined): string {
  return noticeText(name, languageOfMessage(turn.message, texts));
}

/** An assistant message of text alone. */
export function assistantText(text: string): Extract<Message, { role: "assistant" }> {
  return { role: "assistant", content: [{ type: "text", text }] };
}

/** The messages that an ending stores: none for a command, because models never see commands. */
export function answering({ message }: TurnState, history: Message[]): Message[] {
  return message.command === undefined ? history : [];
}

const defaults: TurnLimits = {
  maxIterations: 25,
  maxCallsPerStep: 64,
  maxQuestionsPerStep: 10,
  toolTimeoutMs: 600_000,
  toolWaitMs: 30_000,
  maxResultChars: 50_000,
  maxStepResultChars: 200_000,
  maxAbsorbed: 10,
  maxDenials: 3,
  maxTransfers: 8,
  maxHelpers: 16,
  maxStepsWithHelpers: 64,
};

/** The usage of the run, for its last event. */
function countsOf({ totals, steps }: TurnState) {
  return {
    totalInputTokens: totals.inputTokens,
    totalOutputTokens: totals.outputTokens,
    totalCacheReadTokens: totals.cacheReadTokens ?? 0,
    totalCacheCreationTokens: totals.cacheCreationTokens ?? 0,
    totalCostUsd: totals.costUsd,
    turnCount: steps,
  };
}

// What people see of a turn: the view of a running one, that of its end, and what finished steps have added.

/** What a view shows besides the answer, and in which words. */
export interface ViewOptions {
  show: {
    thinking: boolean;
    tools: boolean;
    model: boolean;
    tokens: boolean;
    cost: boolean;
    seconds: boolean;
    trace: boolean;
  };
  language: ReplyLanguage;
  /** The texts are sent in both languages. Default: no. */
  bilingual?: boolean;
  nowMs: number;
  /** Name of the model, as the footer shows it. */
  model: string;
  /** What the deployment adds to the footer. */
  footer?: { [Part in "line" | "consoleUrl" | "currency"]?: ReplyFooter[Part] | undefined };
  /** The agent that answers, where the footer names it. */
  agent?: string;
  /** Whether a running reply has a stop button. */
  stoppable: boolean;
  /** Cards that a reply may take; absent: as many as it needs. */
  maxCards?: number;
  /** Id of the model that answered, where people may rate the answer. */
  ratedModel?: string | undefined;
}

/**
 * What the person sees while the turn runs: the finished steps, and the one that is streaming. The
 * answer only grows, over steps and crashes, except that a step that begins anew takes its own text back.
 */
export function runningView(turn: TurnState, live: LiveStep | undefined, options: ViewOptions): ReplyView {
  const { text, thinking } = shownOf(turn);
  return {
    v: 1,
    ...sharedOf(options),
    state: "running",
    ...seen(turn, shownThinking(thinking, live?.thinking ?? ""), options),
    answer: joinedTexts(text, live?.text ?? ""),
    footer: runningFooter(options),
    ...(options.stoppable ? { stop: { session: turn.message.session, turnId: turn.turnId } } : {}),
  };
}

/** The agent that answers; the last footer adds what the answer took. */
function runningFooter({ agent }: ViewOptions): ReplyFooter {
  return agent === undefined ? {} : { agent };
}

/**
 * What stays of the reply. `turn` is that of the transition that finished it, `end` its `next`. The
 * answer ends with the reply, and begins with what the running views showed whenever the last step
 * ended by itself or was cancelled with its live text.
 */
export function finalView(turn: TurnState, end: { reply: string; reason: string }, options: ViewOptions): ReplyView {
  const { text, thinking } = shownOf(turn);
  return {
    v: 1,
    ...sharedOf(options),
    state: stateOf(end.reason),
    ...seen(turn, thinking, options),
    answer: joinedTexts(text, inLanguage(end.reply, options.language)),
    footer: finalFooter(turn, options),
    ...againOf(turn, end.reason),
    ...ratedOf(turn, end.reason, options),
  };
}

const maxRatedTools = 8;

/** What people rate: an answer, not a notice of how a turn has ended. */
function ratedOf(turn: TurnState, reason: string, { ratedModel }: ViewOptions): Pick<ReplyView, "rated"> {
  if (ratedModel === undefined || turn.steps === 0 || turn.message.command !== undefined) return {};
  if (stateOf(reason) !== "answered" || reason === "budget_exceeded") return {};
  const tools = [...new Set(shownOf(turn).tools.map(({ name }) => name))].slice(0, maxRatedTools);
  return { rated: { turn: turn.turnId, agent: agentOfTurn(turn), model: ratedModel, tools } };
}

/** Reasons of endings after which the person may ask for more. */
const limitReasons: ReadonlySet<string> = new Set(["max_tokens", "max_turns_reached"]);

function againOf({ turnId, message }: TurnState, reason: string): Pick<ReplyView, "again"> {
  const { session, sender, chatType, reply, command } = message;
  const wish = limitReasons.has(reason) ? "continue" : stateOf(reason) === "failed" ? "retry" : undefined;
  const isChat = reply.channel === "feishu" && chatType !== "api";
  if (wish === undefined || !isChat || command !== undefined) return {};
  const { messageId, chatId, inThread } = reply;
  return { again: { wish, session, turnId, person: sender.id, messageId, chatId, chatType, inThread } };
}

/** Reasons of endings in which the model had its say. */
const answeredReasons: ReadonlySet<string> = new Set([
  "",
  "max_tokens",
  "refusal",
  "max_turns_reached",
  "output_invalid",
  "team_limit",
  // Nothing is broken: the text says when the budget renews.
  "budget_exceeded",
]);

function stateOf(reason: string): ReplyView["state"] {
  if (reason === "cancelled") return "stopped";
  return answeredReasons.has(reason) ? "answered" : "failed";
}

/** The loop's own words, which are fixed elsewhere, in the language of the person. */
export function inLanguage(reply: string, language: ReplyLanguage): string {
  if (!reply.endsWith(exhaustedText)) return reply;
  return `${reply.slice(0, -exhaustedText.length)}${noticeText("exhausted", language)}`;
}

/** Costs of models without a known price are 0: such a footer has none. */
function finalFooter(turn: TurnState, options: ViewOptions): ReplyFooter {
  const { totals, startedAtMs, waitedMs = 0 } = turn;
  const notes = notesOf(turn);
  const { show, nowMs, model, footer = {} } = options;
  const { line, consoleUrl, currency } = footer;
  const { inputTokens, outputTokens } = totals;
  return {
    ...runningFooter(options),
    ...(show.model ? { model } : {}),
    ...(show.trace ? { traceId: traceIdOf(traceparentOfMessage(turn.message)) } : {}),
    ...(show.trace && consoleUrl !== undefined ? { consoleUrl } : {}),
    ...(line === undefined ? {} : { line }),
    ...(show.cost && totals.costUsd > 0 && currency !== undefined ? { currency } : {}),
    ...(show.tokens && inputTokens + outputTokens > 0 ? { inputTokens, outputTokens } : {}),
    ...(show.cost && totals.costUsd > 0 ? { costUsd: totals.costUsd } : {}),
    ...(show.seconds ? { seconds: Math.max(0, nowMs - startedAtMs - waitedMs) / 1_000 } : {}),
    ...(notes.length === 0 ? {} : { note: notes.join(" · ") }),
  };
}

/** The notes that the person sees beside the answer. */
export function notesOf({ budgetNote, notes = [] }: TurnState): string[] {
  return budgetNote === undefined ? notes : [...notes, budgetNote];
}

const nothing: ShownSoFar = { text: "", thinking: "", tools: [], earlierTools: 0 };

/** What the person has seen of the finished steps of a turn; checkpoints of an earlier version lack it. */
export function shownOf({ shown }: TurnState): ShownSoFar {
  return shown ?? nothing;
}

const maxThinkingChars = 2_000;

/** The end of all thinking, as much as is shown. */
function shownThinking(earlier: string, more: string): string {
  return more === "" ? earlier : textTail(joinedTexts(earlier, more), maxThinkingChars);
}

/** The turn with more text shown. */
export function withText(turn: TurnState, text: string): TurnState {
  const shown = shownOf(turn);
  return { ...turn, shown: { ...shown, text: joinedTexts(shown.text, text) } };
}

/** Takes back the text that {@link withText} added last, for an ending whose reply repeats it. */
export function withoutText(turn: TurnState, text: string): TurnState {
  const shown = shownOf(turn);
  if (text.trim() === "" || !shown.text.endsWith(text)) return turn;
  const before = shown.text.slice(0, -text.length);
  return { ...turn, shown: { ...shown, text: before.endsWith("\n\n") ? before.slice(0, -2) : "" } };
}

/** The turn with what a finished step thought. */
export function withThinking(turn: TurnState, { parts }: Pick<StepResult, "parts">): TurnState {
  const shown = shownOf(turn);
  const thinking = parts.reduce(
    (all, { type, text }) => (type === "thinking" ? shownThinking(all, text) : all),
    shown.thinking,
  );
  return { ...turn, shown: { ...shown, thinking } };
}

const maxTools = 20;

/** What is shown, with calls that have just ended; the oldest are only counted. */
export function withTools(shown: ShownSoFar, ended: readonly ShownTool[]): ShownSoFar {
  const tools = [...shown.tools, ...ended];
  const dropped = Math.max(0, tools.length - maxTools);
  return { ...shown, tools: tools.slice(dropped), earlierTools: shown.earlierTools + dropped };
}

const maxMemories = 5;

/** What is shown, with memories that calls have just written. */
export function withMemories(shown: ShownSoFar, written: readonly ShownMemory[]): ShownSoFar {
  return written.length === 0
    ? shown
    : { ...shown, memories: [...(shown.memories ?? []), ...written].slice(-maxMemories) };
}

/** When a call ended, and how. */
interface EndedFacts {
  nowMs: number;
  stopped: boolean;
  timing?: CallTiming | undefined;
}

/** What is shown, with the to-do list that a call of a built-in tool has written, if it did. An empty one is none. */
export function withTodos(shown: ShownSoFar, { name }: CallState, outcome: ToolOutcome): ShownSoFar {
  if (name !== todoToolName || !outcome.ok) return shown;
  const { todos } = outcome.result as { todos: ShownTodo[] }; // workers alone answer calls of their own tools
  const { todos: _before, ...rest } = shown;
  return todos.length === 0 ? rest : { ...rest, todos };
}

const maxOutputChars = 500;

/** A call that has ended, as the person sees it. */
export function endedTool(call: CallState, outcome: ToolOutcome, facts: EndedFacts): ShownTool {
  const ended = outcome.ok ? "done" : "failed";
  return {
    id: call.id,
    name: call.name,
    ...wordsOf(call),
    state: facts.stopped && call.state !== "waiting_approval" ? "stopped" : ended,
    startedAtMs: call.startedAtMs ?? facts.nowMs,
    ...durationOf(call, facts),
    output: textHead(withoutImageMarks(plainResultText(outcome)), maxOutputChars),
  };
}

const maxTaskChars = 80;

function wordsOf({ words, helper, arguments: given }: CallState): Pick<ShownTool, "words" | "helper"> {
  const shown = words === undefined ? {} : { words };
  if (helper === undefined) return shown;
  const task = typeof given["task"] === "string" ? given["task"] : JSON.stringify(given);
  return { ...shown, helper: { agent: helper.agent, task: textHead(task.trim(), maxTaskChars) } };
}

/** All shown calls: those of earlier rounds, then those of the open round in the order of the model. */
function toolsNow(turn: TurnState, nowMs: number): ShownTool[] {
  const { tools } = shownOf(turn);
  const ofRound = new Set(turn.calls.map(({ id }) => id));
  const round = turn.calls.flatMap((call): ShownTool[] => {
    const ended = tools.find(({ id }) => id === call.id);
    if (ended !== undefined) return [ended];
    if (call.state === "done") return [];
    const wait = call.helper?.wait;
    const state = call.state === "running" && wait === undefined ? "running" : "waiting";
    const isAway = state === "running" && call.runnerIsAway === true;
    const startedAtMs = call.startedAtMs ?? nowMs;
    const shown = { id: call.id, name: call.name, ...wordsOf(call), state, startedAtMs } as const;
    if (shown.helper === undefined || wait === undefined) return [{ ...shown, ...(isAway ? { isAway } : {}) }];
    return [{ ...shown, helper: { ...shown.helper, wait: { about: wait.about, tool: wait.tool } } }];
  });
  return [...tools.filter(({ id }) => !ofRound.has(id)), ...round];
}

type Seen = Omit<ReplyView, "v" | "language" | "bilingual" | "state" | "answer" | "footer">;

function seen(turn: TurnState, thinking: string, { show, nowMs }: ViewOptions): Seen {
  const { memories = [], todos } = shownOf(turn);
  return {
    ...(todos === undefined ? {} : { todos }),
    ...contributionsSeen(turn),
    thinking: show.thinking ? thinking : "",
    tools: show.tools ? toolsNow(turn, nowMs) : [],
    earlierTools: show.tools ? shownOf(turn).earlierTools : 0,
    ...(memories.length === 0 ? {} : { memories: { session: turn.message.session, list: memories } }),
  };
}

/** What members of a team have said before the answer, and whose words the answer has. */
function contributionsSeen({ team, agent, shown }: TurnState): Pick<ReplyView, "contributions"> {
  const list = shown?.contributions ?? [];
  if (team === undefined || (list.length === 0 && team.said > 0)) return {};
  const speaker = team.choosing === true ? undefined : agent;
  const earlier = Math.max(0, team.said - list.length);
  return { contributions: { list, earlier, ...(speaker === undefined ? {} : { speaker }) } };
}

function sharedOf({
  maxCards,
  language,
  bilingual,
}: ViewOptions): Pick<ReplyView, "maxCards" | "language" | "bilingual"> {
  return { language, ...(bilingual === true ? { bilingual } : {}), ...(maxCards === undefined ? {} : { maxCards }) };
}

/** How long it took; nothing of a call that ended while it waited for people. */
function durationOf(call: CallState, { nowMs, timing }: EndedFacts): Pick<ShownTool, "elapsedMs" | "queuedMs"> {
  if (call.state !== "running") return {};
  const elapsedMs = Math.max(0, nowMs - (call.startedAtMs ?? nowMs));
  return timing === undefined ? { elapsedMs } : { elapsedMs, queuedMs: Math.min(elapsedMs, timing.queuedMs) };
}
