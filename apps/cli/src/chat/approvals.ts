import {
  type ApiApproval,
  ApiApprovals,
  type ApiDecision,
  jsonParserOf,
  type StreamFrame,
  pause,
  type Clock,
} from "@larkline/protocol";
import { printable, type Texts } from "./answer-view.ts";
import type { Terminal } from "./chat.ts";

interface ApprovalWatchParts {
  clock: Clock;
  terminal: Terminal;
  approvals: ApprovalClient;
  texts: Texts;
  /** Pause between two looks; default 1 s. */
  pollMs?: number;
}

/** Asks the person what a run waits for. The stream says nothing of it but an open call, so it looks while one is. */
interface ApprovalWatch {
  note(frame: StreamFrame): void;
  /** Ends looking, and a question that is open. */
  close(): Promise<void>;
}

export function watchApprovals(parts: ApprovalWatchParts, answer: AbortSignal): ApprovalWatch {
  const { terminal, approvals, texts, clock, pollMs = 1_000 } = parts;
  const over = new AbortController();
  const signal = AbortSignal.any([answer, over.signal]);
  const open = new Set<string>();
  const settled = new Set<string>();
  let asking: { callId: string; stop: AbortController } | undefined;

  const decide = async (approval: ApiApproval, line: string): Promise<void> => {
    const decision = decisionIn(line, approval);
    if (decision === undefined) return terminal.write(`${texts.notUnderstood}\n`);
    const result = await approvals.decide(approval.id, decision, signal);
    if (result !== "failed") settled.add(approval.id);
    if (!signal.aborted) terminal.write(`${texts.decided[result]}\n`);
  };

  const ask = async (approval: ApiApproval): Promise<void> => {
    const stop = new AbortController();
    asking = { callId: approval.call_id, stop };
    terminal.write(questionText(approval, texts));
    while (!settled.has(approval.id)) {
      const line = await terminal.ask(choicesText(approval, texts), AbortSignal.any([signal, stop.signal]));
      // Decided elsewhere, or input has ended.
      if (line === undefined || line === null) settled.add(approval.id);
      else await decide(approval, line);
    }
    asking = undefined;
  };

  const watch = async (): Promise<void> => {
    while (!signal.aborted) {
      await pause(clock, pollMs, signal);
      const waiting = open.size === 0 ? [] : await approvals.pending(signal);
      const next = waiting.find(({ id }) => !settled.has(id));
      if (next !== undefined) await ask(next);
    }
  };
  const watching = watch();

  return {
    note(frame) {
      if (frame.type === "tool_call") open.add(frame.id ?? frame.name);
      if (frame.type !== "tool_result" && frame.type !== "tool_error") return;
      const callId = frame.id ?? frame.name;
      open.delete(callId);
      if (asking?.callId === callId) asking.stop.abort();
    },
    async close() {
      over.abort();
      await watching;
    },
  };
}

const maxShown = 2_000;

/** What is asked about, as far as a screen holds it: people must see what they decide about. */
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

interface ApprovalClientOptions {
  /** Base address of the ingress. */
  url: string;
  /** Sent as bearer token when given. */
  token?: string;
  sessionId: string;
  /** How long one request may take; default 10 s. */
  timeoutMs?: number;
}

/** `taken`: it counts. `closed`: decided before, or expired. `not_allowed`: others have to. `failed`: try again. */
export type DecideResult = "taken" | "closed" | "not_allowed" | "failed";

/** What a session waits for, and how to decide about it. Nothing here throws. */
export interface ApprovalClient {
  /** Oldest first; none when it cannot be known now. */
  pending(signal: AbortSignal): Promise<ApiApproval[]>;
  decide(id: string, decision: ApiDecision, signal: AbortSignal): Promise<DecideResult>;
}

const parseApprovals = jsonParserOf(ApiApprovals);

const resultOf: Readonly<Record<number, DecideResult>> = {
  200: "taken",
  403: "not_allowed",
  404: "closed",
  409: "closed",
};

/** Creates a client of the approvals of one conversation. */
export function createApprovalClient(options: ApprovalClientOptions): ApprovalClient {
  const { url, token, sessionId, timeoutMs = 10_000 } = options;
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const within = (signal: AbortSignal): AbortSignal => AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);

  return {
    async pending(signal) {
      try {
        const address = new URL(`/v1/approvals?session_id=${sessionId}`, url);
        const response = await fetch(address, { headers, signal: within(signal) });
        const parsed = parseApprovals(await response.text());
        return parsed.ok ? parsed.value.approvals : [];
      } catch {
        return [];
      }
    },
    async decide(id, decision, signal) {
      try {
        const address = new URL(`/v1/approvals/${encodeURIComponent(id)}`, url);
        const body = JSON.stringify(decision);
        const json = { ...headers, "content-type": "application/json" };
        const response = await fetch(address, { method: "POST", headers: json, body, signal: within(signal) });
        await response.body?.cancel();
        return resultOf[response.status] ?? "failed";
      } catch {
        return "failed";
      }
    },
  };
}
