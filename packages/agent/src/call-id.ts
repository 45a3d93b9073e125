import type { Message, ToolCall, TurnState } from "@larkline/protocol";
import { isSummary } from "./compaction-summary.ts";
import { isResumeNote } from "./held-step.ts";

/** What every vendor accepts as the id of a call. */
const acceptedId = /^[A-Za-z0-9_-]{1,40}$/;

/** Ids of all calls of a conversation. */
export function callIdsOf(history: readonly Message[]): Set<string> {
  const ids = new Set<string>();
  for (const { role, content } of history) {
    if (role !== "assistant") continue;
    for (const part of content) if (part.type === "tool_use") ids.add(part.id);
  }
  return ids;
}

/** A number that no other turn of the session has: the tail of `<session>-<seq>`. */
function turnNumberOf(turnId: string): string {
  return turnId.slice(turnId.lastIndexOf("-") + 1);
}

/**
 * Whether a history holds every message up to the turn. After a cut of the context it does not, and
 * an id that looks new may be that of a call of an earlier turn, whose late outcome it would catch.
 */
export function isWhole(history: readonly Message[], { turnId, absorbed = [] }: TurnState): boolean {
  const asked = history.filter((message) => message.role === "user" && !isSystemMessage(message));
  return asked.length - absorbed.length >= Number(turnNumberOf(turnId));
}

/**
 * One id per call, in order: the model's own where it can be used, otherwise a new one. No id is
 * in `taken` or given twice. Deterministic, so a repeated step gets the same ids.
 */
export function uniqueCallIds(
  calls: readonly ToolCall[],
  place: { turnId: string; step: number },
  taken: ReadonlySet<string>,
): string[] {
  const given = new Set(taken);
  return calls.map(({ id }, index) => {
    let unique =
      acceptedId.test(id) && !given.has(id) ? id : `call_${turnNumberOf(place.turnId)}_${place.step}_${index}`;
    while (given.has(unique)) unique += "x";
    given.add(unique);
    return unique;
  });
}

function isSystemMessage(message: Message): boolean {
  return isSummary(message) || isResumeNote(message);
}
