import {
  traceIdOf,
  traceparentOfMessage,
  type ReplyFooter,
  type ReplyLanguage,
  type ReplyView,
  type TurnState,
  withoutImageMarks,
  type CallState,
  type CallTiming,
  type ShownSoFar,
  type ShownTool,
  type ToolOutcome,
} from "@larkline/protocol";
import { exhaustedText, noticeText, joinedTexts, textHead, textTail } from "./texts/index.ts";
import type { LiveStep } from "./transition.ts";
import type { StepResult } from "./step.ts";
import { resultText } from "./tool-call.ts";

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
  /** Whether a running reply has a stop button. */
  stoppable: boolean;
  /** Cards that a reply may take; absent: as many as it needs. */
  maxCards?: number;
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
    footer: runningFooter(turn, options),
    ...(options.stoppable ? { stop: { session: turn.message.session, turnId: turn.turnId } } : {}),
  };
}

function runningFooter({ message }: TurnState, { show, model }: ViewOptions): ReplyFooter {
  const traceId = traceIdOf(traceparentOfMessage(message));
  return { ...(show.model ? { model } : {}), ...(show.trace ? { traceId } : {}) };
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
  };
}

/** Reasons of endings in which the model had its say. */
const answeredReasons: ReadonlySet<string> = new Set([
  "",
  "max_tokens",
  "refusal",
  "max_turns_reached",
  "output_invalid",
]);

function stateOf(reason: string): ReplyView["state"] {
  if (reason === "cancelled") return "stopped";
  return answeredReasons.has(reason) ? "answered" : "failed";
}

/** The loop's own words, which are fixed elsewhere, in the language of the card. */
function inLanguage(reply: string, language: ReplyLanguage): string {
  if (!reply.endsWith(exhaustedText)) return reply;
  return `${reply.slice(0, -exhaustedText.length)}${noticeText("exhausted", language)}`;
}

/** Costs of models without a known price are 0: such a footer has none. */
function finalFooter(turn: TurnState, options: ViewOptions): ReplyFooter {
  const { totals, startedAtMs, waitedMs = 0 } = turn;
  const notes = notesOf(turn);
  const { show, nowMs } = options;
  const { inputTokens, outputTokens } = totals;
  return {
    ...runningFooter(turn, options),
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
  return textTail(joinedTexts(earlier, more), maxThinkingChars);
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

/** When a call ended, and how. */
interface EndedFacts {
  nowMs: number;
  stopped: boolean;
  timing?: CallTiming | undefined;
}

const maxOutputChars = 500;

/** A call that has ended, as the person sees it. */
export function endedTool(call: CallState, outcome: ToolOutcome, facts: EndedFacts): ShownTool {
  const ended = outcome.ok ? "done" : "failed";
  return {
    id: call.id,
    name: call.name,
    state: facts.stopped && call.state !== "waiting_approval" ? "stopped" : ended,
    startedAtMs: call.startedAtMs ?? facts.nowMs,
    ...durationOf(call, facts),
    output: textHead(withoutImageMarks(resultText(outcome)), maxOutputChars),
  };
}

/** All shown calls: those of earlier rounds, then those of the open round in the order of the model. */
function toolsNow(turn: TurnState, nowMs: number): ShownTool[] {
  const { tools } = shownOf(turn);
  const ofRound = new Set(turn.calls.map(({ id }) => id));
  const round = turn.calls.flatMap((call): ShownTool[] => {
    const ended = tools.find(({ id }) => id === call.id);
    if (ended !== undefined) return [ended];
    if (call.state === "done") return [];
    const state = call.state === "running" ? "running" : "waiting";
    const isAway = state === "running" && call.runnerIsAway === true;
    const startedAtMs = call.startedAtMs ?? nowMs;
    return [{ id: call.id, name: call.name, state, ...(isAway ? { isAway } : {}), startedAtMs }];
  });
  return [...tools.filter(({ id }) => !ofRound.has(id)), ...round];
}

type Seen = Omit<ReplyView, "v" | "language" | "bilingual" | "state" | "answer" | "footer">;

function seen(turn: TurnState, thinking: string, { show, nowMs }: ViewOptions): Seen {
  return {
    thinking: show.thinking ? thinking : "",
    tools: show.tools ? toolsNow(turn, nowMs) : [],
    earlierTools: show.tools ? shownOf(turn).earlierTools : 0,
  };
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
