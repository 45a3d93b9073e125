import { approvalWords, approvalStates, AskedForm, maxAnswerLength } from "../approval.ts";
import { RiskLevel } from "../tool.ts";
import { Type, type Static } from "../type.ts";

// Approvals as the HTTP API shows them: names are wire format and appear nowhere in the core.

/** A question to a person, and what has become of it. */
export const ApiApproval = Type.Object({
  id: Type.String(),
  kind: Type.Enum(["call", "outcome", "rule"]),
  run_id: Type.String(),
  /** Tool call that it is about: the `id` of its frames. */
  call_id: Type.String(),
  tool: Type.String(),
  /** Values of secret arguments are `***`. */
  arguments: Type.Record(Type.String(), Type.Unknown()),
  reason: Type.String(),
  risk: RiskLevel,
  /** What may be decided. */
  decisions: Type.Array(Type.Enum([...approvalWords])),
  /** Whether `remember` makes an approval hold from now on. */
  may_remember: Type.Boolean(),
  /** Epoch ms. */
  created_at: Type.Integer(),
  expires_at: Type.Integer(),
  state: Type.Enum(["pending", ...approvalStates]),
});

export type ApiApproval = Static<typeof ApiApproval>;

/** Answer to `GET /v1/approvals`: what a session waits for, oldest first. */
export const ApiApprovals = Type.Object({ approvals: Type.Array(ApiApproval) });

export type ApiApprovals = Static<typeof ApiApprovals>;

/** A remembered decision of a session. */
export const ApiRule = Type.Object({
  id: Type.String(),
  tool: Type.String(),
  /** What the tool's subject has to fit; `*` stands for any text. */
  pattern: Type.String(),
  /** Epoch ms. */
  created_at: Type.Integer(),
  expires_at: Type.Integer(),
});

export type ApiRule = Static<typeof ApiRule>;

/** Answer to `GET /v1/permissions`: what runs without asking, oldest first. */
export const ApiRules = Type.Object({ rules: Type.Array(ApiRule) });

export type ApiRules = Static<typeof ApiRules>;

/** Body of `POST /v1/approvals/<id>`. */
export const ApiDecision = Type.Object({
  decision: Type.Enum([...approvalWords]),
  note: Type.Optional(Type.Union([Type.String({ maxLength: 1_000 }), Type.Null()])),
  remember: Type.Optional(Type.Boolean()),
});

export type ApiDecision = Static<typeof ApiDecision>;

/** A question that an agent has asked a person with `ask_person`, or the MCP server of a call. */
export const ApiQuestion = Type.Object({
  id: Type.String(),
  kind: Type.Literal("question"),
  run_id: Type.String(),
  /** Tool call that asks it: the `id` of its frames. */
  call_id: Type.String(),
  question: Type.String(),
  /** What people may choose from; any other words are an answer as well. */
  choices: Type.Array(Type.String()),
  /** The answer is such as `2026-12-24` or `2026-12-24 09:30 +0800`, or the word `decline`. */
  format: Type.Optional(Type.Enum(["date", "date-time"])),
  /** For an MCP server: its answer is an object with these fields, or the word `decline`. */
  form: Type.Optional(AskedForm),
  /** Epoch ms. */
  created_at: Type.Integer(),
  expires_at: Type.Integer(),
  state: Type.Enum(["pending", "answered", "expired", "cancelled", "undeliverable"]),
});

export type ApiQuestion = Static<typeof ApiQuestion>;

/** Answer to `GET /v1/inputs`: the questions that a session waits for, oldest first. */
export const ApiQuestions = Type.Object({ inputs: Type.Array(ApiQuestion) });

export type ApiQuestions = Static<typeof ApiQuestions>;

/** Body of `POST /v1/inputs/<id>`. */
export const ApiAnswer = Type.Object({
  value: Type.Union([
    Type.String({ minLength: 1, maxLength: maxAnswerLength }),
    Type.Record(Type.String({ maxLength: 200 }), Type.Unknown(), { maxProperties: 50 }),
  ]),
});

export type ApiAnswer = Static<typeof ApiAnswer>;
