import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { chmod, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { allUserAttacks, manyFiles, memoryAttacks, type UserAttackAim } from "./probe-attacks.ts";
import { probeCode, type ProbeTargets } from "./probe-code.ts";
import type { Sandbox, SandboxLimits, SandboxResult, TierFinding } from "./sandbox.ts";

export interface ProbeOptions {
  /** Where the files are made that the attacks aim at. */
  directory: string;
  /** Whether there is a Python for programs: without it most of the attacks cannot be made. */
  hasPython: boolean;
  /** Whether a tier is good enough in which a program gets far more memory than its limit. */
  allowUnboundedMemory: boolean;
}

const limits: Partial<SandboxLimits> = { wallMs: 10_000, processes: 24, diskMb: 16, openFiles: 200 };
const memoryMb = 64;
const fileLimit = 256;
const started = 40;
const patienceMs = 30_000;
const lookMs = 20;

/**
 * Lets programs inside try to get out, in the situation in which this process is right now: that a
 * launcher is installed, or a kernel new enough, proves nothing.
 */
export async function attackTier(sandbox: Sandbox, options: ProbeOptions): Promise<TierFinding> {
  const { tier } = sandbox;
  const place = await mkdtemp(join(options.directory, "probe-"));
  try {
    const reason = await attackAsStranger(sandbox, place);
    if (reason !== "") return { tier, holds: false, reason };
    if (!options.hasPython) {
      return { tier, holds: false, reason: "it cannot be proved: the attacks need Python 3, and there is none" };
    }
    const had = await attackAsUser(sandbox, place);
    if (had !== "") return { tier, holds: false, reason: had };
    const memory = await attackMemory(sandbox);
    if (memory !== "" && !options.allowUnboundedMemory) return { tier, holds: false, reason: memory };
    const files = await attackFiles(sandbox);
    return files === "" ? { tier, holds: true, reason: memory } : { tier, holds: false, reason: files };
  } finally {
    await rm(place, { recursive: true, force: true });
  }
}

const processLimit = "the limit of processes";
const rootHint = " (only a control group holds root to it: make one writable, or run as another user)";

/** Attacks that any program can make; what got through, in words, or "". */
async function attackAsStranger(sandbox: Sandbox, place: string): Promise<string> {
  await chmod(place, 0o777); // no other right may be what keeps the program out
  const secret = join(place, "secret");
  await writeFile(secret, "secret");
  await chmod(secret, 0o666);
  const abstractName = `\0larkline-probe-${process.pid}-${place}`;
  const socketPath = join(place, "listener.sock");
  const servers = await Promise.all([0, abstractName, socketPath].map(listening));
  try {
    await chmod(socketPath, 0o777);
    const address = servers[0]?.address();
    const port = typeof address === "object" ? (address?.port ?? 0) : 0;
    const pidNamespace = readlinkSync("/proc/self/ns/pid");
    const targets = { secret, pid: process.pid, pidNamespace, port, abstractName, socketPath, started, ...limits };
    const { status, value, error, stderr } = await sandbox.run({
      program: { runtime: "node", code: probeCode, input: targets satisfies ProbeTargets },
      limits,
      signal: AbortSignal.timeout(patienceMs),
    });
    if (status !== "ok") return `it does not start here: ${error} ${stderr.split("\n")[0] ?? ""}`.trim();
    const hint = process.getuid?.() === 0 ? rootHint : "";
    const outcome = Object.entries(value as Record<string, string>); // our own code gave it, as far as the tier holds
    return outcome
      .filter(([, result]) => result !== "held")
      .map(([name, result]) => `${name}: ${result}${name === processLimit ? hint : ""}`)
      .join("; ");
  } finally {
    for (const server of servers) server.close();
  }
}

async function listening(address: string | number): Promise<Server> {
  const server = createServer((socket) => socket.on("error", () => {}).end());
  server.listen(typeof address === "number" ? { port: address, host: "127.0.0.1" } : { path: address });
  await once(server, "listening");
  return server;
}

async function runPython(
  sandbox: Sandbox,
  code: string,
  more: { input?: unknown; env?: Record<string, string>; limits?: Partial<SandboxLimits> } = {},
): Promise<SandboxResult> {
  const { input = null, env = {} } = more;
  const signal = AbortSignal.timeout(patienceMs);
  return await sandbox.run({
    program: { runtime: "python", code, input },
    limits: { ...limits, ...more.limits },
    env,
    signal,
  });
}

/** Attacks on what this process's user may do; what got through, in words, or "". */
async function attackAsUser(sandbox: Sandbox, place: string): Promise<string> {
  const own = join(place, "own.txt");
  await writeFile(own, "own");
  await symlink(own, join(place, "own.link"));
  const mark = randomBytes(12).toString("hex");
  const aim: UserAttackAim = {
    runner: process.pid,
    pidNamespace: readlinkSync("/proc/self/ns/pid"),
    userNamespace: readlinkSync("/proc/self/ns/user"),
    outside: place,
    freeName: `larkline-probe-${mark}`,
  };
  let isNameTaken = false;
  const look = (): void => void (isNameTaken ||= readFileSync("/proc/net/unix", "latin1").includes(aim.freeName));
  const timer = setInterval(look, lookMs);
  const before = limitsOfThisProcess();
  const { status, value, error } = await runPython(sandbox, allUserAttacks, {
    input: aim,
    env: { LARKLINE_PROBE: mark },
  }).finally(() => clearInterval(timer));
  if (status !== "ok") return `the attacks of its own user ended: ${status} ${error ?? ""}`.trim();
  // In a network of its own any name is free.
  const got = (Array.isArray(value) ? value.map(String) : []).filter((name) => !name.startsWith("an abstract "));
  return [
    ...got.map((name) => `${name}: was had`),
    ...(isNameTaken ? ["an abstract name of the host: was taken"] : []),
    ...(limitsOfThisProcess() === before ? [] : ["the limits of the runner: were changed"]),
    ...(hasProcessWith(`LARKLINE_PROBE=${mark}`) ? ["a daemon: lives on"] : []),
  ].join("; ");
}

function limitsOfThisProcess(): string {
  return readFileSync("/proc/self/limits", "latin1");
}

function hasProcessWith(variable: string): boolean {
  return readdirSync("/proc").some((name) => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/environ`, "latin1").includes(variable);
    } catch {
      return false; // it has ended, or is another user's
    }
  });
}

async function attackFiles(sandbox: Sandbox): Promise<string> {
  const most = 2 * fileLimit;
  const { status, value, error } = await runPython(sandbox, manyFiles, {
    input: { most },
    limits: { files: fileLimit },
  });
  if (status === "disk_limit") return "";
  if (status !== "ok") return `the attack by many files ended: ${status} ${error ?? ""}`.trim();
  const over = Object.entries(value as Record<string, number>).filter(([, made]) => made >= most); // as above
  return over.map(([directory]) => `the number of files in ${directory}: is not bounded`).join("; ");
}

/** Attacks on memory that no limit of a process counts; how much was had beyond twice the limit, in words, or "". */
async function attackMemory(sandbox: Sandbox): Promise<string> {
  const words: Record<keyof typeof memoryAttacks, string> = {
    together: "several processes",
    channels: "buffers of sockets",
    pageTables: "page tables",
    memoryFiles: "memory files",
  };
  const found = Object.entries(words).map(async ([name, place]) => {
    const code = memoryAttacks[name as keyof typeof words]; // a key of it
    const { stdout } = await runPython(sandbox, code, { limits: { memoryMb } });
    const [, reached = "0"] = /(\d+) MB\s*$/.exec(stdout) ?? [];
    return Number(reached) > 2 * memoryMb ? [`${reached} MB in ${place}`] : [];
  });
  const had = (await Promise.all(found)).flat();
  return had.length === 0 ? "" : `memory is not bounded: ${had.join(", ")}, where ${memoryMb} MB may be`;
}
