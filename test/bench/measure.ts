import { execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { freePort } from "@larkline/testkit";
import { startProcesses, type ProcessSystem, type ProcessOptions } from "../system/system.ts";
import {
  freshChat,
  load,
  WebhookSender,
  type LoadOptions,
  type LoadResult,
  type Recipient,
} from "./driver.ts";
import type { BenchVendors, Before, Trip } from "./vendors.ts";

/** One way to do the work. */
export interface Subject {
  name: string;
  options: ProcessOptions;
  /** Starts what runs beside it. */
  prepare?(system: ProcessSystem): Promise<unknown>;
}

/** Replies of plain text, as fast as they come: what the baselines send, too. */
export const plainText = { agents: { default: { reply: "text" } }, feishu: { rateLimits: false } };

const inlineTools = fileURLToPath(new URL("../fixtures/inline-tools.ts", import.meta.url));

/** Its tool runs inside the runner, as those of the baselines do. */
export const larkline: Subject = {
  name: "Larkline, the tool inline",
  options: { config: plainText, env: { RUNNER_TOOLS: inlineTools } },
};

/** The same, and turns are suspended for every call, however quick. */
export const larklineSuspending: Subject = {
  name: "Larkline, turns are suspended at once",
  options: { config: plainText, env: { ...larkline.options.env, WORKER_HOLD_MS: "0" } },
};

const ratedCards = { feishu: { ...plainText.feishu, feedback: true } };

/** Its answers are cards that people may rate. */
export const larklineCards: Subject = {
  name: "Larkline, cards that are rated",
  options: { ...larkline.options, config: ratedCards },
};

const ownTools = {
  ...plainText,
  agents: { default: { ...plainText.agents.default, tools: ["note_pure"] } },
};

/** Its agent has tools of its own: what other runners offer is in no request. */
export const larklineOwnTools: Subject = {
  name: "Larkline, an agent with one tool",
  options: { ...larkline.options, config: ownTools },
};

/** The same, and people could let other agents act as them: with the key of grants, and the runner of the work tools. */
export const larklineActing: Subject = {
  name: "the same, with GRANT_KEY and the runner feishu",
  options: {
    ...larklineOwnTools.options,
    env: { ...larkline.options.env, GRANT_KEY: "a1".repeat(32) },
  },
  prepare: async (system) =>
    await system.start("tool-runner", {
      RUNNER_NAME: "feishu",
      RUNNER_TOOLS: "@larkline/feishu-tools",
    }),
};

/** The same without what the console shows of runs: no records, buckets, names and ratings. */
export function unobserved({ name, options }: Subject): Subject {
  const feishu = { ...ratedCards.feishu, feedback: false };
  return {
    name: `${name}, nothing written down`,
    options: {
      ...options,
      config: { ...options.config, feishu },
      programs: { "agent-worker": { file: "test/bench/unobserved.ts" } },
    },
  };
}

/** The same from another checkout of this repository. */
export function larklineOf(folder: string): Subject {
  const program = (app: string) => ({ file: join(folder, `apps/${app}/src/main.ts`) });
  return {
    name: "the version before, the tool inline",
    options: {
      ...larkline.options,
      programs: {
        ingress: program("ingress"),
        "agent-worker": program("agent-worker"),
        "tool-runner": program("tool-runner"),
      },
    },
  };
}

/** As a tool runs that says nothing about isolation. */
export const larklineProcess: Subject = {
  name: "Larkline, the tool in a process of its own",
  options: { config: plainText },
};

const baseline = (name: string) => ({ file: `test/bench/baselines/${name}.ts` });

/** No queue, no Redis, one process: the lower bound. */
export const rawLoop: Subject = {
  name: "raw loop",
  options: { programs: { ingress: baseline("raw-loop") }, workers: 0, runners: 0 },
};

/** BullMQ as its manual shows it. */
export const naiveBullmq: Subject = {
  name: "naive BullMQ",
  options: {
    programs: {
      ingress: { ...baseline("naive-bullmq"), args: ["ingress"] },
      "agent-worker": { ...baseline("naive-bullmq"), args: ["worker"] },
      "tool-runner": { ...baseline("naive-bullmq"), args: ["runner"] },
    },
  },
};

/** A durable peer; `folder` has its server and its SDK: `npm install --prefix <folder> @restatedev/restate-server @restatedev/restate-sdk`. */
export async function restateOf(folder: string): Promise<Subject> {
  const ports = await Promise.all(
    ["INGRESS", "ADMIN", "NODE", "WORKER", "RUNNER"].map(
      async (name) => [`PEER_${name}`, String(await freePort())] as const,
    ),
  );
  const program = (role: string) => ({ ...baseline("restate"), args: [role] });
  return {
    name: "Restate",
    options: {
      env: { PEER_FOLDER: folder, ...Object.fromEntries(ports) },
      programs: {
        ingress: program("ingress"),
        "agent-worker": program("worker"),
        "tool-runner": program("runner"),
      },
    },
  };
}

/** A subject whose processes run. */
export interface Running {
  readonly name: string;
  readonly system: ProcessSystem;
  /** Sends it messages and waits for the answers. */
  load(work: Omit<LoadOptions, "vendors" | "sender" | "recipient">): Promise<LoadResult>;
  readonly sender: WebhookSender;
  readonly recipient: Recipient;
  close(): Promise<void>;
}

/** Every subject of the bench that runs at the moment: what uses CPU besides them is noise. */
const allRunning = new Set<Running>();

export async function startSubject(
  vendors: BenchVendors,
  { name, options, prepare }: Subject,
): Promise<Running> {
  const system = await startProcesses({
    transport: "webhook",
    vendors: { model: vendors.url, feishu: vendors.url },
    ...options,
    env: { LOG_LEVEL: "error", RECORDING_FILE: "", ...options.env },
  });
  await prepare?.(system);
  const { appId, env, ingresses } = system;
  const recipient = {
    url: ingresses[0]?.url ?? "",
    appId,
    encryptKey: env["FEISHU_ENCRYPT_KEY"] ?? "",
    verificationToken: env["FEISHU_VERIFICATION_TOKEN"] ?? "",
  };
  const sender = new WebhookSender(recipient.url);
  const running: Running = {
    name,
    system,
    sender,
    recipient,
    load: async (work) => await load({ vendors, sender, recipient, ...work }),
    close: async () => {
      allRunning.delete(running);
      sender.close();
      await system.close();
    },
  };
  allRunning.add(running);
  return running;
}

/** Enough turns that every process runs compiled code. */
export async function warmUp(
  running: Running,
  messages: number,
  nextChat = freshChat,
): Promise<void> {
  await running.load({ inFlight: 32, messages, perChat: 5, nextChat });
}

export function percentile(values: readonly number[], fraction: number): number {
  const sorted = values.toSorted((left, right) => left - right);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * fraction))] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}

