import type {
  Approval,
  CallState,
  ControlEntry,
  DecisionWord,
  EngineEvent,
  ToolOutcome,
  TurnState,
} from "@larkline/protocol";
import { awayMs } from "@larkline/store";
import {
  approvalOf,
  attemptOf,
  hashOf,
  requestEvents,
  withoutWait,
  deadlineOf,
  withFacts,
  type OfferedTool,
} from "./tool-call.ts";
import { answerCalls, type Answer } from "./tool-round.ts";
import type { TurnEnvironment } from "./transition.ts";
import { addressContextOf } from "./messages.ts";

/** `ending`: the turn is about to end, so no call starts and no approval is requested. */
interface ApplyFacts {
  env: TurnEnvironment;
  ending: boolean;
}

/** The round after its entries. */
export interface Applied {
  turn: TurnState;
  events: EngineEvent[];
  /** Questions that calls wait for from now on. */
  approvals: Approval[];
}

/** Applies control entries to the open round, in order. Unknown and repeated entries change nothing. */
export function applyControlEntries(turn: TurnState, entries: readonly ControlEntry[], facts: ApplyFacts): Applied {
  let applied: Applied = { turn, events: [], approvals: [] };
  for (const entry of entries) {
    if (entry.type === "outcome") applied = applyOutcome(applied, entry, facts);
    else if (entry.type === "decision") applied = applyDecision(applied, entry, facts);
  }
  return applied;
}

type OutcomeEntry = Extract<ControlEntry, { type: "outcome" }>;

/** Applies an outcome from a runner or from recovery. Only running attempts take one, and the first one counts. */
function applyOutcome(applied: Applied, entry: OutcomeEntry, facts: ApplyFacts): Applied {
  const { callId, outcome, timing, unstarted = false } = entry;
  const call = applied.turn.calls.find((one) => one.state === "running" && attemptOf(one) === callId);
  if (call === undefined) return applied;
  const again = unstarted && !facts.ending ? handedOutAgain(applied.turn, call, facts.env) : undefined;
  if (again !== undefined) return { ...applied, turn: withCall(applied.turn, again) };
  const question = questionAbout(call, outcome, facts);
  if (question === undefined) return answer(applied, { callId, outcome, timing }, facts);
  const approval = approvalOf(applied.turn, { kind: "outcome", call, question, findings: [] }, facts.env);
  const { deadlineMs: _deadlineMs, ...rest } = call;
  return {
    turn: withCall(applied.turn, { ...rest, state: "waiting_outcome", outcome, approvalId: approval.id }),
    events: [...applied.events, ...requestEvents(approval, false)],
    approvals: [...applied.approvals, approval],
  };
}

/** By how much the clocks of a runner and of a worker may differ, ms. */
const clockSlackMs = 1_000;

/**
 * The next attempt of a call that was not started by its deadline because its runner was away: for the same runner, or
 * for the one that offers the tool by now. The ledger has closed the attempt before, so that one can never start.
 * Undefined when the runner was there all the time, or its tool is not offered any more: then the time-out counts.
 */
function handedOutAgain(turn: TurnState, call: CallState, env: TurnEnvironment): CallState | undefined {
  const { nowMs, limits } = env;
  const { startedAtMs = nowMs, handedOutAgainAtMs = startedAtMs, deadlineMs = nowMs } = call;
  const offered = env.tools.get(call.name);
  const isLate = deadlineMs <= nowMs + clockSlackMs;
  // A runner that keeps restarting holds a call no longer than one that stays away.
  if (offered === undefined || !isLate || nowMs - startedAtMs > awayMs) return undefined;
  const { awayForMs, livingSinceMs = 0 } = offered;
  const isTaken = offered.runner !== call.runner;
  // Its instances started after the call: for a time the runner had none.
  const wasAway = isTaken || awayForMs !== undefined || livingSinceMs > handedOutAgainAtMs;
  const next = isTaken ? takenOver(turn, call, { offered, env }) : call;
  if (!wasAway || next === undefined) return undefined;
  const { runnerIsAway: _wasAway, ...rest } = next;
  return {
    ...rest,
    ...(awayForMs === undefined ? {} : { runnerIsAway: true }),
    attempt: (call.attempt ?? 1) + 1,
    handedOutAgainAtMs: nowMs,
    deadlineMs: deadlineOf(next.timeoutMs ?? limits.toolTimeoutMs, env, offered),
  };
}

/**
 * The call as one of another runner, which has taken over its tool. Undefined where it was made for another schema or
 * effect, or where it needs more than what has allowed it: the model may call the tool as it is now.
 */
function takenOver(
  turn: TurnState,
  call: CallState,
  { offered, env }: { offered: OfferedTool; env: TurnEnvironment },
): CallState | undefined {
  const { toolDigest, limited: _limited, secrets = [], authority, ...rest } = call;
  const { digest, secrets: itsSecrets = [] } = offered.announcement;
  if (toolDigest === undefined || toolDigest !== digest) return undefined;
  const addressContext = addressContextOf(env.history ?? [], turn.message);
  const verdict = env.judge.verdict({ name: call.name, arguments: call.arguments, addressContext });
  const isApproved = authority?.by === "approval";
  if (verdict.do === "refuse" || (verdict.do === "ask" && !isApproved)) return undefined;
  const allowed = verdict.do === "ask" || isApproved ? authority : verdict.authority;
  const hidden = [...new Set([...secrets, ...itsSecrets])];
  return {
    ...withFacts(rest, offered),
    ...(hidden.length === 0 ? {} : { secrets: hidden }),
    ...(allowed === undefined || allowed.by === "policy" ? {} : { authority: allowed }),
  };
}

