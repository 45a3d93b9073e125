import { isDecider, type PermissionPolicy } from "@larkline/agent/permissions";
import { ApprovalId, parserOf, sharedNow, type Approval, type ApprovalDecision } from "@larkline/protocol";
import { answersKind, type ApprovalStatus, type ApprovalStore, type DecideResult } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import { sharedDeadline } from "./deadline.ts";
import type { Inbox } from "./inbox.ts";

/** What somebody says about an approval. */
export interface Say {
  app: string;
  /** From outside: any text. */
  approvalId: string;
  decision: Omit<ApprovalDecision, "atMs">;
}

/** What became of it. */
export type SayResult =
  /** As in the store; `closed` also when it was found settled or expired before. */
  | { result: "settled" | "counted" | "repeated" | "closed"; status: ApprovalStatus }
  /** Nothing has changed. */
  | { result: "not_allowed"; status: ApprovalStatus }
  /** No approval of that id in this app, or none that this word decides. */
  | { result: "unknown" }
  /** Something did not answer in time before anything was written. */
  | { result: "failed" }
  /** The store did not answer: the decision may count. Saying it again does no harm. */
  | { result: "uncertain" };

/** Takes decisions of people. Never rejects, and answers within its deadline, whatever is behind it. */
export type ApprovalDesk = (say: Say) => Promise<SayResult>;

export interface ApprovalDeskDeps {
  approvals: Pick<ApprovalStore, "find" | "decide" | "settle">;
  inbox: Pick<Inbox, "wake">;
  policy: Pick<PermissionPolicy, "roles">;
  /** User groups that a person belongs to. */
  groupsOf: (openId: string) => Promise<readonly string[]>;
  deadlineMs: number;
  logger: Logger;
}

type Limit = ReturnType<typeof sharedDeadline>;

const parseId = parserOf(ApprovalId);

/** What somebody may not add is left out: the rest of what they say counts. */
function decisionAbout({ remember: offered }: Approval, given: Say["decision"]): Say["decision"] {
  const { remember, ...decision } = given;
  const counts = remember === true && offered !== undefined && decision.decision === "approve";
  return counts ? { ...decision, remember } : decision;
}

export function createApprovalDesk(deps: ApprovalDeskDeps): ApprovalDesk {
  const { approvals, inbox, policy, groupsOf, deadlineMs, logger } = deps;

  /** For the answer to a click; workers look again before they believe a decision. */
  const isAllowed = async ({ approval }: ApprovalStatus, say: Say["decision"], limit: Limit): Promise<boolean> => {
    const { decision: word, by } = say;
    const groups = async (openId: string): Promise<readonly string[]> => await limit(groupsOf(openId));
    return await isDecider(approval, { id: by.id, word }, { roles: policy.roles, groups });
  };

  /** The decision is safe already: what fails here is repeated by the workers. */
  const follow = async (decided: DecideResult, limit: Limit): Promise<void> => {
    if (decided.result !== "settled" && decided.result !== "closed") return;
    const { session, id: approvalId } = decided.status.approval;
    await limit(inbox.wake(session, decided.wakeGen)).catch((error: unknown) => {
      logger.warn({ error, session, approvalId }, "left to the workers");
    });
  };

  /** The store's clock decides; ours only says when to ask it. */
  const current = async (status: ApprovalStatus, limit: Limit): Promise<DecideResult> => {
    const { session, id, expiresAtMs } = status.approval;
    const isDue = status.state === "pending" && expiresAtMs <= sharedNow();
    return isDue ? await limit(approvals.settle(session, id, "expired")) : { result: "closed", status };
  };

  const take = async (say: Say, found: ApprovalStatus, limit: Limit): Promise<SayResult> => {
    const { session, id } = found.approval;
    try {
      const decided = await limit(approvals.decide(session, id, decisionAbout(found.approval, say.decision)));
      logger.info({ session, approvalId: id, decision: say.decision.decision, result: decided.result }, "decision");
      await follow(decided, limit);
      return decided.result === "unknown" ? decided : { result: decided.result, status: decided.status };
    } catch (error) {
      logger.error({ error, session, approvalId: id }, "whether a decision was taken is not known");
      return { result: "uncertain" };
    }
  };

  return async (say) => {
    if (!parseId(say.approvalId).ok) return { result: "unknown" };
    const limit = sharedDeadline(deadlineMs);
    try {
      const found = await limit(approvals.find(say.app, say.approvalId));
      if (found === undefined || !answersKind(say.decision.decision, found.approval.kind)) return { result: "unknown" };
      const now = await current(found, limit);
      if (now.result === "unknown") return now;
      if (now.status.state !== "pending") {
        await follow(now, limit);
        return { result: "closed", status: now.status };
      }
      if (!(await isAllowed(now.status, say.decision, limit))) return { result: "not_allowed", status: now.status };
      return await take(say, now.status, limit);
    } catch (error) {
      logger.error({ error, approvalId: say.approvalId }, "a decision was not taken");
      return { result: "failed" };
    }
  };
}