export interface Spread {
  p50: number;
  p99: number;
}

export function spread(values: readonly number[]): Spread {
  return { p50: percentile(values, 0.5), p99: percentile(values, 0.99) };
}

/** The process and all that it started, from /proc. */
function familyOf(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
  return [
    pid,
    ...(children === "" ? [] : children.split(" ").flatMap((child) => familyOf(Number(child)))),
  ];
}

/** CPU time of a process in ms, from /proc (10 ms ticks). */
function cpuMs(pid: number): number {
  const { user, kernel } = ticksOf(pid);
  return user + kernel;
}

function ticksOf(pid: number): { user: number; kernel: number } {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return { user: Number(fields[11]) * 10, kernel: Number(fields[12]) * 10 };
}

export function residentMb(pid: number): number {
  const line = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(line?.[1] ?? 0) / 1_024;
}

/** Kinds of processes, in the order of a message. */
export const processNames = ["ingress", "agent-worker", "tool-runner", "Redis"] as const;
export type ProcessName = (typeof processNames)[number];
export type PerProcess = Record<ProcessName, number>;

function pidsOf({
  ingresses,
  workers,
  runners,
  redis,
}: ProcessSystem): Record<ProcessName, number[]> {
  const pids = (apps: readonly { pid: number }[]): number[] => apps.map(({ pid }) => pid);
  return {
    ingress: pids(ingresses),
    "agent-worker": pids(workers),
    "tool-runner": pids(runners),
    Redis: [redis.process.pid ?? 0],
  };
}

