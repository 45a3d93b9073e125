import { Type, type Static } from "typebox";

const count = (maximum: number) => Type.Integer({ minimum: 1, maximum });
const price = Type.Number({ minimum: 0 });

/** When the bot answers in a group: only when mentioned, always, or never. */
export const groupPolicies = ["mention", "all", "none"] as const;
export type GroupPolicy = (typeof groupPolicies)[number];

/** One agent: who it is and what it may use. */
export const AgentInput = Type.Object(
  {
    /** The system prompt. */
    instructions: Type.Optional(Type.String({ maxLength: 100_000 })),
    /** `<provider>/<id>`, a comma separates fallbacks; beats the environment's `MODEL`. */
    model: Type.Optional(Type.String({ pattern: "^[a-z-]+/[^,\\s]+(,\\s*[a-z-]+/[^,\\s]+)*$" })),
    /** Model steps in one turn. */
    maxIterations: Type.Optional(count(1_000)),
    /** Names of the tools it may use; absent means every tool that a runner offers. */
    tools: Type.Optional(Type.Array(Type.String({ minLength: 1 }))),
    groups: Type.Optional(Type.Enum([...groupPolicies])),
  },
  { additionalProperties: false },
);
export type AgentInput = Static<typeof AgentInput>;

/** Facts about a model that the built-in table lacks or has differently. Prices: USD per million tokens. */
export const ModelInput = Type.Object(
  {
    id: Type.String({ minLength: 1 }),
    provider: Type.String({ pattern: "^[a-z-]+$" }),
    displayName: Type.Optional(Type.String()),
    contextWindow: count(100_000_000),
    maxOutputTokens: count(10_000_000),
    inputPricePer1M: Type.Optional(price),
    outputPricePer1M: Type.Optional(price),
    cacheReadPricePer1M: Type.Optional(price),
    cacheWritePricePer1M: Type.Optional(price),
    supportsCaching: Type.Optional(Type.Boolean()),
    supportsBatch: Type.Optional(Type.Boolean()),
    supportsThinking: Type.Optional(Type.Boolean()),
    supportsVision: Type.Optional(Type.Boolean()),
    cachingMinTokens: Type.Optional(Type.Integer({ minimum: 0 })),
    maxTools: Type.Optional(Type.Integer({ minimum: 0 })),
    maxToolsExhaustive: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);
export type ModelInput = Static<typeof ModelInput>;

/** Bounds that hold for every agent. */
export const LimitsInput = Type.Object(
  {
    /** A message older than this gets a polite line in place of an answer. Default 10 minutes. */
    messageAgeMs: Type.Optional(count(86_400_000)),
    /** Longest user message, in characters. Default 50,000. */
    messageChars: Type.Optional(count(1_000_000)),
    /** Calls of one model step that are run; the rest get an error result. Default 64. */
    maxCallsPerStep: Type.Optional(count(1_000)),
    /** Longest time one tool call may run. Default 10 minutes. */
    toolTimeoutMs: Type.Optional(count(86_400_000)),
    /** How long a call waits for a runner on top of that. Default 30 s. */
    toolWaitMs: Type.Optional(count(86_400_000)),
    /** Longest tool result that the model gets, in characters. Default 100,000. */
    maxResultChars: Type.Optional(count(10_000_000)),
  },
  { additionalProperties: false },
);
export type LimitsInput = Static<typeof LimitsInput>;

/**
 * What `larkline.config.ts` holds; everything is optional. Unknown keys are refused, so that a
 * typing error is found at start.
 */
export const ConfigInput = Type.Object(
  {
    /** By name; the agent `default` answers when nothing else is asked for. */
    agents: Type.Optional(Type.Record(Type.String({ pattern: "^[a-z][a-z0-9-]{0,39}$" }), AgentInput)),
    models: Type.Optional(Type.Array(ModelInput)),
    limits: Type.Optional(LimitsInput),
  },
  { additionalProperties: false },
);
export type ConfigInput = Static<typeof ConfigInput>;
