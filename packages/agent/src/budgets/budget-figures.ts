import type { BudgetUse } from "./budget-use.ts";

/** A number of tokens: `1,200,000`. */
export function tokenCount(tokens: number): string {
  return tokens.toLocaleString("en-US");
}

/** A sum of money to the cent, smaller ones more exactly: `$12.50`, `$0.0031`. */
export function usdText(usd: number): string {
  return `$${usd.toFixed(usd > 0 && usd < 0.1 ? 4 : 2)}`;
}

/** Whole percent, rounded down: 100 only when everything is spent. */
export function percentText({ share }: Pick<BudgetUse, "share">): string {
  return `${Math.floor(share * 100 + 1e-9)}%`;
}
