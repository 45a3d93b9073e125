import {
  argumentsHashOf,
  attemptIdOf,
  type Actor,
  type CallState,
  type InboundMessage,
  type TurnState,
} from "@larkline/protocol";
import type { CallFacts, OpenCall } from "@larkline/store";

// What can be told of a call from the state of its turn.

/** Stands for the workers where a call names its runner; no runner can be called so. */
export const builtInRunner = "(worker)";

/** The id of a call's present attempt: what ledger, jobs and outcomes know it by. */
export function attemptOf({ id, attempt = 1 }: CallState): string {
  return attemptIdOf({ callId: id, attempt });
}

/** What a runner gets as arguments; what was approved hashes to the same. */
export function argumentsTextOf({ arguments: given }: CallState): string {
  return JSON.stringify(given);
}

/** The chat that a message is from; over HTTP, where there are none, its session. */
export function placeOf({ reply, session }: InboundMessage): string {
  return reply.channel === "feishu" ? reply.chatId : session;
}

/** Person and place that the calls of a turn act for. */
export function actorOf({ message }: TurnState): Actor {
  const { app, tenant, sender } = message;
  return {
    app,
    ...(tenant === undefined ? {} : { tenant }),
    userId: sender.id,
    ...(sender.name === undefined ? {} : { userName: sender.name }),
    chatId: placeOf(message),
  };
}

/** What the audit log says of a call. */
function factsOf(turn: TurnState, call: CallState): CallFacts {
  const { userName: _userName, ...actor } = actorOf(turn);
  const { authority, runner } = call;
  return {
    ...actor,
    turnId: turn.turnId,
    tool: call.name,
    argumentsHash: argumentsHashOf(argumentsTextOf(call)),
    ...(runner === undefined ? {} : { runner }),
    ...(authority?.by === "approval" ? { approvalId: authority.id } : {}),
    ...(authority?.by === "rule" ? { ruleId: authority.id } : {}),
  };
}

/** The attempts of a turn that runners work on. */
export function openCallsOf(turn: TurnState): OpenCall[] {
  return turn.calls
    .filter(({ state }) => state === "running")
    .map((call) => ({
      callId: attemptOf(call),
      deadlineMs: call.deadlineMs ?? Number.MAX_SAFE_INTEGER,
      facts: factsOf(turn, call),
    }));
}

/** Whose call it is while it runs; built-in tools are run here. */
export function runnerAtWork({ state, runner }: CallState): string[] {
  return state === "running" && runner !== undefined && runner !== builtInRunner ? [runner] : [];
}

/** Whether people are to say what becomes of the call. */
export function waitsForPeople({ state }: CallState): boolean {
  return state === "waiting_approval" || state === "waiting_outcome";
}

/**
 * Whether a turn in a group waits for people and for nothing else, so that turns of others may come before its end.
 * Not where the step is in the history already, as earlier versions wrote it: its results have to follow at once.
 */
export function waitsForPeopleOnly({ calls, held, message }: TurnState): boolean {
  const open = calls.filter(({ state }) => state !== "done");
  return message.chatType === "group" && held !== undefined && open.length > 0 && open.every(waitsForPeople);
}
