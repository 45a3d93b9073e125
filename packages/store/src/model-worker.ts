import type { CallState, ControlEntry, Message, QueuedMessage, SessionKey, TurnState } from "@larkline/protocol";
import { approvalIdFor, ModelApprovals } from "./model-approvals.ts";
import type { Claim, FencedWrite } from "./session-types.ts";
import { turnOf, userText } from "./suite-samples.ts";

export interface WakeJob {
  session: SessionKey;
  gen: number;
}

/** A worker of the model: what it holds of the turn that it runs. */
export interface Worker {
  claim: Claim;
  /** The wake-up it runs; none once the queue has given the job to somebody else or lost it. */
  job: WakeJob | undefined;
  head: QueuedMessage;
  turn: TurnState | undefined;
  control: ControlEntry[];
}

/** What a control entry answers. */
function answeredBy(entry: ControlEntry): string {
  if (entry.type === "outcome") return entry.callId;
  return entry.type === "decision" ? entry.approvalId : "";
}

/** The calls of the turn with the unread outcomes filled in; those that people were asked about are done with the answer. */
export function callsAfter({ turn, control }: Worker): CallState[] {
  const answered = new Set(control.map(answeredBy));
  return (turn?.calls ?? []).map((call) =>
    answered.has(call.approvalId ?? call.id) ? { ...call, state: "done" } : call,
  );
}

/** New calls of a model step: how many run, and how many people are asked about. */
export interface NewCalls {
  run: number;
  ask: number;
}

export function turnAfter(worker: Worker, { run, ask }: NewCalls): TurnState {
  const base = worker.turn ?? turnOf({ session: worker.claim.session, head: worker.head }, { steps: 0 });
  const steps = base.steps + (run + ask > 0 ? 1 : 0);
  const calls = callsAfter(worker);
  for (let i = 0; i < run + ask; i += 1) {
    const call = { id: `${base.turnId}-${steps}-${i}`, name: "tool", arguments: {} };
    if (i < run) calls.push({ ...call, state: "running" });
    else calls.push({ ...call, state: "waiting_approval", approvalId: approvalIdFor(call.id) });
  }
  return { ...base, steps, calls };
}

/** History for what the worker dealt with: the user's message first, then each unread outcome. */
export function writeOf({ turn, head, control }: Worker): Pick<FencedWrite, "history" | "consumed"> {
  const history: Message[] = turn ? [] : [userText(`user ${head.message.id}`)];
  for (const entry of control) {
    if (entry.type === "outcome" && entry.outcome.ok) history.push(userText(String(entry.outcome.result)));
    if (entry.type === "decision") history.push(userText(ModelApprovals.textOf(entry.approvalId, entry.state)));
  }
  return { history, consumed: control.length };
}
