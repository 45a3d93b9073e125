import { sharedNow } from "@larkline/protocol";
import {
  accountIn,
  budgetUse,
  everybody,
  type BudgetAccount,
  type BudgetBook,
  type BudgetGroup,
  type BudgetUse,
} from "@larkline/agent/budgets";
import type { FastifyInstance } from "fastify";
import { budgetsPage, type GroupSpending, type Lookup } from "./budgets-page.ts";
import { answerPage, type PagesDeps } from "./pages.ts";

export interface BudgetRoutesDeps extends PagesDeps {
  book: BudgetBook;
}

/** As many of the biggest spenders as anybody reads. */
const maxSpenders = 20;
/** Those with a budget of their own that are looked at in any case. */
const maxNamed = 100;
const maxIdLength = 240;

async function usesOf({ backend }: PagesDeps, accounts: readonly BudgetAccount[]): Promise<BudgetUse[]> {
  const spent = accounts.length === 0 ? [] : await backend.budgets.spent(accounts);
  return accounts.map((account, at) => budgetUse(account, spent[at] ?? { tokens: 0, usd: 0 }));
}

/** Who has spent most of theirs: among the biggest spenders, and those who are named. */
async function spendingOf(deps: PagesDeps, group: BudgetGroup): Promise<GroupSpending> {
  const { budgets } = deps.backend;
  const [byTokens, byMoney] = await Promise.all([
    budgets.biggest(group, "tokens", maxSpenders),
    budgets.biggest(group, "usd", maxSpenders),
  ]);
  const named = group.per === "deployment" ? [everybody] : [...group.named.keys()].slice(0, maxNamed);
  const ids = new Set([...byTokens.map(({ id }) => id), ...byMoney.map(({ id }) => id), ...named]);
  const uses = await usesOf(
    deps,
    [...ids].flatMap((id) => accountIn(group, id) ?? []),
  );
  const biggest = uses
    .filter(({ spent }) => spent.tokens > 0 || spent.usd > 0)
    .sort((one, other) => other.share - one.share || other.spent.tokens - one.spent.tokens)
    .slice(0, maxSpenders);
  return { group, biggest };
}

/** What one id has spent, and what it may: it is looked for among all kinds. */
async function lookUp(deps: BudgetRoutesDeps, groups: readonly BudgetGroup[], id: string): Promise<Lookup> {
  const own = groups.filter(({ per }) => per !== "deployment" || id === everybody);
  const uses = await usesOf(
    deps,
    own.flatMap((group) => accountIn(group, id) ?? []),
  );
  const isKnown = ({ account, spent }: BudgetUse): boolean =>
    spent.tokens > 0 || spent.usd > 0 || groups.some(({ per, named }) => per === account.per && named.has(account.id));
  return { id, uses: uses.filter(isKnown) };
}

/** Adds the page of budgets: who has spent how much of theirs in the present period. */
export function registerBudgetRoutes(server: FastifyInstance, deps: BudgetRoutesDeps): void {
  const { book } = deps;
  server.get<{ Querystring: { id?: string } }>("/budgets", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => {
      const groups = book.groups(sharedNow());
      const { id: given } = request.query;
      const id = typeof given === "string" ? given.trim().slice(0, maxIdLength) : "";
      const [spendings, lookup] = await Promise.all([
        Promise.all(groups.map(async (group) => await spendingOf(deps, group))),
        id === "" ? undefined : lookUp(deps, groups, id),
      ]);
      return budgetsPage(view, spendings, lookup);
    }),
  );
}
