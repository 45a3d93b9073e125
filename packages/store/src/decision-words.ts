import type { Approval, DecisionWord } from "@larkline/protocol";

/** Words that one person's say is enough for: they let nothing happen. */
export function settlesAlone(word: DecisionWord): boolean {
  return word === "reject" || word === "abort";
}

/** Whether a word is an answer to that kind of question. */
export function answersKind(word: DecisionWord, kind: Approval["kind"]): boolean {
  const isAboutOutcome = word === "retry" || word === "done" || word === "abort";
  return isAboutOutcome === (kind === "outcome");
}
