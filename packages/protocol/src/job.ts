import { Type, type Static } from "typebox";
import { SessionKey } from "./inbox.ts";
import { Actor, ToolEffect } from "./tool.ts";

/** Queue of wake-ups of sessions. */
export const turnsQueue = "turns";

/** Name of the queue of one runner. */
export function toolsQueue(runner: string): string {
  return `tools-${runner}`;
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
  actor: Actor,
  /** Epoch ms; later the call has been answered with a timeout and must not be started. */
  deadlineMs: Type.Integer(),
});
export type ToolJob = Static<typeof ToolJob>;

/** Job id of a wake-up (BullMQ job ids must not hold `:`). */
export function turnJobId(session: SessionKey, gen: number): string {
  return `${session}-${gen}`;
}

/** Job id of a call: the same for every retry, so that at most one is queued. */
export function toolJobId(turnId: string, callId: string): string {
  return `t-${turnId}-${callId}`.replaceAll(":", "_");
}
