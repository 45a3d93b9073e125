import type { ParseResult } from "@larkline/protocol";
import type { Observer } from "./observer.ts";

const required = ["event", "error"] as const;
const optional = ["metric", "spanStart", "spanEnd"] as const;

function problemOf(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) {
    return "its default export is neither an observer nor an array of them";
  }
  const missing = required.filter((name) => typeof Reflect.get(value, name) !== "function");
  if (missing.length > 0) return `an observer has no method ${missing.join(" and no method ")}`;
  const wrong = optional.filter((name) => !["function", "undefined"].includes(typeof Reflect.get(value, name)));
  if (wrong.length > 0) return `${wrong.join(" and ")} of an observer is not a method`;
  if ((Reflect.get(value, "spanStart") === undefined) !== (Reflect.get(value, "spanEnd") === undefined)) {
    return "an observer has one of spanStart and spanEnd without the other";
  }
  return undefined;
}

function isObserver(value: unknown): value is Observer {
  return problemOf(value) === undefined;
}

async function observersOf(url: string): Promise<Observer[]> {
  const module: unknown = await import(url);
  const exported: unknown =
    typeof module === "object" && module !== null && "default" in module ? module.default : undefined;
  const values: unknown[] = Array.isArray(exported) ? exported : [exported];
  const problem = values.map(problemOf).find((text) => text !== undefined);
  if (problem !== undefined) throw new TypeError(problem);
  return values.filter(isObserver);
}

/**
 * Imports modules, by URL or by the name of a package, whose default export is an observer or an array of
 * them. All problems are reported at once, one per line.
 */
export async function loadObservers(modules: readonly string[]): Promise<ParseResult<Observer[]>> {
  const observers: Observer[] = [];
  const problems: string[] = [];
  for (const module of modules) {
    try {
      observers.push(...(await observersOf(module)));
    } catch (error) {
      problems.push(`observers: cannot use ${module}: ${error instanceof Error ? error.message : String(error)}.`);
    }
  }
  return problems.length === 0 ? { ok: true, value: observers } : { ok: false, error: problems.join("\n") };
}
