import { approvalIdOf, maskedArguments, type Question, type RiskFinding } from "./permissions/index.ts";
import {
  argumentsHashOf,
  attemptIdOf,
  traceparentOfMessage,
  type Approval,
  type CallState,
  type EngineEvent,
  type EventOf,
  type ReplyLanguage,
  type TurnState,
} from "@larkline/protocol";
import { languageOfMessage, noticeText } from "./notice.ts";
import { textHead } from "./text-cut.ts";
import type { TurnEnvironment } from "./turn-environment.ts";

const maxReasonChars = 2_000;

/** A question about a call, and where it comes from. */
export interface AskedCall {
  kind: "call" | "outcome";
  call: CallState;
  question: Question;
  findings: readonly RiskFinding[];
}

/** Names one attempt of a call. */
export function attemptOf({ id, attempt = 1 }: CallState): string {
  return attemptIdOf({ callId: id, attempt });
}

/** What a decision about this call is bound to. */
export function hashOf({ arguments: given }: CallState): string {
  return argumentsHashOf(JSON.stringify(given));
}

function reasonOf({ kind, call, question, findings }: AskedCall, language: ReplyLanguage): string {
  if (kind === "outcome") return noticeText("outcomeUnknown", language, { tool: call.name });
  const { addresses = [] } = question;
  const reach = addresses.length === 0 ? "" : noticeText("addressAsked", language, { addresses: addresses.join(" ") });
  if (question.reason !== "") return textHead([reach, question.reason].filter(Boolean).join(" "), maxReasonChars);
  if (reach !== "") return reach;
  const patterns = findings.map(({ pattern }) => pattern).join(", ");
  return patterns === "" ? "" : noticeText("riskFound", language, { patterns });
}

/** Whether people besides the requester see the cards: in a group, or because they decide. */
function isForSeveral({ message: { chatType, sender } }: TurnState, { deciders }: Question): boolean {
  const { people, roles } = deciders;
  return chatType === "group" || roles.length > 0 || people.some((id) => id !== sender.id);
}

/** The question as it is stored and shown: whoever makes it again finds the first one. */
export function approvalOf(turn: TurnState, asked: AskedCall, { nowMs, texts }: TurnEnvironment): Approval {
  const { kind, call, question } = asked;
  const { app, tenant, reply, sender, session } = turn.message;
  const language = languageOfMessage(turn.message, texts);
  const { turnId } = turn;
  const bilingual = texts === undefined && isForSeveral(turn, question);
  const reason = reasonOf(asked, language);
  const reasons = { zh: reasonOf(asked, "zh"), en: reasonOf(asked, "en") };
  const argumentsHash = hashOf(call);
  return {
    v: 1,
    id: approvalIdOf({ kind, turnId, attemptId: attemptOf(call), argumentsHash }),
    kind,
    session,
    turnId,
    callId: call.id,
    app,
    ...(tenant === undefined ? {} : { tenant }),
    chatId: reply.channel === "feishu" ? reply.chatId : session,
    requester: sender,
    tool: call.name,
    arguments: call.arguments,
    argumentsHash,
    secrets: call.secrets ?? [],
    deciders: question.deciders,
    reason,
    risk: question.risk,
    ...(question.remember === undefined ? {} : { remember: question.remember }),
    language,
    ...(bilingual ? { bilingual } : {}),
    ...(bilingual && reasons.zh !== reasons.en ? { reasons } : {}),
    target: reply,
    traceparent: traceparentOfMessage(turn.message),
    createdAtMs: nowMs,
    expiresAtMs: question.expiresAtMs,
  };
}

/** What followers learn of a question. `declared`: the tool itself asks for it, so the run stands still by contract. */
export function requestEvents(approval: Approval, declared: boolean): EngineEvent[] {
  const { id, callId, tool: toolName, reason, language } = approval;
  const input = maskedArguments(approval.arguments, approval.secrets);
  const message = reason === "" ? noticeText("approvalNeeded", language, { tool: toolName }) : reason;
  const checkpoint: EngineEvent = { type: "checkpoint", toolCallId: callId, toolName, input, message };
  const request: EngineEvent = { type: "permission_request", id, toolName, input, message };
  return declared ? [checkpoint, request] : [request];
}

/** Advice about a call's input, which delays nothing. */
export function suggestionEvents(call: CallState, findings: readonly RiskFinding[]): EventOf<"checkpoint_suggested">[] {
  return findings.map(({ pattern, reason }) => ({
    type: "checkpoint_suggested",
    toolCallId: call.id,
    toolName: call.name,
    input: maskedArguments(call.arguments, call.secrets ?? []),
    riskReason: reason,
    riskPattern: pattern,
  }));
}
