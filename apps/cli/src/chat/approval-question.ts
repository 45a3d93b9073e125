import type { ApiApproval, ApiDecision } from "@larkline/protocol";
import { printable } from "./preview.ts";
import type { Texts } from "./texts.ts";

const maxShown = 2_000;

/** What is asked about, whole as far as a screen holds it: nobody decides about what they cannot see. */
export function questionText(approval: ApiApproval, texts: Texts): string {
  const { kind, tool, arguments: given, reason, risk } = approval;
  const json = printable(JSON.stringify(given));
  const shown =
    json.length > maxShown ? `${json.slice(0, maxShown)}…\n${texts.notShown(json.length - maxShown)}` : json;
  const lines = [texts.question[kind](printable(tool)), shown, texts.risk[risk], printable(reason)];
  return `\n${lines.filter((line) => line !== "").join("\n")}\n`;
}

/** The letters that answer it. */
export function choicesText({ kind, may_remember: mayRemember }: ApiApproval, texts: Texts): string {
  if (kind === "outcome") return texts.outcomeChoices;
  return mayRemember && kind === "call" ? texts.callChoicesAlways : texts.callChoices;
}

type Word = Pick<ApiDecision, "decision" | "remember">;

const callWords: Readonly<Record<string, Word>> = {
  y: { decision: "approve" },
  yes: { decision: "approve" },
  是: { decision: "approve" },
  n: { decision: "reject" },
  no: { decision: "reject" },
  否: { decision: "reject" },
};
const alwaysWord: Word = { decision: "approve", remember: true };
const alwaysWords: Readonly<Record<string, Word>> = { a: alwaysWord, always: alwaysWord, 始终: alwaysWord };
const outcomeWords: Readonly<Record<string, Word>> = {
  r: { decision: "retry" },
  d: { decision: "done" },
  x: { decision: "abort" },
};

/** Reads an answer: a letter, and after `n` or `d` the reason or note. Undefined when it is none. */
export function decisionIn(line: string, approval: ApiApproval): ApiDecision | undefined {
  const [, letter = "", note = ""] = /^(\S+)\s*(.*)$/u.exec(line.trim()) ?? [];
  const { kind, may_remember: mayRemember } = approval;
  const always = mayRemember && kind === "call" ? alwaysWords : {};
  const words: Readonly<Record<string, Word>> = kind === "outcome" ? outcomeWords : { ...callWords, ...always };
  const name = letter.toLowerCase();
  const word = Object.hasOwn(words, name) ? words[name] : undefined;
  if (word === undefined) return undefined;
  // A word too many must not turn into a yes.
  if (note !== "" && word.decision !== "reject" && word.decision !== "done") return undefined;
  return note === "" ? word : { ...word, note: [...note].slice(0, 1_000).join("") };
}
