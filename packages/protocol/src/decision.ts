import { Type, type Static } from "./type.ts";
import { Sender } from "./session.ts";

/** 32 lowercase hex digits, made from turn and call: creating an approval again finds the first one. */
export const ApprovalId = Type.String({ pattern: "^[0-9a-f]{32}$" });

/** What people may decide about a call or a rule, and about a call whose outcome is unknown. */
export const approvalWords = ["approve", "reject", "retry", "done", "abort"] as const;

/** The same, and `answer` to a question, with the answer as note. */
export const decisionWords = [...approvalWords, "answer"] as const;
export type DecisionWord = (typeof decisionWords)[number];

/** Longest answer to a question, in characters. */
export const maxAnswerLength = 4_000;

/** One person's decision, as recorded. */
export const ApprovalDecision = Type.Object({
  decision: Type.Enum([...decisionWords]),
  by: Sender,
  /** Epoch ms, of the store's clock. */
  atMs: Type.Integer(),
  /** Why, in the person's own words; of `answer`, the answer. */
  note: Type.Optional(Type.String({ maxLength: maxAnswerLength })),
  /** An operator has said it in the console; `by` has the name that they claim. A worker writes it. */
  via: Type.Optional(Type.Literal("console")),
  /** Approve such calls from now on: the approval's `remember` becomes a rule. */
  remember: Type.Optional(Type.Boolean()),
});
export type ApprovalDecision = Static<typeof ApprovalDecision>;

/**
 * How an approval ended. `undeliverable`: the card reached no approver; `cancelled`: its turn ended.
 */
export const approvalStates = [
  "approved",
  "rejected",
  "retried",
  "done",
  "aborted",
  "expired",
  "cancelled",
  "undeliverable",
] as const;
/** The same, and how a question ended that was answered. */
export const settledStates = [...approvalStates, "answered"] as const;
export const SettledState = Type.Enum([...settledStates]);
export type SettledState = (typeof settledStates)[number];
export type ApprovalState = "pending" | SettledState;

/** The state that a decision leads to once enough people have made it. */
export const stateAfter: Readonly<Record<DecisionWord, SettledState>> = {
  approve: "approved",
  reject: "rejected",
  retry: "retried",
  done: "done",
  abort: "aborted",
  answer: "answered",
};
