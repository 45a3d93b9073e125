import { Type, type Static } from "typebox";
import type { Approval } from "./approval.ts";
import { decisionWords, settledStates, type ApprovalState, type DecisionWord } from "./decision.ts";
import { maskedArguments } from "./masked-arguments.ts";
import { RiskLevel } from "./tool.ts";

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
  decisions: Type.Array(Type.Enum([...decisionWords])),
  /** Whether `remember` makes an approval hold from now on. */
  may_remember: Type.Boolean(),
  /** Epoch ms. */
  created_at: Type.Integer(),
  expires_at: Type.Integer(),
  state: Type.Enum(["pending", ...settledStates]),
});
export type ApiApproval = Static<typeof ApiApproval>;

/** Answer to `GET /v1/approvals`: what a session waits for, oldest first. */
export const ApiApprovals = Type.Object({ approvals: Type.Array(ApiApproval) });
export type ApiApprovals = Static<typeof ApiApprovals>;

/** Body of `POST /v1/approvals/<id>`. */
export const ApiDecision = Type.Object({
  decision: Type.Enum([...decisionWords]),
  note: Type.Optional(Type.Union([Type.String({ maxLength: 1_000 }), Type.Null()])),
  remember: Type.Optional(Type.Boolean()),
});
export type ApiDecision = Static<typeof ApiDecision>;

const wordsOf: Readonly<Record<Approval["kind"], readonly DecisionWord[]>> = {
  call: ["approve", "reject"],
  rule: ["approve", "reject"],
  outcome: ["retry", "done", "abort"],
};

/** The view of an approval in one state. */
export function apiApprovalOf(approval: Approval, state: ApprovalState): ApiApproval {
  return {
    id: approval.id,
    kind: approval.kind,
    run_id: approval.turnId,
    call_id: approval.callId,
    tool: approval.tool,
    arguments: maskedArguments(approval.arguments, approval.secrets),
    reason: approval.reason,
    risk: approval.risk,
    decisions: [...wordsOf[approval.kind]],
    may_remember: approval.remember !== undefined,
    created_at: approval.createdAtMs,
    expires_at: approval.expiresAtMs,
    state,
  };
}
