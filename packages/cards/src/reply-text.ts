import type { ReplyView } from "@larkline/protocol";
import { headWithin } from "./element.ts";
import { printable } from "./escape.ts";
import { cardTexts } from "./texts.ts";

const maxSummaryCharacters = 80;
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
  for (const { index } of segmenter.segment(text)) {
    if (characters === maxSummaryCharacters) return `${text.slice(0, index).trimEnd()}…`;
    characters += 1;
  }
  return text;
}

/** What the list of chats shows of the reply: the beginning of the answer, or how it ended. */
export function summaryOf(view: ReplyView): string {
  const state = cardTexts[view.language].states[view.state];
  const text = withoutMarks(view.answer.slice(0, 1_000));
  if (view.state === "running" || text === "") return state;
  const summary = shortened(view.state === "answered" ? text : `${state} · ${text}`);
  return headWithin(summary, { characters: 400, bytes: 500 });
}

/** The reply as plain text, for when no card can be sent: the answer as it was written, and how it ended. */
export function plainTextOf(view: ReplyView): string {
  const texts = cardTexts[view.language];
  const answer = view.answer.trim();
  if (view.state === "answered") return answer === "" ? texts.noAnswer : answer;
  const state = texts.states[view.state];
  return answer === "" ? state : `${answer}\n\n${state}`;
}
