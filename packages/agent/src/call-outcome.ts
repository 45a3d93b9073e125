import { outcomeText, type CallState, type EventOf, type StoredResult, type ToolOutcome } from "@larkline/protocol";
import { shortenedResult } from "@larkline/store";
import { textHead } from "./text-cut.ts";

const unknownAdvice =
  "It is not known whether this call took effect. Do not repeat it; tell the user that its effect must be checked.";

/** How much longer than its share a text may be that was shortened elsewhere and says how to read the rest. */
const hintChars = 400;

function capped(text: string, maxChars: number): string {
  return `${textHead(text, maxChars)}\n[Result cut off: only the first ${maxChars} of ${text.length} characters are shown.]`;
}

/** An outcome that fits its share. */
interface Bounded {
  outcome: ToolOutcome;
  truncated: boolean;
}

/** A text that is kept elsewhere as a whole: what the model gets names its handle. */
function boundedStored(text: string, stored: StoredResult, maxChars: number): Bounded {
  const fits = text.length < stored.characters && text.length <= maxChars + hintChars;
  const result = fits ? text : shortenedResult(text, stored, maxChars);
  return { outcome: { ok: true, result, stored }, truncated: true };
}

/** What is kept of an outcome: a value JSON can hold, cut to size. */
function bounded(outcome: ToolOutcome, maxChars: number): Bounded {
  const text = outcomeText(outcome);
  if (outcome.ok && outcome.stored !== undefined) return boundedStored(text, outcome.stored, maxChars);
  const truncated = text.length > maxChars;
  if (!outcome.ok) return { outcome: truncated ? { ...outcome, error: capped(text, maxChars) } : outcome, truncated };
  return { outcome: { ok: true, result: truncated ? capped(text, maxChars) : (outcome.result ?? null) }, truncated };
}

/** What the model reads as the result of a call. */
export function resultText(outcome: ToolOutcome): string {
  const text = outcomeText(outcome);
  return !outcome.ok && outcome.unknown === true ? `${text}\n${unknownAdvice}` : text;
}

/** The call with nothing left of what it waited for. */
export function withoutWait({ approvalId: _approvalId, outcome: _outcome, ...call }: CallState): CallState {
  return call;
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
    storedPath: outcome.ok && outcome.stored !== undefined ? outcome.stored.handle : "",
  };
  if (outcome.ok && !truncated) event.result = outcome.result;
  return { call: { ...withoutWait(call), state: "done", outcome }, outcome, event };
}
