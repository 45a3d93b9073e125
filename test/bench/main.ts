import { readFile, writeFile } from "node:fs/promises";
import { cpus } from "node:os";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { allocationTables, measureAllocation, measurePairs } from "./allocation.ts";
import { measureApprovals } from "./approvals.ts";
import { measureBursts } from "./burst.ts";
import { measureCallsAtOnce } from "./calls-at-once.ts";
import { conversationMemoryTable, measureMemory } from "./conversation-memory.ts";
import { type Chat, freshChat, returningChats } from "./driver.ts";
import { loopTable, measureLoop } from "./event-loop.ts";
import { measureLevels } from "./levels.ts";
import { measureLengths } from "./long-conversation.ts";
import {
  checkpointBytes,
  larkline,
  larklineActing,
  larklineCards,
  larklineOf,
  larklineOwnTools,
  larklineProcess,
  larklineSuspending,
  measureTurns,
  memoryOf,
  naiveBullmq,
  rawLoop,
  restateOf,
  startSubject,
  unobserved,
  warmUp,
  type Running,
  type Subject,
  type TurnNumbers,
} from "./measure.ts";
import { measureCauses } from "./profile.ts";
import { measureRecovery } from "./recovery.ts";
import {
  addedTable,
  approvalTable,
  atOnceTable,
  besideTable,
  burstTable,
  cpuTable,
  latencyTable,
  callTable,
  causeTable,
  holdTable,
  lengthTable,
  levelTable,
  memoryTable,
  observingTable,
  peerTable,
  recoveryTable,
  scaleTable,
  soakTable,
  streamingTable,
  summaryOf,
  throughputTable,
  modelWaitTable,
  followTable,
  viewTable,
  waitingTable,
  type SubjectRounds,
} from "./report.ts";
import { measureSchedules, schedulesTables } from "./schedules.ts";
import { soak } from "./soak.ts";
import { measureStreaming, streamingBound } from "./streaming.ts";
import { measureTogether, togetherTable } from "./together.ts";
import { BenchVendors, type Before } from "./vendors.ts";
import { measureViews } from "./views.ts";
import { measureWaiting } from "./waiting.ts";
import { measureStart, weightTables, type StartNumbers } from "./weight.ts";
import { measureModelWait, measureScale, type ScaleNumbers } from "./workers.ts";

/** What can be measured, each with its own tables in one of {@link pages}. */
const parts = {
  turns: { tells: "throughput, CPU, latency and memory beside the baselines", measure: turnTables },
  profile: {
    tells: "CPU of a turn by cause, from profiles of the processes",
    measure: causeTables,
  },
  allocation: {
    tells: "what a turn allocates and its user CPU, beside naive BullMQ; fails beyond the marks",
    measure: allocationPart,
  },
  identity: {
    tells:
      "a turn of an agent without work tools, with the key and the runner of those beside it or not",
    measure: identityTables,
  },
  loop: { tells: "how long the event loops of new processes stand still", measure: loopTables },
  lengths: { tells: "latency in long chats, beside fresh ones", measure: lengthTables },
  kills: { tells: "from kill -9, or a cut line, to the answer", measure: recoveryTables },
  tools: { tells: "levels of isolation, and approvals", measure: toolTables },
  streaming: { tells: "many chats that stream at once", measure: streamingTables },
  views: {
    tells: "runs over HTTP: events to their followers, and views of a long run",
    measure: viewTables,
  },
  together: {
    tells: "hand-overs, helpers, teams, memory and followers, each beside its base",
    measure: togetherTables,
  },
  bursts: { tells: "messages that come faster than they can be answered", measure: burstTables },
  workers: { tells: "turns with 1, 2 and 4 workers", measure: scaleTables },
  waiting: { tells: "sessions that wait for people", measure: waitingTables },
  schedules: {
    tells: "schedules that sleep beside none, and many that are due at nine",
    measure: async () => schedulesTables(await measureSchedules(Number(values.sleeping), 500)),
  },
  memory: { tells: "what a conversation holds in Redis", measure: dataTables },
  holds: {
    tells: "turns that keep their slots while calls run, beside turns that do not",
    measure: holdTables,
  },
  observing: {
    tells: "buckets, records, names and feedback, beside a worker without them",
    measure: observingTables,
  },
  calls: {
    tells: "turns with and without a call beside another version; only with --beside",
    measure: callTables,
  },
  peer: {
    tells: "turns beside Restate, a durable engine; only with --restate",
    measure: peerTables,
  },
  weight: {
    tells: "CPU, memory and time of `npm start`, which gets no message",
    measure: startTables,
  },
  soak: { tells: "an hour of steady load; only when it is named", measure: soakTables },
};
type PartName = keyof typeof parts;

