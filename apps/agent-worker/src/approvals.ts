import {
  approvalKindOf,
  ruleApprovalOf,
  ruleText,
  type PermissionPolicy,
  decideCall,
  unknownOutcomeOf,
  type Person,
  type Question,
  holdsInForce,
  isDecider,
  rememberedRule,
  type GroupsOf,
} from "@larkline/agent/permissions";
import {
  sharedNow,
  type Approval,
  type CallState,
  type ControlEntry,
  type EventOf,
  type SessionKey,
  type TurnState,
  type InboundMessage,
  type PermissionRule,
  argumentsHashOf,
  type ApprovalState,
  type DecisionWord,
} from "@larkline/protocol";
import {
  type ApprovalStatus,
  type ApprovalStore,
  type AvailableTool,
  type PermissionRules,
  settlesAlone,
} from "@larkline/store";
import type { Logger, Telemetry, Tags } from "@larkline/process/telemetry";
import type { CallJudge } from "@larkline/agent";
import { waitsForPeople, builtInRunner, placeOf, argumentsTextOf } from "./tools.ts";
import type { WorkerCounters } from "./services.ts";
import { within } from "./within.ts";

/** Brings the cards of one approval to its state, as far as possible now. Never rejects. */
export type WorkCards = (session: SessionKey, approvalId: string) => Promise<void>;

interface TurnApprovalsDeps {
  approvals: Pick<ApprovalStore, "add" | "find">;
  rules: Pick<PermissionRules, "approvedAgain" | "inForce">;
  authorities: Pick<Authorities, "heard" | "checked" | "keepRule">;
  policy: Pick<PermissionPolicy, "learnAfter" | "expiresMs">;
  workCards: WorkCards;
  counters: WorkerCounters;
  telemetry: Telemetry;
  logger: Logger;
}

