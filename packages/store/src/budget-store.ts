import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

/** An account: one spender in one period. */
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

/** How long counts outlive their period, and how long charges are remembered, ms. */
const spendingKeptMs = 86_400_000;
const chargeKnownMs = 600_000;

/** Money is added up in billionths of a dollar: whole numbers, so that no sum depends on the order. */
function nanoUsdOf(usd: number): number {
  return Math.round(usd * 1e9);
}

function usdOf(nanoUsd: number): number {
  return nanoUsd / 1e9;
}

const [chargeBudgets, warnOnce] = [script("charge-budgets"), script("warn-once")];

function expiryOf({ endsAtMs }: SpendingAccount): number {
  return endsAtMs + spendingKeptMs;
}

const nothing: Charge = { id: "", tokens: 0, usd: 0 };

/**
 * What has been spent, counted by all processes together; forgotten a day after its period. One script makes a charge
 * and says what it led to.
 */
export class BudgetStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #maxSpenders: number;

  /** `maxSpenders`: of a kind in one period; beyond it who spent least is forgotten. Default: a million. */
  constructor({
    redis,
    namespace,
    maxSpenders = 1_000_000,
  }: StoreOptions & { maxSpenders?: number }) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#maxSpenders = maxSpenders;
  }

  /** What was spent from each account, in their order. */
  async spent(accounts: readonly SpendingAccount[]): Promise<Spending[]> {
    return await this.#run(accounts, nothing);
  }

  /** Adds the charge to every account, or to none; returns what was spent from each by then. */
  async charge(accounts: readonly SpendingAccount[], charge: Charge): Promise<Spending[]> {
    return await this.#run(accounts, charge);
  }

  async #run(
    accounts: readonly SpendingAccount[],
    { id, tokens, usd }: Charge,
  ): Promise<Spending[]> {
    if (accounts.length === 0) return [];
    const reply = await runScript(
      this.#redis,
      chargeBudgets,
      {
        charge: this.#keys.chargeOf(id),
        spending: accounts.flatMap((account) => [
          this.#keyOf("tokens", account),
          this.#keyOf("usd", account),
        ]),
      },
      {
        tokens,
        money: nanoUsdOf(usd),
        knownMs: chargeKnownMs,
        maxSpenders: this.#maxSpenders,
        accounts: JSON.stringify(
          accounts.map((account) => ({ id: account.id, expiresAtMs: expiryOf(account) })),
        ),
      },
    );
    const scores = (reply as string[]).map(Number); // shape fixed by the script
    return accounts.map((_, at) => ({
      tokens: scores[2 * at] ?? 0,
      usd: usdOf(scores[2 * at + 1] ?? 0),
    }));
  }

  /** The biggest spenders, biggest first; those who have spent nothing of that kind are left out. */
  async biggest(group: SpendingGroup, by: keyof Spending, limit: number): Promise<BigSpender[]> {
    const ids = await this.#redis.zrevrangebyscore(
      this.#keyOf(by, group),
      "+inf",
      "(0",
      "LIMIT",
      0,
      limit,
    );
    if (ids.length === 0) return [];
    const [tokens, nanoUsd] = await Promise.all([
      this.#redis.zmscore(this.#keyOf("tokens", group), ids),
      this.#redis.zmscore(this.#keyOf("usd", group), ids),
    ]);
    return ids.map((id, at) => ({
      id,
      tokens: Number(tokens[at] ?? 0),
      usd: usdOf(Number(nanoUsd[at] ?? 0)),
    }));
  }

  /** True for the first caller in the account's period, which warns the spender. */
  async warnOnce(account: SpendingAccount): Promise<boolean> {
    const { per, bucket, id } = account;
    const warned = this.#keys.warnedOf(per, bucket);
    return (
      (await runScript(
        this.#redis,
        warnOnce,
        { warned },
        { id, expiresAtMs: expiryOf(account) },
      )) === 1
    );
  }

  #keyOf(by: keyof Spending, { per, bucket }: SpendingGroup): string {
    return this.#keys.spentOf(by, per, bucket);
  }
}
