import { allTokens, endOverBudget, isOwn, warnNearBudget, type BudgetFacts, type Transition } from "@larkline/agent";
import {
  budgetStanding,
  budgetUse,
  spenderOf,
  type BudgetAccount,
  type BudgetUse,
  type Spender,
} from "@larkline/agent/budgets";
import { pause, type InboundMessage, type StepUse, type TurnState } from "@larkline/protocol";
import type { BudgetStore, Spending } from "@larkline/store";
import type { Agent } from "./agents.ts";
import type { Services } from "./services.ts";

/** The run of a turn: one claim of it. */
export interface BudgetedRun {
  message: InboundMessage;
  turnId: string;
  epoch: string;
  /** Aborts when the run is broken off. */
  signal: AbortSignal;
}

/** How old the last word about what was spent may be, ms: steps that follow each other quickly ask once. */
const freshMs = 5_000;
/** Pause before a question or a charge that failed is repeated, ms; it doubles from time to time. */
const retryMs = 200;
/** A restart of Redis is over by then. */
const maxTries = 5;

/** The budgets that one run of a turn draws on. */
export class TurnBudget {
  readonly #services: Services;
  readonly #run: BudgetedRun;
  readonly #spender: Spender;
  readonly #facts: BudgetFacts;
  #known: { uses: readonly BudgetUse[]; atMs: number } | undefined;
  /** Model calls that were counted in this run. */
  #calls = 0;

  constructor(services: Services, agent: Agent, run: BudgetedRun) {
    this.#services = services;
    this.#run = run;
    this.#spender = spenderOf(run.message, agent.name);
    const { timeZone, contact } = services.budgetBook;
    this.#facts = { timeZone, contact, ...agent.speech };
  }

  /**
   * What comes before the next model call: the end of the turn, because a budget is spent, or a warning
   * that one is nearly spent. Undefined: nothing. Rejects when it cannot be found out.
   */
  async before(turn: TurnState): Promise<Transition | undefined> {
    const { counters } = this.#services;
    const { exceeded, near } = budgetStanding(await this.#uses());
    if (exceeded !== undefined) {
      const { per, period } = exceeded.account;
      counters.budgetRefusals.add(1, { per, period });
      return endOverBudget(turn, exceeded, this.#facts);
    }
    const [nearest] = near;
    if (nearest === undefined || turn.budgetWarned === true) return undefined;
    const { per, period } = nearest.account;
    counters.budgetWarnings.add(1, { per, period });
    return warnNearBudget(turn, { nearest, told: await this.#toTell(near) }, this.#facts);
  }

  /** Counts what a model step has used, however it ended. Rejects when it cannot be counted. */
  async charge(used: StepUse): Promise<void> {
    const accounts = this.#accounts();
    const tokens = allTokens(used);
    if (accounts.length === 0 || tokens === 0) return;
    const { turnId, epoch } = this.#run;
    this.#calls += 1;
    const id = `${turnId}:${epoch}:${this.#calls}`;
    const charge = { id, tokens, usd: used.costUsd };
    // Counted once, however often it takes: Redis knows the charge by its id.
    this.#learn(accounts, await this.#patiently(async (budgets) => await budgets.charge(accounts, charge)));
  }

  #accounts(): BudgetAccount[] {
    return this.#services.budgetBook.accountsOf(this.#spender, this.#services.clock.now());
  }

  async #uses(): Promise<readonly BudgetUse[]> {
    const accounts = this.#accounts();
    const known = this.#known;
    const isFresh = known !== undefined && this.#services.clock.now() - known.atMs < freshMs;
    const isSame = known?.uses.every(({ account }, at) => account.bucket === accounts[at]?.bucket) ?? false;
    if (known !== undefined && isFresh && isSame) return known.uses;
    if (accounts.length === 0) return [];
    return this.#learn(accounts, await this.#patiently(async (budgets) => await budgets.spent(accounts)));
  }

  #learn(accounts: readonly BudgetAccount[], spendings: readonly Spending[]): readonly BudgetUse[] {
    const uses = accounts.map((account, at) => budgetUse(account, spendings[at] ?? { tokens: 0, usd: 0 }));
    this.#known = { uses, atMs: this.#services.clock.now() };
    return uses;
  }

  /** Tries several times: a turn that fails counts as a crash, and in a Cluster budgets may be away alone. */
  async #patiently(run: (budgets: BudgetStore) => Promise<Spending[]>): Promise<Spending[]> {
    const { budgets, clock } = this.#services;
    for (let tries = 1; ; tries += 1) {
      try {
        return await run(budgets);
      } catch (error) {
        if (tries === maxTries || this.#run.signal.aborted) throw error;
        await pause(clock, retryMs * 2 ** (tries - 1));
      }
    }
  }

  /** The budget that the person hears of: one of their own, once in its period, where there is a reply to say it. */
  async #toTell(near: readonly BudgetUse[]): Promise<BudgetUse | undefined> {
    if (this.#run.message.reply.channel === "none") return undefined;
    for (const use of near) {
      // No turn fails because of a word of warning: it stands below another answer.
      if (isOwn(use.account) && (await this.#services.budgets.tellOnce(use.account).catch(() => false))) return use;
    }
    return undefined;
  }
}
