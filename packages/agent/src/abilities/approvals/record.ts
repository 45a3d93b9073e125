import {
  agentOfTurn,
  chatOf,
  peopleOf,
  textIn,
  traceparentOfMessage,
  type Approval,
  type CallState,
  type EngineEvent,
  type ReplyLanguage,
  type TurnState,
} from "@larkline/protocol";
import { maskedArguments } from "../../permissions/arguments.ts";
import type { Question } from "../../permissions/policy.ts";
import { approvalIdOf } from "../../permissions/rules.ts";
import { textHead } from "../../texts/index.ts";
import type { CallFacts } from "../../turn/ability.ts";
import { languageOfMessage } from "../../turn/messages.ts";
import { attemptOf, hashOf } from "../../turn/tool-call.ts";
import { approvalText } from "./texts.ts";

// What people are asked about a call, as it is stored and shown: of all abilities that ask people.

/** What is asked, and of which call. */
export interface AskedCall {
  readonly kind: "call" | "outcome" | "question" | "consent";
  readonly question: Question;
  /** The question's own reason in a language, where it gives none itself. Default: none. */
  readonly reason?: (language: ReplyLanguage) => string;
  /** Which of several questions of this kind about one attempt it is; absent: the only one. */
  readonly key?: string;
}

/** The record. Its id depends on the call alone, so a retry finds the first one. */
export function recordOf(
  call: CallState,
  { kind, question, reason: own = () => "", key }: AskedCall,
  { turn, env: { nowMs, texts } }: CallFacts,
): Approval {
  const { app, tenant, sender, session } = turn.message;
  const attemptId = key === undefined ? attemptOf(call) : `${attemptOf(call)} ${key}`;
  const language = languageOfMessage(turn.message, texts);
  const bilingual = texts === undefined && isForSeveral(turn, question);
  const reasonIn = (words: ReplyLanguage): string =>
    withPath(turn, textHead(own(words) || textIn(question.reason, words), maxReasonChars));
  const reason = reasonIn(language);
  const reasons = { zh: reasonIn("zh"), en: reasonIn("en") };
  const words =
    question.summary === undefined ? call.words : { ...call.words, summary: question.summary };
  const argumentsHash = hashOf(call);
  return {
    v: 1,
    id: approvalIdOf({ kind, turnId: turn.turnId, attemptId, argumentsHash }),
    kind,
    session,
    turnId: turn.turnId,
    callId: call.id,
    app,
    ...(tenant === undefined ? {} : { tenant }),
    chatId: chatOf(turn.message),
    requester: sender,
    tool: call.name,
    ...(words === undefined ? {} : { words }),
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
    target: peopleOf(turn.message).reply,
    traceparent: traceparentOfMessage(turn.message),
    createdAtMs: nowMs,
    expiresAtMs: question.expiresAtMs,
  };
}

/** Whether people besides the requester see the cards: in a group, or because they decide. */
function isForSeveral(
  { message: { chatType, sender } }: TurnState,
  { deciders }: Question,
): boolean {
  const { people, roles } = deciders;
  return chatType === "group" || roles.length > 0 || people.some((id) => id !== sender.id);
}

const maxReasonChars = 2_000;

/** A reason with the agents, from that of the person's message down, for which a helper asks. */
function withPath(turn: TurnState, reason: string): string {
  const { task } = turn.message;
  if (task === undefined) return reason;
  const path = [...task.path, agentOfTurn(turn)].join(" > ");
  return textHead(reason === "" ? path : `${path}: ${reason}`, maxReasonChars);
}

/** The events of a request. `declared`: the tool itself requires it, which adds a `checkpoint` event. */
export function requestEvents(record: Approval, declared = false): EngineEvent[] {
  const { id, callId, tool: toolName, reason, language } = record;
  const input = maskedArguments(record.arguments, record.secrets);
  const message =
    reason === "" ? approvalText("approvalNeeded", language, { tool: toolName }) : reason;
  const checkpoint: EngineEvent = {
    type: "checkpoint",
    toolCallId: callId,
    toolName,
    input,
    message,
  };
  const request: EngineEvent = {
    type: "permission_request",
    id,
    toolName,
    input,
    message,
    toolCallId: callId,
  };
  return declared ? [checkpoint, request] : [request];
}
