import { chatOf, type InboundMessage } from "@larkline/protocol";

/** The budgets of a deployment. No id is named twice for one kind and period. */
export interface BudgetPolicy {
  /** IANA name of the zone whose days and months are meant. */
  readonly timeZone: string;
  /** The contact that texts name for a larger budget; absent: "your administrator". */
  readonly contact?: string;
  readonly budgets: readonly Budget[];
}

/** One budget of everybody of a kind, each for themselves, or of the ones it names. */
export interface Budget extends BudgetLimit {
  readonly per: BudgetKind;
  readonly period: BudgetPeriod;
  /** Whom the budget is for; absent: all that no other budget of this kind and period names. */
  readonly of?: readonly string[];
}

/** What may be spent at most: in tokens, in money, or both, whichever is spent first. Neither: it is only counted. */
export interface BudgetLimit {
  readonly tokens?: number;
  readonly usd?: number;
}

export type BudgetKind = (typeof budgetKinds)[number];

/** Who shares one budget. `deployment`: everybody. */
export const budgetKinds = ["person", "chat", "agent", "tenant", "deployment"] as const;

export type BudgetPeriod = (typeof budgetPeriods)[number];

/** Calendar periods of the policy's time zone. */
export const budgetPeriods = ["day", "month"] as const;

/** Answers who may spend what, at any moment. */
export interface BudgetBook {
  /** No account has a budget: nothing is to be counted. */
  readonly isEmpty: boolean;
  readonly timeZone: string;
  readonly contact: string | undefined;
  /** The accounts that a message of this spender draws on. */
  accountsOf(spender: Spender, nowMs: number): BudgetAccount[];
  /** Every kind and period that has a budget, in the order of the kinds. */
  groups(nowMs: number): BudgetGroup[];
}

/** The people, chats, agents and tenants whose budgets a message draws on. */
export type Spender = Readonly<Record<Exclude<BudgetKind, "deployment">, string>>;

/** What one spender may spend in the present period. */
export interface BudgetAccount extends BudgetLimit {
  readonly per: BudgetKind;
  readonly id: string;
  readonly period: BudgetPeriod;
  /** Names the period: `2026-11-22`, `2026-11`. */
  readonly bucket: string;
  /** First moment of the next period, epoch ms. */
  readonly endsAtMs: number;
}

/** Everybody of a kind who has a budget for a period. */
export interface BudgetGroup {
  readonly per: BudgetKind;
  readonly period: BudgetPeriod;
  readonly bucket: string;
  readonly endsAtMs: number;
  /** The limit of all who are not named; absent: they have none. */
  readonly general?: BudgetLimit;
  readonly named: ReadonlyMap<string, BudgetLimit>;
}

/** The one spender of the kind `deployment`. */
export const everybody = "all";

/** Opens the budgets of a deployment. Throws a RangeError when there are some and the time zone is unknown. */
export function createBudgetBook(policy: BudgetPolicy): BudgetBook {
  const { timeZone, contact } = policy;
  const all = budgetKinds.flatMap((per) =>
    budgetPeriods.flatMap((period) => groupOf(policy, per, period) ?? []),
  );
  // A calendar takes some 15 ms to make, as long as all else that an embedded engine does before its first step.
  if (all.length === 0) {
    return { isEmpty: true, timeZone, contact, groups: () => [], accountsOf: () => [] };
  }
  const calendar = createBudgetCalendar(timeZone);
  const groups = (nowMs: number): BudgetGroup[] =>
    all.map((group) => {
      const { bucket, endsAtMs } = calendar(group.period, nowMs);
      return { ...group, bucket, endsAtMs };
    });
  return {
    isEmpty: false,
    timeZone,
    contact,
    groups,
    accountsOf: (spender, nowMs) =>
      groups(nowMs).flatMap((group) => {
        const id = group.per === "deployment" ? everybody : spender[group.per];
        return accountIn(group, id) ?? [];
      }),
  };
}

type StaticGroup = Omit<BudgetGroup, "bucket" | "endsAtMs">;

function groupOf(
  { budgets }: BudgetPolicy,
  per: BudgetKind,
  period: BudgetPeriod,
): StaticGroup | undefined {
  const own = budgets.filter((budget) => budget.per === per && budget.period === period);
  if (own.length === 0) return undefined;
  const general = own.find(({ of }) => of === undefined);
  const named = new Map(
    own.flatMap((budget) => (budget.of ?? []).map((id) => [id, limitOf(budget)] as const)),
  );
  return { per, period, named, ...(general === undefined ? {} : { general: limitOf(general) }) };
}

function limitOf({ tokens, usd }: BudgetLimit): BudgetLimit {
  return { ...(tokens === undefined ? {} : { tokens }), ...(usd === undefined ? {} : { usd }) };
}

/** Finds the budget of one member of a group; undefined: there is none. A budget that names the member replaces the others. */
export function accountIn(
  { named, general, ...group }: BudgetGroup,
  id: string,
): BudgetAccount | undefined {
  const limit = named.get(id) ?? general;
  return limit === undefined ? undefined : { ...group, id, ...limit };
}

/**
 * Whose budgets a message draws on that `agent` answers. Over HTTP there are neither chats nor tenants: a session stands
 * for the one, the app (`api`) for the other.
 */
