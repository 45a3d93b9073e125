import { isDeepStrictEqual } from "node:util";
import {
  awayMs,
  type Approval,
  type CallState,
  type EngineEvent,
  type ToolOutcome,
  type TurnState,
  denial,
  type ControlEntry,
} from "@larkline/protocol";
import { addressContextOf } from "./context.ts";
import {
  decidedAbout,
  type CallFacts,
  entryEffect,
  firstOnOutcome,
  needsOfCalls,
  readsOthers,
  type DecisionEntry,
  type OutcomeEntry,
  type TurnEnvironment,
} from "./ability.ts";
import type { OfferedTool } from "./facts.ts";
import {
  attemptOf,
  type WaitingCall,
  waitingFor,
  hashOf,
  deadlineOf,
  startedNow,
  startUnlessObjected,
  withFacts,
} from "./tool-call.ts";
import { answerCalls, isOpen, type Answer } from "./tool-round.ts";

// Control entries: outcomes of attempts and decisions of people, as they change the open round.

/** `ending`: the turn is about to end, so no call starts and no person is asked. */
type ApplyFacts = Required<Omit<CallFacts, "turn">>;

/** The round after its entries. */
interface Applied {
  turn: TurnState;
  events: EngineEvent[];
  /** What people are asked from now on. */
  asked: Approval[];
}

/** Applies control entries to the open round, in order. Unknown and repeated entries change nothing. */
export function applyControlEntries(
  turn: TurnState,
  entries: readonly ControlEntry[],
  facts: ApplyFacts,
): Applied {
  let applied: Applied = { turn, events: [], asked: [] };
  for (const entry of entries) {
    if (entry.type === "outcome") applied = applyOutcome(applied, entry, facts);
    else if (entry.type === "decision") applied = applyDecision(applied, entry, facts);
    else {
      const { turn: next, events } = entryEffect(entry, applied.turn, facts.env.abilities);
      applied = { ...applied, turn: next, events: [...applied.events, ...events] };
    }
  }
  return applied;
}

/** Applies an outcome from a runner or from recovery. Only running attempts take one, and the first one counts. */
function applyOutcome(applied: Applied, entry: OutcomeEntry, facts: ApplyFacts): Applied {
  const { callId, timing, unstarted = false } = entry;
  const call = applied.turn.calls.find(
    (one) => one.state === "running" && attemptOf(one) === callId,
  );
  if (call === undefined) return applied;
  const { outcome } = entry;
  const again =
    unstarted && !facts.ending ? handedOutAgain(applied.turn, call, facts.env) : undefined;
  if (again !== undefined) return { ...applied, turn: withCall(applied.turn, again) };
  const renewed = facts.ending ? undefined : withOtherToken(call, outcome, facts.env);
  if (renewed !== undefined) return { ...applied, turn: withCall(applied.turn, renewed) };
  const own = firstOnOutcome(call, entry, { ...facts, turn: applied.turn });
  if (own !== undefined) {
    const { made, by } = own;
    const kept = { ...applied, turn: made.turn ?? applied.turn };
    if ("ask" in made) {
      return withWaiting(kept, waitingFor(made.call, made.ask, by), facts.env);
    }
    return answer(kept, { callId, outcome: made.outcome }, facts);
  }
  return answer(applied, { callId, outcome, timing }, facts);
}

function withWaiting(
  applied: Applied,
  { call, asked, events }: WaitingCall,
  { abilities }: TurnEnvironment,
): Applied {
  const needs = [...new Set([...(applied.turn.needs ?? []), ...needsOfCalls([call], abilities)])];
  return {
    turn: { ...withCall(applied.turn, call), ...(needs.length === 0 ? {} : { needs }) },
    events: [...applied.events, ...events],
    asked: [...applied.asked, asked],
  };
}

/** By how much the clocks of a runner and of a worker may differ, ms. */
const clockSlackMs = 1_000;

