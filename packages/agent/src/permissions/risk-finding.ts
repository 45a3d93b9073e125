import { textsIn } from "./argument-texts.ts";
import type { RiskFinding } from "./policy.ts";

/** The commands of a text, each as its words without quotes. */
function commandsOf(text: string): string[][] {
  return text
    .replaceAll(/\\\r?\n|\$\{?ifs\}?/gi, " ")
    .split(/[;|&<>()`\r\n]/)
    .map((command) => command.replaceAll(/["'\\]/g, "").split(/\s+/));
}

function meansRecursive(option: string): boolean {
  return /^-[a-z]*r/i.test(option) || (option.startsWith("--r") && "--recursive".startsWith(option));
}

function meansForce(option: string): boolean {
  return /^-[a-z]*f/i.test(option) || (option.startsWith("--f") && "--force".startsWith(option));
}

/** `rm` with both options, in any order and spelling, before or after the names. */
function removesTrees(text: string): boolean {
  return commandsOf(text.toLowerCase()).some((words) => {
    const at = words.findIndex((word) => word === "rm" || word.endsWith("/rm"));
    if (at === -1) return false;
    const options = words.slice(at + 1).filter((word) => word.startsWith("-"));
    return options.some(meansRecursive) && options.some(meansForce);
  });
}

interface RiskPattern extends RiskFinding {
  fits(text: string): boolean;
}

const patterns: readonly RiskPattern[] = [
  { pattern: "rm -rf", reason: "It deletes files and folders without asking.", fits: removesTrees },
  {
    pattern: "drop table",
    reason: "It deletes a database table.",
    fits: (text) => /\bdrop(?:\s|\/\*[^*]*\*\/)+table\b/i.test(text),
  },
  { pattern: "overwrite", reason: "It replaces something that exists.", fits: (text) => /overwrit/i.test(text) },
];

/**
 * Whatever in a call's input people should look at twice, one finding per pattern. Advice, not a
 * fence: who wants to hide a command from it can. Linear in the size of the input, which is bounded.
 */
export function riskOf(input: Readonly<Record<string, unknown>>): RiskFinding[] {
  const open = new Set(patterns);
  for (const text of textsIn(input)) {
    for (const risk of open) if (risk.fits(text)) open.delete(risk);
    if (open.size === 0) break;
  }
  return patterns.filter((risk) => !open.has(risk)).map(({ pattern, reason }) => ({ pattern, reason }));
}
