import { once } from "node:events";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { chmod, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import {
  deadline,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import {
  allUserAttacks,
  manyFiles,
  memoryAttacks,
  memoryEnds,
  type UserAttackAim,
} from "./probe-attacks.ts";
import type { Sandbox, SandboxLimits, SandboxResult, TierFinding } from "./sandbox.ts";

export interface ProbeOptions {
  /** Where the files are made that the attacks aim at. */
  directory: string;
  /** Whether there is a Python for programs: without it most of the attacks cannot be made. */
  hasPython: boolean;
  /** Whether a tier is good enough in which a program gets far more memory than its limit. */
  allowUnboundedMemory: boolean;
  /** Those of the machine if absent. */
  clock?: Clock;
  random?: Random;
}

const limits = { processes: 24, diskMb: 16, openFiles: 200 };
const memoryMb = 64;
const fileLimit = 256;
const started = 40;
/** Time that the attacks get, ms: where it was too little to decide anything, they are made again with more. */
const turnsMs = [10_000, 30_000, 90_000];
/** Time on top for a place and an interpreter. */
const patienceMs = 60_000;

/** What an attack has shown: that it was refused, what it got, or nothing. */
type Outcome = { end: "held" } | { end: "out"; got: string } | { end: "unclear"; why: string };

const held: Outcome = { end: "held" };

/**
 * Lets programs inside try to get out, in the situation in which this process is right now: that a
 * launcher is installed, or a kernel new enough, proves nothing. Nor does an attack that ran out of
 * time or failed for want of something else: it is repeated, and a tier that is not decided then does
 * not hold.
 */
export async function attackTier(sandbox: Sandbox, options: ProbeOptions): Promise<TierFinding> {
  const { tier } = sandbox;
  const { clock = systemClock } = options;
  const place = await mkdtemp(join(options.directory, "probe-"));
  const mark = (options.random ?? systemRandom).id();
  try {
    const reason = await decided(
      clock,
      async (turn) => await attackAsStranger(sandbox, place, turn),
    );
    if (reason !== "") return { tier, holds: false, reason };
    if (!options.hasPython) {
      return {
        tier,
        holds: false,
        reason: `${unproved}the attacks need Python 3, and there is none`,
      };
    }
    const had = await decided(
      clock,
      async (turn) => await attackAsUser(sandbox, place, turn, mark),
    );
    if (had !== "") return { tier, holds: false, reason: had };
    const memory = await attackMemory(sandbox, clock);
    if (memory !== "" && !options.allowUnboundedMemory) {
      return { tier, holds: false, reason: memory };
    }
    const files = await decided(clock, async (turn) => await attackFiles(sandbox, turn));
    return files === ""
      ? { tier, holds: true, reason: memory }
      : { tier, holds: false, reason: files };
  } finally {
    await rm(place, { recursive: true, force: true });
  }
}

/** The time of one try: of the program, and of all that it needs. */
interface Turn {
  wallMs: number;
  signal: AbortSignal;
}

function turnOf(clock: Clock, wallMs: number): Turn {
  return { wallMs, signal: deadline(clock, wallMs + patienceMs) };
}

const unproved = "it cannot be proved: ";

/** What got through, in words; that nothing was proved; or "". */
async function decided(clock: Clock, attack: (turn: Turn) => Promise<Outcome>): Promise<string> {
  let why = "";
  for (const wallMs of turnsMs) {
    const outcome = await attack(turnOf(clock, wallMs));
    if (outcome.end === "held") return "";
    if (outcome.end === "out") return outcome.got;
    ({ why } = outcome);
  }
  return `${unproved}${why}`;
}

/** Why a run says nothing about what holds. */
function unclear(what: string, { status, error = "", stderr }: SandboxResult): Outcome {
  return {
    end: "unclear",
    why: `${what}: ${status} ${error} ${stderr.split("\n")[0] ?? ""}`.trim(),
  };
}

const processLimit = "the limit of processes";
const rootHint =
  " (only a control group holds root to it: make one writable, or run as another user)";

/** Attacks that any program can make. */
async function attackAsStranger(
  sandbox: Sandbox,
  place: string,
  { wallMs, signal }: Turn,
): Promise<Outcome> {
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
    const pidNamespace = ownNamespace("pid");
    const targets = {
      secret,
      pid: process.pid,
      pidNamespace,
      port,
      abstractName,
      socketPath,
      started,
      ...limits,
    };
    const result = await sandbox.run({
      program: { runtime: "node", code: probeCode, input: targets satisfies ProbeTargets },
      limits: { ...limits, wallMs },
      signal,
    });
    if (result.status !== "ok") return unclear("it does not start here", result);
    const hint = process.getuid?.() === 0 ? rootHint : "";
    const outcome = Object.entries(result.value as Record<string, string>) // our own code gave it, as far as the tier holds
      .filter(([, end]) => end !== "held")
      .map(([name, end]) => `${name}: ${end}${name === processLimit ? hint : ""}`);
    const got = outcome.filter((words) => !words.includes(`: ${unclearMark}`));
    if (got.length > 0) return { end: "out", got: got.join("; ") };
    return outcome.length > 0 ? { end: "unclear", why: outcome.join("; ") } : held;
  } finally {
    for (const server of servers) server.close();
  }
}

async function listening(address: string | number): Promise<Server> {
  const server = createServer((socket) => socket.on("error", () => {}).end());
  server.listen(
    typeof address === "number" ? { port: address, host: "127.0.0.1" } : { path: address },
  );
  await once(server, "listening");
  return server;
}

interface PythonRun extends Turn {
  input?: unknown;
  env?: Record<string, string>;
  limits?: Partial<SandboxLimits>;
}

async function runPython(sandbox: Sandbox, code: string, run: PythonRun): Promise<SandboxResult> {
  const { wallMs, signal, input = null, env = {} } = run;
  return await sandbox.run({
    program: { runtime: "python", code, input },
    limits: { ...limits, ...run.limits, wallMs },
    env,
    signal,
  });
}

/** Attacks on what this process's user may do. */
async function attackAsUser(
  sandbox: Sandbox,
  place: string,
  turn: Turn,
  mark: string,
): Promise<Outcome> {
  const own = join(place, "own.txt");
  const link = join(place, "own.link");
  await writeFile(own, "own");
  await rm(link, { force: true });
  await symlink(own, link);
  const aim: UserAttackAim = {
    runner: process.pid,
    pidNamespace: ownNamespace("pid"),
    userNamespace: ownNamespace("user"),
    networkNamespace: ownNamespace("net"),
    outside: place,
    freeName: `larkline-probe-${mark}`,
  };
  const before = limitsOfThisProcess();
  const result = await runPython(sandbox, allUserAttacks, {
    ...turn,
    input: aim,
    env: { LARKLINE_PROBE: mark },
  });
  const names = Array.isArray(result.value) ? result.value.map(String) : [];
  const got = [
    ...names.map((name) => `${name}: was had`),
    ...(limitsOfThisProcess() === before ? [] : ["the limits of the runner: were changed"]),
    ...(hasProcessWith(`LARKLINE_PROBE=${mark}`) ? ["a daemon: lives on"] : []),
  ];
  if (got.length > 0) return { end: "out", got: got.join("; ") };
  return result.status === "ok" ? held : unclear("the attacks of its own user ended", result);
}

function ownNamespace(kind: "pid" | "user" | "net"): string {
  return readlinkSync(`/proc/self/ns/${kind}`);
}

function limitsOfThisProcess(): string {
  return readFileSync("/proc/self/limits", "latin1");
}

function hasProcessWith(variable: string): boolean {
  return readdirSync("/proc").some((name) => {
    try {
      return (
        /^\d+$/.test(name) && readFileSync(`/proc/${name}/environ`, "latin1").includes(variable)
      );
    } catch {
      return false; // it has ended, or is another user's
    }
  });
}

async function attackFiles(sandbox: Sandbox, turn: Turn): Promise<Outcome> {
  const most = 2 * fileLimit;
  const result = await runPython(sandbox, manyFiles, {
    ...turn,
    input: { most },
    limits: { files: fileLimit },
  });
  if (result.status === "disk_limit") return held;
  if (result.status !== "ok") return unclear("the attack by many files ended", result);
  const over = Object.entries(result.value as Record<string, number>).filter(
    ([, made]) => made >= most,
  ); // as above
  if (over.length === 0) return held;
  return {
    end: "out",
    got: over
      .map(([directory]) => `the number of files in ${directory}: is not bounded`)
      .join("; "),
  };
}

type MemoryAttack = keyof typeof memoryAttacks;

const memoryPlaces: readonly (readonly [attack: MemoryAttack, place: string])[] = [
  ["together", "several processes"],
  ["channels", "buffers of sockets"],
  ["pageTables", "page tables"],
  ["memoryFiles", "memory files"],
];

/** Attacks on memory that no limit of a process counts: what was had beyond twice the limit, in words; that nothing was proved; or "". */
async function attackMemory(sandbox: Sandbox, clock: Clock): Promise<string> {
  const had: string[] = [];
  // One after the other: the kernel counts the processes of all of them together, and would refuse some.
  for (const [attack, place] of memoryPlaces) {
    const attackOnce = async () =>
      await decided(clock, async (turn) => await attackMemoryBy(sandbox, { attack, place, turn }));
    const first = await attackOnce();
    // What watches memory looks every few milliseconds, and may be late once where the machine has too much to do.
    const words = first === "" || first.startsWith(unproved) ? first : await attackOnce();
    if (words.startsWith(unproved)) return words;
    if (words !== "") had.push(words);
  }
  return had.length === 0
    ? ""
    : `memory is not bounded: ${had.join(", ")}, where ${memoryMb} MB may be`;
}

async function attackMemoryBy(
  sandbox: Sandbox,
  { attack, place, turn }: { attack: MemoryAttack; place: string; turn: Turn },
): Promise<Outcome> {
  const enoughMb = 2 * memoryMb;
  const run = { ...turn, input: { enoughMb }, limits: { memoryMb, processes: 64 } };
  const result = await runPython(sandbox, memoryAttacks[attack], run);
  const [, reached = "0"] = /(\d+) MB\s*$/.exec(result.stdout) ?? [];
  if (Number(reached) > enoughMb) return { end: "out", got: `${reached} MB in ${place}` };
  if (result.status === "oom") return held;
  const what = `the attack on memory by ${place} ended`;
  if (result.status !== "ok" || !Array.isArray(result.value)) return unclear(what, result);
  const ends = result.value.map(String); // as above
  return ends.every((end) => memoryEnds.has(end))
    ? held
    : { end: "unclear", why: `${what}: ${ends.join(", ")}` };
}

/* ---- The code of attacks ---- */

/** What the attack aims at. */
export interface ProbeTargets extends Partial<SandboxLimits> {
  /** A file that everybody may read. */
  secret: string;
  pid: number;
  /** Its namespace of processes, as a link in `/proc` shows it. */
  pidNamespace: string;
  /** Listeners: on loopback, with an abstract name, at a path that everybody can reach. */
  port: number;
  abstractName: string;
  socketPath: string;
  /** Processes to start, more than are allowed. */
  started: number;
}

/** How the outcome of an attack begins that neither got through nor was refused. */
export const unclearMark = "unclear: ";

/**
 * Runs inside. Gives "held" for each attack that the kernel refused, `unclear: ...` for one that failed for
 * another reason, and otherwise what it got.
 */
export const probeCode = `
const fs = require("node:fs"), net = require("node:net"), { spawn, spawnSync } = require("node:child_process");
const outcome = {};
const noAccess = ["EACCES", "EPERM", "ENOENT", "ENOTDIR", "EROFS", "ESRCH", "ENOSYS"];
const noSocket = [...noAccess, "EAFNOSUPPORT", "ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL"];
const attack = async (name, refusals, work) => {
  try { outcome[name] = (await work()) ?? "held"; }
  catch (error) { outcome[name] = refusals.includes(error.code) ? "held" : "${unclearMark}" + (error.code ?? error.message); }
};
const connects = (target) => new Promise((resolve, reject) => {
  const socket = net.connect(target, () => { socket.destroy(); resolve("was connected to"); });
  socket.on("error", reject);
});
// In a namespace of processes a number of the host means nothing, or a process inside.
let isApart = false;
try { isApart = fs.readlinkSync("/proc/self/ns/pid") !== input.pidNamespace && fs.existsSync("/proc/" + input.pid); } catch {}
fs.writeFileSync("probe.txt", "x");
outcome["its own directory"] = fs.readFileSync("probe.txt", "utf8") === "x" ? "held" : "cannot be used";
await attack("a file of the host", noAccess, () => fs.readFileSync(input.secret) && "was read");
await attack("writing beside it", noAccess, () => { fs.writeFileSync(input.secret + ".new", "x"); return "was possible"; });
if (!isApart) await attack("the runner's environment", noAccess, () => fs.readFileSync("/proc/" + input.pid + "/environ") && "was read");
if (!isApart) await attack("the runner's memory", noAccess, () => fs.openSync("/proc/" + input.pid + "/mem", "r") && "was opened");
if (!isApart) await attack("the runner", noAccess, () => process.kill(input.pid, 0) && "can be signalled");
await attack("a service on loopback", noSocket, () => connects({ port: input.port, host: "127.0.0.1" }));
await attack("an abstract socket", noSocket, () => connects(input.abstractName));
await attack("a socket at a path", noSocket, () => connects(input.socketPath));
await attack("a namespace of its own", noAccess, () => {
  const { status, signal, error } = spawnSync("/usr/bin/unshare", ["-Ur", "/bin/true"]);
  if (error !== undefined) throw error;
  if (status === null) throw new Error(signal);
  return status === 0 ? "was made" : "held";
});
await attack("its environment", [], () => {
  const names = Object.keys(process.env).filter((name) => /KEY|TOKEN|SECRET|REDIS|DATABASE|PASS/i.test(name));
  return names.length > 0 ? "holds " + names.join() : "held";
});
await attack("an inherited descriptor", [], () => {
  const foreign = [];
  for (let fd = 4; fd < 1024; fd += 1) {
    try { if (fs.fstatSync(fd).isFile()) foreign.push(fd); } catch (error) { if (error.code !== "EBADF") throw error; }
  }
  return foreign.length > 0 ? "is open: " + foreign.join() : "held";
});
await attack("the limit of descriptors", ["EMFILE"], () => {
  const opened = [];
  try { for (let i = 0; i < input.openFiles + 10; i += 1) opened.push(fs.openSync("/dev/null")); }
  finally { for (const fd of opened) fs.closeSync(fd); }
  return "does not hold";
});
await attack("the limit of a file", ["EFBIG", "ENOSPC"], () => {
  fs.writeFileSync("large", "");
  fs.truncateSync("large", (input.diskMb + 1) * 1048576); // takes no room: only the limit can refuse it
  return "does not hold";
});
await attack("the limit of processes", ["EAGAIN"], async () => {
  const children = [], failures = [];
  for (let i = 0; i < input.started; i += 1) {
    children.push(spawn("/bin/sleep", ["600"], { stdio: "ignore" }).on("error", (error) => failures.push(error)));
  }
  await new Promise((resolve) => setImmediate(resolve));
  const running = children.filter(({ pid }) => pid !== undefined);
  for (const child of running) child.kill("SIGKILL");
  if (running.length >= input.processes) return running.length + " were started where " + input.processes + " may be";
  throw failures.find(({ code }) => code !== "EAGAIN") ?? failures[0];
});
return outcome;
`;
