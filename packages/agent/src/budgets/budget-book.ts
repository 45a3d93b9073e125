import type { InboundMessage } from "@larkline/protocol";
import { createBudgetCalendar } from "./budget-calendar.ts";
import {
  budgetKinds,
  budgetPeriods,
  type BudgetKind,
  type BudgetLimit,
  type BudgetPeriod,
  type BudgetPolicy,
} from "./budget-policy.ts";

/** Whose budgets a message draws on. */
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

/** The one spender of the kind `deployment`. */
export const everybody = "all";

/**
 * Whose budgets a message draws on that `agent` answers. Over HTTP there are neither chats nor tenants: a session stands
 * for the one, the app (`api`) for the other.
 */
export function spenderOf(message: InboundMessage, agent: string): Spender {
  const { sender, reply, session, tenant, app } = message;
  return {
    person: sender.id,
    chat: reply.channel === "feishu" ? reply.chatId : session,
    agent,
    tenant: tenant ?? app,
  };
}

/** Everybody of a kind who has a budget for a period. */
export interface BudgetGroup {
  readonly per: BudgetKind;
  readonly period: BudgetPeriod;
  readonly bucket: string;
  readonly endsAtMs: number;
  /** Of those who are not named; absent: they have none. */
  readonly general?: BudgetLimit;
  readonly named: ReadonlyMap<string, BudgetLimit>;
}

/** Answers who may spend what, at any moment. */
export interface BudgetBook {
  /** Nobody has a budget: nothing is to be counted. */
  readonly isEmpty: boolean;
  readonly timeZone: string;
  readonly contact: string | undefined;
  /** The accounts that a message of this spender draws on. */
  accountsOf(spender: Spender, nowMs: number): BudgetAccount[];
  /** Every kind and period that somebody has a budget for, in the order of the kinds. */
  groups(nowMs: number): BudgetGroup[];
}

function limitOf({ tokens, usd }: BudgetLimit): BudgetLimit {
  return { ...(tokens === undefined ? {} : { tokens }), ...(usd === undefined ? {} : { usd }) };
}

type StaticGroup = Omit<BudgetGroup, "bucket" | "endsAtMs">;

function groupOf({ budgets }: BudgetPolicy, per: BudgetKind, period: BudgetPeriod): StaticGroup | undefined {
  const own = budgets.filter((budget) => budget.per === per && budget.period === period);
  if (own.length === 0) return undefined;
  const general = own.find(({ of }) => of === undefined);
  const named = new Map(own.flatMap((budget) => (budget.of ?? []).map((id) => [id, limitOf(budget)] as const)));
  return { per, period, named, ...(general === undefined ? {} : { general: limitOf(general) }) };
}

/** What one of a group may spend; undefined when they have no budget. Who is named has that one alone. */
export function accountIn({ named, general, ...group }: BudgetGroup, id: string): BudgetAccount | undefined {
  const limit = named.get(id) ?? general;
  return limit === undefined ? undefined : { ...group, id, ...limit };
}

/** Opens the budgets of a deployment. Throws a RangeError when the time zone is unknown. */
export function createBudgetBook(policy: BudgetPolicy): BudgetBook {
  const { timeZone, contact } = policy;
  const calendar = createBudgetCalendar(timeZone);
  const all = budgetKinds.flatMap((per) => budgetPeriods.flatMap((period) => groupOf(policy, per, period) ?? []));
  const groups = (nowMs: number): BudgetGroup[] =>
    all.map((group) => {
      const { bucket, endsAtMs } = calendar(group.period, nowMs);
      return { ...group, bucket, endsAtMs };
    });
  return {
    isEmpty: all.length === 0,
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
