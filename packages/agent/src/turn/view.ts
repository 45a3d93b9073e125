import { answeredBy, panelsOf, seenBeside, seenCallOf, type Ability } from "./ability.ts";
import type { LocalText, ReplyLanguage, CancelReason } from "@larkline/protocol";
import { chartOf } from "@larkline/protocol/chart";
import type { EngineEvent } from "@larkline/protocol/event";
import type { ReplyFooter, ReplyView, ShownTool } from "@larkline/protocol/reply-view";
import { withoutImageMarks } from "@larkline/protocol/stored-image";
import type { CallTiming, ToolOutcome } from "@larkline/protocol/tool";
import { traceIdOf, traceparentOfMessage } from "@larkline/protocol/trace";
import {
  type CallState,
  type ShownSoFar,
  type TurnState,
  agentOfTurn,
} from "@larkline/protocol/turn";
import {
  noticeText,
  textHead,
  textTail,
  exhaustedText,
  textsOf,
  inlineCode,
} from "../texts/index.ts";
import type { LiveStep, StepResult } from "./facts.ts";
import { joinedTexts } from "./messages.ts";
import { plainResultText, isOpen } from "./tool-call.ts";

// What people see of a turn: the view of a running one, that of its end, and what finished steps have added.

/** What a view shows besides the answer, and in which words. */
export interface ViewOptions {
  abilities: readonly Ability[];
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
export function runningView(
  turn: TurnState,
  live: LiveStep | undefined,
  options: ViewOptions,
): ReplyView {
  const { text, thinking, thinkingMs } = turn.shown;
  const thought = {
    thinking: shownThinking(thinking, live?.thinking ?? ""),
    thinkingMs: (thinkingMs ?? 0) + (live?.thinkingMs ?? 0),
  };
  return {
    v: 1,
    ...sharedOf(options),
    state: "running",
    ...seen(turn, thought, options),
    answer: joinedTexts(text, live?.text ?? ""),
    footer: { ...runningFooter(options), ...retryNote(turn, live, options) },
    ...(options.stoppable ? { stop: { session: turn.message.session, turnId: turn.turnId } } : {}),
  };
}

/** The agent that answers; the last footer adds what the answer took. */
function runningFooter({ agent }: ViewOptions): ReplyFooter {
  return agent === undefined ? {} : { agent };
}

/** Says that the model has failed and what comes next, until the model says something again. */
function retryNote(
  { requests: { putOff } }: TurnState,
  live: LiveStep | undefined,
  { language, nowMs }: ViewOptions,
): Pick<ReplyFooter, "note"> {
  const hasSaid = live !== undefined && (live.text !== "" || live.thinking !== "");
  const before = putOff === undefined ? 0 : putOff.used.attempts;
  const waits =
    putOff === undefined || hasSaid ? undefined : { ...putOff, tries: 0, next: undefined };
  const retry = live?.retry ?? waits;
  if (retry === undefined) return {};
  const { code, tries, atMs, next } = retry;
  const isBusy = code === "api_rate_limit" || code === "api_overloaded";
  const what = noticeText(isBusy ? "modelBusy" : "modelAway", language);
  const seconds = Math.ceil((atMs - nowMs) / 1_000);
  const values = { what, tries: before + tries + 1, seconds, model: next ?? "" };
  if (next !== undefined) return { note: noticeText("modelNext", language, values) };
  return { note: noticeText(seconds > 0 ? "modelAgain" : "modelAsked", language, values) };
}

/**
 * What stays of the reply. `turn` is that of the transition that finished it, `end` its `next`. The
 * answer ends with the reply, and begins with what the running views showed whenever the last step
 * ended by itself or was cancelled with its live text.
 */
export function finalView(
  turn: TurnState,
  end: { reply: string; reason: string },
  options: ViewOptions,
): ReplyView {
  const { shown } = turn;
  return {
    v: 1,
    ...sharedOf(options),
    state: stateOf(end.reason),
    ...seen(turn, shown, options),
    answer: joinedTexts(shown.text, inLanguage(end.reply, options.language)),
    footer: finalFooter(turn, options),
    ...againOf(turn, end.reason),
    ...ratedOf(turn, end.reason, options),
  };
}

const maxRatedTools = 8;

/** What people rate: an answer, not a notice of how a turn has ended. */
function ratedOf(
  turn: TurnState,
  reason: string,
  { ratedModel, abilities }: ViewOptions,
): Pick<ReplyView, "rated"> {
  if (ratedModel === undefined || turn.steps === 0 || turn.message.command !== undefined) return {};
  if (stateOf(reason) !== "answered" || reason === "budget_exceeded") return {};
  const tools = [...new Set(turn.shown.tools.map(({ name }) => name))].slice(0, maxRatedTools);
  const agent = answeredBy(turn, abilities) ?? agentOfTurn(turn);
  return { rated: { turn: turn.turnId, agent, model: ratedModel, tools } };
}

/** Reasons of endings after which the person may ask for more. */
const limitReasons: ReadonlySet<string> = new Set(["max_tokens", "max_turns_reached"]);

/** Reasons of endings that another try of the same message would have as well. */
const hopelessReasons: ReadonlySet<string> = new Set([
  "api_auth_error",
  "api_bad_request",
  "context_overflow",
]);

function againOf({ turnId, message }: TurnState, reason: string): Pick<ReplyView, "again"> {
  const { session, sender, chatType, reply, command } = message;
  const mayHelp = stateOf(reason) === "failed" && !hopelessReasons.has(reason);
  const wish = limitReasons.has(reason) ? "continue" : mayHelp ? "retry" : undefined;
  const isChat = reply.channel === "feishu" && chatType !== "api";
  if (wish === undefined || !isChat || command !== undefined) return {};
  const { messageId, chatId, inThread } = reply;
  return {
    again: { wish, session, turnId, person: sender.id, messageId, chatId, chatType, inThread },
  };
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
  const { totals, startedAtMs, waiting } = turn;
  const { notes } = turn.shown;
  const { show, nowMs, model, footer = {} } = options;
  const { line, consoleUrl, currency } = footer;
  const { inputTokens, outputTokens } = totals;
  const agent = answeredBy(turn, options.abilities);
  return {
    ...runningFooter(options),
    ...(agent === undefined || options.agent === undefined ? {} : { agent }),
    ...(show.model ? { model } : {}),
    ...(show.trace ? { traceId: traceIdOf(traceparentOfMessage(turn.message)) } : {}),
    ...(show.trace && consoleUrl !== undefined ? { consoleUrl } : {}),
    ...(line === undefined ? {} : { line }),
    ...(show.cost && totals.costUsd > 0 && currency !== undefined ? { currency } : {}),
    ...(show.tokens && inputTokens + outputTokens > 0 ? { inputTokens, outputTokens } : {}),
    ...(show.cost && totals.costUsd > 0 ? { costUsd: totals.costUsd } : {}),
    ...(show.seconds ? { seconds: Math.max(0, nowMs - startedAtMs - waiting.ms) / 1_000 } : {}),
    ...(notes.length === 0 ? {} : { note: notes.join(" · ") }),
  };
}

/** A view whose agents, which it has by name, are called by their titles. */
export function withAgentTitles(view: ReplyView, titleOf: (name: string) => LocalText): ReplyView {
  const titled = (agent: LocalText): LocalText =>
    typeof agent === "string" ? titleOf(agent) : agent;
  const { tools, contributions, footer } = view;
  return {
    ...view,
    tools: tools.map((tool) =>
      tool.helper === undefined
        ? tool
        : { ...tool, helper: { ...tool.helper, agent: titled(tool.helper.agent) } },
    ),
    footer: footer.agent === undefined ? footer : { ...footer, agent: titled(footer.agent) },
    ...(contributions === undefined
      ? {}
      : {
          contributions: {
            ...contributions,
            list: contributions.list.map((one) => ({ ...one, agent: titled(one.agent) })),
            ...(contributions.speaker === undefined
              ? {}
              : { speaker: titled(contributions.speaker) }),
          },
        }),
  };
}

const maxThinkingChars = 2_000;

/** The end of all thinking, as much as is shown. */
function shownThinking(earlier: string, more: string): string {
  return more === "" ? earlier : textTail(joinedTexts(earlier, more), maxThinkingChars);
}

/** The turn with more text shown. */
export function withText(turn: TurnState, text: string): TurnState {
  const { shown } = turn;
  return { ...turn, shown: { ...shown, text: joinedTexts(shown.text, text) } };
}

/** Takes back the text that {@link withText} added last, for an ending whose reply repeats it. */
export function withoutText(turn: TurnState, text: string): TurnState {
  const { shown } = turn;
  if (text.trim() === "" || !shown.text.endsWith(text)) return turn;
  const before = shown.text.slice(0, -text.length);
  return { ...turn, shown: { ...shown, text: before.endsWith("\n\n") ? before.slice(0, -2) : "" } };
}

/** Times the thinking of a step: from one thought to the next one, or to what comes after it. */
export function timeThinking(live: LiveStep, { type }: Pick<EngineEvent, "type">, nowMs: number) {
  const isThought = type === "thinking_delta";
  const { thoughtAtMs = nowMs, thinkingMs = 0 } = live;
  if (!isThought && live.thoughtAtMs === undefined) return;
  live.thinkingMs = thinkingMs + Math.max(0, nowMs - thoughtAtMs);
  live.thoughtAtMs = isThought ? nowMs : undefined;
}

/** The turn with what a finished step thought. */
export function withThinking(
  turn: TurnState,
  { parts, thinkingMs = 0 }: Pick<StepResult, "parts" | "thinkingMs">,
): TurnState {
  const { shown } = turn;
  const thinking = parts.reduce(
    (all, { type, text }) => (type === "thinking" ? shownThinking(all, text) : all),
    shown.thinking,
  );
  const wholeMs = (shown.thinkingMs ?? 0) + thinkingMs;
  const timed = wholeMs === 0 ? {} : { thinkingMs: wholeMs };
  return { ...turn, shown: { ...shown, thinking, ...timed } };
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
  abilities: readonly Ability[];
  timing?: CallTiming | undefined;
}

const maxOutputChars = 500;

/** A call that has ended, as the person sees it. */
export function endedTool(call: CallState, outcome: ToolOutcome, facts: EndedFacts): ShownTool {
  const ended = outcome.ok ? "done" : "failed";
  return {
    id: call.id,
    name: call.name,
    ...besideTool(call, facts.abilities),
    state: facts.stopped && call.state !== "waiting_approval" ? "stopped" : ended,
    startedAtMs: call.startedAtMs ?? facts.nowMs,
    ...durationOf(call, facts),
    output: textHead(withoutImageMarks(plainResultText(outcome)), maxOutputChars),
    ...chartIn(outcome),
  };
}

/** A tool may return `chart` beside what else it returns. */
function chartIn(outcome: ToolOutcome): Pick<ShownTool, "chart"> {
  const result: unknown = outcome.ok ? outcome.result : undefined;
  if (typeof result !== "object" || result === null || !("chart" in result)) return {};
  const chart = chartOf(result.chart);
  return chart === undefined ? {} : { chart };
}

/** What people read of a call besides its tool; what it waits for ends with it. */
function besideTool(
  call: CallState,
  abilities: readonly Ability[],
): Pick<ShownTool, "words" | "helper"> {
  const words = call.words === undefined ? {} : { words: call.words };
  return { ...words, ...seenCallOf(call, abilities)?.shown };
}

/** All shown calls: those of earlier rounds, then those of the open round in the order of the model. */
function toolsNow(turn: TurnState, { nowMs, abilities }: ViewOptions): ShownTool[] {
  const { tools } = turn.shown;
  const ofRound = new Set(turn.calls.map(({ id }) => id));
  const round = turn.calls.flatMap((call): ShownTool[] => {
    const ended = tools.find(({ id }) => id === call.id);
    if (ended !== undefined) return [ended];
    if (call.state === "done") return [];
    const waits = seenCallOf(call, abilities)?.waits === true;
    const isRunning = call.state === "running" && !waits;
    const by = abilities.find(({ name }) => name === call.askedBy);
    const permissionOf = isRunning ? undefined : by?.permissionOf?.(turn);
    return [
      {
        id: call.id,
        name: call.name,
        ...besideTool(call, abilities),
        state: isRunning ? "running" : "waiting",
        startedAtMs: call.startedAtMs ?? nowMs,
        ...(permissionOf === undefined ? {} : { permissionOf }),
        ...(isRunning && call.runnerIsAway === true ? { isAway: true } : {}),
      },
    ];
  });
  return [...tools.filter(({ id }) => !ofRound.has(id)), ...round];
}

type Seen = Omit<ReplyView, "v" | "language" | "bilingual" | "state" | "answer" | "footer">;

function seen(
  turn: TurnState,
  { thinking, thinkingMs = 0 }: Pick<ShownSoFar, "thinking" | "thinkingMs">,
  options: ViewOptions,
): Seen {
  const { show, abilities } = options;
  const panels = panelsOf(turn, abilities);
  return {
    ...seenBeside(turn, abilities),
    thinking: show.thinking ? thinking : "",
    ...(show.thinking && thinkingMs > 0 ? { thinkingMs } : {}),
    tools: show.tools ? toolsNow(turn, options) : [],
    earlierTools: show.tools ? turn.shown.earlierTools : 0,
    ...(panels.length === 0 ? {} : { panels }),
  };
}

function sharedOf({
  maxCards,
  language,
  bilingual,
}: ViewOptions): Pick<ReplyView, "maxCards" | "language" | "bilingual"> {
  return {
    language,
    ...(bilingual === true ? { bilingual } : {}),
    ...(maxCards === undefined ? {} : { maxCards }),
  };
}

/** How long it took; nothing of a call that ended while it waited for people. */
function durationOf(
  call: CallState,
  { nowMs, timing }: EndedFacts,
): Pick<ShownTool, "elapsedMs" | "queuedMs"> {
  if (call.state !== "running") return {};
  const elapsedMs = Math.max(0, nowMs - (call.startedAtMs ?? nowMs));
  return timing === undefined
    ? { elapsedMs }
    : { elapsedMs, queuedMs: Math.min(elapsedMs, timing.queuedMs) };
}

/**
 * The report of a cancelled turn: why it ended, which calls had finished, and which were aborted, split by whether
 * they may have taken effect. `turn` still has its open calls.
 */
export function cancelReport(
  turn: TurnState,
  reason: CancelReason,
  language: ReplyLanguage,
): string {
  const { cancelled, comma } = textsOf(language);
  const { done, failed, maybe, harmless, helpers, notRun, earlier } = cancelled;
  const { tools, earlierTools } = turn.shown;
  const open = turn.calls.filter(isOpen);
  const handedOut = open.filter(({ state }) => state !== "waiting_approval");
  const lists: [string, string[]][] = [
    [
      done,
      [
        ...(earlierTools > 0 ? [earlier(earlierTools)] : []),
        ...namesOf(tools.filter(({ state }) => state === "done")),
      ],
    ],
    [failed, namesOf(tools.filter(({ state }) => state === "failed"))],
    [maybe, namesOf(handedOut.filter(({ effect }) => effect !== "pure"))],
    [helpers, namesOf(tools.filter(({ state }) => state === "stopped"))],
    [harmless, namesOf(handedOut.filter(({ effect }) => effect === "pure"))],
    [notRun, namesOf(open.filter(({ state }) => state === "waiting_approval"))],
  ];
  const lines = lists
    .filter(([, names]) => names.length > 0)
    .map(([label, names]) => `- ${label}${names.join(comma)}`);
  return [noticeText(reason, language), ...lines].join("\n");
}

function namesOf(items: readonly (CallState | ShownTool)[]): string[] {
  return withCounts(items.map(({ name }) => name));
}

const maxNameChars = 64;

/** Names with how often each occurs, in order of appearance. */
function withCounts(names: readonly string[]): string[] {
  const counts = Map.groupBy(names, (name) => name);
  return [...counts].map(
    ([name, all]) => `${inlineCode(name, maxNameChars)}${all.length > 1 ? ` ×${all.length}` : ""}`,
  );
}