/** What users ask for is in docs; the rest beside the bench. Where both have a part, docs has its first three tables. */
const pages = ["../../docs/performance.md", "results.md"].map((path) =>
  fileURLToPath(new URL(path, import.meta.url)),
);
const shared = 3;

const help = `npm run bench -- [options]

  --only <parts>      measures these parts only, names joined by commas
  --write             writes the tables of the measured parts into docs/performance.md and test/bench/results.md
  --rounds <n>        rounds of turns and bursts; medians are shown (5)
  --turns <n>         turns of each subject in a round, with 32 in flight; with 1 a sixth of it (2000)
  --warm <n>          turns of each subject before anything is measured (3000)
  --kills <n>         processes that are killed or cut off, of each kind (5)
  --chats <n>         chats that stream at once (300)
  --seconds <n>       how long each of them streams (20)
  --approvals <n>     turns in which a person is asked (400)
  --waiting <n>       sessions that wait for people (10000)
  --beside <folder>   another checkout of this repository, with its dependencies, for the part \`calls\`
  --restate <folder>  where npm has installed \`@restatedev/restate-server\` and \`-sdk\`, for the part \`peer\`
  --list, --help      says what can be measured
  --sleeping <n>      schedules that sleep (10000)
  --minutes <n>       how long the load of \`soak\` lasts (60)

Parts:
${Object.entries(parts)
  .map(([name, { tells }]) => `  ${name.padEnd(18)}  ${tells}`)
  .join("\n")}
`;

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    write: { type: "boolean", default: false },
    rounds: { type: "string", default: "5" },
    turns: { type: "string", default: "2000" },
    warm: { type: "string", default: "3000" },
    kills: { type: "string", default: "5" },
    chats: { type: "string", default: "300" },
    seconds: { type: "string", default: "20" },
    approvals: { type: "string", default: "400" },
    waiting: { type: "string", default: "10000" },
    sleeping: { type: "string", default: "10000" },
    minutes: { type: "string", default: "60" },
    beside: { type: "string" },
    restate: { type: "string" },
    help: { type: "boolean", default: false },
    list: { type: "boolean", default: false },
  },
});

if (values.help || values.list) console.log(help);
else await run();

function isPart(name: string): name is PartName {
  return Object.hasOwn(parts, name);
}

function chosenParts(): PartName[] {
  const names =
    values.only?.split(",") ??
    Object.keys(parts).filter((name) => !["soak", "calls", "peer"].includes(name));
  return names.map((name) => {
    if (!isPart(name)) throw new Error(`--only takes ${Object.keys(parts).join(", ")}`);
    return name;
  });
}

async function run(): Promise<void> {
  const measured: [PartName, string[]][] = [];
  for (const name of chosenParts()) measured.push([name, await parts[name].measure()]);
  for (const [, tables] of measured) console.log(`\n${tables.join("\n\n")}`);
  if (values.write) await write(measured);
}

/** Replaces what is between the marks of these parts, on each page that has the marks. */
async function write(measured: readonly [PartName, string[]][]): Promise<void> {
  const texts = await Promise.all(pages.map(async (page) => await readFile(page, "utf8")));
  for (const [name, tables] of measured) {
    const [begin, end] = [`<!-- ${name}:begin -->`, `<!-- ${name}:end -->`];
    const places = [...texts.keys()].filter((at) => texts[at]?.includes(begin));
    if (places.length === 0) throw new Error(`${pages.join(" and ")} have no place for ${name}`);
    const machine = `${new Date().toISOString().slice(0, 10)}, ${cpus().length} cores (${cpus()[0]?.model.trim()}), Node ${process.version}: \`${commandLine()}\`.`;
    for (const [nth, at] of places.entries()) {
      const own =
        places.length === 1 ? tables : nth === 0 ? tables.slice(0, shared) : tables.slice(shared);
      const [head = "", rest = ""] = (texts[at] ?? "").split(begin);
      const [, tail] = rest.split(end);
      if (tail === undefined) throw new Error(`${pages[at] ?? ""} has no ${end}`);
      texts[at] = `${head}${begin}\n\n${[machine, ...own].join("\n\n")}\n\n${end}${tail}`;
    }
  }
  for (const [at, page] of pages.entries()) await writeFile(page, texts[at] ?? "");
}

