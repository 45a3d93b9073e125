import {
  percentText,
  tokenCount,
  usdText,
  type BudgetGroup,
  type BudgetKind,
  type BudgetLimit,
  type BudgetUse,
} from "@larkline/agent/budgets";
import { html, type Html, type HtmlValue } from "./html.ts";
import { facts, moment, table } from "./parts.ts";
import type { Page, View } from "./view.ts";
import type { Word } from "./words.ts";

/** Who spends in one kind of budget. */
export interface GroupSpending {
  group: BudgetGroup;
  /** Those who have spent most of theirs, most first. */
  biggest: readonly BudgetUse[];
}

/** What one id has spent, whatever it is the id of. */
export interface Lookup {
  id: string;
  uses: readonly BudgetUse[];
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

function limitText({ say }: View, { tokens, usd }: BudgetLimit): string {
  const parts = [
    ...(tokens === undefined ? [] : [`${tokenCount(tokens)} ${say("tokensUnit")}`]),
    ...(usd === undefined ? [] : [usdText(usd)]),
  ];
  return parts.length === 0 ? say("unlimited") : parts.join(" / ");
}

/** A bar beside the number, which says it to those who do not see the bar. */
function shareOf({ say }: View, use: BudgetUse): HtmlValue {
  const { tokens, usd } = use.account;
  if (tokens === undefined && usd === undefined) return "–";
  const percent = percentText(use);
  const value = Math.min(1, use.share).toFixed(3);
  return html`<meter aria-label="${say("share")}" low="0.8" high="0.999" optimum="0" value="${value}">${percent}</meter>
    ${percent}`;
}

function figures(view: View, use: BudgetUse): HtmlValue[] {
  const { spent, account } = use;
  return [tokenCount(spent.tokens), usdText(spent.usd), limitText(view, account), shareOf(view, use)];
}

const figureColumns = ["tokens", "money", "limit", "share"] as const satisfies readonly Word[];

function section(view: View, { group, biggest }: GroupSpending): Html {
  const { say, language } = view;
  const title = titleOf(view, group);
  const { bucket, endsAtMs, general, named } = group;
  return html`<section>
    <h2>${title}</h2>
    ${facts([
      [say("period"), bucket],
      [say("renews"), moment(language, endsAtMs)],
      [say(group.per === "deployment" ? "limit" : "generalLimit"), general && limitText(view, general)],
      [say("ownLimits"), named.size === 0 ? undefined : named.size],
    ])}
    ${
      biggest.length === 0
        ? html`<p>${say("nothingSpent")}</p>`
        : table({
            caption: `${title}: ${say("biggest")}`,
            columns: [say("spender"), ...figureColumns.map(say)],
            rows: biggest.map((use) => [
              group.per === "deployment" ? say("everybody") : use.account.id,
              ...figures(view, use),
            ]),
          })
    }
  </section>`;
}

function lookupResult(view: View, { id, uses }: Lookup): Html {
  const { say, language } = view;
  if (uses.length === 0) return html`<p class="note" role="status">${say("nothingSpentBy")}</p>`;
  return table({
    caption: id,
    columns: [say("budget"), ...figureColumns.map(say), say("renews")],
    rows: uses.map((use) => [
      titleOf(view, use.account),
      ...figures(view, use),
      moment(language, use.account.endsAtMs),
    ]),
  });
}

function lookupForm(view: View, lookup: Lookup | undefined): Html {
  const { say } = view;
  return html`<section>
    <h2>${say("lookUpSpender")}</h2>
    <form action="/budgets" class="row">
      <label for="id">${say("spenderId")}</label>
      <input id="id" name="id" required maxlength="240" size="40" placeholder="ou_…" value="${lookup?.id ?? ""}" />
      <button>${say("lookUp")}</button>
    </form>
    ${lookup && lookupResult(view, lookup)}
  </section>`;
}

/** What may be spent, who spends most of it, and what one of them has spent. */
export function budgetsPage(view: View, spendings: readonly GroupSpending[], lookup?: Lookup): Page {
  const { say } = view;
  const body =
    spendings.length === 0
      ? html`<p class="note">${say("noBudgets")}</p>`
      : html`${lookupForm(view, lookup)} ${spendings.map((spending) => section(view, spending))}`;
  return { title: say("budgetsAndSpending"), body };
}
