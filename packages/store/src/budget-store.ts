import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";
import { runScript, script } from "./script.ts";

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

export interface RedisBudgetStoreOptions {
  redis: RedisConnection;
  namespace?: string;
  /** Most spenders of a kind that are counted in one period; beyond it who spent least is forgotten. Default: a million. */
  maxSpenders?: number;
}

const [chargeBudgets, tellOnce] = [script("charge-budgets"), script("tell-once")];

function expiryOf({ endsAtMs }: SpendingAccount): number {
  return endsAtMs + spendingKeptMs;
}

const nothing: Charge = { id: "", tokens: 0, usd: 0 };

/** Spending on Redis: one script for a charge and what it led to, in one slot. */
export function createRedisBudgetStore(options: RedisBudgetStoreOptions): BudgetStore {
  const { redis, namespace = defaultNamespace, maxSpenders = 1_000_000 } = options;
  const keys = createKeyspace(namespace);
  const keyOf = (by: keyof Spending, { per, bucket }: SpendingGroup): string => keys.budget(`${by}:${per}:${bucket}`);

  const run = async (accounts: readonly SpendingAccount[], { id, tokens, usd }: Charge): Promise<Spending[]> => {
    if (accounts.length === 0) return [];
    const reply = await runScript(
      redis,
      chargeBudgets,
      {
        charge: keys.budget(`charge:${id}`),
        spending: accounts.flatMap((account) => [keyOf("tokens", account), keyOf("usd", account)]),
      },
      {
        tokens,
        money: nanoUsdOf(usd),
        knownMs: chargeKnownMs,
        maxSpenders,
        accounts: JSON.stringify(accounts.map((account) => ({ id: account.id, expiresAtMs: expiryOf(account) }))),
      },
    );
    const scores = (reply as string[]).map(Number); // shape fixed by the script
    return accounts.map((_, at) => ({ tokens: scores[2 * at] ?? 0, usd: usdOf(scores[2 * at + 1] ?? 0) }));
  };

  return {
    charge: run,
    spent: async (accounts) => await run(accounts, nothing),
    biggest: async (group, by, limit) => {
      const ids = await redis.zrevrangebyscore(keyOf(by, group), "+inf", "(0", "LIMIT", 0, limit);
      if (ids.length === 0) return [];
      const [tokens, nanoUsd] = await Promise.all([
        redis.zmscore(keyOf("tokens", group), ids),
        redis.zmscore(keyOf("usd", group), ids),
      ]);
      return ids.map((id, at) => ({ id, tokens: Number(tokens[at] ?? 0), usd: usdOf(Number(nanoUsd[at] ?? 0)) }));
    },
    tellOnce: async (account) => {
      const { per, bucket, id } = account;
      const told = keys.budget(`told:${per}:${bucket}`);
      return (await runScript(redis, tellOnce, { told }, { id, expiresAtMs: expiryOf(account) })) === 1;
    },
  };
}
