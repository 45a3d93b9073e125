import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { freePort } from "@larkline/testkit";
import { median } from "./measure.ts";
import { table } from "./report.ts";

// What `npm start` weighs at rest, without a message. The product is started as a person starts it, and read from /proc:
// for the second time, when code that the first start has compiled is there.

const root = fileURLToPath(new URL("../..", import.meta.url));
const apps = ["ingress", "agent-worker", "tool-runner", "console", "playground"] as const;
const bare = "bare Node with an HTTP server";
const ticksPerSecond = Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }));
/** From the last process that is ready to the reading of memory: what is begun after a start has ended. */
const settleMs = 15_000;

/** After a summary: the child of tools starts then, and keeps its code for the next one. */
const keptCodeMs = 5_000;

/** One process of a start; undefined where it has no such moment. */
interface Weight {
  name: string;
  readyCpuS?: number | undefined;
  residentMb: number;
  proportionalMb: number;
  /** % of a core. */
  restCpu: number;
}

export interface StartNumbers {
  /** Until the summary was printed. */
  startS: number;
  /** The same of the start before, which finds packages and bundles alone. */
  firstStartS: number;
  weights: Weight[];
}

/** Starts everything twice, waits until it rests, and reads it for `restMs`. */
export async function measureStart(restMs: number): Promise<StartNumbers> {
  if (process.platform !== "linux") {
    throw new Error("weights are read from /proc: measure them on Linux");
  }
  const folder = mkdtempSync(join(tmpdir(), "larkline-weight-"));
  const ports = await Promise.all([...apps, bare].map(async () => await freePort()));
  const port = (name: string): number => ports[[...apps, bare].indexOf(name)] ?? 0;
  const own = Object.fromEntries(
    apps.map((app) => [`${app.toUpperCase().replace("-", "_")}_PORT`, String(port(app))]),
  );
  const children: ChildProcess[] = [];
  const over = new AbortController();
  try {
    const server = `require("node:http").createServer((_, answer) => answer.end()).listen(${port(bare)}, "127.0.0.1")`;
    const bareNode = spawn(process.execPath, ["-e", server], { stdio: "ignore" });
    children.push(bareNode);
    const bareCpuS = await cpuWhenReady(port(bare), () => bareNode.pid, over.signal);

    const env = {
      PATH: process.env["PATH"],
      HOME: folder,
      ...own,
      LARKLINE_DATA_DIR: join(folder, "data"),
    };
    const first = launch(env);
    children.push(first.launcher);
    const firstStartS = await first.summaryS;
    await sleep(keptCodeMs);
    await stopped(first.launcher);
    const { launcher, summaryS, failed } = launch(env);
    children.push(launcher);
    const found = (name: string) => (): number | undefined => processesOf(launcher).get(name);
    const ready = await Promise.race([
      Promise.all(apps.map((app) => cpuWhenReady(port(app), found(app), over.signal))),
      failed,
    ]);
    await sleep(settleMs);
    const pids = new Map([[bare, bareNode.pid ?? 0], ...processesOf(launcher)]);
    const before = new Map([...pids].map(([name, pid]) => [name, cpuSeconds(pid)]));
    await sleep(restMs);
    const weights = [...pids].map(([name, pid]) => ({
      name,
      readyCpuS: name === bare ? bareCpuS : ready[apps.findIndex((app) => app === name)],
      ...memoryOf(pid),
      restCpu: (100_000 * (cpuSeconds(pid) - (before.get(name) ?? 0))) / restMs,
    }));
    return { startS: await summaryS, firstStartS, weights };
  } finally {
    over.abort();
    await Promise.all(children.map(stopped));
    rmSync(folder, { recursive: true });
  }
}

interface Launch {
  launcher: ChildProcess;
  /** How long it took until the summary was printed. Rejects where the start ends before that. */
  summaryS: Promise<number>;
  /** Rejects when the start ends. */
  failed: Promise<never>;
}

