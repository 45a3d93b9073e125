import {
  decideCall,
  unknownOutcomeOf,
  type PermissionPolicy,
  type Person,
  type Question,
} from "@larkline/agent/permissions";
import type { CallJudge } from "@larkline/agent";
import { sharedNow, type InboundMessage, type PermissionRule } from "@larkline/protocol";
import type { AvailableTool } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import type { Authorities } from "./authority.ts";
import { builtInRunner } from "./built-in-tools.ts";
import { placeOf } from "./call-facts.ts";
import { within } from "./within.ts";

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

  #facts({ arguments: given, heard }: Call) {
    const { chatType } = this.#message;
    return {
      ...(heard === undefined ? {} : { heard }),
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
