import {
  compactedTransition,
  compactionPlan,
  languageOfMessage,
  requestTokens,
  type CompactionPlan,
  type StepResult,
  type Transition,
} from "@larkline/agent";
import { pastOf, summarise } from "./model-step.ts";
import type { ChargeStep } from "./turn-budget.ts";
import type { TurnRunOptions } from "./turn-options.ts";
import type { TurnProgress } from "./turn-progress.ts";

export type TurnContextOptions = Pick<TurnRunOptions, "chain" | "controller" | "facts" | "readBriefly" | "watch"> & {
  charge: ChargeStep;
};

/** Keeps what the model of one turn gets to see within its window. */
export class TurnContext {
  readonly #options: TurnContextOptions;
  readonly #progress: TurnProgress;
  /** Input tokens of the last step, while the context is the one it saw. */
  #usedTokens: number | undefined;
  /** The window overflowed once; what can be shortened has been. */
  #overflowed = false;

  constructor(options: TurnContextOptions, progress: TurnProgress) {
    this.#options = options;
    this.#progress = progress;
  }

  /** A step has seen the context as it is. */
  used(usage: StepResult["usage"]): void {
    this.#usedTokens = requestTokens(usage);
  }

  /** The context is another one now. */
  changed(): void {
    this.#usedTokens = undefined;
  }

  /** What makes room before the next step; undefined when there is room, or nothing can be done. */
  async whenFull(): Promise<Transition | undefined> {
    const { turn } = this.#progress;
    const plan = turn.summaryFailed === true ? undefined : this.plan(false);
    const summary = plan === undefined ? undefined : await this.summarise(plan);
    if (plan === undefined || summary === undefined) return undefined;
    const text = summaryIn(summary);
    if (text !== undefined) return compactedTransition(turn, plan, text);
    return { turn: { ...turn, summaryFailed: true }, history: [], events: [], next: { do: "model" } };
  }

  /** The vendor counts more than we did: shortens what can be shortened, once. */
  async afterOverflow(): Promise<Transition | undefined> {
    const plan = this.#overflowed ? undefined : this.plan(true);
    this.#overflowed = true;
    const summary = plan === undefined ? undefined : await this.summarise(plan);
    if (plan === undefined || summary === undefined) return undefined;
    return this.compacted(plan, summary);
  }

  plan(force: boolean): CompactionPlan | undefined {
    const { contextWindow, maxOutputTokens } = this.#options.chain.primary;
    const usedTokens = this.#usedTokens;
    return compactionPlan(this.#progress.history, { contextWindow, maxOutputTokens, usedTokens, force });
  }

  /** Undefined when it was broken off. */
  async summarise(plan: CompactionPlan): Promise<StepResult | undefined> {
    const { chain, controller, facts, readBriefly: read, charge, watch } = this.#options;
    const { texts, model } = facts();
    const { turn } = this.#progress;
    const asked = {
      chain,
      plan,
      read,
      charge,
      model,
      language: languageOfMessage(turn.message, texts),
      signal: controller.signal,
      past: pastOf(turn),
      onRetry: watch.retried,
    };
    const summary = await watch.step(chain, "summary", async () => await summarise(asked));
    return summary.brokenOff === true ? undefined : summary;
  }

  compacted(plan: CompactionPlan, summary: StepResult): ReturnType<typeof compactedTransition> {
    return compactedTransition(this.#progress.turn, plan, summaryIn(summary));
  }
}

/** What stands for the older messages; undefined when the model gave no summary. */
function summaryIn({ failure, stopReason, text }: StepResult): string | undefined {
  return failure !== undefined || stopReason === "refusal" || text.trim() === "" ? undefined : text;
}
