import type { ParseResult } from "@larkline/protocol";
import type { Tags, TelemetryAdapter } from "./telemetry.ts";

/**
 * Watches how the system runs, as a module of the deployment. Called synchronously; must return at once; what it
 * throws, and what its promises reject with, is dropped. Metrics and spans are optional: an observer may leave out
 * their methods.
 *
 * The tag `traceparent` says which message an observation belongs to.
 */
export interface Observer {
  /** Something happened, such as `message.refused`. */
  event(name: string, data: Tags): void;
  /** Something went wrong that operators should know of. */
  error(error: unknown, context: Tags): void;
  /** One sample, such as `model.step_seconds`, 1.2, `{ model: "anthropic/claude-sonnet-5-5" }`. */
  metric?(name: string, value: number, tags: Tags): void;
  /** Something that takes time begins; returns an id for its end. */
  spanStart?(name: string, tags: Tags): string;
  /** It is over; with what is known of it only now. An `error` says that it failed. */
  spanEnd?(spanId: string, error?: unknown, tags?: Tags): void;
}

/** Calls the methods that an observer has. */
export function adapterOf(observer: Observer): TelemetryAdapter {
  return {
    event: (name, tags) => observer.event(name, tags),
    error: (error, tags) => observer.error(error, tags),
    sample: (name, value, tags) => observer.metric?.(name, value, tags),
    spanStarted: (span) => {
      const spanId: unknown = observer.spanStart?.(span.name, span.tags);
      if (spanId instanceof Promise) spanId.catch(() => undefined);
      if (typeof spanId !== "string") return undefined;
      return () => observer.spanEnd?.(spanId, span.error, span.endTags);
    },
  };
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
      const why = error instanceof Error ? error.message : String(error);
      problems.push(`plugin_load_error: observers: cannot use ${module}: ${why}.`);
    }
  }
  return problems.length === 0
    ? { ok: true, value: observers }
    : { ok: false, error: problems.join("\n") };
}

async function observersOf(url: string): Promise<Observer[]> {
  const module: unknown = await import(url);
  const exported: unknown =
    typeof module === "object" && module !== null && "default" in module
      ? module.default
      : undefined;
  const values: unknown[] = Array.isArray(exported) ? exported : [exported];
  const problem = values.map(problemOf).find((text) => text !== undefined);
  if (problem !== undefined) throw new TypeError(problem);
  return values.filter(isObserver);
}

function isObserver(value: unknown): value is Observer {
  return problemOf(value) === undefined;
}

const required = ["event", "error"] as const;
const optional = ["metric", "spanStart", "spanEnd"] as const;

function problemOf(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) {
    return "its default export is neither an observer nor an array of them";
  }
  const missing = required.filter((name) => typeof Reflect.get(value, name) !== "function");
  if (missing.length > 0) return `an observer has no method ${missing.join(" and no method ")}`;
  const wrong = optional.filter(
    (name) => !["function", "undefined"].includes(typeof Reflect.get(value, name)),
  );
  if (wrong.length > 0) return `${wrong.join(" and ")} of an observer is not a method`;
  if (
    (Reflect.get(value, "spanStart") === undefined) !==
    (Reflect.get(value, "spanEnd") === undefined)
  ) {
    return "an observer has one of spanStart and spanEnd without the other";
  }
  return undefined;
}
