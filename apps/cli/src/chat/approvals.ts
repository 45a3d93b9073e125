import { pause, type Clock } from "@larkline/protocol/clock";
import { RequestError, type Approval, type Decision, type Run, type RunEvent } from "@larkline/sdk";
import { printable, type DecideResult, type Texts } from "./answer-view.ts";
import type { Terminal } from "./terminal.ts";

type QuestionEvent = Extract<RunEvent, { type: "input_requested" }>;

interface ApprovalWatchParts {
  clock: Clock;
  terminal: Terminal;
  texts: Texts;
}

/** Asks the person what a run waits for, one question after the other. */
interface ApprovalWatch {
  note(event: RunEvent): void;
  /** Ends a question that is open. */
  close(): Promise<void>;
}

/** Pause before a question is looked for again whose event came before its approval could be read. */
const lookAgainMs = 1_000;

export function watchApprovals(
  { clock, terminal, texts }: ApprovalWatchParts,
  run: Run,
  answer: AbortSignal,
) {
  const over = new AbortController();
  const signal = AbortSignal.any([answer, over.signal]);
  /** Calls that wait for an answer, each with what ends its question. */
  const open = new Map<string, AbortController>();
  let asking = Promise.resolve();

  const pending = async (): Promise<Approval[]> => {
    const report = await run.report().catch(() => undefined); // it cannot be known now
    return (report?.interruptions ?? []).filter((one) => one.kind !== "question");
  };

  const answerQuestion = async (asked: QuestionEvent, ended: AbortSignal): Promise<void> => {
    const choices = asked.choices.map((choice, at) => `${at + 1}. ${printable(choice)}`);
    terminal.write(`\n${[texts.asks, printable(asked.question), ...choices].join("\n")}\n`);
    for (;;) {
      const line = await terminal.ask(texts.yourAnswer, ended);
      // Answered elsewhere, or input has ended.
      if (line === undefined || line === null) return;
      const given = line.trim();
      if (given === "") continue;
      const result = await settled(
        run.answer(asked.requestId, asked.choices[Number(given) - 1] ?? given),
      );
      if (!signal.aborted) terminal.write(`${texts.decided[result]}\n`);
      if (result !== "failed") return;
    }
  };

  const ask = async (approval: Approval, ended: AbortSignal): Promise<void> => {
    terminal.write(questionText(approval, texts));
    for (;;) {
      const line = await terminal.ask(choicesText(approval, texts), ended);
      // Decided elsewhere, or input has ended.
      if (line === undefined || line === null) return;
      const decision = decisionIn(line, approval);
      if (decision === undefined) {
        terminal.write(`${texts.notUnderstood}\n`);
        continue;
      }
      const result = await settled(run.approve(approval.id, decision));
      if (!signal.aborted) terminal.write(`${texts.decided[result]}\n`);
      if (result !== "failed") return;
    }
  };

  const askAboutCall = async (approvalId: string, ended: AbortSignal): Promise<void> => {
    while (!ended.aborted) {
      const approval = (await pending()).find(({ id }) => id === approvalId);
      if (approval !== undefined) return await ask(approval, ended);
      await pause(clock, lookAgainMs, ended);
    }
  };

  const askAboutRules = async (): Promise<void> => {
    for (const approval of await pending()) {
      if (approval.kind === "rule") await ask(approval, signal);
    }
  };

  const watch: ApprovalWatch = {
    note(event) {
      if (event.type === "permission_learn") asking = asking.then(askAboutRules);
      if (event.type === "permission_request") {
        const stop = new AbortController();
        open.set(event.toolCallId ?? event.id, stop);
        asking = asking.then(
          async () => await askAboutCall(event.id, AbortSignal.any([signal, stop.signal])),
        );
      }
      if (event.type === "input_requested") {
        const stop = new AbortController();
        open.set(event.callId, stop);
        asking = asking.then(
          async () => await answerQuestion(event, AbortSignal.any([signal, stop.signal])),
        );
      }
      if (event.type === "tool_result") open.get(event.id)?.abort();
    },
    async close() {
      over.abort();
      await asking;
    },
  };
  return watch;
}

const refusals: Readonly<Record<number, DecideResult>> = {
  403: "not_allowed",
  404: "closed",
  409: "closed",
};

async function settled(saying: Promise<void>): Promise<DecideResult> {
  try {
    await saying;
    return "taken";
  } catch (error) {
    return error instanceof RequestError ? (refusals[error.status] ?? "failed") : "failed";
  }
}

const maxShown = 2_000;

/** What is asked about, as far as a screen holds it: people must see what they decide about. */
export function questionText(approval: Approval, texts: Texts): string {
  const { kind, tool, arguments: given, reason, risk } = approval;
  const json = printable(JSON.stringify(given));
  const shown =
    json.length > maxShown
      ? `${json.slice(0, maxShown)}…\n${texts.notShown(json.length - maxShown)}`
      : json;
  const lines = [texts.question[kind](printable(tool)), shown, texts.risk[risk], printable(reason)];
  return `\n${lines.filter((line) => line !== "").join("\n")}\n`;
}

/** The letters that answer it. */
export function choicesText({ kind, may_remember: mayRemember }: Approval, texts: Texts): string {
  if (kind === "outcome") return texts.outcomeChoices;
  return mayRemember && kind === "call" ? texts.callChoicesAlways : texts.callChoices;
}

type Word = Exclude<Decision, string>;

const callWords: Readonly<Record<string, Word>> = {
  y: { decision: "approve" },
  yes: { decision: "approve" },
  是: { decision: "approve" },
  n: { decision: "reject" },
  no: { decision: "reject" },
  否: { decision: "reject" },
};
const alwaysWord: Word = { decision: "approve", remember: true };
const alwaysWords: Readonly<Record<string, Word>> = {
  a: alwaysWord,
  always: alwaysWord,
  始终: alwaysWord,
};
const outcomeWords: Readonly<Record<string, Word>> = {
  r: { decision: "retry" },
  d: { decision: "done" },
  x: { decision: "abort" },
};

/** Reads an answer: a letter, and after `n` or `d` the reason or note. Undefined when it is none. */
export function decisionIn(line: string, approval: Approval): Word | undefined {
  const [, letter = "", note = ""] = /^(\S+)\s*(.*)$/u.exec(line.trim()) ?? [];
  const { kind, may_remember: mayRemember } = approval;
  const always = mayRemember && kind === "call" ? alwaysWords : {};
  const words: Readonly<Record<string, Word>> =
    kind === "outcome" ? outcomeWords : { ...callWords, ...always };
  const name = letter.toLowerCase();
  const word = Object.hasOwn(words, name) ? words[name] : undefined;
  if (word === undefined) return undefined;
  // A word too many must not turn into a yes.
  if (note !== "" && word.decision !== "reject" && word.decision !== "done") return undefined;
  return note === "" ? word : { ...word, note: [...note].slice(0, 1_000).join("") };
}
