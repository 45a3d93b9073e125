import type { ApprovalStatus, ApprovalStore } from "@larkline/store";

/** Questions that nobody has settled, those that expire first before others. */
export interface OpenApprovals {
  approvals: ApprovalStatus[];
  /** There are more than these. */
  hasMore: boolean;
}

/** Later than anything expires: then everything that is pending is due. */
const endOfTime = Number.MAX_SAFE_INTEGER;

/** All that is pending in all sessions, at most `limit` of them. */
export async function openApprovals(
  store: Pick<ApprovalStore, "dueExpiries" | "pending">,
  limit: number,
): Promise<OpenApprovals> {
  const due = await store.dueExpiries(endOfTime, limit + 1);
  const sessions = [...new Set(due.map(({ session }) => session))];
  const pending = (await Promise.all(sessions.map(async (session) => await store.pending(session)))).flat();
  const byId = new Map(pending.map((status) => [status.approval.id, status]));
  // One that was settled meanwhile is not pending any more.
  const approvals = due.slice(0, limit).flatMap(({ approvalId }) => byId.get(approvalId) ?? []);
  return { approvals, hasMore: due.length > limit };
}
