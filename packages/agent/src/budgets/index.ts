export {
  accountIn,
  createBudgetBook,
  everybody,
  spenderOf,
  type BudgetAccount,
  type BudgetBook,
  type BudgetGroup,
  type Spender,
} from "./budget-book.ts";
export { isTimeZone, localMinute } from "./budget-calendar.ts";
export {
  budgetKinds,
  budgetPeriods,
  type Budget,
  type BudgetKind,
  type BudgetLimit,
  type BudgetPeriod,
  type BudgetPolicy,
} from "./budget-policy.ts";
export { percentText, tokenCount, usdText } from "./budget-figures.ts";
export { budgetStanding, budgetUse, nearShare, type BudgetStanding, type BudgetUse, type Spent } from "./budget-use.ts";
