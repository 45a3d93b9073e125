import { outcomeText, type CallState, type EventOf, type ToolOutcome } from "@larkline/protocol";
import { textHead } from "./text-cut.ts";

const unknownAdvice =
  "It is not known whether this call took effect. Do not repeat it; tell the user that its effect must be checked.";

function capped(text: string, maxChars: number): string {
  return `${textHead(text, maxChars)}\n[Result cut off: only the first ${maxChars} of ${text.length} characters are shown.]`;
}

/** What is kept of an outcome: a value JSON can hold, cut to size. */
function bounded(outcome: ToolOutcome, maxChars: number): { outcome: ToolOutcome; truncated: boolean } {
  const text = outcomeText(outcome);
  const truncated = text.length > maxChars;
  if (!outcome.ok) return { outcome: truncated ? { ...outcome, error: capped(text, maxChars) } : outcome, truncated };
  return { outcome: { ok: true, result: truncated ? capped(text, maxChars) : (outcome.result ?? null) }, truncated };
}

/** What the model reads as the result of a call. */
export function resultText(outcome: ToolOutcome): string {
  const text = outcomeText(outcome);
  return !outcome.ok && outcome.unknown === true ? `${text}\n${unknownAdvice}` : text;
}

/** Gives a call its one outcome, cut to `maxChars` characters plus a marker, and the event that tells of it. */
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
    storedPath: "",
  };
  if (outcome.ok && !truncated) event.result = outcome.result;
  return { call: { ...call, state: "done", outcome }, outcome, event };
}