function perProcess(of: (name: ProcessName) => number): PerProcess {
  return {
    ingress: of("ingress"),
    "agent-worker": of("agent-worker"),
    "tool-runner": of("tool-runner"),
    Redis: of("Redis"),
  };
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Resident memory of each kind of process, MB; 0 where a subject has none. Children are not in it. */
export function memoryOf({ system }: Running): PerProcess {
  const pids = pidsOf(system);
  return perProcess((name) => sum(pids[name].map(residentMb)));
}

/** What Redis has done since its start. */
export interface RedisUse {
  commands: number;
  scripts: number;
  /** CPU of its process. */
  cpuMs: number;
  bytesOut: number;
}

export function redisUse(system: ProcessSystem): RedisUse {
  const info = execFileSync("redis-cli", [
    "-p",
    String(system.redis.port),
    "info",
    "all",
  ]).toString();
  const calls = [...info.matchAll(/cmdstat_([^:]+):calls=(\d+)/g)].map(([, name, number]) => [
    name,
    Number(number),
  ]);
  const value = (name: string): number =>
    Number(new RegExp(`^${name}:([\\d.]+)`, "m").exec(info)?.[1] ?? 0);
  return {
    commands: sum(calls.map(([, number]) => Number(number))),
    scripts: sum(
      calls
        .filter(([name]) => /^(?:eval|fcall)/.test(String(name)))
        .map(([, number]) => Number(number)),
    ),
    cpuMs: (value("used_cpu_sys") + value("used_cpu_user")) * 1_000,
    bytesOut: value("total_net_output_bytes"),
  };
}

/** CPU of each kind of process so far, with the processes that they started. */
function cpuOf(system: ProcessSystem, redis: RedisUse): PerProcess {
  const pids = pidsOf(system);
  return perProcess((name) =>
    name === "Redis" ? redis.cpuMs : sum(pids[name].flatMap(familyOf).map(cpuMs)),
  );
}

/** CPU of each kind of process in the next `restMs`, % of a core. */
export async function restCpu(system: ProcessSystem, restMs: number): Promise<PerProcess> {
  const before = cpuOf(system, redisUse(system));
  await sleep(restMs);
  const after = cpuOf(system, redisUse(system));
  return perProcess((name) => ((after[name] - before[name]) * 100) / restMs);
}

/** Time that ingresses, workers and runners have spent in their own code so far, ms, without the kernel's. */
export function userCpuMs({ system }: Running): number {
  const { ingress, "agent-worker": workers, "tool-runner": runners } = pidsOf(system);
  return sum(
    [...ingress, ...workers, ...runners].flatMap(familyOf).map((pid) => ticksOf(pid).user),
  );
}

/** CPU of this machine that no process of the bench used, ms so far; 10 ms ticks. */
function foreignCpuMs(): number {
  const [user = 0, nice = 0, kernel = 0, , , irq = 0, softIrq = 0, steal = 0] = (
    readFileSync("/proc/stat", "utf8").split("\n")[0] ?? ""
  )
    .trim()
    .split(/\s+/)
    .slice(1)
    .map(Number);
  const own = process.cpuUsage();
  const apps = [...allRunning].flatMap(({ system }) =>
    Object.values(pidsOf(system)).flat().flatMap(familyOf),
  );
  const busy = (user + nice + kernel + irq + softIrq + steal) * 10;
  return busy - sum(apps.map(cpuMs)) - (own.user + own.system) / 1_000;
}

export interface TurnNumbers {
  turnsPerSecond: number;
  /** Per turn, of each kind of process. */
  cpuMs: PerProcess;
  /** Per turn, of the bench's own process, which plays sender, platform and model. */
  harnessMs: number;
  /** Cores that other programs of the machine used meanwhile. */
  foreignCores: number;
  /** Per turn; commands with those inside scripts. */
  redisScripts: number;
  redisCommands: number;
  /** Webhook sent to its acknowledgement. */
  ack: Spread;
  /** Webhook sent to first model request. */
  before: Spread;
  /** Model asked for a tool to the request that holds its result. */
  tool: Spread;
  /** Last model byte to the reply's arrival. */
  after: Spread;
}

/** Times of a turn with one tool call: ms of each of its parts. */
export const partsOfTrip = {
  ack: ({ sentMs, ackedMs }: Trip): number => ackedMs - sentMs,
  before: ({ sentMs, modelMs: [first] }: Trip): number => (first?.in ?? Number.NaN) - sentMs,
  tool: ({ modelMs: [first, second] }: Trip): number =>
    (second?.in ?? Number.NaN) - (first?.out ?? Number.NaN),
  after: ({ repliedMs, modelMs }: Trip): number => repliedMs - (modelMs.at(-1)?.out ?? Number.NaN),
};

/** Measures one slice of load; a short one before it wakes what has slept while others were measured. */
export async function measureTurns(
  running: Running,
  work: Omit<LoadOptions, "vendors" | "sender" | "recipient">,
): Promise<TurnNumbers> {
  await running.load({ ...work, messages: Math.ceil(work.messages / 10) });
  const redisBefore = redisUse(running.system);
  const before = cpuOf(running.system, redisBefore);
  const foreignBefore = foreignCpuMs();
  const { trips, seconds, harnessMs } = await running.load(work);
  const foreignMs = foreignCpuMs() - foreignBefore;
  const redisAfter = redisUse(running.system);
  const after = cpuOf(running.system, redisAfter);
  const turns = trips.length;
  const whole = trips.filter(({ modelMs }) => modelMs.length === 2);
  const part = (of: (trip: Trip) => number): Spread => spread(whole.map(of));
  return {
    turnsPerSecond: turns / seconds,
    cpuMs: perProcess((name) => (after[name] - before[name]) / turns),
    harnessMs: harnessMs / turns,
    foreignCores: Math.max(0, foreignMs / 1_000 / seconds),
    redisScripts: (redisAfter.scripts - redisBefore.scripts) / turns,
    redisCommands: (redisAfter.commands - redisBefore.commands) / turns,
    ack: part(partsOfTrip.ack),
    before: part(partsOfTrip.before),
    tool: part(partsOfTrip.tool),
    after: part(partsOfTrip.after),
  };
}

/** Bytes of the largest checkpoint that one turn stores, as Redis sees them come; 0 where it stores none. */
export async function checkpointBytes(
  { system, load: send }: Running,
  before: Before,
): Promise<number> {
  const monitor = spawn("redis-cli", ["-p", String(system.redis.port), "monitor"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const lines = createInterface({ input: monitor.stdout });
    await once(lines, "line"); // it watches
    let most = 0;
    const mark = `read-until-${randomUUID()}`;
    const reached = Promise.withResolvers<void>();
    lines.on("line", (line) => {
      if (line.includes(mark)) reached.resolve();
      const [, quoted] =
        /"HSET" "[^"]*:state:[^"]*".*? "turn" "((?:[^"\\]|\\.)*)"/i.exec(line) ?? [];
      most = Math.max(most, (quoted ?? "").replaceAll(/\\(?:x..|.)/g, "_").length);
    });
    await send({ inFlight: 1, messages: 1, perChat: 1, before });
    // What it has seen may arrive later than the answer.
    execFileSync("redis-cli", ["-p", String(system.redis.port), "echo", mark]);
    await reached.promise;
    return most;
  } finally {
    monitor.kill();
  }
}
