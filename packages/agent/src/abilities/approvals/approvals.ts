import { textIn, type ReplyLanguage, chatOf, peopleOf } from "@larkline/protocol";
import type { DecisionWord, Approval } from "@larkline/protocol/approval";
import { rejectedText } from "@larkline/protocol/error";
import type { EngineEvent } from "@larkline/protocol/event";
import { denial, type ToolOutcome } from "@larkline/protocol/tool";
import { traceparentOfMessage } from "@larkline/protocol/trace";
import { type CallState, type TurnState, agentOfTurn } from "@larkline/protocol/turn";
import {
  type WantedPermission,
  withState,
  type Ability,
  type AttemptEnd,
  type CallFacts,
  type Decided,
  type DecisionEntry,
  type OutcomeEntry,
} from "../../turn/ability.ts";
import { hashOf, attemptOf } from "../../turn/tool-call.ts";
import { maskedArguments } from "../../permissions/arguments.ts";
import type { Question } from "../../permissions/policy.ts";
import { approvalIdOf } from "../../permissions/rules.ts";
import { textHead, filledText, type NoticeValues } from "../../texts/index.ts";
import { languageOfMessage } from "../../turn/messages.ts";

/*
 * Approvals: people decide whether a call runs, where the policy or an ability wants that, and what becomes of a call
 * that may have taken effect. The policy is no part of it: every call passes it first, those of all abilities included.
 */

/** What the ability keeps: how often people have rejected calls of the turn. */
interface ApprovalsState {
  readonly rejected: number;
}

/** Its key in the checkpoint. */
const name = "approvals";

/** The ability of every agent. */
export const approvals: Ability<ApprovalsState> = {
  name,
  toolNames: [],
  askPermission,
  onOutcome: unknownOutcome,
  onDecision: (call, entry, facts) =>
    call.state === "waiting_outcome"
      ? outcomeDecided(call, entry)
      : permissionDecided(call, entry, facts),
};

function rejectedIn({ abilities }: TurnState): number {
  return (abilities[name] as ApprovalsState | undefined)?.rejected ?? 0; // written here alone
}

/** The call waits for a permission, unless asking for it is of no use. */
function askPermission(
  call: CallState,
  wanted: WantedPermission,
  facts: CallFacts,
): ReturnType<NonNullable<Ability["askPermission"]>> {
  const { question, by } = wanted;
  const { schemas, limits, tools } = facts.env;
  const tool = tools.get(call.name)?.announcement;
  // The runner would refuse them after people have approved.
  const checked = tool && schemas.check(tool.spec.inputSchema, call.arguments);
  if (checked?.ok === false && checked.isUnchecked !== true) {
    return { outcome: { ok: false, error: misfit(checked.error) } };
  }
  const rejected = rejectedIn(facts.turn);
  if (rejected >= limits.maxDenials) return { outcome: noMoreQuestions(rejected) };
  const reason = (language: ReplyLanguage): string => reasonOf(wanted, language);
  const key = by === undefined ? {} : { key: by };
  const record = recordOf(call, { kind: "call", question, reason, ...key }, facts);
  const declared = by === undefined && tool?.requiresApproval === true;
  return { ask: { record, events: requestEvents(record, declared) } };
}

function misfit(error: string): string {
  return `The arguments do not fit: ${error}. The tool was not run, and no approval was asked for.`;
}

function noMoreQuestions(rejected: number): ToolOutcome {
  const why = `people have rejected ${rejected} calls of this turn, so nobody is asked any more`;
  return denial(
    `${why}. The call was not run. Do not try other ways to the same end: say what you could not do.`,
  );
}

/** What the call would reach, then why the policy asks; where it gives no reason, which risks were found. */
function reasonOf({ question, findings }: WantedPermission, language: ReplyLanguage): string {
  const { addresses = [] } = question;
  const reach =
    addresses.length === 0
      ? ""
      : approvalText("addressAsked", language, { addresses: addresses.join(" ") });
  const given = textIn(question.reason, language);
  if (given !== "") return [reach, given].filter(Boolean).join(" ");
  if (reach !== "") return reach;
  const patterns = findings.map(({ pattern }) => pattern).join(", ");
  return patterns === "" ? "" : approvalText("riskFound", language, { patterns });
}

/** What the model reads when a call was not approved, by the state of the approval. */
const notRun: Readonly<Record<string, string>> = {
  expired: "nobody approved this call in time. It was not run.",
  undeliverable: "nobody could be asked to approve this call. It was not run.",
  cancelled: "the question whether to run this call was withdrawn. It was not run.",
};

