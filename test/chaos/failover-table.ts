import { runFailover, type FailoverOptions, type FailoverReport } from "./failover.ts";

/** One line of the table: what happens to which servers. */
interface Case extends Pick<FailoverOptions, "kind" | "failure"> {
  happens: string;
  settings: Readonly<Record<string, string>>;
}

const dies = { happens: "dies", failure: { cutMs: 0 } };
const isBackSoon = {
  happens: "dies, and is back after 2.6 s",
  failure: { cutMs: 0, returnMs: 2_600 },
};
const diesAlone = { happens: "dies after 0.5 s without replicas", failure: { cutMs: 500 } };
const guarded = { "min-replicas-to-write": "1" };

const cases: readonly Case[] = [
  { kind: "sentinel", settings: {}, ...dies },
  { kind: "sentinel", settings: { appendfsync: "always" }, ...dies },
  { kind: "sentinel", settings: {}, ...isBackSoon },
  { kind: "sentinel", settings: guarded, ...isBackSoon },
  { kind: "sentinel", settings: {}, ...diesAlone },
  { kind: "sentinel", settings: guarded, ...diesAlone },
  { kind: "cluster", settings: {}, ...dies },
  { kind: "cluster", settings: {}, ...diesAlone },
];

function argumentsOf(settings: Case["settings"]): string[] {
  return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
}

function seconds(ms: number): string {
  return (ms / 1_000).toFixed(1);
}

function lineOf({ kind, settings, happens }: Case, report: FailoverReport): string {
  const {
    accepted,
    lost,
    duplicated,
    misordered,
    foreign,
    stuck,
    onceStarted,
    onceRepeated,
    flowing,
  } = report;
  const named = Object.entries(settings).map(([name, value]) => `\`${name} ${value}\``);
  const counts = [
    accepted,
    lost,
    duplicated,
    misordered,
    foreign,
    stuck,
    `${onceRepeated} of ${onceStarted}`,
  ];
  const cells = [
    kind,
    happens,
    named.join(", "),
    ...counts,
    seconds(flowing.p50),
    seconds(flowing.p99),
  ];
  return `| ${cells.join(" | ")} |`;
}

/** For results.md, and with fewer columns docs/reliability.md: prints a line for each case. Resolves to how much of it must never happen. */
export async function printFailovers(given: {
  rounds: number;
  chats: number;
  patienceMs: number;
}): Promise<number> {
  console.log(
    "| servers | a master | settings | accepted | lost | twice | out of order | foreign | stuck | `once` repeated | p50, s | longest, s |",
  );
  console.log("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
  let wrong = 0;
  for (const each of cases) {
    const { kind, failure, settings } = each;
    const report = await runFailover({
      ...given,
      kind,
      failure,
      settings: argumentsOf(settings),
      replicas: 2,
      silenceMs: 2_000,
    });
    console.log(lineOf(each, report));
    wrong += report.foreign + report.stuck;
    if (settings === guarded) wrong += report.lost + report.onceRepeated;
  }
  return wrong;
}
