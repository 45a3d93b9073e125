import { approvalKindOf, ruleApprovalOf, ruleText, type PermissionPolicy } from "@larkline/agent/permissions";
import {
  sharedNow,
  type Approval,
  type CallState,
  type ControlEntry,
  type EventOf,
  type SessionKey,
  type TurnState,
} from "@larkline/protocol";
import type { ApprovalStatus, ApprovalStore, PermissionRules } from "@larkline/store";
import type { Logger, Observation, Tags } from "@larkline/process/telemetry";
import type { Authorities } from "./authority.ts";
import { waitsForPeople } from "./call-facts.ts";
import type { WorkerMetrics } from "./worker-metrics.ts";

/** Brings the cards of one approval to its state, as far as possible now. Never rejects. */
export type WorkCards = (session: SessionKey, approvalId: string) => Promise<void>;

export interface TurnApprovalsDeps {
  approvals: Pick<ApprovalStore, "add" | "find">;
  rules: Pick<PermissionRules, "approvedAgain" | "inForce">;
  authorities: Pick<Authorities, "heard" | "checked" | "keepRule">;
  policy: Pick<PermissionPolicy, "learnAfter" | "expiresMs">;
  workCards: WorkCards;
  metrics: Pick<WorkerMetrics, "approvalAsked" | "approvalSettled">;
  observation: Observation;
  logger: Logger;
}

/** Control entries that can be believed, and what follows from the decisions among them. */
export interface HeardControl {
  entries: ControlEntry[];
  events: EventOf<"permission_learn">[];
}

/** What a worker does about the approvals of its turns besides saving them. Nothing here fails a turn. */
export interface TurnApprovals {
  /** Questions were saved: their cards go out, and nobody waits for them. */
  asked(approvals: readonly Approval[]): void;
  /**
   * Decisions have come: `entries` are those that hold, and everything else that has come; `events` follow from them.
   * Rejects when the store does not answer.
   */
  heard(turn: TurnState, control: readonly ControlEntry[]): Promise<HeardControl>;
  /** The turn is over: nobody needs the answers any more to the questions of these calls. */
  dropped(turn: TurnState, calls: readonly CallState[]): void;
}

class Desk implements TurnApprovals {
  readonly #deps: TurnApprovalsDeps;

  constructor(deps: TurnApprovalsDeps) {
    this.#deps = deps;
  }

  asked(approvals: readonly Approval[]): void {
    const { logger, metrics, observation } = this.#deps;
    for (const approval of approvals) {
      const { session, turnId, id: approvalId, kind, tool, risk } = approval;
      observation.event("approval.asked", tagsOf(approval));
      metrics.approvalAsked(kind);
      logger.info({ session, turnId, approvalId, kind, tool, risk }, "approval asked for");
      void this.#deps.workCards(session, approvalId);
    }
  }

  async heard(turn: TurnState, control: readonly ControlEntry[]): Promise<HeardControl> {
    const heard: HeardControl = { entries: [], events: [] };
    for (const entry of control) {
      if (entry.type !== "decision") {
        heard.entries.push(entry);
        continue;
      }
      const { approvalId } = entry;
      if (!isAwaited(turn, approvalId)) continue;
      const decided = await this.#deps.authorities.heard(turn.message.app, entry);
      if (decided === undefined) {
        this.#deps.logger.error({ turnId: turn.turnId, approvalId }, "a decision that the store does not know");
        continue;
      }
      heard.entries.push(decided.entry);
      const event = await this.#settled(turn, decided.status).catch((error: unknown) => {
        this.#deps.logger.warn({ error, approvalId }, "what follows from a decision was not done");
        return undefined;
      });
      if (event !== undefined) heard.events.push(event);
    }
    return heard;
  }

  dropped(turn: TurnState, calls: readonly CallState[]): void {
    for (const { approvalId } of calls) {
      if (approvalId === undefined) continue;
      void this.#settledBefore(turn, approvalId).catch((error: unknown) => {
        this.#deps.logger.warn({ error, approvalId }, "a dropped approval was not looked after");
      });
    }
  }

  async #settledBefore(turn: TurnState, approvalId: string): Promise<void> {
    const { approvals, authorities } = this.#deps;
    const found = await approvals.find(turn.message.app, approvalId);
    if (found !== undefined && found.state !== "pending") await this.#settled(turn, await authorities.checked(found));
  }

  async #settled({ message }: TurnState, status: ApprovalStatus): Promise<EventOf<"permission_learn"> | undefined> {
    const { authorities, logger, metrics, observation, workCards } = this.#deps;
    const { approval, state, decisions, settledAtMs = sharedNow() } = status;
    const { session, turnId, kind, tool, id: approvalId } = approval;
    void workCards(message.session, approvalId); // copies that nobody pressed
    if (state === "pending") return undefined;
    const seconds = Math.max(0, settledAtMs - approval.createdAtMs) / 1_000;
    metrics.approvalSettled({ kind, state, seconds });
    observation.event("approval.settled", { ...tagsOf(approval), state, waitedMs: Math.round(seconds * 1_000) });
    const by = decisions.map(({ by: { id } }) => id);
    logger.info({ session, turnId, approvalId, kind, tool, state, by, seconds }, "approval settled");
    if (state !== "approved") return undefined;
    await authorities.keepRule(status);
    return await this.#learn(status);
  }

  /** Counts the approval. Every so many of one kind a rule is proposed, to those who may decide such calls. */
  async #learn(status: ApprovalStatus): Promise<EventOf<"permission_learn"> | undefined> {
    const { approvals, rules, policy } = this.#deps;
    const { approval } = status;
    const kind = approvalKindOf(approval);
    if (kind === undefined || policy.learnAfter === 0) return undefined;
    // Counted again after a crash it gives the same number, and the same proposal.
    const count = await rules.approvedAgain(approval.app, kind, approval.id);
    if (count % policy.learnAfter !== 0 || (await this.#isRuled(status))) return undefined;
    const proposal = ruleApprovalOf(approval, { nowMs: sharedNow(), expiresMs: policy.expiresMs });
    if (proposal?.remember === undefined) return undefined;
    await approvals.add(proposal);
    this.asked([proposal]);
    const ruleString = ruleText(proposal.remember);
    return { type: "permission_learn", rules: [{ ruleString, description: descriptionOf(proposal, count) }] };
  }

  /** Whether such calls need no approval from now on anyway. */
  async #isRuled({ approval, decisions }: ApprovalStatus): Promise<boolean> {
    const { remember, app, chatId } = approval;
    if (remember === undefined || decisions.some((decision) => decision.remember === true)) return true;
    const inForce = await this.#deps.rules.inForce(app, chatId);
    return inForce.some(
      ({ tool, pattern, person }) =>
        tool === remember.tool && pattern === remember.pattern && (person === undefined || person === remember.person),
    );
  }
}

function tagsOf({ session, turnId, callId, id, kind, tool, traceparent }: Approval): Tags {
  const tags = { session, turn: turnId, call: callId, approval: id, kind, tool };
  return traceparent === undefined ? tags : { ...tags, traceparent };
}

function isAwaited({ calls }: TurnState, approvalId: string): boolean {
  return calls.some((call) => call.approvalId === approvalId && waitsForPeople(call));
}

function descriptionOf({ tool, remember }: Approval, count: number): string {
  const whose = remember?.person === undefined ? "anybody in this chat" : "the person who asked";
  return `Calls of ${tool} like this were approved ${count} times: run them for ${whose} without asking.`;
}

export function createTurnApprovals(deps: TurnApprovalsDeps): TurnApprovals {
  return new Desk(deps);
}
