import { Type, type Static } from "typebox";
import { SessionKey } from "./session.ts";
import { Actor, ToolDigest, ToolEffect } from "./tool.ts";
import { Traceparent } from "./trace.ts";

/** Queue of wake-ups of sessions. */
export const turnsQueue = "turns";

/** Name of the queue of one runner, or of one of its tools that has limits of its own. */
export function toolsQueue(runner: string, limitedTool?: string): string {
  return limitedTool === undefined ? `tools-${runner}` : `tools-${runner}.${limitedTool}`;
}

/** Names of runners: part of queue names and Redis keys. */
export const RunnerName = Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" });

/** A wake-up: the data lives in the session. `gen` tells stale wake-ups from the current one. */
export const TurnJob = Type.Object({
  v: Type.Literal(1),
  session: SessionKey,
  gen: Type.Integer({ minimum: 1 }),
});
export type TurnJob = Static<typeof TurnJob>;

/** One tool call on its way to a runner. */
export const ToolJob = Type.Object({
  v: Type.Literal(1),
  session: SessionKey,
  turnId: Type.String(),
  callId: Type.String(),
  name: Type.String(),
  /** JSON text of the arguments, checked by the runner against the tool's schema. */
  arguments: Type.String(),
  effect: ToolEffect,
  /** Of the tool that the call was made for, as its runner announced it; absent: not known. */
  toolDigest: Type.Optional(ToolDigest),
  /**
   * From 2 on a person has asked for another try of a call whose outcome was unknown, or no runner was there to start
   * the attempt before, which is closed.
   */
  attempt: Type.Integer({ minimum: 1 }),
  actor: Actor,
  /** Claims of the worker about all of this, signed for the runner: see `verifyCall`. */
  envelope: Type.String({ maxLength: 16_384 }),
  /** Epoch ms at which it was handed out. */
  queuedAtMs: Type.Integer(),
  /** Epoch ms; later the call has been answered with a timeout and must not be started. */
  deadlineMs: Type.Integer(),
  /** The worker that hands it out: who is rung first when the runner hands something in about it. */
  worker: Type.Optional(Type.String({ pattern: "^[A-Za-z0-9-]{1,64}$" })),
  /** Of the message that the call is made for. */
  traceparent: Type.Optional(Traceparent),
});
export type ToolJob = Static<typeof ToolJob>;

/** What stays of a call when its job has finished: ids and numbers, nothing that a person or a model wrote. */
export const FinishedCall = Type.Object({
  v: Type.Literal(1),
  session: SessionKey,
  turnId: Type.String(),
  callId: Type.String(),
  name: Type.String(),
  effect: ToolEffect,
  attempt: Type.Integer({ minimum: 1 }),
  /** Characters of the arguments. */
  argumentsLength: Type.Integer({ minimum: 0 }),
  queuedAtMs: Type.Integer(),
  deadlineMs: Type.Integer(),
  traceparent: Type.Optional(Traceparent),
});
export type FinishedCall = Static<typeof FinishedCall>;

export function finishedCallOf(job: ToolJob): FinishedCall {
  const { v, session, turnId, callId, name, effect, attempt, queuedAtMs, deadlineMs, traceparent } = job;
  const ids = { v, session, turnId, callId, name, effect, attempt };
  const numbers = { argumentsLength: job.arguments.length, queuedAtMs, deadlineMs };
  return { ...ids, ...numbers, ...(traceparent !== undefined && { traceparent }) };
}

/** Job id of a wake-up (BullMQ job ids must not hold `:`). */
export function turnJobId(session: SessionKey, gen: number): string {
  return `${session}-${gen}`;
}

/** Names one attempt of a call, in the ledger and in control entries: the call's id, from the second on `<id>.<attempt>`. */
export function attemptIdOf({ callId, attempt }: { callId: string; attempt: number }): string {
  return attempt === 1 ? callId : `${callId}.${attempt}`;
}

/** Job id of an attempt: the same for every retry, so that at most one is queued. */
export function toolJobId(turnId: string, attemptId: string): string {
  return `t-${turnId}-${attemptId}`.replaceAll(":", "_");
}

/** Priority of calls of background jobs: after all others. BullMQ keeps such jobs in a sorted set. */
export const backgroundPriority = 10;
