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
  type Subject,
} from "./measure.ts";
import { causeOf, nodeItself, profileIn, profiledNames } from "./profile.ts";
import { causeTable, table } from "./report.ts";
import type { BenchVendors } from "./vendors.ts";

// What a turn allocates, and the time of its own JavaScript. Neither swings with what else the machine does, so both
// have marks.

type PerApp = Record<(typeof profiledNames)[number], number>;

/** One subject, by turn. */
export interface AllocationNumbers {
  name: string;
  allocatedKb: PerApp;
  /** The same by cause. */
  causes: ReadonlyMap<string, PerApp>;
  /** User CPU of all three, ms. */
  userMs: number;
  turnsPerSecond: number;
}

/** At most so much: KB a turn, and parts of naive BullMQ's user CPU. Speed at least that part of its turns. */
const marks = {
  allocatedKb: { "agent-worker": 450, ingress: 60, "tool-runner": 60 },
  userCpu: 1.5,
  turnsPerSecond: 0.65,
};

/** Warms a subject up, times it, and samples the heaps of its processes during as many turns again. */
export async function measureAllocation(
  vendors: BenchVendors,
  subject: Subject,
  { turns, warm }: { turns: number; warm: number },
): Promise<AllocationNumbers> {
  const folder = await mkdtemp(join(tmpdir(), "allocation-"));
  const env = {
    ...subject.options.env,
    PROFILE_FOLDER: folder,
    PROFILE_KIND: "heap",
    NODE_OPTIONS: `--import ${fileURLToPath(new URL("profiler.ts", import.meta.url))}`,
  };
  const running = await startSubject(vendors, { ...subject, options: { ...subject.options, env } });
  const { ingresses, workers, runners } = running.system;
  const apps = { "agent-worker": workers, ingress: ingresses, "tool-runner": runners };
  const work = { inFlight: 32, messages: turns, perChat: 5 };
  const signalAll = (): void => {
    for (const app of Object.values(apps).flat()) app.signal("SIGUSR2");
  };
  try {
    await warmUp(running, warm);
    const before = userCpuMs(running);
    const { turnsPerSecond } = await measureTurns(running, work);
    // With the tenth of the turns that `measureTurns` sends first.
    const userMs = (userCpuMs(running) - before) / (turns + Math.ceil(turns / 10));
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
    const allocatedKb = { ...nothing };
    for (const numbers of causes.values()) {
      for (const name of profiledNames) allocatedKb[name] += numbers[name];
    }
    return { name: subject.name, allocatedKb, causes, userMs, turnsPerSecond };
  } finally {
    await running.close();
    await rm(folder, { recursive: true });
  }
}

/** Paired rounds of two subjects, the first of which is the base: medians, and how many times as much the other takes. */
export async function measurePairs(
  vendors: BenchVendors,
  [base, other]: readonly [Subject, Subject],
  { rounds, ...work }: { rounds: number; turns: number; warm: number },
): Promise<string> {
  const measured: [AllocationNumbers[], AllocationNumbers[]] = [[], []];
  for (let round = 0; round < rounds; round += 1) {
    measured[0].push(await measureAllocation(vendors, base, work));
    measured[1].push(await measureAllocation(vendors, other, work));
  }
  const [first, second] = measured.map((all) => ({
    user: median(all.map(({ userMs }) => userMs)),
    kb: profiledNames.map((app) => median(all.map(({ allocatedKb }) => allocatedKb[app]))),
  }));
  if (first === undefined || second === undefined) throw new Error("two subjects were measured");
  const row = ({ name }: Subject, { user, kb }: typeof first) => [
    name,
    ...kb.map((one, at) => `${one.toFixed(1)} (${(one / (first.kb[at] ?? one)).toFixed(3)})`),
    `${user.toFixed(3)} (${(user / first.user).toFixed(3)})`,
  ];
  const header = [
    `a turn with one call, medians of ${rounds} pairs`,
    ...profiledNames.map((app) => `${app}, KB`),
    "user CPU, ms",
  ];
  return table(header, [row(base, first), row(other, second)]);
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
    const { name, allocatedKb, userMs, turnsPerSecond } = subject;
    const ratio = (of: (one: AllocationNumbers) => number): string =>
      `${(of(subject) / of(naive)).toFixed(2)}`;
    return [
      name,
      ...profiledNames.map((app) => Math.round(allocatedKb[app])),
      userMs.toFixed(2),
      ratio((one) => one.userMs),
      Math.round(turnsPerSecond),
      ratio((one) => one.turnsPerSecond),
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

function missedBy(one: AllocationNumbers, naive: AllocationNumbers): string[] {
  const cpu = one.userMs / naive.userMs;
  const speed = one.turnsPerSecond / naive.turnsPerSecond;
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
