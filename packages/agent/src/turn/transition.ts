import {
  type EngineEvent,
  type Message,
  type ReplyLanguage,
  type TurnState,
  knownFeatures,
  newEngineError,
  errorCodes,
  type ErrorCode,
  type EventOf,
  type EndTexts,
} from "@larkline/protocol";
import { noticeText, type NoticeName } from "../texts/index.ts";
import type { DoneEnding, Records, Transition, TurnLimits } from "./facts.ts";
import { languageOfMessage } from "./messages.ts";
import { notesOf } from "./view.ts";

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
    throw newEngineError(
      "internal_error",
      `${name} must be a whole number of at least 1, got ${String(value)}.`,
      {
        suggestion: `Correct ${name} in the configuration.`,
      },
    );
  }
  return limits;
}

/** Characters one of `calls` results of a step may have. */
export function resultShare(limits: TurnLimits, calls: number): number {
  return Math.max(
    1,
    Math.min(limits.maxResultChars, Math.floor(limits.maxStepResultChars / Math.max(1, calls))),
  );
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
  return {
    ...(reply === said || reply === "" ? {} : { reply }),
    ...(notes.length === 0 ? {} : { notes }),
  };
}

function structured(
  output: DoneEnding["output"],
): Pick<EventOf<"done">, "output" | "outputName" | "outputFormat"> {
  if (output === undefined) return {};
  const { name, format } = output.form;
  return {
    output: output.value,
    outputName: name,
    ...(format === undefined ? {} : { outputFormat: format }),
  };
}

/** What a process has to know to continue the turn: what its message asks for, which agent answers, and `features`. */
export function needsOf(
  { message, agent, abilities = {}, revision }: TurnState,
  ...features: string[]
): string[] {
  const { output, model, task, previousResponseId } = message;
  const hasOptions = output !== undefined || model !== undefined;
  return [
    ...(hasOptions ? ["run-options"] : []),
    ...(agent === undefined ? [] : ["hand-over"]),
    // A process that lacks an ability leaves turns to others in which it keeps something.
    ...knownFeatures.filter(
      (name) => name in abilities || (name === "helpers" && task !== undefined),
    ),
    ...(revision === undefined ? [] : ["agent-versions"]),
    ...(previousResponseId === undefined ? [] : ["stored-response"]),
    ...features,
  ];
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
export function noticeFor(
  turn: TurnState,
  name: NoticeName,
  texts: ReplyLanguage | undefined,
): string {
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
