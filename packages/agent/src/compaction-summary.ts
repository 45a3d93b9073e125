import type { EventOf, Message, TurnState } from "@larkline/protocol";
import type { CompactionReport } from "./command-turn.ts";
import type { CompactionPlan } from "./compaction-plan.ts";
import { textHead } from "./text-cut.ts";
import { messageTokens } from "./token-estimate.ts";
import type { Transition } from "./turn-environment.ts";

type UserMessage = Extract<Message, { role: "user" }>;

const summaryTitle = "[Summary of the earlier conversation, written by the system in place of older messages]";
const omissionTitle = "[Older messages were removed by the system]";
const maxSummaryChars = 20_000;

/** Whether a message stands for older ones: a summary, or the marker of a part that was dropped. */
export function isSummary({ role, content }: Message): boolean {
  const [first] = content;
  if (role !== "user" || first?.type !== "text") return false;
  return first.text.startsWith(summaryTitle) || first.text.startsWith(omissionTitle);
}

function systemMessage(text: string): UserMessage {
  return { role: "user", content: [{ type: "text", text }] };
}

function summaryOf(text: string): UserMessage {
  const cut =
    text.length > maxSummaryChars ? `${textHead(text, maxSummaryChars)}\n[The summary was cut off here.]` : text;
  return systemMessage(`${summaryTitle}\n\n${cut}`);
}

function omissionOf({ older }: CompactionPlan): UserMessage {
  return systemMessage(
    `${omissionTitle}\n\nThe conversation was too long, and no summary could be made of its first ${older.length} message(s). ` +
      "You do not know what they said. When something in them matters, say so and ask the user; do not guess.",
  );
}

/** A context that was cut, and what to tell about it. */
export type Compacted = Transition & { context: { keep: number; summary: Message }; report: CompactionReport };

/**
 * Cuts the context: `summary` (what the model answered to `compactionRequest`) stands for the older
 * messages, or a marker that says they are gone when there is none. The full history stays readable.
 */
export function compactedTransition(turn: TurnState, plan: CompactionPlan, summary: string | undefined): Compacted {
  const text = summary?.trim() ?? "";
  const message = text === "" ? omissionOf(plan) : summaryOf(text);
  const { tokensBefore } = plan;
  const tokensAfter = plan.tokensKept + messageTokens(message);
  const event: EventOf<"compact"> = { type: "compact", summary: text, tokensBefore, tokensAfter };
  return {
    turn,
    history: [],
    events: [event],
    next: { do: "model" },
    context: { keep: plan.keep, summary: message },
    report: { tokensBefore, tokensAfter, summarised: text !== "" },
  };
}
