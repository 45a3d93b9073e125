import {
  allTokens,
  endOverBudget,
  isOwn,
  warnNearBudget,
  warningIn,
  type BudgetFacts,
  type Transition,
} from "@larkline/agent";
import {
  budgetStanding,
  budgetUse,
  spenderOf,
  type BudgetAccount,
  type BudgetUse,
} from "@larkline/agent/budgets";
import type { InboundMessage } from "@larkline/protocol";
import { pause } from "@larkline/protocol/clock";
import type { StepUse, TurnState } from "@larkline/protocol/turn";
import type { BudgetStore, Spending } from "@larkline/store";
import type { Agent } from "./agent.ts";
import type { Services } from "./services.ts";

/** The run of a turn: one claim of it. */
export interface BudgetedRun {
  message: InboundMessage;
  turnId: string;
  epoch: string;
  /** Aborts when the run is broken off. */
  signal: AbortSignal;
}

/** How long the last answer about spending is used, ms, so that quick steps ask once. */
const freshMs = 5_000;
/** Pause before a question or a charge that failed is repeated, ms; it doubles from time to time. */
const retryMs = 200;
/** A restart of Redis is over by then. */
const maxTries = 5;

/** The budgets that one run of a turn draws on. */
export class TurnBudget {
  readonly #services: Services;
  readonly #run: BudgetedRun;
  /** The agent that answers, which has budgets of its own, too. */
  agent: Agent;
  readonly #facts: BudgetFacts;
  #known: { uses: readonly BudgetUse[]; atMs: number } | undefined;
  /** Model calls that were counted in this run. */
  #calls = 0;

  constructor(services: Services, agent: Agent, run: BudgetedRun) {
    this.#services = services;
    this.#run = run;
    this.agent = agent;
    const { timeZone, contact } = services.budgetBook;
    this.#facts = { timeZone, contact, ...agent.speech };
  }

  /**
   * What comes before the next model call: the end of the turn, because a budget is spent, or a warning
   * that one is nearly spent. Undefined: nothing. Rejects when it cannot be found out.
   */
  async before(turn: TurnState): Promise<Transition | undefined> {
    const { counters } = this.#services;
    const uses = await this.#uses();
    if (uses.length === 0) return undefined;
    const { exceeded, near } = budgetStanding(uses);
    if (exceeded !== undefined) {
      const { per, period } = exceeded.account;
      counters.budgetRefusals.add(1, { per, period });
      return endOverBudget(turn, exceeded, this.#facts);
    }
    const [nearest] = near;
    if (nearest === undefined || warningIn(turn) !== undefined) return undefined;
    const { per, period } = nearest.account;
    counters.budgetWarnings.add(1, { per, period });
    return warnNearBudget(turn, { nearest, noted: await this.#toNote(near) }, this.#facts);
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
    this.#learn(
      accounts,
      await this.#patiently(async (budgets) => await budgets.charge(accounts, charge)),
    );
  }

  /** The accounts that the turn draws on; none where the deployment has no budgets. */
  #accounts(): BudgetAccount[] {
    const { budgetBook, clock } = this.#services;
    return budgetBook.isEmpty
      ? []
      : budgetBook.accountsOf(spenderOf(this.#run.message, this.agent.name), clock.now());
  }

  async #uses(): Promise<readonly BudgetUse[]> {
    const accounts = this.#accounts();
    const known = this.#known;
    const isFresh = known !== undefined && this.#services.clock.now() - known.atMs < freshMs;
    const isSame =
      known?.uses.every(({ account }, at) => account.bucket === accounts[at]?.bucket) ?? false;
    if (known !== undefined && isFresh && isSame) return known.uses;
    if (accounts.length === 0) return [];
    return this.#learn(
      accounts,
      await this.#patiently(async (budgets) => await budgets.spent(accounts)),
    );
  }

  #learn(accounts: readonly BudgetAccount[], spendings: readonly Spending[]): readonly BudgetUse[] {
    const uses = accounts.map((account, at) =>
      budgetUse(account, spendings[at] ?? { tokens: 0, usd: 0 }),
    );
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

  /** The budget whose warning the person gets: one of their own, once in its period, if there is a reply to show it. */
  async #toNote(near: readonly BudgetUse[]): Promise<BudgetUse | undefined> {
    if (this.#run.message.reply.channel === "none") return undefined;
    for (const use of near) {
      // A failed warning does not fail the turn; a later answer shows it.
      if (
        isOwn(use.account) &&
        (await this.#services.budgets.warnOnce(use.account).catch(() => false))
      ) {
        return use;
      }
    }
    return undefined;
  }
}
