import { budgetKinds, budgetPeriods } from "@larkline/agent/budgets";
import { Type, type Static } from "typebox";

const id = Type.String({ minLength: 1, maxLength: 240 });
const name = Type.String({ minLength: 1, maxLength: 100 });

/** What may be spent in one calendar day or month. */
export const BudgetInput = Type.Object(
  {
    /** Who shares it; `deployment`: everybody together. */
    per: Type.Enum([...budgetKinds]),
    period: Type.Enum([...budgetPeriods]),
    /** Ids it is for; without ids and roles: all of the kind, each for themselves. */
    of: Type.Optional(Type.Array(id, { minItems: 1, maxItems: 1_000 })),
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
export type BudgetInput = Static<typeof BudgetInput>;

export const BudgetsInput = Type.Object(
  {
    /** IANA name of the zone whose days and months are meant. Default Asia/Shanghai. */
    timeZone: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
    /** Whom people are told to ask for more. Default: the administrator, without a name. */
    contact: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })),
    limits: Type.Optional(Type.Array(BudgetInput, { maxItems: 200 })),
  },
  { additionalProperties: false },
);
export type BudgetsInput = Static<typeof BudgetsInput>;