/**
 * The next attempt of a call that was not started by its deadline because its runner was away: for the same runner, or
 * for the one that offers the tool by now. The ledger has closed the attempt before, so that one can never start.
 * Undefined when the runner was there all the time, or its tool is not offered any more: then the time-out counts.
 */
function handedOutAgain(
  turn: TurnState,
  call: CallState,
  env: TurnEnvironment,
): CallState | undefined {
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
 * The next attempt of a call whose token the platform has refused before it took any effect: once, because a worker
 * fetches another token for it. Undefined for all other outcomes.
 */
function withOtherToken(
  call: CallState,
  outcome: ToolOutcome,
  env: TurnEnvironment,
): CallState | undefined {
  if (outcome.ok || outcome.grant?.kind !== "token" || call.tokenRefused === true) return undefined;
  const attempt = (call.attempt ?? 1) + 1;
  return { ...startedNow(call, env), attempt, tokenRefused: true };
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
  const { digest, identity, secrets: itsSecrets = [] } = offered.announcement;
  if (toolDigest === undefined || toolDigest !== digest) return undefined;
  if (!isDeepStrictEqual(identity, call.identity)) return undefined;
  const addressContext = addressContextOf(env.history ?? [], turn.message, readsOthers(env));
  const verdict = env.callPolicy.verdict({
    name: call.name,
    arguments: call.arguments,
    addressContext,
  });
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

function answer(applied: Applied, given: Answer, { env }: ApplyFacts): Applied {
  const { turn, events } = answerCalls(applied.turn, [given], env);
  return { ...applied, turn, events: [...applied.events, ...events] };
}

/** Applies the answer of people. It is ignored unless a call waits for it. */
function applyDecision(applied: Applied, entry: DecisionEntry, facts: ApplyFacts): Applied {
  const call = applied.turn.calls.find(({ approvalId }) => approvalId === entry.approvalId);
  if (call === undefined || !isOpen(call)) return applied;
  const { env, ending } = facts;
  const found = decidedAbout(call, entry, { turn: applied.turn, env, ending });
  if (found === undefined) return applied;
  const { by, decided } = found;
  const end = (outcome: ToolOutcome, turn = applied.turn): Applied =>
    answer({ ...applied, turn }, { callId: attemptOf(call), outcome }, facts);
  if ("ok" in decided) return end(decided);
  if ("outcome" in decided) return end(decided.outcome, decided.turn);
  if ("ask" in decided) {
    if (ending) return applied;
    const kept = { ...applied, turn: decided.turn ?? applied.turn };
    return withWaiting(kept, waitingFor(decided.call, decided.ask, by), env);
  }
  if (entry.argumentsHash !== hashOf(call)) return end(denial(otherArguments));
  if (ending) return applied;
  const started =
    "again" in decided ? nextAttempt(decided.again, env) : startedNow(decided.start, env);
  return withStart(applied, started, facts);
}

const otherArguments = "the approval was given for other arguments. The call was not run.";

/** Each ability may object to the next attempt of a call. */
function nextAttempt({ askedBy: _askedBy, ...call }: CallState, env: TurnEnvironment): CallState {
  return { ...startedNow(call, env), attempt: (call.attempt ?? 1) + 1 };
}

/** People have let a call start: it does, unless an ability objects. */
function withStart(applied: Applied, call: CallState, { env, ending }: ApplyFacts): Applied {
  const { turn } = applied;
  const started = startUnlessObjected(call, { turn, env });
  if ("start" in started) return { ...applied, turn: withCall(turn, started.start) };
  if ("end" in started) {
    const waited = { ...applied, turn: withCall(turn, call) };
    return answer(waited, { callId: attemptOf(call), outcome: started.end }, { env, ending });
  }
  return withWaiting(applied, started.wait, env);
}

/** Calls to dispatch now: the attempts that did not run before. */
export function startedSince(before: TurnState, { calls }: TurnState): CallState[] {
  const running = new Set(before.calls.filter(({ state }) => state === "running").map(attemptOf));
  return calls.filter((call) => call.state === "running" && !running.has(attemptOf(call)));
}
