import {
  traceIdOf,
  traceparentOfMessage,
  type ReplyFooter,
  type ReplyLanguage,
  type ReplyView,
  type TurnState,
} from "@larkline/protocol";
import { exhaustedText, noticeText } from "./notice.ts";
import { shownOf, shownThinking, toolsNow } from "./shown-so-far.ts";
import { joinedTexts } from "./text-cut.ts";
import type { LiveStep } from "./turn-environment.ts";

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

/** The loop's own words, which are fixed elsewhere, in the language of the card. */
function inLanguage(reply: string, language: ReplyLanguage): string {
  if (!reply.endsWith(exhaustedText)) return reply;
  return `${reply.slice(0, -exhaustedText.length)}${noticeText("exhausted", language)}`;
}

function runningFooter({ message }: TurnState, { show, model }: ViewOptions): ReplyFooter {
  const traceId = traceIdOf(traceparentOfMessage(message));
  return { ...(show.model ? { model } : {}), ...(show.trace ? { traceId } : {}) };
}

/** What the person is told beside the answer. */
export function notesOf({ budgetNote, notes = [] }: TurnState): string[] {
  return budgetNote === undefined ? notes : [...notes, budgetNote];
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
