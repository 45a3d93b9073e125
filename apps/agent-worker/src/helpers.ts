import { attemptOf, outOfSteps, type Transition, type TurnLimits } from "@larkline/agent";
import { taskMessage, waitOf, type HelperEnd } from "@larkline/agent/helpers";
import {
  rootSessionOf,
  turnIdOf,
  type HelperWait,
  type InboundMessage,
  type SessionKey,
} from "@larkline/protocol";
import type { Message } from "@larkline/protocol/content";
import { agentOfTurn, type CallState, type TurnState } from "@larkline/protocol/turn";
import type { AskerAnswer, AskerUpdate, ChildFacts, OpenCall } from "@larkline/store";
import type { Services } from "./services.ts";

// Helpers as a worker sees them: how the session of one begins, is woken, stopped and ends, and how many
// steps it may take. That a call and its session begin and end together is for the store to see to (lua/children.lua).

/** The session of a helper, which begins with the write that opens its call. */
export function childOf(
  { agents, clock }: Services,
  turn: TurnState,
  call: CallState,
  history: readonly Message[],
): OpenCall["child"] {
  const link = agents.get(agentOfTurn(turn))?.helpers.get(call.name)?.link;
  if (link === undefined) return undefined;
  const isTeam = (agents.get(link.agent)?.config.team ?? null) !== null;
  const message = taskMessage(call, turn, link, { nowMs: clock.now(), history, isTeam });
  return { message, facts: childFactsOf(message) };
}

function childFactsOf({ task, agent = "default", createdAtMs }: InboundMessage): ChildFacts {
  const { turnId: parentRunId = "", callId = "", as = agent } = task ?? {};
  return { parentRunId, callId, as, agent, beganAtMs: createdAtMs };
}

/** The outcome that the asker of a helper gets at its end; undefined for the turn of a person's message. */
export function askerAnswer(
  { message }: TurnState,
  end: HelperEnd,
  endedAtMs: number,
): AskerAnswer | undefined {
  const { task } = message;
  if (task === undefined) return undefined;
  const { outcome, used } = end;
  const facts = { ...childFactsOf(message), endedAtMs, isOk: outcome.ok };
  return { session: task.session, turnId: task.turnId, callId: task.callId, outcome, used, facts };
}

/**
 * The update for the asker of a helper, sent with the next write; undefined when nothing is new. `last`: the
 * update before.
 */
export function askerUpdate(
  { helperReadiness }: Services,
  turn: TurnState,
  last: HelperWait | undefined,
): AskerUpdate | undefined {
  const { task } = turn.message;
  if (task === undefined || !helperReadiness.readsWaits) return undefined;
  const wait = waitOf(turn);
  if (wait?.id === last?.id) return undefined;
  const { session, turnId, callId } = task;
  return { session, turnId, callId, ...(wait === undefined ? {} : { wait }) };
}

/** The session of a helper, or of its asker, waits for a worker since a write for another session. */
export async function wakeQueued({ store, turns }: Services, session: SessionKey): Promise<void> {
  const gen = await store.queuedGeneration(session);
  if (gen !== undefined) await turns.wake(session, gen);
}

/**
 * Cancels helpers, and through their turns all helpers below them. Each ends its turn, and with it the call here. May be
 * repeated.
 */
export async function stopHelpers(services: Services, calls: readonly CallState[]): Promise<void> {
  const { store, turns, cancels } = services;
  const sessions = calls.flatMap(({ helper }) => helper?.session ?? []);
  const stop = async (session: SessionKey): Promise<void> => {
    const { accepted, wakeGen } = await store.cancel(session, { reason: "cancelled" });
    if (wakeGen !== undefined) await turns.wake(session, wakeGen);
    if (accepted) await cancels.publish({ session });
  };
  await Promise.all(sessions.map(stop));
}

/** Sessions of helpers that work for a turn, as the store knows them. */
export async function helpersOfRun(
  { store }: Services,
  { turnId, message }: TurnState,
): Promise<SessionKey[]> {
  const children = await store.childrenAtWork(rootSessionOf(message.session));
  return children.flatMap(({ session, parentRunId }) => (parentRunId === turnId ? [session] : []));
}

/** The turn of these calls has ended, and the store has cancelled their helpers: wakes those that wait, and notifies the workers of the others. */
export async function wakeDropped(
  { store, turns, cancels }: Services,
  sessions: readonly SessionKey[],
): Promise<void> {
  const wake = async (session: SessionKey): Promise<void> => {
    const gen = await store.queuedGeneration(session);
    if (gen !== undefined) await turns.wake(session, gen);
    await cancels.publish({ session });
  };
  await Promise.all(sessions.map(wake));
}

/** How long a late helper has to end before it is looked at again, ms. */
const endsWithinMs = 10_000;

/** Cancels a helper, which answers its call when it has ended. False: it has ended, and its call is open. */
export async function endsLate(
  services: Services,
  session: string,
  call: CallState,
): Promise<boolean> {
  const { store, clock } = services;
  const child = call.helper?.session ?? "";
  const { state, turn } = await store.summary(child);
  if (state === "idle") return false;
  if (await asksPeople(services, child)) {
    await store.postpone(session, attemptOf(call), clock.now() + (call.timeoutMs ?? 0));
    return true;
  }
  const isCancelled = turn?.stopping !== undefined || (await store.cancelled(child));
  if (!isCancelled) await stopHelpers(services, [call]);
  // Moved behind the others, so that a helper whose tool does not stop does not delay them.
  await store.postpone(session, attemptOf(call), clock.now() + endsWithinMs);
  return true;
}

/** Whether a helper, or one below it, waits for people: meanwhile no deadline runs. */
async function asksPeople({ store, approvals }: Services, session: string): Promise<boolean> {
  const children = await store.childrenAtWork(rootSessionOf(session));
  const below = [session];
  for (const at of below) {
    below.push(
      ...children
        .filter(({ parentRunId }) => parentRunId === turnIdOf(at, 1))
        .map((child) => child.session),
    );
  }
  const asked = await Promise.all(below.map(async (child) => await approvals.pending(child)));
  return asked.some((list) => list.length > 0);
}

/** The bounds of a turn that works on a task, which may have fewer steps than the agent. */
export function limitsOfTask(
  { maxSteps }: NonNullable<InboundMessage["task"]>,
  limits: TurnLimits,
): TurnLimits {
  if (maxSteps === undefined) return limits;
  return { ...limits, maxIterations: Math.min(limits.maxIterations, maxSteps) };
}

/** The end of a helper's turn when the message that it works for has no model steps left; each is counted before it. */
export async function withoutSteps(
  { store }: Services,
  { turn, epoch }: { turn: TurnState; epoch: string },
  { maxStepsWithHelpers }: TurnLimits,
): Promise<Transition | { end: "fenced" } | undefined> {
  const { task, session } = turn.message;
  if (task === undefined) return undefined;
  const { rootTurnId, rootSteps } = task;
  const counted = await store.countStep({
    session,
    epoch,
    turnId: turn.turnId,
    rootTurnId,
    step: turn.steps + 1,
  });
  if (counted === undefined) return { end: "fenced" };
  return rootSteps + counted > maxStepsWithHelpers ? outOfSteps(turn) : undefined;
}