const notChecked = "the approval of this call could not be checked in time. It was not run.";

const notDecided = "this call was not approved. It was not run.";

function permissionDecided(call: CallState, entry: DecisionEntry, { turn }: CallFacts): Decided {
  const { state, unchecked = false } = entry;
  if (unchecked) return denial(notChecked);
  if (state === "rejected") {
    const error = `${rejectedText}${notesOf("Reason", entry, "reject")}`;
    const kept: ApprovalsState = { rejected: rejectedIn(turn) + 1 };
    return { outcome: { ok: false, denied: true, error }, turn: withState(turn, { name }, kept) };
  }
  if (state !== "approved") return denial(notRun[state] ?? notDecided);
  // People have allowed the call for the policy before; the ability has asked them for something else.
  if (call.askedBy !== undefined && call.authority?.by === "approval") return { start: call };
  return { start: allowedBy(call, entry) };
}

function allowedBy(call: CallState, { approvalId, decisions }: DecisionEntry): CallState {
  const people = [...new Set(decisions.map(({ by }) => by.id))];
  return { ...call, authority: { by: "approval", id: approvalId, people } };
}

/** The notes of people who decided `word`, one per line. */
function notesOf(label: string, { decisions }: DecisionEntry, word: DecisionWord): string {
  return decisions
    .filter(({ decision }) => decision === word)
    .flatMap(({ note = "" }) => (note.trim() === "" ? [] : `\n${label}: ${note.trim()}`))
    .join("");
}

/** People are asked about a `once` call that may have taken effect, where the policy wants it. */
function unknownOutcome(
  call: CallState,
  { outcome }: OutcomeEntry,
  facts: CallFacts,
): AttemptEnd | undefined {
  const isUnknown = !outcome.ok && outcome.unknown === true && call.effect === "once";
  if (!isUnknown || facts.ending === true) return undefined;
  const { name: tool, arguments: given } = call;
  const question = facts.env.callPolicy.unknownOutcome({ name: tool, arguments: given });
  if (question === undefined) return undefined;
  const reason = (language: ReplyLanguage): string =>
    approvalText("outcomeUnknown", language, { tool });
  const record = recordOf(call, { kind: "outcome", question, reason }, facts);
  return { ask: { record, events: requestEvents(record) }, call: { ...call, outcome } };
}

const aborted = "The outcome of this call is unknown, and a person decided not to try it again.";

const markedDone = "A person has checked this call: it took effect. Its own result is lost.";

/** The outcome stays unknown without a decision about exactly this call. */
function outcomeDecided(call: CallState, entry: DecisionEntry): Decided {
  const unknown: ToolOutcome = call.outcome ?? { ok: false, error: aborted, unknown: true };
  if (entry.argumentsHash !== hashOf(call)) return unknown;
  switch (entry.state) {
    case "retried":
      return { again: allowedBy(call, entry) };
    case "done":
      return { ok: true, result: `${markedDone}${notesOf("Note", entry, "done")}` };
    case "aborted":
      return {
        ok: false,
        error: `${aborted}${notesOf("Reason", entry, "abort")}`,
        unknown: true,
      };
    default:
      return unknown;
  }
}

// What people are asked about a call, as it is stored and shown: of all abilities that ask people.

/** What is asked, and of which call. */
interface AskedCall {
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

// What people read of approvals, in both languages. The cards have texts of their own (packages/feishu/src/approvals).

const texts = {
  approvalNeeded: {
    zh: "工具 {tool} 需要有人批准后才能执行。",
    en: "The tool {tool} needs a person's approval before it runs.",
  },
  addressAsked: {
    zh: "读取外部内容后，模型要访问没有人提到过的地址：{addresses}。地址里可能带有对话中的内容，请确认后再批准。",
    en: "After reading text from outside, the model wants to reach an address that no person here has named: {addresses}. It may carry what was said here, so look at it before you approve.",
  },
  riskFound: {
    zh: "操作内容有风险：{patterns}。",
    en: "What it is going to do is risky: {patterns}.",
  },
  outcomeUnknown: {
    zh: "{tool} 已开始执行，但结果未知，可能已经生效。请检查后决定如何处理。",
    en: "{tool} was started and its outcome is unknown: it may have taken effect. Please check, then decide.",
  },
} as const satisfies Record<string, Record<ReplyLanguage, string>>;

/** The text in one language. Values are cut to size and to one line. */
export function approvalText(
  which: keyof typeof texts,
  language: ReplyLanguage,
  values: NoticeValues,
): string {
  return filledText(texts[which][language], values);
}