export function spenderOf(message: InboundMessage, agent: string): Spender {
  const { sender, tenant, app } = message;
  return {
    person: sender.id,
    chat: chatOf(message),
    agent,
    tenant: tenant ?? app,
  };
}

/** How far a budget is spent. */
export interface BudgetUse {
  readonly account: BudgetAccount;
  readonly spent: Spent;
  /**
   * The spent share of the limit that is reached first: 1 is all of it; 0 where nothing is limited.
   */
  readonly share: number;
}

/** What has been spent. */
export interface Spent {
  readonly tokens: number;
  readonly usd: number;
}

/**
 * The standing of a spender: which budget forbids another model call, and which ones are near their end.
 */
export interface BudgetStanding {
  /** Spent. Of several the one that renews last: until then nothing can be asked. */
  readonly exceeded?: BudgetUse;
  /** Nearly spent, the nearest first. */
  readonly near: readonly BudgetUse[];
}

/** Part of a budget from which its spender is warned. */
export const nearShare = 0.8;

/** Judges what was spent from each account, in their order. */
export function budgetStanding(uses: readonly BudgetUse[]): BudgetStanding {
  const exceeded = uses
    .filter(({ share }) => share >= 1)
    .reduce<BudgetUse | undefined>(
      (last, use) =>
        last === undefined || use.account.endsAtMs > last.account.endsAtMs ? use : last,
      undefined,
    );
  const near = uses
    .filter(({ share }) => share >= nearShare && share < 1)
    .sort((one, other) => other.share - one.share);
  return exceeded === undefined ? { near } : { exceeded, near };
}

/** How far one budget is spent. */
export function budgetUse(account: BudgetAccount, spent: Spent): BudgetUse {
  const share = Math.max(shareOf(spent.tokens, account.tokens), shareOf(spent.usd, account.usd));
  return { account, spent, share };
}

function shareOf(spent: number, limit: number | undefined): number {
  if (limit === undefined) return 0;
  return limit === 0 ? 1 : spent / limit;
}

type BudgetCalendar = (period: BudgetPeriod, nowMs: number) => PeriodSpan;

/** One day or month. */
interface PeriodSpan {
  /** Names it in keys: `2026-11-22`, `2026-11`. */
  readonly bucket: string;
  /** First moment of the next one, epoch ms. */
  readonly endsAtMs: number;
}

/** Longer than any day, and than any month: clocks are moved by hours at most. */
const longestMs: Readonly<Record<BudgetPeriod, number>> = {
  day: 27 * 3_600_000,
  month: 32 * 86_400_000,
};

/**
 * The days and months of a time zone. A period ends where the calendar on the wall changes, also on
 * days of 23 or 25 hours. Throws a RangeError for an unknown zone.
 */
export function createBudgetCalendar(timeZone: string): BudgetCalendar {
  const format = new Intl.DateTimeFormat("en", {
    timeZone,
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
  });
  const known = new Map<BudgetPeriod, PeriodSpan & { fromMs: number }>();

  const bucketOf = (period: BudgetPeriod) => (ms: number) => {
    const parts = new Map(format.formatToParts(ms).map(({ type, value }) => [type, value]));
    const month = `${parts.get("year")}-${parts.get("month")}`;
    return period === "month" ? month : `${month}-${parts.get("day")}`;
  };

  return (period, nowMs) => {
    const last = known.get(period);
    if (last !== undefined && nowMs >= last.fromMs && nowMs < last.endsAtMs) return last;
    const bucketAt = bucketOf(period);
    const endsAtMs = changeAfter(bucketAt, nowMs, nowMs + longestMs[period]);
    const span = { bucket: bucketAt(nowMs), endsAtMs, fromMs: nowMs };
    known.set(period, span);
    return span;
  };
}

/** The first moment after `fromMs` at which `bucketAt` says something else; it does so by `untilMs`. */
function changeAfter(bucketAt: (ms: number) => string, fromMs: number, untilMs: number): number {
  const bucket = bucketAt(fromMs);
  let [same, other] = [fromMs, untilMs];
  while (other - same > 1) {
    const middle = Math.floor((same + other) / 2);
    if (bucketAt(middle) === bucket) same = middle;
    else other = middle;
  }
  return other;
}

/** Whether the runtime knows a time zone by this name. */
export function isTimeZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: name }).resolvedOptions().timeZone !== "";
  } catch {
    return false;
  }
}

/** A moment in a zone, to the minute: `2026-11-23 00:00`. */
export function localMinute(timeZone: string, atMs: number): string {
  const format = new Intl.DateTimeFormat("sv-SE", {
    timeZone,
    dateStyle: "short",
    timeStyle: "short",
  });
  return format.format(atMs);
}

/** A number of tokens: `1,200,000`. */
export function tokenCount(tokens: number): string {
  return tokens.toLocaleString("en-US");
}

/** A sum of money to the cent, smaller ones more exactly: `$12.50`, `$0.0031`. */
export function usdText(usd: number): string {
  return `$${usd.toFixed(usd > 0 && usd < 0.1 ? 4 : 2)}`;
}

/** Whole percent, rounded down: 100 only when everything is spent. */
export function percentText({ share }: Pick<BudgetUse, "share">): string {
  return `${Math.floor(share * 100 + 1e-9)}%`;
}
