import {
  chargeKnownMs,
  nanoUsdOf,
  spendingKeptMs,
  usdOf,
  type BudgetStore,
  type SpendingAccount,
  type SpendingGroup,
} from "./budget-store.ts";

interface Counted {
  tokens: number;
  nanoUsd: number;
}

interface Book {
  spenders: Map<string, Counted>;
  told: Set<string>;
  untilMs: number;
}

const nothing: Counted = { tokens: 0, nanoUsd: 0 };

/** Spending in the memory of this process; `now` is the clock, epoch ms. */
export function createMemoryBudgetStore({ now = Date.now }: { now?: () => number } = {}): BudgetStore {
  const books = new Map<string, Book>();
  const charges = new Map<string, number>();

  function bookOf({ per, bucket }: SpendingGroup): Book | undefined {
    const key = `${per} ${bucket}`;
    const book = books.get(key);
    if (book === undefined || book.untilMs > now()) return book;
    books.delete(key);
    return undefined;
  }

  function openBook(account: SpendingAccount): Book {
    const book = bookOf(account) ?? {
      spenders: new Map(),
      told: new Set(),
      untilMs: account.endsAtMs + spendingKeptMs,
    };
    books.set(`${account.per} ${account.bucket}`, book);
    return book;
  }

  function spentFrom(account: SpendingAccount) {
    const { tokens, nanoUsd } = bookOf(account)?.spenders.get(account.id) ?? nothing;
    return { tokens, usd: usdOf(nanoUsd) };
  }

  return {
    spent: async (accounts) => accounts.map(spentFrom),
    charge: async (accounts, { id, tokens, usd }) => {
      const isNew = (charges.get(id) ?? 0) <= now();
      if (isNew) charges.set(id, now() + chargeKnownMs);
      for (const account of isNew ? accounts : []) {
        const { spenders } = openBook(account);
        const before = spenders.get(account.id) ?? nothing;
        spenders.set(account.id, { tokens: before.tokens + tokens, nanoUsd: before.nanoUsd + nanoUsdOf(usd) });
      }
      return accounts.map(spentFrom);
    },
    biggest: async (group, by, limit) =>
      [...(bookOf(group)?.spenders ?? [])]
        .map(([id, { tokens, nanoUsd }]) => ({ id, tokens, usd: usdOf(nanoUsd) }))
        .filter((spender) => spender[by] > 0)
        .sort((one, other) => other[by] - one[by])
        .slice(0, limit),
    tellOnce: async (account) => {
      const { told } = openBook(account);
      const isFirst = !told.has(account.id);
      told.add(account.id);
      return isFirst;
    },
  };
}
