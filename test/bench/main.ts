import { execFileSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { cpus } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import type { System } from "../system/system.ts";
import { measureApprovals } from "./approvals.ts";
import { measureBurst, type BurstNumbers } from "./burst.ts";
import { measureLevels } from "./levels.ts";
import { measureLengths } from "./long-conversation.ts";
import {
  larkline,
  larklineProcess,
  measureTurns,
  naiveBullmq,
  rawLoop,
  residentMb,
  startSubject,
  type Subject,
} from "./measure.ts";
import { conversationMemoryTable, measureMemory } from "./conversation-memory.ts";
import { measureRecovery } from "./recovery.ts";
import { soak } from "./soak.ts";
import { measureStreaming, streamingBound } from "./streaming.ts";
import { measureWaiting } from "./waiting.ts";
import { measureScale, type ScaleNumbers } from "./workers.ts";
import {
  addedTable,
  approvalTable,
  burstTable,
  latencyTable,
  lengthTable,
  levelTable,
  memoryTable,
  recoveryTable,
  scaleTable,
  soakTable,
  streamingTable,
  throughputTable,
  waitingTable,
  type SubjectRounds,
} from "./report.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    turns: { type: "string", default: "2000" },
    kills: { type: "string", default: "5" },
    /** Chats that stream at once, and for how long. */
    chats: { type: "string", default: "300" },
    seconds: { type: "string", default: "20" },
    /** Turns in which a person is asked. */
    approvals: { type: "string", default: "400" },
    /** Sessions that wait for people. */
    waiting: { type: "string", default: "10000" },
    /** How long the load of `--only soak` lasts. */
    minutes: { type: "string", default: "60" },
    /** Only one part: `turns`, `tools`, `streaming`, `load` or `soak`. */
    only: { type: "string" },
    /** Writes the tables into docs/performance.md. */
    write: { type: "boolean", default: false },
  },
});

interface RedisCounts {
  commands: number;
  scripts: number;
}

function redisCounts(port: number): RedisCounts {
  const info = execFileSync("redis-cli", ["-p", String(port), "info", "commandstats"]).toString();
  const calls = [...info.matchAll(/cmdstat_([^:]+):calls=(\d+)/g)].map(
    ([, name, count]) => [name, Number(count)] as const,
  );
  return {
    commands: calls.reduce((sum, [, count]) => sum + count, 0),
    scripts: calls.find(([name]) => name === "evalsha")?.[1] ?? 0,
  };
}

function memoryOf({ ingresses, workers, runners, redis }: System): Record<string, number> {
  const named = [
    ...ingresses.map(({ pid }) => ["ingress", pid] as const),
    ...workers.map(({ pid }) => ["agent-worker", pid] as const),
    ...runners.map(({ pid }) => ["tool-runner", pid] as const),
  ];
  const apps = named.map(([name, pid]) => [name, residentMb(pid)] as const);
  return Object.fromEntries([...apps, ["Redis", residentMb(redis.process.pid ?? 0)]]);
}

/** One round: warm-up, one in flight, many in flight. Subjects take turns, so that noise hits all alike. */
async function runRound(subject: Subject, rounds: SubjectRounds): Promise<void> {
  const turns = Number(values.turns);
  const system = await startSubject(subject);
  try {
    // Long enough that every process runs compiled code.
    await measureTurns(system, { inFlight: 32, messages: 3_000, perChat: 5 });
    rounds.single.push(await measureTurns(system, { inFlight: 1, messages: Math.ceil(turns / 6), perChat: 5 }));
    const before = redisCounts(system.redis.port);
    rounds.loaded.push(await measureTurns(system, { inFlight: 32, messages: turns, perChat: 5 }));
    const after = redisCounts(system.redis.port);
    rounds.redisCommands = (after.commands - before.commands) / turns;
    rounds.redisScripts = (after.scripts - before.scripts) / turns;
    rounds.residentMb = memoryOf(system);
  } finally {
    await system.close();
  }
}

function show(text: string): void {
  console.log(`\n${text}`);
}

