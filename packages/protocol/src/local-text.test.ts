import { expect, it } from "vitest";
import { moneyText } from "./local-text.ts";

it.each([
  [1_234.5, "en", { code: "USD", perUsd: 1 }, "$1,234.50"],
  [0.25, "zh", { code: "CNY", perUsd: 7 }, "¥1.75"],
  [0.001, "zh", { code: "USD", perUsd: 1 }, "$0.0010"],
  [1e-9, "en", { code: "USD", perUsd: 1 }, "<$0.0001"],
  [0, "en", { code: "EUR", perUsd: 0.9 }, "€0.00"],
] as const)("shows %d US dollars in %s and %j as %s", (usd, language, currency, shown) => {
  expect(moneyText(usd, language, currency)).toBe(shown);
});
