import { createHash } from "node:crypto";
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

/** How much harm a call can do; decides how loudly a person is asked. */
export const riskLevels = ["low", "medium", "high"] as const;
export const RiskLevel = Type.Enum([...riskLevels]);
export type RiskLevel = (typeof riskLevels)[number];

/**
 * Bounds of one tool, held by a queue of its own: see `toolsQueue`. `concurrency` and `rate` count
 * over all instances of the runner.
 */
export const ToolLimits = Type.Object({
  concurrency: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000 })),
  rate: Type.Optional(
    Type.Object({
      calls: Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      perMs: Type.Integer({ minimum: 1, maximum: 86_400_000 }),
    }),
  ),
});
export type ToolLimits = Static<typeof ToolLimits>;

/** Text of a runner's choice; see {@link toolDigestOf}. */
export const ToolDigest = Type.String({ minLength: 1, maxLength: 64 });

/** A tool as a runner announces it. `timeoutMs` is the deadline of one run, counted from its start. */
export const ToolAnnouncement = Type.Object({
  spec: ToolSpec,
  effect: ToolEffect,
  requiresApproval: Type.Boolean(),
  timeoutMs: Type.Integer({ minimum: 1 }),
  /** Default `medium`. */
  risk: Type.Optional(RiskLevel),
  /** Names of arguments, at any depth, whose values no card, log or event outside the session shows. */
  secrets: Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 100 }), { maxItems: 50 })),
  /** The argument that says what is done, such as `command`: what patterns of permission rules match. */
  subject: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })),
  /**
   * Names of arguments, at any depth, that hold addresses which the tool reaches; empty when it reaches none that it is
   * given. Absent: whatever looks like an address is taken for one.
   */
  addresses: Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 100 }), { maxItems: 50 })),
  /** It is called again and again with the same arguments until something has happened. Default false. */
  poll: Type.Optional(Type.Boolean()),
  limits: Type.Optional(ToolLimits),
  /** Stands for schema and effect: calls carry it back, so that a runner knows those that were made for another tool. */
  digest: Type.Optional(ToolDigest),
});
export type ToolAnnouncement = Static<typeof ToolAnnouncement>;

/** What a call relies on: with another schema or effect it is a call of another tool. */
export function toolDigestOf({ inputSchema, effect }: { inputSchema: unknown; effect: ToolEffect }): string {
  return createHash("sha256")
    .update(JSON.stringify([inputSchema, effect]))
    .digest("base64url")
    .slice(0, 22);
}

/** A call as assembled from a stream: `arguments` is the complete JSON text the model wrote. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
  providerMetadata?: Record<string, string>;
}

/** A result too large for a conversation. `handle` is opaque, and good for the session that made it only. */
export const StoredResult = Type.Object({
  handle: Type.String({ pattern: "^res_[A-Za-z0-9_-]{16,64}$" }),
  characters: Type.Integer({ minimum: 0 }),
});
export type StoredResult = Static<typeof StoredResult>;

/**
 * How a call ended, as stored. `unknown` is true when the call was started and nobody can say
 * whether it took effect.
 */
export const ToolOutcome = Type.Union([
  Type.Object({
    ok: Type.Literal(true),
    result: Type.Unknown(),
    /** The whole text is kept elsewhere; `result` is its head and tail and names the handle. */
    stored: Type.Optional(StoredResult),
  }),
  Type.Object({ ok: Type.Literal(false), error: Type.String(), unknown: Type.Optional(Type.Boolean()) }),
]);
export type ToolOutcome = Static<typeof ToolOutcome>;

/** Person and place a call acts for. */
export const Actor = Type.Object({
  app: Type.String(),
  /** The platform's tenant key, where it is known. */
  tenant: Type.Optional(Type.String()),
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
