import {
  type CallState,
  type EventOf,
  type ToolOutcome,
  type ReplyLanguage,
  outcomeText,
  resultCodeIn,
  type StoredResult,
  shortenedResult,
} from "@larkline/protocol";
import { oneLine, textHead, textsOf } from "../texts/index.ts";

import { withoutWait } from "./tool-call.ts";

// The result of a call: what is kept of it, and what models and people read.

/** Sets the outcome of a call, cut to `maxChars` characters plus a marker, and returns its event. */
export function answered(
  call: CallState,
  given: ToolOutcome,
  maxChars: number,
): { call: CallState; outcome: ToolOutcome; event: EventOf<"tool_result"> } {
  const { outcome, truncated } = bounded(given, maxChars);
  const event: EventOf<"tool_result"> = {
    type: "tool_result",
    id: call.id,
    toolName: call.name,
    output: resultText(outcome),
    isError: !outcome.ok,
    truncated,
    storedPath: outcome.ok && outcome.stored !== undefined ? outcome.stored.handle : "",
    code: outcome.ok ? "" : codeOf(outcome),
  };
  if (outcome.ok && !truncated) event.result = outcome.result;
  const { input: _input, ...rest } = withoutWait(call);
  return { call: { ...rest, state: "done", outcome }, outcome, event };
}

/** Of a failed call whose text names no code. */
const otherCode = "tool_execution_error";

const deniedCode = "permission_denied";

const maxResultChars = 20;

/** What a result is, for display, in 20 characters: the value itself where it fits, else kind and size. */
export function resultSummary(outcome: ToolOutcome, language: ReplyLanguage): string {
  const { summaries } = textsOf(language);
  const text = outcomeText(outcome);
  if (!outcome.ok) return summaries.error(text.length);
  const { result, stored } = outcome;
  const isEmpty = text.trim() === "";
  if (!isEmpty && text.length <= maxResultChars && text === oneLine(text, maxResultChars)) {
    return text;
  }
  if (stored !== undefined) return summaries.text(stored.characters);
  if (typeof result === "object" && result !== null) {
    return summaries.json(Object.keys(result).length);
  }
  return summaries.text(text.length);
}

/** An outcome that fits its share. */
interface Bounded {
  outcome: ToolOutcome;
  truncated: boolean;
}

/** What is kept of an outcome: a value JSON can hold, cut to size. */
function bounded(outcome: ToolOutcome, maxChars: number): Bounded {
  const text = outcomeText(outcome);
  if (outcome.ok && outcome.stored !== undefined) {
    return boundedStored(text, outcome.stored, maxChars);
  }
  const truncated = text.length > maxChars;
  if (!outcome.ok) {
    return {
      outcome: truncated ? { ...outcome, error: capped(text, maxChars) } : outcome,
      truncated,
    };
  }
  return {
    outcome: { ok: true, result: truncated ? capped(text, maxChars) : (outcome.result ?? null) },
    truncated,
  };
}

/** How much longer than its share a stored result may be: its text ends with how to read the rest. */
const hintChars = 400;

/** A text that is kept elsewhere as a whole: what the model gets names its handle. */
function boundedStored(text: string, stored: StoredResult, maxChars: number): Bounded {
  const fits = text.length < stored.characters && text.length <= maxChars + hintChars;
  const result = fits ? text : shortenedResult(text, stored, maxChars);
  return { outcome: { ok: true, result, stored }, truncated: true };
}

function capped(text: string, maxChars: number): string {
  return `${textHead(text, maxChars)}\n[Result cut off: only the first ${maxChars} of ${text.length} characters are shown.]`;
}

const unknownAdvice =
  "It is not known whether this call took effect. Do not repeat it; tell the user that its effect must be checked.";

/** What the model reads as the result of a call: the text of a failed one begins with its code. */
export function resultText(outcome: ToolOutcome): string {
  const text = plainResultText(outcome);
  if (outcome.ok) return text;
  const code = codeOf(outcome);
  return code === resultCodeIn(text) ? text : `${code}: ${text}`;
}

/** That of a refusal is a fact of the outcome; all others are what the text of the tool begins with. */
function codeOf({ error, denied: isDenied }: FailedOutcome): string {
  if (isDenied === true) return deniedCode;
  const code = resultCodeIn(error);
  return code === undefined || code === deniedCode ? otherCode : code;
}

type FailedOutcome = ToolOutcome & { ok: false };

/** The same for people, to whom the code of a tool's own failure says nothing. */
export function plainResultText(outcome: ToolOutcome): string {
  const text = outcomeText(outcome);
  return !outcome.ok && outcome.unknown === true ? `${text}\n${unknownAdvice}` : text;
}
