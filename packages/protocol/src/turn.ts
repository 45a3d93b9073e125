import { Type, type Static } from "typebox";
import { InboundMessage } from "./inbox.ts";
import { ToolOutcome } from "./tool.ts";

/**
 * Where a call of the current batch stands. Every call reaches `done` with exactly one outcome
 * before the next model step.
 */
export const CallState = Type.Object({
  id: Type.String(),
  name: Type.String(),
  /** Parsed arguments; `{}` when the model's text was no JSON object (such calls are done at once). */
  arguments: Type.Record(Type.String(), Type.Unknown()),
  state: Type.Enum(["running", "waiting_approval", "waiting_outcome", "done"]),
  outcome: Type.Optional(ToolOutcome),
  /** Epoch ms after which the call is answered with a timeout. */
  deadlineMs: Type.Optional(Type.Integer()),
});
export type CallState = Static<typeof CallState>;

export const TurnTotals = Type.Object({
  inputTokens: Type.Integer(),
  outputTokens: Type.Integer(),
  costUsd: Type.Number(),
});
export type TurnTotals = Static<typeof TurnTotals>;

/** The checkpoint of a turn: all that a successor needs, besides history, to go on after a crash. */
export const TurnState = Type.Object({
  v: Type.Literal(1),
  turnId: Type.String(),
  message: InboundMessage,
  /** Model steps finished so far; the iteration limit counts these over the whole turn. */
  steps: Type.Integer({ minimum: 0 }),
  calls: Type.Array(CallState),
  totals: TurnTotals,
  startedAtMs: Type.Integer(),
});
export type TurnState = Static<typeof TurnState>;
