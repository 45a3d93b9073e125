import {
  holdsInForce,
  isDecider,
  rememberedRule,
  type GroupsOf,
  type PermissionPolicy,
} from "@larkline/agent/permissions";
import {
  argumentsHashOf,
  type ApprovalState,
  type CallState,
  type ControlEntry,
  type DecisionWord,
  type PermissionRule,
  type SessionKey,
  type TurnState,
} from "@larkline/protocol";
import { settlesAlone, type ApprovalStatus, type ApprovalStore, type PermissionRules } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import { argumentsTextOf, placeOf } from "./call-facts.ts";
import { within } from "./within.ts";

// Ingress writes down what people have decided, and a program with its Redis user can write anything there. So a
// worker believes only what was asked, which workers alone write, and looks at every grant itself: who gave it, and
// whether they may. A click of a person who may is all that ingress can make up.

export interface AuthorityDeps {
  approvals: Pick<ApprovalStore, "approvedRules" | "find">;
  rules: Pick<PermissionRules, "add" | "inForce">;
  policy: Pick<PermissionPolicy, "roles" | "rulesExpireMs">;
  groupsOf: GroupsOf;
  logger: Logger;
}

type DecisionEntry = Extract<ControlEntry, { type: "decision" }>;

/** What came of one decision, as the store has it and as far as it holds. */
export interface HeardDecision {
  entry: DecisionEntry;
  status: ApprovalStatus;
}

/** The states in which something is granted, and the word that leads there. */
const grants: Partial<Readonly<Record<ApprovalState, DecisionWord>>> = {
  approved: "approve",
  retried: "retry",
  done: "done",
};

/** A person waits for the answer. */
const groupsMs = 5_000;

/** Looks up, where it was decided, what allows a call. */
export class Authorities {
  readonly #deps: AuthorityDeps;

  constructor(deps: AuthorityDeps) {
    this.#deps = deps;
  }

  /**
   * The entry as the approval's own record has it; undefined where nothing is settled. A grant that does not rest on
   * people who may decide reads as withdrawn.
   */
  async heard(app: string, { approvalId }: DecisionEntry): Promise<HeardDecision | undefined> {
    const found = await this.#deps.approvals.find(app, approvalId);
    if (found === undefined || found.state === "pending") return undefined;
    const status = await this.checked(found);
    const { state, decisions, approval } = status;
    if (state === "pending") return undefined;
    const { argumentsHash } = approval;
    return { entry: { type: "decision", approvalId, argumentsHash, state, decisions }, status };
  }

  /** The status with no more in it than holds: only decisions of people who may say what they said. */
  async checked(status: ApprovalStatus): Promise<ApprovalStatus> {
    const { approval, state } = status;
    const word = grants[state];
    if (word === undefined) return status;
    const may = await Promise.all(
      status.decisions.map(async (one) => one.decision !== word || (await this.#mayHaveSaid(status, one))),
    );
    const decisions = status.decisions.filter((_, at) => may[at]);
    const people = new Set(decisions.flatMap(({ decision, by }) => (decision === word ? [by.id] : [])));
    if (people.size >= (settlesAlone(word) ? 1 : approval.deciders.count)) return { ...status, decisions };
    const { session, id: approvalId } = approval;
    const by = status.decisions.map((one) => one.by.id);
    this.#deps.logger.error(
      { session, approvalId, state, by },
      "a grant is not believed: too few of those who gave it may",
    );
    return { ...status, state: "cancelled", decisions: [] };
  }

  async #mayHaveSaid({ approval }: ApprovalStatus, given: ApprovalStatus["decisions"][number]): Promise<boolean> {
    const { groupsOf, logger, policy } = this.#deps;
    // Settled by the clock of Redis, so later than that it was not taken.
    if (given.atMs > approval.expiresAtMs) return false;
    const isOfPlatform = approval.target.channel !== "none";
    const groups = async (id: string): Promise<readonly string[]> =>
      isOfPlatform ? await within(groupsMs, groupsOf(approval.app, id)) : [];
    try {
      return await isDecider(approval, { id: given.by.id, word: given.decision }, { roles: policy.roles, groups });
    } catch (error) {
      const { session, id: approvalId } = approval;
      logger.warn(
        { error, session, approvalId },
        "user groups unknown; a decision that depends on them does not count",
      );
      return false;
    }
  }

  /** Writes the rule that an approval leaves behind, if it leaves one. May be repeated. */
  async keepRule(status: ApprovalStatus): Promise<void> {
    const { approval, state, decisions } = await this.checked(status);
    if (state !== "approved") return;
    const rule = rememberedRule(approval, decisions, this.#deps.policy.rulesExpireMs);
    if (rule !== undefined) await this.#deps.rules.add(rule);
  }

  /**
   * Rules of one chat that hold now. A proposal that was approved in this session before counts, also while the worker
   * that looks after its cards has not written it yet: people were told that such calls run unasked from now on.
   */
  async rulesInForce(app: string, session: SessionKey, chatId: string): Promise<PermissionRule[]> {
    const approved = await this.#deps.approvals.approvedRules(session);
    await Promise.all(approved.map(async (status) => await this.keepRule(status)));
    return await this.#deps.rules.inForce(app, chatId);
  }

  /** Why a call may not be signed although its checkpoint says so; undefined where it may. */
  async objectionTo(turn: TurnState, call: CallState): Promise<string | undefined> {
    const { authority = { by: "policy" } } = call;
    if (authority.by === "approval") {
      const holds = await this.#isApproved(turn, call, authority.id);
      return holds ? undefined : "permission_denied: the approval of this call was not found again. It was not run.";
    }
    if (authority.by === "rule") {
      const holds = await this.#isRuled(turn, call, authority.id);
      return holds
        ? undefined
        : "permission_denied: the rule that allowed this call does not hold any more. It was not run.";
    }
    return undefined;
  }

  async #isApproved({ turnId, message }: TurnState, call: CallState, approvalId: string): Promise<boolean> {
    const found = await this.#deps.approvals.find(message.app, approvalId);
    if (found === undefined) return false;
    const { approval } = found;
    const isAbout =
      approval.kind !== "rule" &&
      approval.session === message.session &&
      approval.turnId === turnId &&
      approval.tool === call.name &&
      approval.argumentsHash === argumentsHashOf(argumentsTextOf(call));
    if (!isAbout) return false;
    const { state } = await this.checked(found);
    return state === (approval.kind === "outcome" ? "retried" : "approved");
  }

  async #isRuled({ message }: TurnState, call: CallState, ruleId: string): Promise<boolean> {
    const chatId = placeOf(message);
    const rules = await this.#deps.rules.inForce(message.app, chatId);
    const rule = rules.find(({ id }) => id === ruleId);
    return rule !== undefined && holdsInForce(rule, { tool: call.name, person: message.sender.id, chatId });
  }
}
