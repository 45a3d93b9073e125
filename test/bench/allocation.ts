import { mkdtemp, rm } from "node:fs/promises";
import type { HeapProfiler } from "node:inspector";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  measureTurns,
  median,
  naiveBullmq,
  startSubject,
  userCpuMs,
  warmUp,
  type Running,
  type Subject,
} from "./measure.ts";
import { causeOf, nodeItself, profileIn, profiledNames } from "./profile.ts";
import { causeTable, compared, table } from "./report.ts";
import type { BenchVendors } from "./vendors.ts";

// What a turn allocates, and the time of its own JavaScript. The first hardly swings with what else the machine does, the
// second is compared within rounds, so both have marks.

type PerApp = Record<(typeof profiledNames)[number], number>;

/** One subject, by turn. */
export interface AllocationNumbers {
  name: string;
  allocatedKb: PerApp;
  /** The same by cause. */
  causes: ReadonlyMap<string, PerApp>;
  rounds: RoundNumbers[];
}

interface RoundNumbers {
  /** User CPU of all three, ms a turn. */
  userMs: number;
  turnsPerSecond: number;
}

/** At most so much: KB a turn, and parts of naive BullMQ's user CPU. Speed at least that part of its turns. */
const marks = {
  allocatedKb: { "agent-worker": 450, ingress: 60, "tool-runner": 60 },
  userCpu: 1.5,
  turnsPerSecond: 0.65,
};

/**
 * Warms the subjects up, measures them in turn, round by round, and samples the heaps of their processes during as many
 * turns again as a round has.
 */
export async function measureAllocation(
  vendors: BenchVendors,
  subjects: readonly Subject[],
  { turns, warm, rounds }: { turns: number; warm: number; rounds: number },
): Promise<AllocationNumbers[]> {
  const folder = await mkdtemp(join(tmpdir(), "allocation-"));
  const env = {
    PROFILE_FOLDER: folder,
    PROFILE_KIND: "heap",
    NODE_OPTIONS: `--import ${fileURLToPath(new URL("profiler.ts", import.meta.url))}`,
  };
  const work = { inFlight: 32, messages: turns, perChat: 5 };
  const each: { running: Running; rounds: RoundNumbers[] }[] = [];
  try {
    for (const { name, options } of subjects) {
      const own = { name, options: { ...options, env: { ...options.env, ...env } } };
      const running = await startSubject(vendors, own);
      each.push({ running, rounds: [] });
      await warmUp(running, warm);
    }
    for (let round = 0; round < rounds; round += 1) {
      const first = round % each.length;
      for (const one of [...each.slice(first), ...each.slice(0, first)]) {
        const before = userCpuMs(one.running);
        const { turnsPerSecond } = await measureTurns(one.running, work);
        // With the tenth of the turns that `measureTurns` sends first.
        const userMs = (userCpuMs(one.running) - before) / (turns + Math.ceil(turns / 10));
        one.rounds.push({ userMs, turnsPerSecond });
      }
    }
    const measured: AllocationNumbers[] = [];
    for (const { running, rounds: numbers } of each) {
      const causes = await sampleHeaps(running, work, folder);
      const allocatedKb = { ...nothing };
      for (const kb of causes.values()) {
        for (const name of profiledNames) allocatedKb[name] += kb[name];
      }
      measured.push({ name: running.name, allocatedKb, causes, rounds: numbers });
    }
    return measured;
  } finally {
    for (const { running } of each) await running.close();
    await rm(folder, { recursive: true });
  }
}

/** What the processes allocate by cause, KB a turn. */
async function sampleHeaps(
  running: Running,
  work: Parameters<Running["load"]>[0],
  folder: string,
): Promise<Map<string, PerApp>> {
  const { ingresses, workers, runners } = running.system;
  const apps = { "agent-worker": workers, ingress: ingresses, "tool-runner": runners };
  const signalAll = (): void => {
    for (const app of Object.values(apps).flat()) app.signal("SIGUSR2");
  };
  signalAll();
  const { trips } = await running.load(work);
  signalAll();
  const causes = new Map<string, PerApp>();
  for (const name of profiledNames) {
    for (const { pid } of apps[name]) {
      const profile = await profileIn<HeapProfiler.SamplingHeapProfile>(
        join(folder, `${pid}.profile`),
      );
      addBytes(profile.head, nodeItself, (cause, bytes) => {
        const numbers = causes.get(cause) ?? { ...nothing };
        numbers[name] += bytes / 1_024 / trips.length;
        causes.set(cause, numbers);
      });
    }
  }
  return causes;
}

/** How much more than the base the other subject of a pair may take, as a part. */
const mostMore = 0.03;

/**
 * Two subjects side by side, the first of which is the base: alternating rounds on the same processes, and new processes
 * in the other order each time, so that what else the machine does falls on both. `missed` says what is beyond the mark,
 * or is not proved to be within it.
 */
