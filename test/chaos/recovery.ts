import type { Watched } from "./answer-watch.ts";

/** A disaster, on the clock of the messages. */
export interface Harm {
  label: string;
  atMs: number;
  /** From here on nothing is broken any more. */
  overMs: number;
}

/** Times in ms; `count` messages. */
export interface Times {
  p50: number;
  p99: number;
  count: number;
}

/** How soon answers come, and how soon after each kind of disaster those that it hit. */
export interface Recovery {
  /** From acceptance to the finished answer of messages that no disaster has hit. */
  undisturbed: Times;
  /** From the end of the disaster to the finished answer of messages that were waiting then. */
  hit: Record<string, Times>;
}

export function timesOf(values: readonly number[]): Times {
  const sorted = values.toSorted((one, other) => one - other);
  const at = (share: number): number =>
    Math.round(sorted[Math.ceil(sorted.length * share) - 1] ?? 0);
  return { p50: at(0.5), p99: at(0.99), count: sorted.length };
}

function isHit(
  { acceptedMs, answeredMs = Number.POSITIVE_INFINITY }: Watched,
  { atMs, overMs }: Harm,
): boolean {
  return acceptedMs < overMs && answeredMs > atMs;
}

/** Messages that were answered while the disaster lasted needed no recovery. */
function recoveriesFrom(messages: readonly Watched[], harm: Harm): number[] {
  const hit = messages.filter((message) => isHit(message, harm));
  return hit.flatMap(({ answeredMs }) =>
    answeredMs === undefined ? [] : [Math.max(0, answeredMs - harm.overMs)],
  );
}

export function recoveryOf(messages: readonly Watched[], harms: readonly Harm[]): Recovery {
  const untouched = messages.filter((message) => !harms.some((harm) => isHit(message, harm)));
  const undisturbed = untouched.flatMap(({ acceptedMs, answeredMs }) =>
    answeredMs === undefined ? [] : [answeredMs - acceptedMs],
  );
  const byLabel = Map.groupBy(harms, ({ label }) => label);
  const hit = [...byLabel].map(
    ([label, same]) =>
      [label, timesOf(same.flatMap((harm) => recoveriesFrom(messages, harm)))] as const,
  );
  return { undisturbed: timesOf(undisturbed), hit: Object.fromEntries(hit) };
}

/** For results.md. */
export function recoveryTable({ undisturbed, hit }: Recovery): string {
  const line = (name: string, { p50, p99, count }: Times): string =>
    `| ${name} | ${(p50 / 1_000).toFixed(1)} | ${(p99 / 1_000).toFixed(1)} | ${count} |`;
  return [
    "| | p50, s | p99, s | messages |",
    "| --- | --- | --- | --- |",
    line("undisturbed: acceptance to answer", undisturbed),
    ...Object.entries(hit).map(([name, times]) =>
      line(`${name.replaceAll("_", " ")}: its end to the answer`, times),
    ),
  ].join("\n");
}
