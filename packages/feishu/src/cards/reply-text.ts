import type { ReplyView } from "@larkline/protocol";
import { printable } from "./escape.ts";
import { cardTexts } from "./texts.ts";

const maxSummaryCharacters = 80;
/** What a person sees as one character may be many. */
const maxSummaryUnits = 170;
const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Words without the marks of markdown. */
function withoutMarks(text: string): string {
  return printable(text)
    .replaceAll(/^\s*(?:`{3,}|~{3,}).*$/gm, " ")
    .replaceAll(/!?\[([^\]\n]*)\]\([^)\n]*\)/g, "$1")
    .replaceAll(/^\s*(?:#{1,6}|>+|[-*+]|\|?[\s:|-]{3,})(?=\s|$)/gm, " ")
    .replaceAll(/\*\*|__|~~|`+/g, "")
    .replaceAll(/\s+/g, " ")
    .trim();
}

function shortened(text: string): string {
  let characters = 0;
  let end = 0;
  for (const { index, segment } of segmenter.segment(text)) {
    const tooLong = characters === maxSummaryCharacters || index + segment.length > maxSummaryUnits;
    if (tooLong) return `${text.slice(0, end).trimEnd()}…`;
    characters += 1;
    end = index + segment.length;
  }
  return text;
}

/** What the list of chats shows of the reply: the beginning of the answer, or how it ended. */
export function summaryOf(view: ReplyView): string {
  const state = cardTexts[view.language].states[view.state];
  const text = withoutMarks(view.answer.slice(0, 1_000));
  if (view.state === "running" || text === "") return state;
  return shortened(view.state === "answered" ? text : `${state} · ${text}`);
}

/** The reply as plain text, for when no card can be sent: the answer as it was written, and how it ended. */
export function plainTextOf(view: ReplyView): string {
  const texts = cardTexts[view.language];
  const answer = view.answer.trim();
  if (view.state === "answered") return answer === "" ? texts.noAnswer : answer;
  const state = texts.states[view.state];
  return answer === "" ? state : `${answer}\n\n${state}`;
}