function commandLine(): string {
  return ["npm run bench --", ...process.argv.slice(2)].join(" ");
}

interface RoundOptions {
  /** What each turn does before its answer; default: it calls a tool. */
  before?: Before;
  /** How many chats are written in, by people who return; default: fresh ones all the time. */
  chats?: number;
}

/** Each round measures every subject; the first of them changes, so that noise hits all alike. */
async function measureSubjects(
  vendors: BenchVendors,
  subjects: readonly Subject[],
  { before = "tool", chats }: RoundOptions = {},
): Promise<SubjectRounds[]> {
  const turns = Number(values.turns);
  const each: {
    running: Running;
    single: TurnNumbers[];
    loaded: TurnNumbers[];
    nextChat: () => Chat;
  }[] = [];
  try {
    for (const subject of subjects) {
      const running = await startSubject(vendors, subject);
      const nextChat = chats === undefined ? freshChat : returningChats(chats);
      each.push({ running, single: [], loaded: [], nextChat });
      await warmUp(running, Number(values.warm), nextChat);
    }
    for (let round = 0; round < Number(values.rounds); round += 1) {
      const first = round % each.length;
      for (const { running, single, loaded, nextChat } of [
        ...each.slice(first),
        ...each.slice(0, first),
      ]) {
        const few = { inFlight: 1, messages: Math.ceil(turns / 6), perChat: 5, before, nextChat };
        single.push(await measureTurns(running, few));
        const numbers = await measureTurns(running, { ...few, inFlight: 32, messages: turns });
        loaded.push(numbers);
        console.log(`round ${round + 1}: ${running.name}: ${summaryOf(numbers)}`);
      }
    }
    const measured: SubjectRounds[] = [];
    for (const { running, single, loaded } of each) {
      const memoryMb = memoryOf(running);
      const checkpoint = await checkpointBytes(running, before);
      measured.push({ name: running.name, single, loaded, memoryMb, checkpoint });
    }
    return measured;
  } finally {
    for (const { running } of each) await running.close();
  }
}

async function withVendors<Result>(
  work: (vendors: BenchVendors) => Promise<Result>,
): Promise<Result> {
  const vendors = await BenchVendors.start();
  try {
    return await work(vendors);
  } finally {
    await vendors.close();
  }
}

async function turnTables(): Promise<string[]> {
  const subjects = [rawLoop, naiveBullmq, larkline, larklineProcess];
  const results = await withVendors(async (vendors) => await measureSubjects(vendors, subjects));
  return [
    throughputTable(results),
    latencyTable(results),
    memoryTable(results),
    cpuTable(results),
    addedTable(results),
  ];
}

async function causeTables(): Promise<string[]> {
  const work = { turns: Number(values.turns), warm: Number(values.warm) };
  const causes = await withVendors((vendors) => measureCauses(vendors, larkline, work));
  return [causeTable("CPU ms per turn by cause, 32 in flight", causes)];
}

async function allocationPart(): Promise<string[]> {
  const work = {
    turns: Number(values.turns),
    warm: Number(values.warm),
    rounds: Number(values.rounds),
  };
  const { tables, missed } = await withVendors(async (vendors) =>
    allocationTables(await measureAllocation(vendors, [naiveBullmq, larkline], work)),
  );
  for (const one of missed) console.error(`Beyond its mark: ${one}.`);
  if (missed.length > 0) process.exitCode = 1;
  return tables;
}

async function identityTables(): Promise<string[]> {
  const { rounds, turns, warm } = values;
  const work = {
    rounds: 4,
    turns: Number(turns),
    warm: Number(warm),
    starts: Math.max(6, Number(rounds)),
  };
  const { table, missed } = await withVendors(
    async (vendors) => await measurePairs(vendors, [larklineOwnTools, larklineActing], work),
  );
  for (const one of missed) console.error(`Not shown to be within its mark: ${one}.`);
  if (missed.length > 0) process.exitCode = 1;
  return [table];
}

async function callTables(): Promise<string[]> {
  if (values.beside === undefined) throw new Error("the part calls needs --beside <folder>");
  const subjects = [larklineOf(resolve(values.beside)), larkline];
  return await withVendors(async (vendors) => {
    const calls = await measureSubjects(vendors, subjects);
    return [
      besideTable(calls, await measureSubjects(vendors, subjects, { before: "nothing" })),
      callTable(calls),
    ];
  });
}

