import {
  budgetKinds,
  budgetPeriods,
  isTimeZone,
  type Budget,
  type BudgetPolicy,
} from "@larkline/agent/budgets";
import { Type, type Static } from "@larkline/protocol/type";
import type { ParseResult } from "@larkline/protocol";
import type { RoleInput } from "./permission-config.ts";
import { didYouMean } from "./did-you-mean.ts";

const idInput = Type.String({ minLength: 1, maxLength: 240 });

const name = Type.String({ minLength: 1, maxLength: 100 });

/** What may be spent in one calendar day or month. */
const BudgetInput = Type.Object(
  {
    /** Who shares it; `deployment`: everybody together. */
    per: Type.Enum([...budgetKinds]),
    period: Type.Enum([...budgetPeriods]),
    /** Ids it is for; without ids and roles: all of the kind, each for themselves. */
    of: Type.Optional(Type.Array(idInput, { minItems: 1, maxItems: 1_000 })),
    /** Roles whose people it is for. */
    roles: Type.Optional(Type.Array(name, { minItems: 1, maxItems: 20 })),
    /** Tokens that models read and wrote, cached ones included. 0: nothing at all. */
    tokens: Type.Optional(Type.Integer({ minimum: 0, maximum: 1e15 })),
    /** US dollars. 0: nothing at all. */
    usd: Type.Optional(Type.Number({ minimum: 0, maximum: 1e6 })),
    /** Those it names have no limit. */
    unlimited: Type.Optional(Type.Literal(true)),
  },
  { additionalProperties: false },
);
type BudgetInput = Static<typeof BudgetInput>;

export const BudgetsInput = Type.Object(
  {
    /** IANA name of the zone whose days and months are meant. Default Asia/Shanghai. */
    timeZone: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
    /** Whom people should ask for more. Default: the administrator, without a name. */
    contact: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })),
    limits: Type.Optional(Type.Array(BudgetInput, { maxItems: 200 })),
  },
  { additionalProperties: false },
);
export type BudgetsInput = Static<typeof BudgetsInput>;

/** What the configuration says of budgets. */
interface BudgetsSource {
  roles?: Roles;
  budgets?: BudgetsInput;
}

type Roles = Readonly<Record<string, RoleInput>>;

// The platform's home: its companies live by this clock, and containers by UTC, where a day of budget would
// begin at eight in the morning.
const defaultTimeZone = "Asia/Shanghai";

/** The budgets of a deployment; the error lists every entry that cannot work. */
export function resolveBudgets({
  roles = {},
  budgets: input = {},
}: BudgetsSource): ParseResult<BudgetPolicy> {
  const { timeZone = defaultTimeZone, contact, limits = [] } = input;
  const broken = limits.flatMap((limit, index) =>
    [...limitProblems(limit), ...rolesProblems(limit, roles)].map(
      (problem) => `${placeOf(limit, index)} ${problem}`,
    ),
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

/** An entry as problems name it. */
function placeOf({ per, period }: BudgetInput, index: number): string {
  return `budgets.limits.${index} (per ${per} and ${period})`;
}

function budgetOf(
  { per, period, of = [], roles = [], tokens, usd }: BudgetInput,
  known: Roles,
): Budget {
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

/** Two budgets for the same spender and period would contradict each other. */
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

function rolesProblems({ per, roles = [] }: BudgetInput, known: Roles): string[] {
  if (roles.length > 0 && per !== "person") {
    return ["names roles, which only budgets per person can have"];
  }
  return roles.flatMap((role) => {
    const members = Object.hasOwn(known, role) ? known[role] : undefined;
    if (members === undefined) {
      return [`names the unknown role '${role}'${didYouMean(role, Object.keys(known))}`];
    }
    if ((members.groups ?? []).length === 0) return [];
    return [`names the role '${role}', which has user groups: a budget needs people by open_id`];
  });
}

function limitProblems({ per, of, roles, tokens, usd, unlimited }: BudgetInput): string[] {
  const named = of !== undefined || roles !== undefined;
  const limited = tokens !== undefined || usd !== undefined;
  if (per === "deployment" && named) {
    return ["is for the whole deployment, which has no ids or roles to name"];
  }
  if (!limited && unlimited === undefined) return ["limits nothing: give tokens, usd, or both"];
  if (limited && unlimited !== undefined) {
    return ["is unlimited, so tokens and usd have no meaning there"];
  }
  return unlimited !== undefined && !named
    ? ["lifts the limit of no person: name ids or roles"]
    : [];
}
