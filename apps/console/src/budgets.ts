import {
  accountIn,
  type BudgetBook,
  createBudgetBook,
  budgetUse,
  everybody,
  type BudgetAccount,
  type BudgetGroup,
  type BudgetUse,
  percentText,
  tokenCount,
  type BudgetKind,
  type BudgetLimit,
} from "@larkline/agent/budgets";
import { budgetsWith } from "@larkline/process/config";
import type { FastifyInstance } from "fastify";
import { answerPage, type Page, type View } from "./page.ts";
import {
  html,
  type Html,
  type HtmlValue,
  facts,
  moment,
  nameOf,
  nameText,
  table,
  who,
} from "./html.ts";
import type { Word } from "./words.ts";
import type { Services } from "./services.ts";

/** Adds the page of budgets: who has spent how much of theirs in the present period. */
export function registerBudgets(server: FastifyInstance, services: Services): void {
  server.get<{ Querystring: { id?: string } }>("/budgets", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const groups = (await budgetBookOf(services)).groups(view.nowMs);
      const { id: given } = request.query;
      const id = typeof given === "string" ? given.trim().slice(0, maxIdLength) : "";
      const [spendings, lookup] = await Promise.all([
        Promise.all(groups.map(async (group) => await spendingOf(services, group))),
        id === "" ? undefined : lookUp(services, groups, id),
      ]);
      return budgetsPage(view, spendings, lookup);
    }),
  );
}

/** With what operators have changed of agents. */
async function budgetBookOf({
  settings,
  budgetBook,
  agentVersions,
}: Services): Promise<BudgetBook> {
  if (!settings.changesAgents) return budgetBook;
  return createBudgetBook(budgetsWith(settings, await agentVersions.list()));
}

/** How many of the biggest spenders are listed. */
const maxSpenders = 20;

/** Those with a budget of their own that are looked at in any case. */
const maxNamed = 100;

const maxIdLength = 240;

/** Who spends in one kind of budget. */
interface GroupSpending {
  group: BudgetGroup;
  /** Those who have spent most of theirs, most first. */
  biggest: readonly BudgetUse[];
}

/** What one id has spent, whatever it is the id of. */
interface Lookup {
  id: string;
  uses: readonly BudgetUse[];
}

/** Who has spent most of theirs: among the biggest spenders, and those who are named. */
async function spendingOf(services: Services, group: BudgetGroup): Promise<GroupSpending> {
  const { budgets } = services;
  const [byTokens, byMoney] = await Promise.all([
    budgets.biggest(group, "tokens", maxSpenders),
    budgets.biggest(group, "usd", maxSpenders),
  ]);
  const named =
    group.per === "deployment" ? [everybody] : [...group.named.keys()].slice(0, maxNamed);
  const ids = new Set([...byTokens.map(({ id }) => id), ...byMoney.map(({ id }) => id), ...named]);
  const uses = await usesOf(
    services,
    [...ids].flatMap((id) => accountIn(group, id) ?? []),
  );
  const biggest = uses
    .filter(({ spent }) => spent.tokens > 0 || spent.usd > 0)
    .sort((one, other) => other.share - one.share || other.spent.tokens - one.spent.tokens)
    .slice(0, maxSpenders);
  return { group, biggest };
}

/** What one id has spent, and what it may: it is looked for among all kinds. */
async function lookUp(
  services: Services,
  groups: readonly BudgetGroup[],
  id: string,
): Promise<Lookup> {
  const own = groups.filter(({ per }) => per !== "deployment" || id === everybody);
  const uses = await usesOf(
    services,
    own.flatMap((group) => accountIn(group, id) ?? []),
  );
  const isKnown = ({ account, spent }: BudgetUse): boolean =>
    spent.tokens > 0 ||
    spent.usd > 0 ||
    groups.some(({ per, named }) => per === account.per && named.has(account.id));
  return { id, uses: uses.filter(isKnown) };
}

async function usesOf(
  { budgets }: Services,
  accounts: readonly BudgetAccount[],
): Promise<BudgetUse[]> {
  const spent = accounts.length === 0 ? [] : await budgets.spent(accounts);
  return accounts.map((account, at) => budgetUse(account, spent[at] ?? { tokens: 0, usd: 0 }));
}