async function measureSubjects(): Promise<SubjectRounds[]> {
  const subjects = [rawLoop, naiveBullmq, larkline, larklineProcess];
  const results: SubjectRounds[] = subjects.map(({ name }) => ({
    name,
    single: [],
    loaded: [],
    residentMb: {},
    redisCommands: 0,
    redisScripts: 0,
  }));
  for (let round = 1; round <= Number(values.rounds); round += 1) {
    for (const [index, subject] of subjects.entries()) {
      const rounds = results[index];
      if (rounds !== undefined) await runRound(subject, rounds);
      console.log(`round ${round}: ${subject.name}: ${rounds?.loaded.at(-1)?.turnsPerSecond.toFixed(0)} turns/s`);
    }
  }
  return results;
}

async function turnTables(): Promise<string[]> {
  const results = await measureSubjects();
  const lengths = [10, 100, 1_000];
  return [
    throughputTable(results),
    latencyTable(results),
    addedTable(results),
    lengthTable(await measureLengths(rawLoop, lengths), await measureLengths(larkline, lengths)),
    recoveryTable(
      await measureRecovery("agent-worker", Number(values.kills)),
      await measureRecovery("tool-runner", Number(values.kills)),
    ),
    memoryTable(results),
  ];
}

async function streamingTables(): Promise<string[]> {
  const measured = await measureStreaming(Number(values.chats), Number(values.seconds) * 1_000);
  return [streamingTable(measured, streamingBound(measured))];
}

async function toolTables(): Promise<string[]> {
  return [levelTable(await measureLevels()), approvalTable(await measureApprovals(Number(values.approvals)))];
}

async function loadTables(): Promise<string[]> {
  const bursts: BurstNumbers[] = [];
  for (const subject of [rawLoop, naiveBullmq, larkline]) {
    bursts.push(await measureBurst(subject, { perSecond: 1_000, seconds: 5, chats: 1_000 }));
  }
  const scales: ScaleNumbers[] = [];
  for (const workers of [1, 2, 4]) scales.push(await measureScale(workers));
  return [burstTable(bursts), scaleTable(scales), waitingTable(await measureWaiting(Number(values.waiting)))];
}

async function soakTables(): Promise<string[]> {
  const minutes = Number(values.minutes);
  return [soakTable(await soak({ minutes, turnsPerSecond: 10, people: 8, everyMs: (minutes * 60_000) / 120 }))];
}

async function dataTables(): Promise<string[]> {
  return [conversationMemoryTable(await measureMemory([1, 10, 100, 1_000]))];
}

const parts: Readonly<Record<string, () => Promise<string[]>>> = {
  turns: turnTables,
  tools: toolTables,
  streaming: streamingTables,
  load: loadTables,
  memory: dataTables,
};
/** Takes an hour, so only when it is asked for. */
const alone: typeof parts = { soak: soakTables };
const chosen = values.only === undefined ? Object.values(parts) : [{ ...parts, ...alone }[values.only]];
const tables: string[] = [];
for (const measure of chosen) {
  if (measure === undefined) throw new Error(`--only takes ${Object.keys({ ...parts, ...alone }).join(", ")}`);
  tables.push(...(await measure()));
}
for (const text of tables) show(text);

if (values.write && values.only !== undefined) throw new Error("--write needs all tables: leave --only out");
if (values.write) {
  const page = fileURLToPath(new URL("../../docs/performance.md", import.meta.url));
  const [head = "", , tail = ""] = (await readFile(page, "utf8")).split(/<!-- tables:(?:begin|end) -->/);
  const machine = `Measured ${new Date().toISOString().slice(0, 10)} on ${cpus().length} cores (${cpus()[0]?.model.trim()}), Node ${process.version}, with \`npm run bench -- --write --rounds ${values.rounds} --turns ${values.turns}\`.`;
  await writeFile(
    page,
    `${head}<!-- tables:begin -->\n\n${[machine, ...tables].join("\n\n")}\n\n<!-- tables:end -->${tail}`,
  );
}