function withCall(turn: TurnState, changed: CallState): TurnState {
  return { ...turn, calls: turn.calls.map((call) => (call.id === changed.id ? changed : call)) };
}

/** The question to people about this outcome, where the policy asks one. */
function questionAbout(call: CallState, outcome: ToolOutcome, { env, ending }: ApplyFacts) {
  const unknown = !outcome.ok && outcome.unknown === true && call.effect === "once";
  return unknown && !ending ? env.judge.unknownOutcome({ name: call.name, arguments: call.arguments }) : undefined;
}

function answer(applied: Applied, given: Answer, { env }: ApplyFacts): Applied {
  const { turn, events } = answerCalls(applied.turn, [given], env);
  return { ...applied, turn, events: [...applied.events, ...events] };
}

type DecisionEntry = Extract<ControlEntry, { type: "decision" }>;

/** Applies a settled approval. It is ignored unless its call waits for it. */
function applyDecision(applied: Applied, entry: DecisionEntry, facts: ApplyFacts): Applied {
  const call = applied.turn.calls.find(({ approvalId }) => approvalId === entry.approvalId);
  const ruling = call === undefined ? undefined : rulingOn(call, entry, facts.env);
  if (call === undefined || ruling === undefined) return applied;
  if ("start" in ruling) return facts.ending ? applied : { ...applied, turn: withCall(applied.turn, ruling.start) };
  const ended = answer(applied, { callId: attemptOf(call), outcome: ruling.end }, facts);
  if (ruling.denied === undefined) return ended;
  return { ...ended, turn: { ...ended.turn, denials: (ended.turn.denials ?? 0) + 1 } };
}

/** The effect of a settled approval on its call: the call starts or ends. */
type Ruling = { start: CallState } | { end: ToolOutcome; denied?: true };

function rulingOn(call: CallState, entry: DecisionEntry, env: TurnEnvironment): Ruling | undefined {
  if (call.state === "waiting_approval") return permissionRuling(call, entry, env);
  return call.state === "waiting_outcome" ? outcomeRuling(call, entry, env) : undefined;
}

/** What the model reads when a person has rejected a call; the same in every language, by contract. */
const rejectedText = "User rejected this action.";

/** What the model reads when a call was not approved, by the state of the approval. */
const notRun: Readonly<Record<string, string>> = {
  expired: "permission_denied: nobody approved this call in time. It was not run.",
  undeliverable: "permission_denied: nobody could be asked to approve this call. It was not run.",
  cancelled: "permission_denied: the question whether to run this call was withdrawn. It was not run.",
};

const notDecided = "permission_denied: this call was not approved. It was not run.";

const otherArguments = "permission_denied: the approval was given for other arguments. The call was not run.";

/** The ruling on a call that waits for permission. */
function permissionRuling(call: CallState, entry: DecisionEntry, env: TurnEnvironment): Ruling {
  const { state } = entry;
  if (state === "rejected") {
    return { end: failure(`${rejectedText}${notesOf("Reason", entry, "reject")}`), denied: true };
  }
  if (state !== "approved") return { end: failure(notRun[state] ?? notDecided) };
  if (entry.argumentsHash !== hashOf(call)) return { end: failure(otherArguments) };
  return { start: started(call, entry, env) };
}

function failure(error: string): ToolOutcome {
  return { ok: false, error };
}

/** The notes of people who decided `word`, one per line. */
function notesOf(label: string, { decisions }: DecisionEntry, word: DecisionWord): string {
  return decisions
    .filter(({ decision }) => decision === word)
    .flatMap(({ note = "" }) => (note.trim() === "" ? [] : `\n${label}: ${note.trim()}`))
    .join("");
}

/** The call as it starts after an approval: its clock and its deadline begin now. */
function started(call: CallState, { approvalId, decisions }: DecisionEntry, env: TurnEnvironment): CallState {
  const people = [...new Set(decisions.map(({ by }) => by.id))];
  const offered = env.tools.get(call.name);
  const tool = offered?.runner === call.runner ? offered : undefined;
  const { runnerIsAway: _wasAway, handedOutAgainAtMs: _again, ...rest } = withoutWait(call);
  return {
    ...rest,
    ...(tool?.awayForMs === undefined ? {} : { runnerIsAway: true }),
    state: "running",
    startedAtMs: env.nowMs,
    deadlineMs: deadlineOf(call.timeoutMs ?? env.limits.toolTimeoutMs, env, tool),
    authority: { by: "approval", id: approvalId, people },
  };
}

const aborted = "The outcome of this call is unknown, and a person decided not to try it again.";

const markedDone = "A person has checked this call: it took effect. Its own result is lost.";

/** The ruling on a call whose outcome is unknown. Without a decision about exactly this call the outcome stays unknown. */
function outcomeRuling(call: CallState, entry: DecisionEntry, env: TurnEnvironment): Ruling {
  const unknown: ToolOutcome = call.outcome ?? { ok: false, error: aborted, unknown: true };
  if (entry.argumentsHash !== hashOf(call)) return { end: unknown };
  switch (entry.state) {
    case "retried":
      return { start: { ...started(call, entry, env), attempt: (call.attempt ?? 1) + 1 } };
    case "done":
      return { end: { ok: true, result: `${markedDone}${notesOf("Note", entry, "done")}` } };
    case "aborted":
      return { end: { ok: false, error: `${aborted}${notesOf("Reason", entry, "abort")}`, unknown: true } };
    default:
      return { end: unknown };
  }
}

/** Calls to dispatch now: the attempts that did not run before. */
export function startedSince(before: TurnState, { calls }: TurnState): CallState[] {
  const running = new Set(before.calls.filter(({ state }) => state === "running").map(attemptOf));
  return calls.filter((call) => call.state === "running" && !running.has(attemptOf(call)));
}
