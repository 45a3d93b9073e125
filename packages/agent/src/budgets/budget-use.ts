import type { BudgetAccount } from "./budget-book.ts";

/** What has been spent. */
export interface Spent {
  readonly tokens: number;
  readonly usd: number;
}

/** How far a budget is spent. */
export interface BudgetUse {
  readonly account: BudgetAccount;
  readonly spent: Spent;
  /** Of the limit that is reached first: 1 is all of it. 0 where nothing is limited. */
  readonly share: number;
}

/** Part of a budget from which its spender is warned. */
export const nearShare = 0.8;

function shareOf(spent: number, limit: number | undefined): number {
  if (limit === undefined) return 0;
  return limit === 0 ? 1 : spent / limit;
}

/** How far one budget is spent. */
export function budgetUse(account: BudgetAccount, spent: Spent): BudgetUse {
  const share = Math.max(shareOf(spent.tokens, account.tokens), shareOf(spent.usd, account.usd));
  return { account, spent, share };
}

/** Where a spender stands: which budget is in the way of another model call, and which ones are near their end. */
export interface BudgetStanding {
  /** Spent. Of several the one that renews last: until then nothing can be asked. */
  readonly exceeded?: BudgetUse;
  /** Nearly spent, the nearest first. */
  readonly near: readonly BudgetUse[];
}

/** Judges what was spent from each account, in their order. */
export function budgetStanding(uses: readonly BudgetUse[]): BudgetStanding {
  const exceeded = uses
    .filter(({ share }) => share >= 1)
    .reduce<BudgetUse | undefined>(
      (last, use) => (last === undefined || use.account.endsAtMs > last.account.endsAtMs ? use : last),
      undefined,
    );
  const near = uses
    .filter(({ share }) => share >= nearShare && share < 1)
    .sort((one, other) => other.share - one.share);
  return exceeded === undefined ? { near } : { exceeded, near };
}
