import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { mutants, withMutant, type Mutant } from "./table.ts";

const pathOf = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));

/** What is wrong with an entry of the table. */
function problemOf(mutant: Mutant): string[] {
  const missing = mutant.tests.filter((test) => !existsSync(pathOf(test)));
  if (missing.length > 0) return [`${mutant.id}: no test ${missing.join(", ")}`];
  try {
    withMutant(readFileSync(pathOf(mutant.file), "utf8"), mutant);
    return [];
  } catch (error) {
    return [String(error)];
  }
}

it("each mutant changes one place of the product, and its tests exist", () => {
  expect(mutants.flatMap(problemOf)).toEqual([]);
  expect(mutants.filter(({ tests, why }) => tests.length === 0 || why === "")).toEqual([]);
});

it("a hundred mutants, each with a name of its own, are in the table, and twenty of them in scripts", () => {
  expect(new Set(mutants.map(({ id }) => id)).size).toBe(mutants.length);
  expect(mutants.length).toBeGreaterThanOrEqual(100);
  expect(mutants.filter(({ file }) => file.endsWith(".lua")).length).toBeGreaterThanOrEqual(20);
});
