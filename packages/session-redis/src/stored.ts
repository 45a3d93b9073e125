import {
  Approval,
  ControlEntry,
  InboundMessage,
  jsonParserOf,
  newEngineError,
  PermissionRule,
  TurnState,
  type ApprovalDecision,
  type EngineEvent,
  type Message,
  type ParseResult,
  type QueuedMessage,
} from "@larkline/protocol";
import type {
  AppendResult,
  ApprovalCard,
  ApprovalStatus,
  CardReply,
  OutboxRecord,
  SessionSettings,
} from "@larkline/session";

const parseControl = jsonParserOf(ControlEntry);
const parseTurn = jsonParserOf(TurnState);
const parseInbound = jsonParserOf(InboundMessage);
const parseApproval = jsonParserOf(Approval);
const parseRule = jsonParserOf(PermissionRule);

function required<T>(what: string, result: ParseResult<T>): T {
  if (result.ok) return result.value;
  throw newEngineError("internal_error", `stored ${what} is not readable: ${result.error}`, {
    suggestion: "Was it written by a newer version? Upgrade this process.",
  });
}

/** The attempt that an entry answers, if it can be told. */
function answeredIn(text: string): string | undefined {
  try {
    const { type, callId } = JSON.parse(text) as Partial<Record<string, unknown>>; // null is caught below
    return type === "outcome" && typeof callId === "string" ? callId : undefined;
  } catch {
    return undefined;
  }
}

/** Shorter texts cannot hold values that are nested too deeply to be written again. */
const maxSafeCharacters = 10_000;

function canBeWritten(entry: ControlEntry, text: string): boolean {
  try {
    return text.length <= maxSafeCharacters || JSON.stringify(entry) !== "";
  } catch {
    return false; // it is recursive
  }
}

/**
 * An outcome comes from runners of any make. One that nobody can work with is an error of its call:
 * a session must not stand still for ever because of it.
 */
export function controlFrom(text: string): ControlEntry {
  const parsed = parseControl(text);
  if (parsed.ok && canBeWritten(parsed.value, text)) return parsed.value;
  const callId = answeredIn(text);
  if (callId === undefined) return required("control entry", parsed);
  const error = "internal_error: the runner's answer is not readable. The call may have taken effect.";
  return { type: "outcome", callId, outcome: { ok: false, error, unknown: true } };
}

export function turnFrom(text: string): TurnState {
  return required("turn", parseTurn(text));
}

/** Reads a `seq:message` entry of an inbox. */
export function queuedFrom(entry: string): QueuedMessage {
  const colon = entry.indexOf(":");
  return { seq: Number(entry.slice(0, colon)), message: inboundFrom(entry.slice(colon + 1)) };
}

export function inboundFrom(text: string): InboundMessage {
  return required("message", parseInbound(text));
}

/** Reads the settings of a session; empty text stands for none. */
export function settingsFrom(text: string): SessionSettings {
  return text === "" ? {} : (JSON.parse(text) as SessionSettings); // written by commit from the same type
}

/** Reads what the scripts answer that append. */
export function appendResultFrom(reply: unknown): AppendResult {
  const [result, seq, gen, eventSeq, ahead, head] = reply as [
    AppendResult["result"],
    ...[string | number, string | number, string | number, number, string], // shape fixed by the script
  ];
  return {
    result,
    seq: Number(seq),
    ahead,
    ...(eventSeq === "" ? {} : { eventSeq: Number(eventSeq) }),
    ...(head === "" ? {} : { head: queuedFrom(head) }),
    ...(Number(gen) > 0 ? { wakeGen: Number(gen) } : {}),
  };
}

/** History is written by the session's owner only and can be long: read without a schema check. */
export function messageFrom(text: string): Message {
  return JSON.parse(text) as Message; // written by save and commit from the same type
}

export function outboxFrom(text: string): OutboxRecord {
  return JSON.parse(text) as OutboxRecord; // written by commit, pushOutbox and retryOutbox from the same type
}

export function cardsFrom(text: string): CardReply {
  return JSON.parse(text) as CardReply; // written by the card ledger from the same type
}

export function batchOf(events: readonly { runId: string; event: EngineEvent }[]): string {
  return events.length === 0 ? "" : JSON.stringify(events);
}

/** An approval as its hash has it: JSON, state, decisions joined by commas, and when it was settled or an empty text. */
export type StoredStatus = [approval: string, state: string, decisions: string, settledAtMs: string];

export function approvalStatusFrom([approval, state, decisions, settledAtMs]: StoredStatus): ApprovalStatus {
  return {
    approval: required("approval", parseApproval(approval)),
    state: state as ApprovalStatus["state"], // written by the scripts only
    decisions: JSON.parse(`[${decisions}]`) as ApprovalDecision[], // written by decide from the same type
    ...(settledAtMs === "" ? {} : { settledAtMs: Number(settledAtMs) }),
  };
}

export function approvalCardsFrom(text: string): ApprovalCard[] {
  return text === "" ? [] : (JSON.parse(text) as ApprovalCard[]); // written by saveCards from the same type
}

export function ruleFrom(text: string): PermissionRule {
  return required("permission rule", parseRule(text));
}

/** For whom an approval was asked. */
export function approvalRequester(text: string): string {
  return required("approval", parseApproval(text)).requester.id;
}
