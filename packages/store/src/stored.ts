import {
  Approval,
  ControlEntry,
  InboundMessage,
  jsonParserOf,
  newEngineError,
  parserOf,
  PermissionRule,
  ReplyTarget,
  sharedNow,
  TurnState,
  type ApprovalDecision,
  type Message,
  type NewEvent,
  type ParseResult,
  type QueuedMessage,
  type SessionKey,
} from "@larkline/protocol";
import type { ApprovalCard, ApprovalStatus } from "./approval-store.ts";
import type { CardReply } from "./card-ledger.ts";
import type { AppendResult, OutboxRecord, SessionSettings } from "./session-types.ts";

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

/** The text of a message or entry, with `needs` where scripts look for it. */
export function needsFirst<T extends { needs?: string[] }>({ needs, ...rest }: T): string {
  return JSON.stringify(needs === undefined ? rest : { needs, ...rest });
}

export function turnFrom(text: string): TurnState {
  return required("turn", parseTurn(text));
}

/**
 * Reads a `seq:message` entry of an inbox of `session`. One that cannot be read still has its place in it, and
 * its sender is to learn that it is lost.
 */
export function queuedFrom(session: SessionKey, entry: string): QueuedMessage {
  const colon = entry.indexOf(":");
  const seq = Number(entry.slice(0, colon));
  const text = entry.slice(colon + 1);
  const parsed = parseInbound(text);
  if (parsed.ok) return { seq, message: parsed.value };
  return { seq, message: remainsOf(session, seq, text), unreadable: true };
}

const parseReply = parserOf(ReplyTarget);

/** A message that cannot be read, as far as it is known where its answer goes and whose it is. */
function remainsOf(session: SessionKey, seq: number, text: string): InboundMessage {
  const found = fieldsOf(text);
  const reply = parseReply(found["reply"]);
  const target = reply.ok ? reply.value : ({ channel: "none" } as const);
  const id = typeof found["id"] === "string" && found["id"] !== "" ? found["id"].slice(0, 200) : `unreadable-${seq}`;
  return {
    v: 1,
    session,
    id,
    app: target.channel === "feishu" ? target.app : (session.split(".", 1)[0] ?? ""),
    sender: { id: "unknown" },
    chatType: "p2p",
    parts: [{ type: "text", text: "[a message that cannot be read]" }],
    createdAtMs: sharedNow(),
    reply: target,
  };
}

function fieldsOf(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

export function inboundFrom(text: string): InboundMessage {
  return required("message", parseInbound(text));
}

/** Reads the settings of a session; empty text stands for none. */
export function settingsFrom(text: string): SessionSettings {
  return text === "" ? {} : (JSON.parse(text) as SessionSettings); // written by commit from the same type
}

/** Reads what the scripts answer that append. */
export function appendResultFrom(session: SessionKey, reply: unknown): AppendResult {
  const [result, seq, gen, eventSeq, ahead, head] = reply as [
    AppendResult["result"],
    ...[string | number, string | number, string | number, number, string], // shape fixed by the script
  ];
  return {
    result,
    seq: Number(seq),
    ahead,
    ...(eventSeq === "" ? {} : { eventSeq: Number(eventSeq) }),
    ...(head === "" ? {} : { head: queuedFrom(session, head) }),
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

export function batchOf(events: readonly NewEvent[]): string {
  if (events.length === 0) return "";
  const atMs = sharedNow();
  return JSON.stringify(events.map((event) => ({ atMs, ...event })));
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
