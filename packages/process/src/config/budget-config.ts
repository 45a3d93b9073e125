import { isTimeZone, type Budget, type BudgetPolicy } from "@larkline/agent/budgets";
import type { ParseResult } from "@larkline/protocol";
import type { BudgetInput, BudgetsInput } from "./budget-schema.ts";
import type { RoleInput } from "./permission-schema.ts";
import { didYouMean } from "./did-you-mean.ts";

type Roles = Readonly<Record<string, RoleInput>>;

/** What the configuration says of budgets. */
export interface BudgetsSource {
  roles?: Roles;
  budgets?: BudgetsInput;
}

// The platform's home: its companies live by this clock, and containers by UTC, where a day of budget would
// begin at eight in the morning.
const defaultTimeZone = "Asia/Shanghai";

function rolesProblems({ per, roles = [] }: BudgetInput, known: Roles): string[] {
  if (roles.length > 0 && per !== "person") return ["names roles, which only budgets per person can have"];
  return roles.flatMap((role) => {
    const members = Object.hasOwn(known, role) ? known[role] : undefined;
    if (members === undefined) return [`names the unknown role '${role}'${didYouMean(role, Object.keys(known))}`];
    if ((members.groups ?? []).length === 0) return [];
    return [`names the role '${role}', which has user groups: a budget needs people by open_id`];
  });
}

function limitProblems({ per, of, roles, tokens, usd, unlimited }: BudgetInput): string[] {
  const named = of !== undefined || roles !== undefined;
  const limited = tokens !== undefined || usd !== undefined;
  if (per === "deployment" && named) return ["is for the whole deployment, which has no ids or roles to name"];
  if (!limited && unlimited === undefined) return ["limits nothing: give tokens, usd, or both"];
  if (limited && unlimited !== undefined) return ["is unlimited, so tokens and usd have no meaning there"];
  return unlimited !== undefined && !named ? ["lifts the limit of nobody: name ids or roles"] : [];
}

function budgetOf({ per, period, of = [], roles = [], tokens, usd }: BudgetInput, known: Roles): Budget {
  const people = roles.flatMap((role) => known[role]?.people ?? []);
  const named = [...new Set([...of, ...people])];
  return {
    per,
    period,
    ...(named.length === 0 ? {} : { of: named }),
    ...(tokens === undefined ? {} : { tokens }),
    ...(usd === undefined ? {} : { usd }),
  };
}

/** An entry as problems name it. */
function placeOf({ per, period }: BudgetInput, index: number): string {
  return `budgets.limits.${index} (per ${per} and ${period})`;
}

/** Of two budgets for the same spender and period nobody could say which one holds. */
function overlaps(inputs: readonly BudgetInput[], budgets: readonly Budget[]): string[] {
  const owners = new Map<string, number>();
  return inputs.flatMap((input, index) => {
    const { per, period, of } = budgets[index] ?? input;
    const spenders = of ?? [""]; // ids are not empty: all others
    return spenders.flatMap((id) => {
      const key = JSON.stringify([per, period, id]);
      const earlier = owners.get(key);
      owners.set(key, earlier ?? index);
      if (earlier === undefined) return [];
      const whom = id === "" ? "everybody who is not named" : `'${id}'`;
      return [`${placeOf(input, index)} is for ${whom}, and so is budgets.limits.${earlier}`];
    });
  });
}

/** The budgets of a deployment; the error lists every entry that cannot work. */
export function resolveBudgets({ roles = {}, budgets: input = {} }: BudgetsSource): ParseResult<BudgetPolicy> {
  const { timeZone = defaultTimeZone, contact, limits = [] } = input;
  const broken = limits.flatMap((limit, index) =>
    [...limitProblems(limit), ...rolesProblems(limit, roles)].map((problem) => `${placeOf(limit, index)} ${problem}`),
  );
  const budgets = limits.map((limit) => budgetOf(limit, roles));
  const problems = [
    ...(isTimeZone(timeZone)
      ? []
      : [`budgets.timeZone is no time zone: '${timeZone}' (write a name such as Asia/Shanghai)`]),
    ...broken,
    ...(broken.length === 0 ? overlaps(limits, budgets) : []),
  ];
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  return { ok: true, value: { timeZone, budgets, ...(contact === undefined ? {} : { contact }) } };
}
