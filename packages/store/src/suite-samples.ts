import { turnIdOf, type InboundMessage, type SessionKey } from "@larkline/protocol";
import type { Approval, ApprovalDecision, DecisionWord } from "@larkline/protocol/approval";
import type { Message } from "@larkline/protocol/content";
import type { EngineEvent } from "@larkline/protocol/event";
import { blankTurn, type TurnState } from "@larkline/protocol/turn";
import type { SessionStore } from "./session-store.ts";
import type {
  CallFacts,
  Claim,
  CommitRequest,
  CommitResult,
  FencedWrite,
  OpenCall,
  OutboxRecord,
  SaveRequest,
  SaveResult,
} from "./session-types.ts";

/** A deadline that no test reaches. */
export const farFutureMs = Date.UTC(2100, 0);

/** A user message; `id` is its text too. */
export function messageOf(
  session: SessionKey,
  id: string,
  fields: Partial<InboundMessage> = {},
): InboundMessage {
  return {
    v: 1,
    session,
    id,
    app: "cli_app",
    sender: { id: "ou_user", name: "陈" },
    chatType: "p2p",
    parts: [{ type: "text", text: id }],
    createdAtMs: 1_700_000_000_000,
    reply: { channel: "feishu", app: "cli_app", chatId: "oc_chat", messageId: id, inThread: false },
    ...fields,
  };
}

/** A checkpoint of the turn the claim is about. */
export function turnOf(
  claim: Pick<Claim, "session" | "head">,
  fields: Partial<TurnState> = {},
): TurnState {
  if (!claim.head) throw new Error("the claim has no message");
  const { seq, message } = claim.head;
  const turnId = turnIdOf(claim.session, seq);
  const blank = blankTurn({ turnId, message, startedAtMs: 1_700_000_000_000 });
  return {
    ...blank,
    steps: 1,
    totals: { ...blank.totals, inputTokens: 3, outputTokens: 5, costUsd: 0.25 },
    ...fields,
  };
}

export function userText(text: string): Message {
  return { role: "user", content: [{ type: "text", text }] };
}

export function assistantText(text: string): Message {
  return { role: "assistant", content: [{ type: "text", text }] };
}

export function delta(text: string): EngineEvent {
  return { type: "text_delta", text };
}

/** What the audit log gets about a call. */
export const callFacts: CallFacts = {
  app: "cli_app",
  turnId: "cli_app.oc_chat.main-1",
  tool: "weather",
  userId: "ou_user",
  chatId: "oc_chat",
  argumentsHash: "c0ffee",
};

export function openCall(callId: string, deadlineMs = farFutureMs): OpenCall {
  return { callId, deadlineMs, facts: callFacts };
}

export function openCalls(...callIds: string[]): OpenCall[] {
  return callIds.map((callId) => openCall(callId));
}

/** Ids of approvals, by number. */
export function approvalIdOf(number: number): string {
  return number.toString(16).padStart(32, "0");
}

/** A question about a call of the session's first turn. */
export function approvalOf(
  session: SessionKey,
  number: number,
  fields: Partial<Approval> = {},
): Approval {
  return {
    v: 1,
    id: approvalIdOf(number),
    kind: "call",
    session,
    turnId: turnIdOf(session, 1),
    callId: `c${number}`,
    app: "cli_app",
    tenant: "t_1",
    chatId: "oc_chat",
    requester: { id: "ou_user", name: "陈" },
    tool: "deploy",
    arguments: { service: '支付 "api"\n' },
    argumentsHash: "c0ffee",
    secrets: [],
    deciders: { requester: true, people: ["ou_boss"], roles: [], fourEyes: false, count: 1 },
    reason: "",
    risk: "high",
    language: "zh",
    target: {
      channel: "feishu",
      app: "cli_app",
      chatId: "oc_chat",
      messageId: "om_1",
      inThread: false,
    },
    createdAtMs: 1_700_000_000_000 + number,
    expiresAtMs: farFutureMs,
    ...fields,
  };
}

/** A person's word. */
export function decisionOf(
  decision: DecisionWord,
  person = "ou_boss",
): Omit<ApprovalDecision, "atMs"> {
  return { decision, by: { id: person } };
}

export function outboxRecord(session: SessionKey, id: string): OutboxRecord {
  return {
    v: 1,
    id,
    uuid: `uuid-${id}`,
    session,
    target: { app: "cli_app", chatId: "oc_chat", messageId: "om_1", inThread: false },
    text: `reply ${id} 你好`,
    createdAtMs: 1_700_000_000_000,
    attempts: 0,
    uncertainSinceMs: 0,
  };
}

/** Takes the session and fails if there is nothing to take. */
export async function mustClaim(
  store: SessionStore,
  session: SessionKey,
  gen: number | undefined,
): Promise<Claim> {
  const claim = await store.claim(session, gen ?? 0, "worker-1");
  if (!claim) throw new Error(`nothing to claim in ${session} for wake-up ${gen}`);
  return claim;
}

/** Writes a checkpoint with the given continuation. */
export async function saveAs(
  store: SessionStore,
  claim: Claim,
  { mode, ...fields }: Partial<SaveRequest> & Pick<SaveRequest, "mode">,
): Promise<SaveResult> {
  return await store.save({
    session: claim.session,
    epoch: claim.epoch,
    history: [],
    events: [],
    consumed: 0,
    turn: claim.turn ?? turnOf(claim),
    open: [],
    ...fields,
    mode,
  });
}

/** Ends the turn of the claim's message. */
export async function commitOf(
  store: SessionStore,
  claim: Claim,
  fields: Partial<CommitRequest> = {},
): Promise<CommitResult> {
  return await store.commit({
    session: claim.session,
    epoch: claim.epoch,
    history: [],
    events: [],
    seq: claim.head?.seq ?? 0,
    more: false,
    ...fields,
  });
}

/** Opens calls and suspends: what a worker does when a model asks for tools. */
export async function suspendOn(
  store: SessionStore,
  claim: Claim,
  ...callIds: string[]
): Promise<SaveResult> {
  return await saveAs(store, claim, { mode: "suspend", open: openCalls(...callIds) });
}

/** What a claim shows after a write that makes a session's history `all`; `before` is what one showed until then. */
export function contextAfter(
  all: readonly Message[],
  before: readonly Message[],
  write: Pick<FencedWrite, "history" | "context">,
): Message[] {
  if (write.context === undefined) return [...before, ...write.history];
  const { keep, summary } = write.context;
  return [
    ...(summary === undefined ? [] : [summary]),
    ...all.slice(Math.max(0, all.length - keep)),
  ];
}
