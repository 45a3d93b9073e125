import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";

const axe = await readFile(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");

interface Violation {
  id: string;
  nodes: { target: string[]; failureSummary: string }[];
}

/** What axe-core finds on a page as it is now, one line each. */
async function violations(page: Page, rules?: readonly string[]): Promise<string[]> {
  const only = rules === undefined ? {} : { runOnly: { type: "rule", values: rules } };
  // As text: the page's content security policy lets no other script in, and its types are not ours.
  await page.evaluate(`if (!("axe" in globalThis)) { ${axe} }`);
  const found = await page.evaluate<Violation[]>(
    `axe.run(document, ${JSON.stringify({ resultTypes: ["violations"], ...only })}).then((result) => result.violations)`,
  );
  return found.flatMap(({ id, nodes }) =>
    nodes.map(
      ({ target, failureSummary }) =>
        `${id} ${target.join(" ")}: ${failureSummary.replaceAll(/\s+/g, " ")}`,
    ),
  );
}

/** The rules that colours decide. */
const ofColours = ["color-contrast", "link-in-text-block"];

/** What stands beyond the right edge of the window, so that a reader has to move the page sideways. */
async function beyondTheEdge(page: Page): Promise<string[]> {
  const width = await page.evaluate<number>("document.documentElement.scrollWidth - innerWidth");
  return width > 0 ? [`${width} px stand beyond the edge`] : [];
}

/**
 * What keeps people from reading a page as it is now: axe-core's findings in light and dark, and what stands beyond
 * the edge of the window. Each line begins with `place`.
 */
export async function accessibilityProblems(page: Page, place: string): Promise<string[]> {
  const problems: string[] = [];
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    // Only colours differ between the two.
    const found = await violations(page, colorScheme === "dark" ? ofColours : undefined);
    problems.push(...found.map((line) => `${place}, ${colorScheme}: ${line}`));
  }
  const beyond = await beyondTheEdge(page);
  return [...problems, ...beyond.map((line) => `${place}: ${line}`)];
}