function launch(env: NodeJS.ProcessEnv): Launch {
  const begunMs = performance.now();
  const launcher = spawn(process.execPath, ["infra/dev/start.mjs"], {
    cwd: root,
    env: { ...env, LARKLINE_INSTALL: "never" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const failed = new Promise<never>((_, reject) => {
    launcher.once("exit", (code) => reject(new Error(`npm start ended with ${code}`)));
  });
  failed.catch(() => undefined); // of a start that is stopped, or whose summary has come
  const printed = once(launcher.stdout, "data").then(() => (performance.now() - begunMs) / 1_000);
  return { launcher, summaryS: Promise.race([printed, failed]), failed };
}

/** Medians over starts. A process that some of the starts did not have is left out. */
export function weightTables(starts: readonly StartNumbers[]): string[] {
  const names = starts[0]?.weights.map(({ name }) => name) ?? [];
  const rows = names.flatMap((name): Weight[] => {
    const all = starts.flatMap(({ weights }) => weights.filter((one) => one.name === name));
    if (all.length < starts.length) return [];
    const of = (pick: (one: Weight) => number | undefined): number =>
      median(all.map((one) => pick(one) ?? 0));
    const readyCpuS = all[0]?.readyCpuS === undefined ? undefined : of((one) => one.readyCpuS);
    const [residentMb, proportionalMb] = [
      of((one) => one.residentMb),
      of((one) => one.proportionalMb),
    ];
    return [{ name, readyCpuS, residentMb, proportionalMb, restCpu: of((one) => one.restCpu) }];
  });
  const product = rows.filter(({ name }) => name !== bare);
  const sum = (pick: (one: Weight) => number): number =>
    product.reduce((total, one) => total + pick(one), 0);
  const bareCpuS = rows.find(({ name }) => name === bare)?.readyCpuS ?? 1;
  return [
    table(
      [
        "at rest after a start",
        "CPU until ready, s",
        "to bare Node",
        "resident, MB",
        "proportional, MB",
        "CPU, % of a core",
      ],
      [
        ...rows.map(({ name, readyCpuS, residentMb, proportionalMb, restCpu }) => [
          name,
          readyCpuS?.toFixed(2) ?? "",
          readyCpuS === undefined ? "" : (readyCpuS / bareCpuS).toFixed(1),
          residentMb.toFixed(0),
          proportionalMb.toFixed(0),
          restCpu.toFixed(1),
        ]),
        [
          "all of `npm start`",
          sum(({ readyCpuS = 0 }) => readyCpuS).toFixed(2),
          "",
          sum(({ residentMb }) => residentMb).toFixed(0),
          sum(({ proportionalMb }) => proportionalMb).toFixed(0),
          sum(({ restCpu }) => restCpu).toFixed(1),
        ],
      ],
    ),
    `Until the summary: ${seconds(starts.map(({ startS }) => startS))}; of a first start, with packages and bundles in place: ${seconds(starts.map(({ firstStartS }) => firstStartS))}.`,
  ];
}

function seconds(all: readonly number[]): string {
  return `${median(all).toFixed(1)} s`;
}

/** Everything below the launcher, and the launcher itself, by name. */
function processesOf({ pid: launcher = 0 }: ChildProcess): Map<string, number> {
  const all = readdirSync("/proc").flatMap((entry) => {
    const pid = Number(entry);
    const facts = Number.isInteger(pid) ? statOf(pid) : undefined;
    return facts === undefined ? [] : [{ pid, parent: Number(facts[1]) }];
  });
  const named = new Map([["launcher", launcher]]);
  const inside = new Set([launcher]);
  for (const parent of inside) {
    for (const { pid } of all.filter((one) => one.parent === parent)) {
      inside.add(pid);
      const name = nameOf(pid);
      if (name !== undefined) named.set(name, pid);
    }
  }
  return named;
}

function nameOf(pid: number): string | undefined {
  try {
    const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    if (command[0]?.includes("redis-server") === true) return "Redis";
    const isChild = command.some((word) => word.includes("tool-process"));
    if (isChild) return command[0] === "/bin/sh" ? undefined : "tool child";
    return apps.find((app) => command.some((word) => word.split(/[/.]/).includes(app)));
  } catch {
    return undefined;
  }
}

/** The fields of /proc/<pid>/stat behind the name of the program; undefined for a process that is gone. */
function statOf(pid: number): string[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    return text.slice(text.lastIndexOf(")") + 2).split(" ");
  } catch {
    return undefined;
  }
}

function cpuSeconds(pid: number): number {
  const facts = statOf(pid) ?? [];
  return (Number(facts[11] ?? 0) + Number(facts[12] ?? 0)) / ticksPerSecond;
}

function memoryOf(pid: number): { residentMb: number; proportionalMb: number } {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  const megabytes = (name: string): number =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(text)?.[1] ?? 0) / 1_024;
  return { residentMb: megabytes("Rss"), proportionalMb: megabytes("Pss") };
}

async function cpuWhenReady(
  port: number,
  pid: () => number | undefined,
  signal: AbortSignal,
): Promise<number> {
  for (;;) {
    signal.throwIfAborted();
    const answer = await fetch(`http://127.0.0.1:${port}/ready`).catch(() => undefined);
    await answer?.body?.cancel();
    if (answer?.ok === true) return cpuSeconds(pid() ?? 0);
    await sleep(20);
  }
}

async function stopped(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await ended;
}
