/** Whose spending is counted, and in which period. */
export interface SpendingAccount {
  /** Kind of spender, such as `person`. */
  readonly per: string;
  readonly id: string;
  /** Names the period: `2026-11-22`, `2026-11`. */
  readonly bucket: string;
  /** End of the period, epoch ms. */
  readonly endsAtMs: number;
}

/** What has been spent. */
export interface Spending {
  readonly tokens: number;
  /** To the billionth of a dollar. */
  readonly usd: number;
}

/** What one model call has used. */
export interface Charge extends Spending {
  /** Names the call, and no other one: a charge that is repeated within ten minutes counts once. */
  readonly id: string;
}

/** All spenders of a kind in one period. */
export type SpendingGroup = Pick<SpendingAccount, "per" | "bucket">;

export interface BigSpender extends Spending {
  readonly id: string;
}

/** What has been spent, counted by all processes together; forgotten a day after its period. */
export interface BudgetStore {
  /** What was spent from each account, in their order. */
  spent(accounts: readonly SpendingAccount[]): Promise<Spending[]>;
  /** Adds the charge to every account, or to none; returns what was spent from each by then. */
  charge(accounts: readonly SpendingAccount[], charge: Charge): Promise<Spending[]>;
  /** The biggest spenders, biggest first; those who have spent nothing of that kind are left out. */
  biggest(group: SpendingGroup, by: keyof Spending, limit: number): Promise<BigSpender[]>;
  /** Claims to be the first to tell the spender of an account about it in its period; true once. */
  tellOnce(account: SpendingAccount): Promise<boolean>;
}

/** How long counts outlive their period, and how long charges are remembered, ms. */
export const spendingKeptMs = 86_400_000;
export const chargeKnownMs = 600_000;

/** Money is added up in billionths of a dollar: whole numbers, so that no sum depends on the order. */
export function nanoUsdOf(usd: number): number {
  return Math.round(usd * 1e9);
}

export function usdOf(nanoUsd: number): number {
  return nanoUsd / 1e9;
}
