import { outcomeText, type CallState, type EventOf, type ToolOutcome } from "@larkline/protocol";

const unknownAdvice =
  "It is not known whether this call took effect. Do not call the tool again for the same purpose; tell the user that it must be checked.";

/** Cuts at a character boundary, so that no emoji or rare Chinese character is split. */
function head(text: string, maxChars: number): string {
  const end = maxChars > 0 && /[\uD800-\uDBFF]/.test(text.charAt(maxChars - 1)) ? maxChars - 1 : maxChars;
  return text.slice(0, end);
}

/** The text cut to `maxChars` characters plus a marker that says so; shorter text is unchanged. */
function capped(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  return `${head(text, maxChars)}\n[Result cut off: the first ${maxChars} of ${text.length} characters are shown.]`;
}

/** A call with its one outcome, and the event that tells of it. */
export interface AnsweredCall {
  call: CallState;
  event: EventOf<"tool_result">;
}

/** Answers a call. What is stored and what the model reads never exceeds `maxResultChars` by more than the marker. */
export function answer(call: CallState, outcome: ToolOutcome, maxResultChars: number): AnsweredCall {
  const full = outcomeText(outcome);
  const truncated = full.length > maxResultChars;
  const text = capped(full, maxResultChars);
  const stored: ToolOutcome = !truncated
    ? outcome
    : outcome.ok
      ? { ok: true, result: text }
      : { ...outcome, error: text };
  const event: EventOf<"tool_result"> = {
    type: "tool_result",
    id: call.id,
    toolName: call.name,
    output: text,
    isError: !outcome.ok,
    truncated,
    storedPath: "",
  };
  if (outcome.ok && !truncated) event.result = outcome.result;
  return { call: { ...call, state: "done", outcome: stored }, event };
}

/** What the model reads as the result of an answered call. */
export function resultText(outcome: ToolOutcome): string {
  const text = outcomeText(outcome);
  return !outcome.ok && outcome.unknown === true ? `${text}\n${unknownAdvice}` : text;
}
