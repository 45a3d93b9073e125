import {
  errorCodes,
  type EngineEvent,
  type ErrorCode,
  type EventOf,
  type Message,
  type ReplyLanguage,
  type TurnState,
} from "@larkline/protocol";
import { languageOfMessage, noticeText, type NoticeName } from "./notice.ts";
import type { Transition } from "./turn-environment.ts";

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

/** A notice in the language of the turn. */
export function noticeFor(turn: TurnState, name: NoticeName, texts: ReplyLanguage | undefined): string {
  return noticeText(name, languageOfMessage(turn.message, texts));
}

/** An assistant message of text alone. */
export function spoken(text: string): Message {
  return { role: "assistant", content: [{ type: "text", text }] };
}

/** What an ending stores: nothing for a command, which no model ever sees. */
export function answering({ message }: TurnState, history: Message[]): Message[] {
  return message.command === undefined ? history : [];
}

/** Calls that ended are in `shown` by then. */
function withoutCalls({
  openStep: _openStep,
  putOff: _putOff,
  held: _held,
  needs: _needs,
  ...turn
}: TurnState): TurnState {
  return { ...turn, calls: [] };
}

/** How a turn ends well, or in a controlled stop. */
export interface DoneEnding {
  history: Message[];
  events: EngineEvent[];
  reply: string;
  /** Empty for a normal end. */
  reason: string;
  /** Text of the last model step. */
  final: string;
  /** The value of an answer in a form of its own. */
  output?: unknown;
}

/** What the run has used, as its last event says. */
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

/** How a turn ends in a failure. */
export interface ErrorEnding {
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