async function peerTables(): Promise<string[]> {
  if (values.restate === undefined) throw new Error("the part peer needs --restate <folder>");
  const subjects = [await restateOf(resolve(values.restate)), larkline];
  return [
    peerTable(await withVendors(async (vendors) => await measureSubjects(vendors, subjects))),
  ];
}

async function holdTables(): Promise<string[]> {
  const subjects = [larklineSuspending, larkline];
  return [
    holdTable(await withVendors(async (vendors) => await measureSubjects(vendors, subjects))),
  ];
}

async function observingTables(): Promise<string[]> {
  return await withVendors(async (vendors) => {
    const chats = Math.ceil(Number(values.warm) / 5); // each is known after the warm-up
    const texts = await measureSubjects(vendors, [unobserved(larkline), larkline], { chats });
    const cards = await measureSubjects(vendors, [unobserved(larklineCards), larklineCards], {
      chats,
    });
    return [observingTable([texts, cards])];
  });
}

async function loopTables(): Promise<string[]> {
  return [loopTable(await withVendors(measureLoop))];
}

async function lengthTables(): Promise<string[]> {
  const subjects = [rawLoop, naiveBullmq, larkline];
  return [
    lengthTable(
      await withVendors((vendors) =>
        measureLengths(vendors, subjects, { lengths: [10, 100, 1_000], warm: Number(values.warm) }),
      ),
    ),
  ];
}

async function recoveryTables(): Promise<string[]> {
  const kills = Number(values.kills);
  const killed = {
    workers: await measureRecovery("agent-worker", kills),
    runners: await measureRecovery("tool-runner", kills),
  };
  const cutOff = { workers: await measureRecovery("agent-worker", kills, "cut off") };
  return [recoveryTable({ killed, cutOff })];
}

async function streamingTables(): Promise<string[]> {
  const measured = await measureStreaming(Number(values.chats), Number(values.seconds) * 1_000);
  return [streamingTable(measured, streamingBound(measured))];
}

async function viewTables(): Promise<string[]> {
  const events = 1_000;
  const { follows, views } = await measureViews(events);
  return [followTable(follows), viewTable(views, events)];
}

async function togetherTables(): Promise<string[]> {
  const work = {
    turns: Math.ceil(Number(values.turns) / 6),
    warm: Number(values.warm),
    finds: 2_000,
    events: 300,
  };
  return [
    togetherTable(await withVendors(async (vendors) => await measureTogether(vendors, work))),
  ];
}

async function toolTables(): Promise<string[]> {
  const atOnce = await measureCallsAtOnce(Number(values.rounds), ["wait_alone", "wait_shared"]);
  return [
    levelTable(await measureLevels()),
    atOnceTable(atOnce),
    approvalTable(await measureApprovals(Number(values.approvals))),
  ];
}

async function burstTables(): Promise<string[]> {
  const work = {
    perSecond: 1_000,
    seconds: 5,
    chats: 1_000,
    rounds: Number(values.rounds),
    warm: Number(values.warm),
  };
  return [
    burstTable(
      await withVendors((vendors) =>
        measureBursts(vendors, [rawLoop, naiveBullmq, larkline], work),
      ),
    ),
  ];
}

async function scaleTables(): Promise<string[]> {
  const scales: ScaleNumbers[] = [];
  for (const workers of [1, 2, 4]) scales.push(await measureScale(workers));
  return [scaleTable(scales), modelWaitTable(await measureModelWait(1_000))];
}

async function waitingTables(): Promise<string[]> {
  return [waitingTable(await measureWaiting(Number(values.waiting)))];
}

async function soakTables(): Promise<string[]> {
  const minutes = Number(values.minutes);
  return [
    soakTable(
      await soak({ minutes, turnsPerSecond: 10, people: 8, everyMs: (minutes * 60_000) / 120 }),
    ),
  ];
}

async function startTables(): Promise<string[]> {
  const starts: StartNumbers[] = [];
  for (let round = 0; round < Number(values.rounds); round += 1) {
    starts.push(await measureStart(20_000));
  }
  return weightTables(starts);
}

async function dataTables(): Promise<string[]> {
  return [conversationMemoryTable(await measureMemory([1, 10, 100, 1_000]))];
}
