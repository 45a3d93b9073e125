import { type CallPolicy } from "@larkline/agent";
import {
  decideCall,
  hasAccess,
  holdsInForce,
  isAllowedBy,
  unknownOutcomeOf,
  type Person,
  type PolicyCall,
  type Question,
  type StandingApprovals,
} from "@larkline/agent/permissions";
import { chatOf, peopleOf, type InboundMessage } from "@larkline/protocol";
import type { PermissionRule } from "@larkline/protocol/approval";
import {
  builtInRunner,
  denial,
  type Actor,
  type CallAuthority,
  type ToolOutcome,
} from "@larkline/protocol/tool";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import { isStandingId, standingApprovalsOf } from "@larkline/agent/schedules";
import type { Agent } from "./agent.ts";
import { DecidersUnknownError, groupsOf, isApproved, keepRule } from "./approvals.ts";
import type { Services } from "./services.ts";
import type { SpeakingTurn } from "./tool-catalog.ts";

// Whether a call may run: decided when the model asks for it (`TurnPolicy`), by people where the policy says so, and
// looked up once more before the call is signed (`objectionTo`). The decisions themselves are pure functions of
// packages/agent/permissions; this chapter fetches the facts for them.

type Call = Parameters<CallPolicy["verdict"]>[0];
type Verdict = ReturnType<CallPolicy["verdict"]>;

/** Thrown when a decision needs user groups that were not fetched yet. */
const groupsUnknown = new Error("user groups are not known");

/**
 * Decides about the calls of one turn. A decision is a pure function, and few need more than the
 * policy: facts that cost a look-up are fetched once a decision has missed them. So decide, then
 * {@link supply}, and decide again as long as that has brought something.
 */
export class TurnPolicy implements CallPolicy {
  readonly #services: Services;
  /** The agent that answers now, which has the tools and the addresses that they may reach. */
  readonly #run: SpeakingTurn;
  readonly #message: InboundMessage;
  /** Who asks, and where: the same for all calls. */
  readonly #asker: Pick<PolicyCall, "person" | "chatId" | "chatType">;
  #groups: { state: "unknown" | "failed" } | { state: "known"; groups: readonly string[] };
  #rules: PermissionRule[] | undefined;
  /** What the run of a schedule may do without asking; `read`: it is known. */
  #standing: { read: boolean; approvals?: StandingApprovals | undefined };
  #missed = { groups: false, rules: false, standing: false };

  constructor(services: Services, run: SpeakingTurn, message: InboundMessage) {
    this.#services = services;
    this.#run = run;
    this.#message = message;
    this.#standing = { read: message.schedule === undefined };
    // People who come over HTTP are in no group of the platform.
    this.#groups =
      peopleOf(message).reply.channel === "none"
        ? { state: "known", groups: [] }
        : { state: "unknown" };
    const groups = (): readonly string[] => this.#groupsNow();
    const person: Person = {
      id: message.sender.id,
      get groups() {
        return groups();
      },
    };
    this.#asker = { person, chatId: chatOf(message), chatType: message.chatType };
  }

  verdict(call: Call): Verdict {
    const { settings } = this.#services;
    const { config } = this.#run.agent;
    const tool = this.#services.toolCatalog.ofTurn(this.#run).get(call.name);
    if (tool === undefined) return refused("its tool is not offered any more");
    if (isToolPaused(this.#services, call.name)) return refused(pausedText(call.name));
    if (tool.runner === builtInRunner) {
      return { do: "run", authority: { by: "policy" }, findings: [] };
    }
    const { person, chatId, chatType } = this.#asker;
    const facts = {
      tool: tool.announcement,
      arguments: call.arguments,
      addressContext: call.addressContext,
      person,
      chatId,
      chatType,
      rules: this.#rules ?? [],
      standing:
        call.allowed === undefined
          ? this.#standing.approvals
          : { id: "asked", allowed: call.allowed },
      egress: config.egress,
      nowMs: this.#services.clock.now(),
    };
    const verdict = this.#decided(() => decideCall(settings.permissions, facts));
    if (verdict === undefined) {
      return refused(
        "it could not be checked whether this person may do that: their user groups are not known",
      );
    }
    if (verdict.do === "ask" && this.#rules === undefined) this.#missed.rules = true;
    if (verdict.do === "ask" && !this.#standing.read) this.#missed.standing = true;
    return verdict;
  }

  allowedAhead(call: Call): CallAuthority | undefined {
    const { read, approvals } = this.#standing;
    if (!read) this.#missed.standing = true;
    const tool = this.#services.toolCatalog.ofTurn(this.#run).get(call.name)?.announcement;
    if (approvals === undefined || tool === undefined) return undefined;
    const nowMs = this.#services.clock.now();
    const isAllowed = isAllowedBy(approvals.allowed, { tool, arguments: call.arguments, nowMs });
    return isAllowed ? { by: "rule", id: approvals.id } : undefined;
  }

  unknownOutcome(call: Call): Question | undefined {
    const { person, chatId, chatType } = this.#asker;
    const { name: toolName, arguments: given } = call;
    const nowMs = this.#services.clock.now();
    const facts = { toolName, arguments: given, person, chatId, chatType, nowMs };
    return this.#decided(() => unknownOutcomeOf(this.#services.settings.permissions, facts));
  }

  /** Whether the person may use this agent here. False when groups decide and cannot be fetched. */
  mayUse({ config: { access } }: Agent): boolean {
    if (access === null) return true;
    const known = this.#services.settings.permissions.roles;
    const { person, chatId } = this.#asker;
    const facts = { person, chatId, known };
    return this.#decided(() => hasAccess(access, facts)) ?? false;
  }

  #groupsNow(): readonly string[] {
    if (this.#groups.state === "known") return this.#groups.groups;
    this.#missed.groups = this.#groups.state === "unknown";
    throw groupsUnknown;
  }

  #decided<T>(decide: () => T): T | undefined {
    try {
      return decide();
    } catch (error) {
      if (error !== groupsUnknown) throw error;
      return undefined;
    }
  }

  /** Fetches the facts that decisions have missed since the last call; undefined when there were none. */
  supply(): Promise<boolean> | undefined {
    const { groups, rules, standing } = this.#missed;
    return groups || rules || standing ? this.#fetchMissed() : undefined;
  }

  async #fetchMissed(): Promise<boolean> {
    const { groups, rules, standing } = this.#missed;
    this.#missed = { groups: false, rules: false, standing: false };
    await Promise.all([
      groups ? this.#lookUpGroups() : undefined,
      rules ? this.#readRules() : undefined,
      standing ? this.#readStanding() : undefined,
    ]);
    return true;
  }

  async #readStanding(): Promise<void> {
    this.#standing = { read: true, approvals: await standingNow(this.#services, this.#message) };
  }

  async #lookUpGroups(): Promise<void> {
    const { app, sender, session } = this.#message;
    try {
      this.#groups = { state: "known", groups: await groupsOf(this.#services, app, sender.id) };
    } catch (error) {
      this.#services.log.warn(
        { error, session },
        "user groups unknown; calls that depend on them are refused",
      );
      this.#groups = { state: "failed" };
    }
  }

  async #readRules(): Promise<void> {
    this.#rules = await rulesInForce(this.#services, this.#message);
  }

  /** A new step begins: rules may have changed, and a failed look-up may work now. */
  renew(): void {
    this.#rules = undefined;
    this.#standing = { read: this.#message.schedule === undefined };
    if (this.#groups.state === "failed") this.#groups = { state: "unknown" };
  }
}

