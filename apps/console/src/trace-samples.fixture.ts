import type { InboundMessage } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import type { TraceEntry } from "@larkline/protocol/trace";
import {
  blankTurn,
  type CallState,
  type PutOffStep,
  type TurnState,
} from "@larkline/protocol/turn";
import type { Standing } from "./diagnosis.ts";
import { messagesOf, type MessageTrace } from "./message-trace.ts";

// For tests: what is known of one message, as ingress, workers and runners write it down.

export const startMs = 1_000_000;
export const session = "cli_1.oc_1";
export const turnId = `${session}-4`;

export interface Sample extends Partial<TraceEntry> {
  /** ms after the receipt. */
  at: number;
}

const services: Readonly<Record<string, string>> = { message: "ingress", tool: "tool-runner" };

/** An entry as its service writes it. */
export function entry(name: string, { at, data, ...rest }: Sample): TraceEntry {
  const [kind = ""] = name.split(".", 1);
  const service = services[kind] ?? "agent-worker";
  const place = kind === "message" ? { message: "om_1" } : { session, turn: turnId };
  return {
    atMs: startMs + at,
    kind: "event",
    name,
    service,
    instance: `${service}-host-1`,
    data: { ...place, ...data },
    ...rest,
  };
}

export const received = entry("message.received", {
  at: 0,
  data: { app: "cli_1", chat: "oc_1", person: "ou_1", channel: "feishu" },
});
export const appended = entry("message.appended", { at: 5, data: { session, seq: 4, ahead: 0 } });

export function traceOf(...entries: TraceEntry[]): MessageTrace {
  const [trace] = messagesOf([received, ...entries]);
  if (trace === undefined) throw new Error("no message in the trace");
  return trace;
}

export const message: InboundMessage = {
  v: 1,
  session,
  id: "om_1",
  app: "cli_1",
  sender: { id: "ou_1" },
  chatType: "group",
  parts: [{ type: "text", text: "hi" }],
  createdAtMs: startMs,
  reply: { channel: "none" },
};

export function callState(changes: Partial<CallState> = {}): CallState {
  return {
    id: "c1",
    name: "deploy",
    arguments: {},
    state: "running",
    runner: "ops",
    effect: "once",
    startedAtMs: startMs + 1_000,
    deadlineMs: startMs + 61_000,
    ...changes,
  };
}

export function turnWith(calls: CallState[], putOff?: PutOffStep): TurnState {
  const blank = blankTurn({ turnId, message, startedAtMs: startMs + 900 });
  const asks = calls.some(({ state }) => state === "waiting_approval");
  return {
    ...blank,
    steps: 1,
    calls,
    ...(putOff === undefined ? {} : { requests: { ...blank.requests, putOff } }),
    ...(asks ? { waiting: { ms: 0, sinceMs: startMs + 1_000 } } : {}),
  };
}

/** The message is at the head of a session in this state. */
export function standing(
  state: Standing["summary"]["state"],
  {
    calls,
    putOff,
    ...changes
  }: Partial<Standing> & { calls?: CallState[]; putOff?: PutOffStep } = {},
): Standing {
  return {
    session,
    seq: 4,
    summary: {
      state,
      gen: 7,
      epoch: "3",
      waiting: 1,
      messages: 2,
      inContext: 2,
      unsent: 0,
      eventSeq: 0,
      setAside: [],
      settings: {},
      head: { seq: 4, message },
      ...(calls === undefined ? {} : { turn: turnWith(calls, putOff) }),
    },
    waiting: [],
    ledger: { calls: new Map(), unsent: [] },
    approvals: [],
    job: { state: "active", addedAtMs: startMs + 10 },
    isPaused: false,
    workers: 2,
    runners: new Set(["ops"]),
    end: undefined,
    pauses: [],
    ...changes,
  };
}

/** Its turn is over. */
export function afterwards(changes: Partial<Standing> = {}): Standing {
  const { summary, ...rest } = standing("idle", changes);
  const { head: _head, ...without } = summary;
  return { ...rest, summary: { ...without, waiting: 0 } };
}

export function approval(changes: Partial<Approval> = {}): Approval {
  return {
    v: 1,
    id: "a1",
    kind: "call",
    session,
    turnId,
    callId: "c1",
    app: "cli_1",
    chatId: "oc_1",
    requester: { id: "ou_1" },
    tool: "deploy",
    arguments: {},
    argumentsHash: "0",
    secrets: [],
    deciders: {
      requester: false,
      people: ["ou_boss"],
      roles: ["admins"],
      fourEyes: false,
      count: 1,
    },
    reason: "",
    risk: "high",
    language: "en",
    target: { channel: "none" },
    createdAtMs: startMs + 1_000,
    expiresAtMs: startMs + 3_601_000,
    ...changes,
  };
}