/** Control entries that can be believed, and what follows from the decisions among them. */
interface HeardControl {
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
    const { counters, logger, telemetry } = this.#deps;
    for (const approval of approvals) {
      const { session, turnId, id: approvalId, kind, tool, risk } = approval;
      telemetry.events.emit({ eventName: "approval.asked", attributes: tagsOf(approval) });
      counters.approvalsAsked.add(1, { kind });
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
    const { authorities, counters, logger, telemetry, workCards } = this.#deps;
    const { approval, state, decisions, settledAtMs = sharedNow() } = status;
    const { session, turnId, kind, tool, id: approvalId } = approval;
    void workCards(message.session, approvalId); // copies that nobody pressed
    if (state === "pending") return undefined;
    const seconds = Math.max(0, settledAtMs - approval.createdAtMs) / 1_000;
    counters.approvalsSettled.add(1, { kind, state });
    counters.approvalWaitSeconds.record(seconds, { kind, state });
    const attributes = { ...tagsOf(approval), state, waitedMs: Math.round(seconds * 1_000) };
    telemetry.events.emit({ eventName: "approval.settled", attributes });
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

export interface JudgeDeps {
  policy: PermissionPolicy;
  authorities: Pick<Authorities, "rulesInForce">;
  /** The tools that can be called now. */
  tools: () => ReadonlyMap<string, AvailableTool>;
  /** The platform's user groups of a person; rejects where they cannot be found out. */
  groupsOf: (app: string, openId: string) => Promise<readonly string[]>;
  logger: Logger;
  /** Hosts that calls may reach unasked. */
  egress?: readonly string[];
}

/**
 * Judges the calls of one turn. Judging is a pure decision, and few decisions need more than the
 * policy: facts that cost a look-up are fetched once a decision has missed them. So decide, then
 * {@link supply}, and decide again as long as that has brought something.
 */
export interface TurnJudge extends CallJudge {
  /** Fetches what was missed since the last time; false when nothing was. */
  supply(): Promise<boolean>;
  /** Another step begins: rules may have changed meanwhile, and a look-up that failed may work now. */
  renew(): void;
}

type Call = Parameters<CallJudge["verdict"]>[0];

/** A person waits for the answer. */
const lookupMs = 5_000;

/** Thrown where a decision asks for groups that are not known. */
const groupsUnknown = new Error("user groups are not known");

const builtIn = { do: "run", authority: { by: "policy" }, findings: [] } as const;

function refused(reason: string): ReturnType<CallJudge["verdict"]> {
  return { do: "refuse", reason, findings: [] };
}

class Judge implements TurnJudge {
  readonly #deps: JudgeDeps;
  readonly #message: InboundMessage;
  readonly #person: Person;
  #groups: { state: "unknown" | "failed" } | { state: "known"; groups: readonly string[] };
  #rules: PermissionRule[] | undefined;
  #missed = { groups: false, rules: false };

  constructor(deps: JudgeDeps, message: InboundMessage) {
    this.#deps = deps;
    this.#message = message;
    // Whoever comes over HTTP is nobody of the platform.
    this.#groups = message.reply.channel === "none" ? { state: "known", groups: [] } : { state: "unknown" };
    const groups = (): readonly string[] => this.#groupsNow();
    this.#person = {
      id: message.sender.id,
      get groups() {
        return groups();
      },
    };
  }

  verdict(call: Call): ReturnType<CallJudge["verdict"]> {
    const tool = this.#deps.tools().get(call.name);
    if (tool === undefined) return refused("its tool is not offered any more");
    if (tool.runner === builtInRunner) return builtIn;
    const facts = { ...this.#facts(call), tool: tool.announcement, rules: this.#rules ?? [] };
    const { egress = [] } = this.#deps;
    const verdict = this.#judged(() => decideCall(this.#deps.policy, { ...facts, egress }));
    if (verdict === undefined) {
      return refused("it could not be checked whether this person may do that: their user groups are not known");
    }
    if (verdict.do === "ask" && this.#rules === undefined) this.#missed.rules = true;
    return verdict;
  }

  unknownOutcome(call: Call): Question | undefined {
    const facts = { ...this.#facts(call), toolName: call.name };
    return this.#judged(() => unknownOutcomeOf(this.#deps.policy, facts));
  }

  #facts({ arguments: given, addressContext }: Call) {
    const { chatType } = this.#message;
    return {
      ...(addressContext === undefined ? {} : { addressContext }),
      arguments: given,
      person: this.#person,
      chatId: placeOf(this.#message),
      chatType,
      nowMs: sharedNow(),
    };
  }

  #groupsNow(): readonly string[] {
    if (this.#groups.state === "known") return this.#groups.groups;
    this.#missed.groups = this.#groups.state === "unknown";
    throw groupsUnknown;
  }

  #judged<T>(judge: () => T): T | undefined {
    try {
      return judge();
    } catch (error) {
      if (error !== groupsUnknown) throw error;
      return undefined;
    }
  }

  async supply(): Promise<boolean> {
    const { groups, rules } = this.#missed;
    this.#missed = { groups: false, rules: false };
    await Promise.all([groups ? this.#lookUpGroups() : undefined, rules ? this.#readRules() : undefined]);
    return groups || rules;
  }

  async #lookUpGroups(): Promise<void> {
    const { app, sender, session } = this.#message;
    try {
      const groups = await within(lookupMs, this.#deps.groupsOf(app, sender.id));
      this.#groups = { state: "known", groups };
    } catch (error) {
      this.#deps.logger.warn({ error, session }, "user groups unknown; calls that depend on them are refused");
      this.#groups = { state: "failed" };
    }
  }

  async #readRules(): Promise<void> {
    const { app, session } = this.#message;
    this.#rules = await this.#deps.authorities.rulesInForce(app, session, placeOf(this.#message));
  }

  renew(): void {
    this.#rules = undefined;
    if (this.#groups.state === "failed") this.#groups = { state: "unknown" };
  }
}

export function createTurnJudge(deps: JudgeDeps, message: InboundMessage): TurnJudge {
  return new Judge(deps, message);
}

// Ingress writes down what people have decided, and a program with its Redis user can write anything there. So a
// worker believes only what was asked, which workers alone write, and looks at every grant itself: who gave it, and
// whether they may. A click of a person who may is all that ingress can make up.

interface AuthorityDeps {
  approvals: Pick<ApprovalStore, "approvedRules" | "find">;
  rules: Pick<PermissionRules, "add" | "inForce">;
  policy: Pick<PermissionPolicy, "roles" | "rulesExpireMs">;
  groupsOf: GroupsOf;
  logger: Logger;
}

type DecisionEntry = Extract<ControlEntry, { type: "decision" }>;

/** What came of one decision, as the store has it and as far as it holds. */
interface HeardDecision {
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
