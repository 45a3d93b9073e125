import type { Approval, AuditRecord, PermissionRule, ToolOutcome } from "@larkline/protocol";

/** What all audit records of an approval say. */
export function approvalFactsOf(approval: Approval): Omit<AuditRecord, "kind" | "atMs" | "session" | "callId"> {
  const { app, tenant, turnId, tool, requester, chatId, argumentsHash, id } = approval;
  return {
    app,
    ...(tenant === undefined ? {} : { tenant }),
    turnId,
    tool,
    userId: requester.id,
    chatId,
    argumentsHash,
    approvalId: id,
  };
}

/** What all audit records of a rule say. A rule has the id of the approval that it comes from. */
export function ruleFactsOf({ app, chatId, tool, id }: PermissionRule): Omit<AuditRecord, "kind" | "atMs"> {
  return { app, chatId, tool, ruleId: id, approvalId: id };
}

/** How a call ended, as the audit log has it. */
export function auditResultOf(outcome: ToolOutcome): "ok" | "error" | "unknown" {
  if (outcome.ok) return "ok";
  return outcome.unknown === true ? "unknown" : "error";
}
