import { createToolRegistry } from "@larkline/tool-kit";
import { describe, expect, it } from "vitest";
import { calculate, calculator } from "./calculator.ts";

describe("calculator", () => {
  const sums: [string, string][] = [
    ["2 + 3 * 4", "14"],
    ["0.1 + 0.2", "0.3"],
    ["10!", "3628800"],
    ["combinations(49, 6)", "13983816"],
    ["mean([1, 2, 3, 6])", "3"],
    ["1250 * (1 + 3.5%) ^ 10", "1763.248450"],
    ["5 km / 20 minutes to m/s", "4.16666"],
    ["25 celsius to fahrenheit", "77"],
    ["sqrt(-4)", "2i"],
    ["3 > 2 ? 1 : 0", "1"],
    ["[[2, 0], [0, 2]] ^ -1", "[[0.5, 0], [0, 0.5]]"],
    ["2 ^ 53 - 1", "9007199254740991"],
  ];
  it.each(sums)("computes %s", async (expression, result) => {
    expect((await calculate(expression)).startsWith(result)).toBe(true);
  });

  // Soon computed all the same: without the bound the attacks below never end.
  it("takes numbers up to 10,000 where the steps grow with them", async () => {
    expect(await calculate("combinations(10000, 1)")).toBe("10000");
    await expect(calculate("combinations(10001, 1)")).rejects.toThrow("up to 10000");
    await expect(calculate("permutations(10001, 1)")).rejects.toThrow("up to 10000");
  });

  const attacks = [
    'import("fs")',
    'evaluate("1")',
    'parse("1")',
    'createUnit("foo")',
    'simplify("x")',
    'derivative("x^2", "x")',
    'compile("1")',
    "parser()",
    'chain("1")',
    "config({})",
    "f(n) = n <= 1 ? 1 : f(n - 1) + f(n - 2)",
    "map([1, 2], f(x) = x)",
    "x = 3",
    "1; 2",
    '"text"',
    "cos.constructor",
    'cos["constructor"]',
    '[]["constructor"]',
    "{a: 1}",
    "constructor",
    "__proto__",
    "process",
    "globalThis",
    "zeros(100000, 100000)",
    "ones(9, 9)",
    "identity(1e9)",
    "1:1e9",
    "range(1, 1e9)",
    "random([1e9])",
    "combinations(1e15, 5e14)",
    "permutations(1e15, 5e14)",
    "combinations([1e15], [5e14])",
    "isPrime(9007199254740881)",
    "bignumber(10) ^ 1e9",
    "fraction(1, 3)",
    "kron([1, 2], [3, 4])",
    "1 / 0",
    "0 / 0",
    "1e300!",
    "1 +",
    " ",
    "1+".repeat(260) + "1",
  ];
  it.each(attacks)("refuses %s quickly and with a reason", async (expression) => {
    await calculate("1"); // loads the library
    const startMs = performance.now();
    await expect(calculate(expression)).rejects.toThrow(/\w/);
    expect(performance.now() - startMs).toBeLessThan(20_000);
  });

  it("bounds the result", async () => {
    const row = `[${"1/3,".repeat(110)}1/3]`;
    expect(row.length).toBeLessThanOrEqual(500);
    expect((await calculate(row)).length).toBeLessThanOrEqual(2_000);
  });

  it("answers matrix powers with huge exponents at once", async () => {
    const startMs = performance.now();
    await calculate("[[1, 0], [0, 1]] ^ 1000000000");
    expect(performance.now() - startMs).toBeLessThan(20_000);
  });

  it("keeps nothing between calculations", async () => {
    await expect(calculate("ans + 1")).rejects.toThrow(/unknown name/);
  });

  it("refuses other input than one expression of at most 500 characters", async () => {
    const registry = createToolRegistry();
    registry.add(calculator);
    const context = {
      callId: "c",
      turnId: "t",
      signal: new AbortController().signal,
      actor: { app: "a", userId: "u", chatId: "c" },
      authority: { by: "policy" } as const,
      progress: () => {},
      saveFile: () => Promise.reject(new Error("no files here")),
      log: () => {},
    };
    await expect(
      registry.dispatch("calculator", { expression: "1", scope: {} }, context),
    ).rejects.toThrow(/scope/);
    await expect(
      registry.dispatch("calculator", { expression: "1".repeat(501) }, context),
    ).rejects.toThrow(/expression/);
    expect(await registry.dispatch("calculator", { expression: "1 + 1" }, context)).toBe("2");
  });
});
