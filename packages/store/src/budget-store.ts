import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";
import { defineScript } from "./script.ts";

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

// Whoever spends in a period is a member of two sorted sets, by tokens and by billionths of a dollar: they are the
// counts, and the order of the biggest at once.
const chargeLua = `
-- KEYS charge, then tokens and money of each account
-- ARGV tokens, money, ms to know the charge, most spenders, then id and expiry of each account
local amounts = {ARGV[1], ARGV[2]}
local counts = (ARGV[1] ~= '0' or ARGV[2] ~= '0') and redis.call('SET', KEYS[1], '1', 'NX', 'PX', ARGV[3])
local spent = {}
for at = 2, #KEYS do
  local account = math.floor(at / 2)
  local id, expiresAtMs = ARGV[3 + 2 * account], ARGV[4 + 2 * account]
  local amount = amounts[at % 2 + 1]
  if counts and amount ~= '0' then
    redis.call('ZINCRBY', KEYS[at], amount, id)
    redis.call('PEXPIREAT', KEYS[at], expiresAtMs)
    if redis.call('ZCARD', KEYS[at]) > tonumber(ARGV[4]) then redis.call('ZREMRANGEBYRANK', KEYS[at], 0, 0) end
  end
  spent[at - 1] = redis.call('ZSCORE', KEYS[at], id) or '0'
end
return spent`;

const tellLua = `
-- KEYS told | ARGV id expiresAtMs
local first = redis.call('SADD', KEYS[1], ARGV[1])
redis.call('PEXPIREAT', KEYS[1], ARGV[2])
return first`;

function expiryOf({ endsAtMs }: SpendingAccount): number {
  return endsAtMs + spendingKeptMs;
}

const nothing: Charge = { id: "", tokens: 0, usd: 0 };

/** Spending on Redis: one script for a charge and what it led to, in one slot. */
export function createRedisBudgetStore(options: RedisBudgetStoreOptions): BudgetStore {
  const { redis, namespace = defaultNamespace, maxSpenders = 1_000_000 } = options;
  const keys = createKeyspace(namespace);
  const chargeScript = defineScript(redis, "budget_charge", chargeLua);
  const tellScript = defineScript(redis, "budget_tell", tellLua);
  const keyOf = (by: keyof Spending, { per, bucket }: SpendingGroup): string => keys.budget(`${by}:${per}:${bucket}`);

  const run = async (accounts: readonly SpendingAccount[], { id, tokens, usd }: Charge): Promise<Spending[]> => {
    if (accounts.length === 0) return [];
    const reply = await chargeScript(
      [
        keys.budget(`charge:${id}`),
        ...accounts.flatMap((account) => [keyOf("tokens", account), keyOf("usd", account)]),
      ],
      [
        tokens,
        nanoUsdOf(usd),
        chargeKnownMs,
        maxSpenders,
        ...accounts.flatMap((account) => [account.id, expiryOf(account)]),
      ],
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
      return (await tellScript([keys.budget(`told:${per}:${bucket}`)], [id, expiryOf(account)])) === 1;
    },
  };
}
