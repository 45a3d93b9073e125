import { createHash } from "node:crypto";
import type { Approval, ApprovalDecision, PermissionRule, RuleProposal } from "@larkline/protocol";

/** A rule as people read it: `shell(git status *)`. */
export function ruleText({ tool, pattern }: RuleProposal): string {
  return `${tool}(${pattern})`;
}

/** What an approval is about: its `attemptId` is that of the call, the rule's that of the call it comes from. */
type ApprovalSubject = Pick<Approval, "kind" | "turnId" | "argumentsHash"> & { readonly attemptId: string };

/**
 * Names an approval by what it is about, so that creating it again finds the first one. The arguments
 * are part of that: where Redis has lost its last writes a turn may ask anew under the same call id,
 * and a card that shows other arguments must not be an answer to that. 32 hex digits.
 */
export function approvalIdOf({ kind, turnId, attemptId, argumentsHash }: ApprovalSubject): string {
  return createHash("sha256").update(`${kind} ${turnId} ${attemptId} ${argumentsHash}`).digest("hex").slice(0, 32);
}

/** What approvals of one kind have in common: chat, tool, pattern and person. Undefined where no rule is offered. */
export function approvalKindOf({ chatId, remember }: Pick<Approval, "chatId" | "remember">): string | undefined {
  if (remember === undefined) return undefined;
  const { tool, pattern, person = "" } = remember;
  const facts = JSON.stringify([chatId, tool, pattern, person]);
  return createHash("sha256").update(facts).digest("hex").slice(0, 32);
}

/**
 * The rule that an approved approval leaves behind: as many people as have to approve said so, of a
 * `rule` by approving it, of a call with `remember`. Whoever computes it gets the same one, so it
 * may be added twice.
 */
export function rememberedRule(
  approval: Approval,
  decisions: readonly ApprovalDecision[],
  rulesExpireMs: number,
): PermissionRule | undefined {
  const { id, app, chatId, kind, deciders, remember } = approval;
  const agreed = decisions.filter(
    ({ decision, remember: wanted }) => decision === "approve" && (kind === "rule" || wanted === true),
  );
  const last = agreed.at(-1);
  const people = new Set(agreed.map(({ by }) => by.id));
  if (remember === undefined || last === undefined || kind === "outcome" || people.size < deciders.count) {
    return undefined;
  }
  const { by, atMs } = last;
  return { v: 1, id, app, chatId, ...remember, author: by, createdAtMs: atMs, expiresAtMs: atMs + rulesExpireMs };
}

/** The question whether calls like this approved one may always run, after `permission_learn` proposed it. */
export function ruleApprovalOf(
  approval: Approval,
  { nowMs, expiresMs }: { nowMs: number; expiresMs: number },
): Approval | undefined {
  if (approval.remember === undefined || approval.kind !== "call") return undefined;
  const id = approvalIdOf({ ...approval, kind: "rule", attemptId: approval.callId });
  const { reasons: _reasons, ...asked } = approval;
  return { ...asked, id, kind: "rule", reason: "", createdAtMs: nowMs, expiresAtMs: nowMs + expiresMs };
}
