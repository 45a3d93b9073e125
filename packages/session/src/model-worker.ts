import type { CallState, ControlEntry, Message, QueuedMessage, SessionKey, TurnState } from "@larkline/protocol";
import type { Claim, FencedWrite } from "./session-store.ts";
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

/** The calls of the turn with the unread outcomes filled in. */
export function callsAfter({ turn, control }: Worker): CallState[] {
  const outcomes = new Set(control.map((entry) => (entry.type === "outcome" ? entry.callId : "")));
  return (turn?.calls ?? []).map((call) => (outcomes.has(call.id) ? { ...call, state: "done" } : call));
}

export function turnAfter(worker: Worker, newCalls: number): TurnState {
  const base = worker.turn ?? turnOf({ session: worker.claim.session, head: worker.head }, { steps: 0 });
  const steps = base.steps + (newCalls > 0 ? 1 : 0);
  const calls = callsAfter(worker);
  for (let i = 0; i < newCalls; i += 1) {
    calls.push({ id: `${base.turnId}-${steps}-${i}`, name: "tool", arguments: {}, state: "running" });
  }
  return { ...base, steps, calls };
}

/** History for what the worker dealt with: the user's message first, then each unread outcome. */
export function writeOf({ turn, head, control }: Worker): Pick<FencedWrite, "history" | "consumed"> {
  const history: Message[] = turn ? [] : [userText(`user ${head.message.id}`)];
  for (const entry of control) {
    if (entry.type === "outcome" && entry.outcome.ok) history.push(userText(String(entry.outcome.result)));
  }
  return { history, consumed: control.length };
}
