import { Type, type Static } from "typebox";

/**
 * What running a call twice would do. `pure`: nothing; `idempotent`: the same as once;
 * `once`: harm, so a call that was started and not finished is never started again.
 */
export const toolEffects = ["pure", "idempotent", "once"] as const;
export const ToolEffect = Type.Enum([...toolEffects]);
export type ToolEffect = (typeof toolEffects)[number];

/** What a model is told about a tool. Vendors accept letters, digits, `_` and `-` in names. */
export const ToolSpec = Type.Object({
  name: Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" }),
  description: Type.String({ maxLength: 8_192 }),
  inputSchema: Type.Record(Type.String(), Type.Unknown()),
});
export type ToolSpec = Static<typeof ToolSpec>;

/** A tool as a runner announces it. `timeoutMs` is the deadline of one run, counted from its start. */
export const ToolAnnouncement = Type.Object({
  spec: ToolSpec,
  effect: ToolEffect,
  requiresApproval: Type.Boolean(),
  timeoutMs: Type.Integer({ minimum: 1 }),
});
export type ToolAnnouncement = Static<typeof ToolAnnouncement>;

/** A call as assembled from a stream: `arguments` is the complete JSON text the model wrote. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
  providerMetadata?: Record<string, string>;
}

/**
 * How a call ended, as stored. `unknown` is true when the call was started and nobody can say
 * whether it took effect.
 */
export const ToolOutcome = Type.Union([
  Type.Object({ ok: Type.Literal(true), result: Type.Unknown() }),
  Type.Object({ ok: Type.Literal(false), error: Type.String(), unknown: Type.Optional(Type.Boolean()) }),
]);
export type ToolOutcome = Static<typeof ToolOutcome>;

/** Person and place a call acts for. */
export const Actor = Type.Object({
  app: Type.String(),
  userId: Type.String(),
  userName: Type.Optional(Type.String()),
  chatId: Type.String(),
});
export type Actor = Static<typeof Actor>;

/**
 * The text a model gets for an outcome: strings unchanged, everything else as JSON with readable
 * non-ASCII, no value as `null`.
 */
export function outcomeText(outcome: ToolOutcome): string {
  if (!outcome.ok) return outcome.error;
  if (typeof outcome.result === "string") return outcome.result;
  return JSON.stringify(outcome.result ?? null);
}
