import {
  denial,
  rejectedText,
  textIn,
  type CallState,
  type DecisionWord,
  type ReplyLanguage,
  type ToolOutcome,
  type TurnState,
} from "@larkline/protocol";
import type { WantedPermission } from "../../turn/ability.ts";
import {
  withState,
  type Ability,
  type AttemptEnd,
  type CallFacts,
  type Decided,
  type DecisionEntry,
  type OutcomeEntry,
} from "../../turn/ability.ts";
import { hashOf } from "../../turn/tool-call.ts";
import { recordOf, requestEvents } from "./record.ts";
import { approvalText } from "./texts.ts";

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

/** Of every agent. */
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
  return (abilities?.[name] as ApprovalsState | undefined)?.rejected ?? 0; // written here alone
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
  // What the policy has asked allows the call; an ability has asked for something besides.
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

/** Without a decision about exactly this call its outcome stays unknown. */
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
