import {
  compileJsonSchema,
  type EngineEvent,
  type Message,
  type ModelFailure,
  type OpenStep,
  type ParseResult,
  type TurnState,
} from "@larkline/protocol";
import type { StepResult } from "./accumulate.ts";
import type { NoticeName } from "./notice.ts";
import { isSendable, withoutTrailingThinking } from "./sendable-part.ts";
import { withText } from "./shown-so-far.ts";
import { blockEvents, stepEnd, warningEvent, withUnanswered } from "./step-report.ts";
import { answering, endDone, endError, noticeFor, spoken } from "./turn-ending.ts";
import type { Transition, TurnEnvironment } from "./turn-environment.ts";

/** What a person must be told about an answer beside its text. */
function noticeOf(step: StepResult): NoticeName | undefined {
  const dropped = step.toolCalls.length > 0;
  if (step.stopReason === "max_tokens") return dropped ? "callCutOff" : "truncated";
  if (step.stopReason === "refusal") return "refusal";
  if (dropped) return "callsDropped";
  return step.text.trim() === "" ? "empty" : undefined;
}

/** Calls that were dropped are told to the model too: the notice is stored with the text. */
function storedAnswer(step: StepResult, notice: string): Message {
  const parts = step.parts.filter(isSendable);
  const silent = !parts.some(({ type }) => type === "text");
  const told = notice !== "" && (silent || step.toolCalls.length > 0);
  return {
    role: "assistant",
    content: told ? [...parts, { type: "text", text: notice }] : withoutTrailingThinking(parts),
  };
}

function droppedCallsEvents({ toolCalls, stopReason }: StepResult): EngineEvent[] {
  if (toolCalls.length === 0) return [];
  const message = `${toolCalls.length} tool call(s) were not run: the model stopped with ${stopReason}.`;
  return [{ type: "warning", code: "tool_calls_dropped", message, detail: stopReason }];
}

/** The text inside of the code fence that a model has put round the whole of it, or the text. */
function withoutFence(text: string): string {
  const whole = text.trim();
  const firstLine = whole.indexOf("\n");
  if (!whole.startsWith("```") || !whole.endsWith("```") || firstLine < 0) return whole;
  return whole.slice(firstLine + 1, -3);
}

/** Reads answers that are JSON of this schema, also in a code fence. Throws when it is no schema. */
export function outputReader(schema: object): (text: string) => ParseResult<unknown> {
  const check = compileJsonSchema(schema);
  return (text) => {
    try {
      return check(JSON.parse(withoutFence(text)));
    } catch {
      return { ok: false, error: "not valid JSON" };
    }
  };
}

/** What an answer in a form of its own holds. One that was cut off or refused is not looked at. */
function outputOf({ stopReason, text, toolCalls }: StepResult, { output }: TurnEnvironment) {
  if (output === undefined || stopReason !== "end_turn" || toolCalls.length > 0) return { reason: "", events: [] };
  const read = output(text);
  if (read.ok) return { reason: "", output: read.value, events: [] };
  const message = `The answer is not of the form that it was to have: ${read.error}`;
  return { reason: "output_invalid", events: [warningEvent({ type: "warning", code: "output_invalid", message })] };
}

/** The step that ends the turn: its text, and a line for what the text does not say. */
export function finalAnswer(
  turn: TurnState,
  step: StepResult,
  { env, numbers }: { env: TurnEnvironment; numbers: OpenStep },
): Transition {
  const name = noticeOf(step);
  const notice = name === undefined ? "" : noticeFor(turn, name, env.texts);
  const { stopReason, text } = step;
  const { reason, events, ...structured } = outputOf(step, env);
  return endDone(turn, {
    ...structured,
    history: [storedAnswer(step, notice)],
    events: [...blockEvents(step), ...droppedCallsEvents(step), ...events, stepEnd(turn.steps, numbers)],
    reply: [text, notice].filter((line) => line.trim() !== "").join("\n\n"),
    reason: stopReason === "max_tokens" || stopReason === "refusal" ? stopReason : reason,
    final: text,
  });
}

function failureNotice({ code, retryable }: ModelFailure): NoticeName {
  if (code === "context_overflow") return "tooLong";
  return retryable ? "failedForNow" : "failed";
}

/** The model failed for good: the person gets a notice, which also answers the message in history. */
export function stepFailure(
  turn: TurnState,
  step: StepResult & { failure: ModelFailure },
  env: TurnEnvironment,
): Transition {
  const { failure, warnings, text } = step;
  const { code, message, suggestion, retryable } = failure;
  const reply = noticeFor(turn, failureNotice(failure), env.texts);
  const isCommand = turn.message.command !== undefined; // its step wrote a summary, not an answer
  const used = isCommand ? { turn, events: [] } : withUnanswered(turn, { text, use: step.use, step }, env);
  return endError(isCommand ? turn : withText(used.turn, text), {
    history: answering(turn, [spoken(reply)]),
    events: [...warnings.map(warningEvent), ...used.events],
    reply,
    error: { code, message, suggestion, retryable },
  });
}
