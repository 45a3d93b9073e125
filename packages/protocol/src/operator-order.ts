import { Type, type Static } from "./type.ts";
import { SessionKey } from "./session.ts";
import { ApprovalId } from "./approval.ts";

const id = Type.String({ minLength: 1, maxLength: 600 });
const about = {
  session: Type.Optional(SessionKey),
  turnId: Type.Optional(id),
  app: Type.Optional(id),
  letterId: Type.Optional(id),
  callId: Type.Optional(id),
  tool: Type.Optional(id),
  chatId: Type.Optional(id),
};

const amount = (maximum: number) => Type.Optional(Type.Integer({ minimum: 1, maximum }));

const AgentBudget = Type.Optional(
  Type.Object(
    {
      tokens: Type.Optional(Type.Integer({ minimum: 0, maximum: 1e15 })),
      usd: Type.Optional(Type.Number({ minimum: 0, maximum: 1e6 })),
    },
    { additionalProperties: false },
  ),
);

/** What a version of an agent says in place of the file. What is absent is as in the file. */
export const AgentChange = Type.Object(
  {
    instructions: Type.Optional(Type.String({ minLength: 1, maxLength: 20_000 })),
    /** One of those that people may choose there. */
    model: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
    tools: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 200 }), { maxItems: 500 }),
    ),
    limits: Type.Optional(
      Type.Object(
        {
          maxIterations: amount(1_000),
          maxOutputTokens: amount(10_000_000),
          maxCallsPerStep: amount(1_000),
          toolTimeoutMs: amount(86_400_000),
        },
        { additionalProperties: false },
      ),
    ),
    /** What the agent may spend in a day or month. */
    budgets: Type.Optional(
      Type.Object({ day: AgentBudget, month: AgentBudget }, { additionalProperties: false }),
    ),
  },
  { additionalProperties: false },
);
export type AgentChange = Static<typeof AgentChange>;

/** A server of models that operators add at the console, as a provider of the configuration. */
export const AddedProvider = Type.Object(
  {
    name: Type.String({ pattern: "^[a-z][a-z0-9-]{0,31}$" }),
    /** The interface that it speaks. */
    type: Type.Enum(["anthropic", "openai", "openai-responses"]),
    /** Absent: the vendor's own address. */
    baseUrl: Type.Optional(Type.String({ pattern: "^https?://[^\\s]+$", maxLength: 500 })),
    /** Their ids at the server. */
    models: Type.Array(Type.String({ pattern: "^[^\\s,]{1,150}$" }), { minItems: 1, maxItems: 50 }),
    /** Tokens that a model of it takes where the table of models does not know it. */
    contextWindow: Type.Optional(Type.Integer({ minimum: 1_000, maximum: 10_000_000 })),
  },
  { additionalProperties: false },
);
export type AddedProvider = Static<typeof AddedProvider>;

/** What an operator wants done. The console asks for it, a worker does it and keeps a record of who asked. */
export const OperatorOrder = Type.Object({
  v: Type.Literal(1),
  /** The operator, for the audit log: `console`, and behind a colon the name that they gave when they signed in. */
  by: Type.String({ minLength: 1, maxLength: 128 }),
  act: Type.Union([
    /** Stops the turn of the message with this number; one that waits is dropped. */
    Type.Object({
      do: Type.Literal("cancel"),
      session: SessionKey,
      seq: Type.Integer({ minimum: 0 }),
    }),
    Type.Object({ do: Type.Literal("reset"), session: SessionKey }),
    Type.Object({ do: Type.Literal("drop"), session: SessionKey }),
    Type.Object({
      do: Type.Enum(["retry_letter", "discard_letter"]),
      session: SessionKey,
      letterId: id,
    }),
    Type.Object({ do: Type.Literal("revoke_rule"), app: id, ruleId: id }),
    /** What a person has let a bot do as them. */
    Type.Object({ do: Type.Literal("end_grant"), app: id, openId: id }),
    Type.Object({
      do: Type.Enum(["pause_schedule", "resume_schedule", "delete_schedule"]),
      schedule: id,
    }),
    Type.Object({
      do: Type.Literal("decide"),
      app: id,
      approvalId: ApprovalId,
      word: Type.Enum(["approve", "reject"]),
      /** Of the arguments that the operator was shown. */
      argumentsHash: id,
    }),
    Type.Object({
      do: Type.Enum(["pause", "resume"]),
      what: Type.Enum(["agent", "tool"]),
      name: id,
    }),
    Type.Object({
      do: Type.Literal("change_agent"),
      agent: id,
      /** Number of the version that the operator has seen; 0: the file. */
      base: Type.Integer({ minimum: 0 }),
      change: AgentChange,
      /** Why, for the other operators. */
      note: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
    }),
    Type.Object({
      do: Type.Literal("set_provider"),
      provider: AddedProvider,
      /** Sealed for workers. Absent: the key that it has at this address stays. */
      sealedKey: Type.Optional(Type.String({ maxLength: 10_000 })),
    }),
    Type.Object({ do: Type.Literal("remove_provider"), name: id }),
    /** Asks a model for a word. `model`: `<provider>/<id>`; absent: the one of agents without one of their own. */
    Type.Object({ do: Type.Literal("test_model"), model: Type.Optional(id) }),
    /** Of what the console does itself: a record in the audit log, before it does it. */
    Type.Object({
      do: Type.Literal("note"),
      kind: Type.Enum(["content_shown", "letter_retried", "letter_discarded"]),
      ...about,
    }),
  ]),
});
export type OperatorOrder = Static<typeof OperatorOrder>;

/** What came of an order. `nothing`: there was nothing to do it to; `conflict`: another operator was there before. */
export const OrderResult = Type.Object({
  result: Type.Enum(["done", "nothing", "full", "not_possible", "late", "conflict", "in_use"]),
  /** The turn that a reset has ended. */
  turnId: Type.Optional(Type.String()),
  /** The agents because of which it is `in_use`. */
  agents: Type.Optional(Type.Array(Type.String(), { maxItems: 1_000 })),
  /** What a test of a model has found. */
  test: Type.Optional(
    Type.Object({
      /** The model that was asked. */
      model: Type.String(),
      /** What it said; absent: it has failed. */
      answer: Type.Optional(Type.String()),
      /** Why it has failed, and the vendor's own words. */
      code: Type.Optional(Type.String()),
      message: Type.Optional(Type.String()),
      tookMs: Type.Integer({ minimum: 0 }),
    }),
  ),
});
export type OrderResult = Static<typeof OrderResult>;