export async function measurePairs(
  vendors: BenchVendors,
  subjects: readonly [Subject, Subject],
  { starts, ...work }: { starts: number; rounds: number; turns: number; warm: number },
): Promise<{ table: string; missed: string[] }> {
  const pairs: (readonly [base: AllocationNumbers, other: AllocationNumbers])[] = [];
  for (let start = 0; start < starts; start += 1) {
    const order = start % 2 === 0 ? subjects : subjects.toReversed();
    const [one, another] = await measureAllocation(vendors, order, work);
    if (one === undefined || another === undefined) throw new Error("two subjects were measured");
    pairs.push(start % 2 === 0 ? [one, another] : [another, one]);
  }
  const all = [
    ...profiledNames.map((app) =>
      pairs.map(([base, other]) => other.allocatedKb[app] / base.allocatedKb[app]),
    ),
    pairs.flatMap(([base, other]) =>
      base.rounds.map(({ userMs }, at) => (other.rounds[at]?.userMs ?? Number.NaN) / userMs),
    ),
  ].map(medianBetween);
  const names = [...profiledNames.map((app) => `KB of ${app}`), "user CPU"];
  const rows = all.map((ratio, at) => [names[at] ?? "", ...shown(ratio), verdictOf(ratio)]);
  const header = [
    `a turn with one call: ${subjects[1].name}, to ${subjects[0].name}`,
    "median of the ratios",
    "95 % between",
    `within ${mostMore * 100} %`,
  ];
  return {
    table: table(header, rows),
    missed: rows.flatMap(([name, , , verdict]) =>
      verdict === "yes" ? [] : [`${name}: ${verdict}`],
    ),
  };
}

interface Between {
  median: number;
  low: number;
  high: number;
}

/** The median, and between which of the values it is with 95 % whatever their distribution; few values prove nothing. */
export function medianBetween(values: readonly number[]): Between {
  const sorted = values.toSorted((a, b) => a - b);
  const n = sorted.length;
  // So many values at each end that the median is beyond them as rarely as a coin falls that often on one side.
  let [below, rarely, ways] = [0, 0, 1];
  for (;;) {
    rarely += (2 * ways) / 2 ** n;
    if (rarely > 0.05) break;
    below += 1;
    ways = (ways * (n - below + 1)) / below;
  }
  return {
    median: median(values),
    low: sorted[below - 1] ?? 0,
    high: below === 0 ? Number.POSITIVE_INFINITY : (sorted[n - below] ?? 0),
  };
}

function shown({ median: middle, low, high }: Between): string[] {
  const between = Number.isFinite(high) ? `${low.toFixed(3)} and ${high.toFixed(3)}` : "";
  return [middle.toFixed(3), between];
}

function verdictOf({ low, high }: Between): "yes" | "no" | "not proved" {
  if (high <= 1 + mostMore) return "yes";
  return low > 1 + mostMore ? "no" : "not proved";
}

const nothing: Readonly<PerApp> = { "agent-worker": 0, ingress: 0, "tool-runner": 0 };

/** The cause is that of the nearest caller that has one. */
function addBytes(
  { callFrame, selfSize, children }: HeapProfiler.SamplingHeapProfileNode,
  callers: string,
  add: (cause: string, bytes: number) => void,
): void {
  const cause = causeOf(callFrame.url) ?? callers;
  add(cause, selfSize);
  for (const child of children) addBytes(child, cause, add);
}

/** With a line for each mark that a subject misses beside naive BullMQ. */
export function allocationTables(subjects: readonly AllocationNumbers[]): {
  tables: string[];
  missed: string[];
} {
  const naive = subjects.find(({ name }) => name === naiveBullmq.name);
  if (naive === undefined) throw new Error("naive BullMQ was not measured");
  const rows = subjects.map((subject) => {
    const { name, allocatedKb, rounds } = subject;
    const of = (pick: (round: RoundNumbers) => number): number => median(rounds.map(pick));
    const { cpu, speed } = ratios(subject, naive);
    return [
      name,
      ...profiledNames.map((app) => Math.round(allocatedKb[app])),
      of(({ userMs }) => userMs).toFixed(2),
      cpu.toFixed(2),
      Math.round(of(({ turnsPerSecond }) => turnsPerSecond)),
      speed.toFixed(2),
    ];
  });
  const header = [
    "a turn with one call, 32 in flight",
    ...profiledNames.map((app) => `${app}, KB`),
    "user CPU, ms",
    "to naive",
    "turns/s",
    "to naive",
  ];
  const mark = [
    "mark",
    ...profiledNames.map((app) => marks.allocatedKb[app]),
    "",
    marks.userCpu,
    "",
    marks.turnsPerSecond,
  ];
  const missed = subjects.filter((one) => one !== naive).flatMap((one) => missedBy(one, naive));
  const byCause = subjects.map(({ name, causes }) =>
    causeTable(`KB allocated per turn by cause: ${name}`, causes),
  );
  return { tables: [table(header, [...rows, mark]), ...byCause], missed };
}

/** Medians of the ratios within rounds. */
function ratios(one: AllocationNumbers, naive: AllocationNumbers): { cpu: number; speed: number } {
  const ratio = (pick: (round: RoundNumbers) => number): number =>
    compared(one.rounds, naive.rounds, (round, base) => pick(round) / pick(base));
  return {
    cpu: ratio(({ userMs }) => userMs),
    speed: ratio(({ turnsPerSecond }) => turnsPerSecond),
  };
}

function missedBy(one: AllocationNumbers, naive: AllocationNumbers): string[] {
  const { cpu, speed } = ratios(one, naive);
  return [
    ...profiledNames
      .filter((app) => one.allocatedKb[app] > marks.allocatedKb[app])
      .map((app) => `${app} allocates ${Math.round(one.allocatedKb[app])} KB a turn`),
    ...(cpu > marks.userCpu
      ? [`a turn takes ${cpu.toFixed(2)} times the user CPU of naive BullMQ`]
      : []),
    ...(speed < marks.turnsPerSecond
      ? [`${speed.toFixed(2)} of naive BullMQ's turns a second`]
      : []),
  ];
}
