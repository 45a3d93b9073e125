import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { ModelScript } from "@larkline/testkit";
import { startSystem, type System, type SystemOptions } from "../system/system.ts";
import { load, noteModel, type Trip } from "./driver.ts";

/** One way to do the work. */
export interface Subject {
  name: string;
  options: SystemOptions;
}

/** Replies of plain text, as fast as they come: what the baselines send, too. */
export const plainText = { agents: { default: { reply: "text" } }, feishu: { rateLimits: false } };

const inlineTools = fileURLToPath(new URL("../fixtures/inline-tools.ts", import.meta.url));

/** Its tool runs inside the runner, as those of the baselines do. */
export const larkline: Subject = {
  name: "Larkline, the tool inline",
  options: { config: plainText, env: { RUNNER_TOOLS: inlineTools } },
};

/** As a tool runs that says nothing about isolation. */
export const larklineProcess: Subject = {
  name: "Larkline, the tool in a process of its own",
  options: { config: plainText },
};

const baseline = (name: string) => ({ file: `test/bench/baselines/${name}.ts` });

/** No queue, no Redis, one process: the lower bound. */
export const rawLoop: Subject = {
  name: "raw loop (one process, no queue, no Redis, no guarantees)",
  options: { programs: { ingress: baseline("raw-loop") }, workers: 0, runners: 0 },
};

/** BullMQ as its manual shows it. */
export const naiveBullmq: Subject = {
  name: "naive BullMQ (turn queue, tool queue, no guarantees)",
  options: {
    programs: {
      ingress: { ...baseline("naive-bullmq"), args: ["ingress"] },
      "agent-worker": { ...baseline("naive-bullmq"), args: ["worker"] },
      "tool-runner": { ...baseline("naive-bullmq"), args: ["runner"] },
    },
  },
};

/** Answers at once; a message with a second line gets one tool call first. */
const quickModel: ModelScript = ({ messages }) => {
  const [key = "", wish] = (messages.findLast(({ role, text }) => role === "user" && text !== "")?.text ?? "").split(
    "\n",
  );
  noteModel(key, "in");
  queueMicrotask(() => noteModel(key, "out"));
  const answered = (messages.at(-1)?.results.length ?? 0) > 0;
  if (wish !== undefined && !answered) return { calls: [{ name: "note_pure", arguments: { key } }] };
  return { text: "done" };
};

export async function startSubject({ options }: Subject): Promise<System> {
  return await startSystem({
    transport: "webhook",
    script: quickModel,
    simulator: { logCapacity: 100 },
    ...options,
    env: { LOG_LEVEL: "error", RECORDING_FILE: "", ...options.env },
  });
}

export function percentile(values: readonly number[], fraction: number): number {
  const sorted = values.toSorted((left, right) => left - right);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * fraction))] ?? Number.NaN;
}

export interface Spread {
  p50: number;
  p99: number;
}

export function spread(values: readonly number[]): Spread {
  return { p50: percentile(values, 0.5), p99: percentile(values, 0.99) };
}

/** CPU time of a process in ms, from /proc (10 ms ticks). */
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

export function residentMb(pid: number): number {
  const line = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(line?.[1] ?? 0) / 1_024;
}

function pidsOf(system: System): number[] {
  const apps = [...system.ingresses, ...system.workers, ...system.runners].map(({ pid }) => pid);
  return [...apps, system.redis.process.pid ?? 0];
}

export interface TurnNumbers {
  turnsPerSecond: number;
  /** CPU of all processes but the bench's own, per turn. */
  cpuMs: number;
  /** Webhook sent to first model request. */
  before: Spread;
  /** Model asked for a tool to the request that holds its result. */
  tool: Spread;
  /** Last model byte to the reply's arrival. */
  after: Spread;
}

export async function measureTurns(
  system: System,
  work: { inFlight: number; messages: number; perChat: number },
): Promise<TurnNumbers> {
  const before = pidsOf(system).reduce((sum, pid) => sum + cpuMs(pid), 0);
  const { trips, seconds } = await load({ system, ...work, text: (key) => `${key}\ntool` });
  const after = pidsOf(system).reduce((sum, pid) => sum + cpuMs(pid), 0);
  const whole = trips.filter(({ modelMs }) => modelMs.length === 2);
  const part = (of: (trip: Trip) => number): Spread => spread(whole.map(of));
  return {
    turnsPerSecond: trips.length / seconds,
    cpuMs: (after - before) / trips.length,
    before: part(({ sentMs, modelMs: [first] }) => (first?.in ?? 0) - sentMs),
    tool: part(({ modelMs: [first, second] }) => (second?.in ?? 0) - (first?.out ?? 0)),
    after: part(({ repliedMs, modelMs: [, second] }) => repliedMs - (second?.out ?? 0)),
  };
}
