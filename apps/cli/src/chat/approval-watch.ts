import { setTimeout as delay } from "node:timers/promises";
import type { ApiApproval, StreamFrame } from "@larkline/protocol";
import type { ApprovalClient } from "./approval-client.ts";
import { choicesText, decisionIn, questionText } from "./approval-question.ts";
import type { Terminal } from "./terminal.ts";
import type { Texts } from "./texts.ts";

export interface ApprovalWatchParts {
  terminal: Terminal;
  approvals: ApprovalClient;
  texts: Texts;
  /** Pause between two looks; default 1 s. */
  pollMs?: number;
}

/** Asks the person what a run waits for. The stream says nothing of it but an open call, so it looks while one is. */
export interface ApprovalWatch {
  note(frame: StreamFrame): void;
  /** Ends looking, and a question that is open. */
  close(): Promise<void>;
}

export function watchApprovals(parts: ApprovalWatchParts, answer: AbortSignal): ApprovalWatch {
  const { terminal, approvals, texts, pollMs = 1_000 } = parts;
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
      // Decided elsewhere, or nobody is there to answer.
      if (line === undefined || line === null) settled.add(approval.id);
      else await decide(approval, line);
    }
    asking = undefined;
  };

  const watch = async (): Promise<void> => {
    while (!signal.aborted) {
      await delay(pollMs, undefined, { signal });
      const waiting = open.size === 0 ? [] : await approvals.pending(signal);
      const next = waiting.find(({ id }) => !settled.has(id));
      if (next !== undefined) await ask(next);
    }
  };
  // The only thing that rejects is the pause, when it is broken off.
  const watching = watch().catch(() => undefined);

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