/** What may be spent, who spends most of it, and what one of them has spent. */
function budgetsPage(view: View, spendings: readonly GroupSpending[], lookup?: Lookup): Page {
  const { say } = view;
  const body =
    spendings.length === 0
      ? html`<p class="note">${say("noBudgets")}</p>`
      : html`${lookupForm(view, lookup)} ${spendings.map((spending) => section(view, spending))}`;
  return { title: say("budgetsAndSpending"), body };
}

function lookupForm(view: View, lookup: Lookup | undefined): Html {
  const { say } = view;
  return html`<section>
    <h2>${say("lookUpSpender")}</h2>
    <form action="/budgets" class="row">
      <label for="id">${say("spenderId")}</label>
      <input
        id="id"
        name="id"
        required
        maxlength="240"
        size="40"
        placeholder="ou_…"
        value="${lookup?.id ?? ""}"
      />
      <button>${say("lookUp")}</button>
    </form>
    ${lookup && lookupResult(view, lookup)}
  </section>`;
}

function lookupResult(view: View, { id, uses }: Lookup): Html {
  const { say } = view;
  if (uses.length === 0) return html`<p class="note" role="status">${say("nothingSpentBy")}</p>`;
  return html`<p>${nameOf(id)}</p>
    ${table({
      caption: nameText(id),
      columns: [say("budget"), ...figureColumns.map(say), say("renews")],
      rows: uses.map((use) => [
        titleOf(view, use.account),
        ...figures(view, use),
        moment(view, use.account.endsAtMs),
      ]),
    })}`;
}

function section(view: View, { group, biggest }: GroupSpending): Html {
  const { say } = view;
  const title = titleOf(view, group);
  const { bucket, endsAtMs, general, named } = group;
  return html`<section>
    <h2>${title}</h2>
    ${facts([
      [say("period"), bucket],
      [say("renews"), moment(view, endsAtMs)],
      [
        say(group.per === "deployment" ? "limit" : "generalLimit"),
        general && limitText(view, general),
      ],
      [say("ownLimits"), named.size === 0 ? undefined : named.size],
    ])}
    ${
      biggest.length === 0
        ? html`<p>${say("nothingSpent")}</p>`
        : table({
            caption: `${title}: ${say("biggest")}`,
            columns: [say("spender"), ...figureColumns.map(say)],
            rows: biggest.map((use) => [
              group.per === "deployment" ? say("everybody") : who(use.account.id),
              ...figures(view, use),
            ]),
          })
    }
  </section>`;
}

const kindWords = {
  person: "perPerson",
  chat: "perChat",
  agent: "perAgent",
  tenant: "perTenant",
  deployment: "perDeployment",
} as const satisfies Record<BudgetKind, Word>;

type Titled = Pick<BudgetGroup, "per" | "period">;

function titleOf({ say }: View, { per, period }: Titled): string {
  return `${say(kindWords[per])}, ${say(period === "day" ? "ofDay" : "ofMonth")}`;
}

function limitText({ say, money }: View, { tokens, usd }: BudgetLimit): string {
  const parts = [
    ...(tokens === undefined ? [] : [`${tokenCount(tokens)} ${say("tokensUnit")}`]),
    ...(usd === undefined ? [] : [money(usd)]),
  ];
  return parts.length === 0 ? say("unlimited") : parts.join(" / ");
}

/** A bar beside the number, which says it to those who do not see the bar. */
function shareOf({ say }: View, use: BudgetUse): HtmlValue {
  const { tokens, usd } = use.account;
  if (tokens === undefined && usd === undefined) return "–";
  const percent = percentText(use);
  const value = Math.min(1, use.share).toFixed(3);
  return html`<meter
      aria-label="${say("share")}"
      low="0.8"
      high="0.999"
      optimum="0"
      value="${value}"
    >
      ${percent}
    </meter>
    ${percent}`;
}

function figures(view: View, use: BudgetUse): HtmlValue[] {
  const { spent, account } = use;
  return [
    tokenCount(spent.tokens),
    view.money(spent.usd),
    limitText(view, account),
    shareOf(view, use),
  ];
}

const figureColumns = ["tokens", "money", "limit", "share"] as const satisfies readonly Word[];