function refused(reason: string): Verdict {
  return { do: "refuse", reason, findings: [] };
}

/**
 * Rules of one chat that hold now. A proposal that was approved in this session before counts, also while the worker
 * that looks after its cards has not written it yet: the card has promised that such calls run unasked from now on.
 */
async function rulesInForce(
  services: Services,
  message: InboundMessage,
): Promise<PermissionRule[]> {
  const approved = await services.approvals.approvedRules(message.session);
  await Promise.all(
    approved.map(
      async (status) =>
        await keepRule(services, status).catch((error: unknown) => {
          if (!(error instanceof DecidersUnknownError)) throw error; // otherwise people are asked once more
        }),
    ),
  );
  return await services.rules.inForce(message.app, chatOf(message));
}

/** Why a call that its checkpoint allows must not be signed; undefined when it may be. Rejects as {@link checkGrant}. */
export async function objectionTo(
  services: Services,
  turn: TurnState,
  call: CallState,
): Promise<ToolOutcome | undefined> {
  const { authority = { by: "policy" } } = call;
  if (isToolPaused(services, call.name)) return denial(`${pausedText(call.name)}. It was not run.`);
  if (authority.by === "approval") {
    const holds = await isApproved(services, turn, call, authority.id);
    return holds
      ? undefined
      : denial("the approval of this call was not found again. It was not run.");
  }
  if (authority.by === "rule") {
    const holds = await isRuled(services, turn, call, authority.id);
    return holds
      ? undefined
      : denial("the rule that allowed this call does not hold any more. It was not run.");
  }
  return undefined;
}

function isToolPaused({ pauses }: Services, tool: string): boolean {
  return pauses.hasAny && pauses.of("tool", tool) !== undefined;
}

function pausedText(tool: string): string {
  return `an operator has paused the tool '${tool}'`;
}

async function isRuled(
  services: Services,
  { message }: TurnState,
  call: CallState,
  ruleId: string,
): Promise<boolean> {
  if (isStandingId(ruleId)) return await isAllowedAhead(services, message, call, ruleId);
  const chatId = chatOf(message);
  const inForce = await services.rules.inForce(message.app, chatId);
  const rule = inForce.find(({ id }) => id === ruleId);
  return (
    rule !== undefined && holdsInForce(rule, { tool: call.name, person: message.sender.id, chatId })
  );
}

async function isAllowedAhead(
  services: Services,
  message: InboundMessage,
  { name, arguments: given }: CallState,
  ruleId: string,
): Promise<boolean> {
  const tool = services.toolCatalog.announced(name)?.announcement;
  const standing = await standingNow(services, message);
  if (tool === undefined || standing?.id !== ruleId) return false;
  const nowMs = services.clock.now();
  return isAllowedBy(standing.allowed, { tool, arguments: given, nowMs });
}

/** What the schedule whose run a message is may do without asking, as it is now. */
async function standingNow(
  { schedules }: Services,
  message: InboundMessage,
): Promise<StandingApprovals | undefined> {
  const { schedule: run } = message;
  if (run === undefined) return undefined;
  return standingApprovalsOf(message, await schedules.read(run.id));
}

/** Person and place that the calls of a turn act for. */
export function actorOf({ message }: TurnState): Actor {
  const { app, tenant, sender } = message;
  return {
    app,
    ...(tenant === undefined ? {} : { tenant }),
    userId: sender.id,
    ...(sender.name === undefined ? {} : { userName: sender.name }),
    chatId: chatOf(message),
  };
}
