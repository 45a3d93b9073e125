/** Who shares one budget. `deployment`: everybody. */
export const budgetKinds = ["person", "chat", "agent", "tenant", "deployment"] as const;
export type BudgetKind = (typeof budgetKinds)[number];

/** Calendar periods of the policy's time zone. */
export const budgetPeriods = ["day", "month"] as const;
export type BudgetPeriod = (typeof budgetPeriods)[number];

/** What may be spent at most: in tokens, in money, or both, whichever is spent first. Neither: it is only counted. */
export interface BudgetLimit {
  readonly tokens?: number;
  readonly usd?: number;
}

/** One budget of everybody of a kind, each for themselves, or of the ones it names. */
export interface Budget extends BudgetLimit {
  readonly per: BudgetKind;
  readonly period: BudgetPeriod;
  /** Absent: for all that no other budget of this kind and period names. */
  readonly of?: readonly string[];
}

/** The budgets of a deployment. No id is named twice for one kind and period. */
export interface BudgetPolicy {
  /** IANA name of the zone whose days and months are meant. */
  readonly timeZone: string;
  /** Whom people are told to ask for more; absent: the administrator, without a name. */
  readonly contact?: string;
  readonly budgets: readonly Budget[];
}
