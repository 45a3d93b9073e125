import {
  type Approval,
  type CallState,
  type EngineEvent,
  type Message,
  type ParseResult,
  type ReplyLanguage,
  type TurnState,
  type Usage,
  newEngineError,
  errorCodes,
  type ErrorCode,
  type EventOf,
} from "@larkline/protocol";
import type { ModelInfo } from "@larkline/model";
import type { AddressContext, Question, Verdict } from "./permissions/index.ts";
import type { StepResult } from "./step.ts";
import type { OfferedTool } from "./tool-call.ts";
import { languageOfMessage, noticeText, type NoticeName } from "./texts/index.ts";

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
 *   cancel            live text and notice   notice                 done, cancelled
 *   model failure     notice                 notice                 error, the failure's code
 *   budget spent      notice                 notice                 error, budget_exceeded
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
  absorbed?: { seq: number; runId: string }[];
  /**
   * The context of models from now on: `summary`, if given, and the last `keep` messages, including those
   * of this write. Save it before other messages are added to the history.
   */
  context?: { keep: number; summary?: Message };
  /** The choices of the session from now on. */
  settings?: { model?: string };
}

/** What the worker does after it has saved a transition. */
export type NextAction =
  /** Run a model step on the whole history, then call `afterStep`. */
  | { do: "model" }
  /** Hand these calls to their runners, then wait for entries. */
  | { do: "tools"; calls: CallState[]; wait: true }
  /** Nothing to start: wait for entries. */
  | { do: "wait" }
  /** Compact the conversation because a person asked for it, then call `commandDone`. */
  | { do: "compact" }
  /** The turn is over. `reply` is the text for the person; `reason` as in the `done` event, or the error's code. */
  | { do: "finish"; reply: string | undefined; reason: string };

/** What a decision depends on besides the turn itself. */
export interface TurnEnvironment {
  nowMs: number;
  limits: TurnLimits;
  tools: ReadonlyMap<string, OfferedTool>;
  judge: CallJudge;
  model: TurnModel;
  /** Reads the answer of an agent with an output schema; see `outputReader`. */
  output?: (text: string) => ParseResult<unknown>;
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
}

/** The policy of the deployment for the person, chat and time of the turn. Must not throw. */
export interface CallJudge {
  /** Whether a call runs, needs an approval or is refused. `name` is one of the offered tools. */
  verdict(call: WantedCall): Verdict;
  /** The question to people about a `once` call that may have taken effect. Undefined: the model learns that the outcome is unknown. */
  unknownOutcome(call: WantedCall): Question | undefined;
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
interface DoneEnding {
  history: Message[];
  events: EngineEvent[];
  reply: string;
  /** Empty for a normal end. */
  reason: string;
  /** Text of the last model step. */
  final: string;
  /** The value of an answer with an output schema. */
  output?: unknown;
}

/** Ends the turn with its `done` event, the last one of the run. */
export function endDone(turn: TurnState, ending: DoneEnding): Transition {
  const { reason, final, output } = ending;
  const structured = output === undefined ? {} : { output };
  const done: EventOf<"done"> = { type: "done", ...countsOf(turn), reason, final, ...structured };
  return {
    turn: withoutCalls(turn),
    history: ending.history,
    events: [...ending.events, done],
    next: { do: "finish", reply: ending.reply, reason: ending.reason },
  };
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
}

/** Ends the turn with its `error` event, the last one of the run. */
export function endError(turn: TurnState, ending: ErrorEnding): Transition {
  return {
    turn: withoutCalls(turn),
    history: ending.history,
    events: [...ending.events, { type: "error", ...ending.error, ...countsOf(turn) }],
    next: { do: "finish", reply: ending.reply, reason: ending.error.code },
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
export function assistantText(text: string): Message {
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
