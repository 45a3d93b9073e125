import { spawn } from "node:child_process";
import { closeSync, openSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { signalGroup } from "./command.mjs";
import { home, logDirectory, nodeProgram } from "./paths.mjs";
import { until } from "./process.mjs";
import { text } from "./texts.mjs";

const loud = new Set(["warn", "error"]);
const plumbing = new Set(["level", "time", "service", "pid", "msg", "error"]);

/** A log line as people read it; null for one that only belongs in the file. */
function readable(line) {
  let entry;
  try {
    entry = JSON.parse(line);
  } catch {
    return line.trim() === "" ? null : line;
  }
  if (typeof entry !== "object" || entry === null || !loud.has(entry.level)) return null;
  const facts = Object.entries(entry).filter(([name]) => !plumbing.has(name));
  const reason = entry.error?.message ?? entry.error;
  const words = [
    entry.level,
    entry.msg,
    reason,
    ...facts.map(([name, value]) => `${name}=${JSON.stringify(value)}`),
  ];
  return words.filter((word) => word !== undefined && word !== "").join("  ");
}

/**
 * The log file of a service. A line that cannot be written (the disk is full) is dropped: `onLine` reports the
 * first one, and how many were lost once there is room again. Never throws, keeps nothing in memory.
 */
function openLog(name, onLine) {
  let file;
  let lost = 0;
  return {
    write(line) {
      try {
        file ??= openSync(join(logDirectory, `${name}.log`), "a");
        writeSync(file, `${line}\n`);
      } catch (error) {
        if (lost === 0) onLine(text("logUnwritable", name, error.code ?? error.message));
        lost += 1;
        return;
      }
      if (lost > 0) onLine(text("logWritable", name, lost));
      lost = 0;
    },
    close() {
      try {
        if (file !== undefined) closeSync(file);
      } catch {
        // Some file systems report a full disk only now; the lines are lost all the same.
      }
      file = undefined;
    },
  };
}

/**
 * Starts one of our processes: everything it writes goes to its log file, warnings and errors to
 * `onLine` too. The IPC channel lets it notice when we are gone.
 */
export function startService({ name, args, env, onLine }) {
  // Type stripping in the playground is an experiment of Node's; a person can do nothing about it.
  // V8 would let the space of young objects grow to 3 x 64 MB in each process and keep it, most of it empty. The images
  // (infra/docker/Dockerfile) give more than a start on one machine, for the same work at a higher load.
  const flags = ["--disable-warning=ExperimentalWarning", "--max-semi-space-size=2"];
  const child = spawn(nodeProgram(), [...flags, ...args], {
    cwd: home,
    env,
    detached: true,
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  const log = openLog(name, onLine);
  const readers = [child.stdout, child.stderr].map((stream) => {
    const lines = createInterface({ input: stream });
    lines.on("line", (line) => {
      log.write(line);
      const words = readable(line);
      if (words !== null) onLine(`[${name}] ${words}`);
    });
    return new Promise((resolve) => lines.once("close", resolve));
  });
  child.on("error", () => {});
  let isUp = false;
  child.on("message", (message) => (isUp ||= message === "running"));
  const ended = new Promise((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("exit", (code, signal) => resolve(signal ?? code));
  });
  const drained = Promise.race([
    Promise.all(readers),
    ended.then(() => new Promise((resolve) => setTimeout(resolve, 500))),
  ]);
  const exited = ended.then(async (how) => {
    await drained;
    log.close();
    return how;
  });
  return { name, child, exited, isUp: () => isUp };
}

// `import` of it would load the client behind `fetch`, too.
const { get } = createRequire(import.meta.url)("node:http");

async function answersReady(url, signal) {
  return await new Promise((resolve) => {
    const limits = AbortSignal.any([signal, AbortSignal.timeout(2_500)]);
    const request = get(url, { signal: limits, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    request.once("error", () => resolve(false));
  });
}

/**
 * Whether the service has said that it runs and answers `GET /ready` with 200, within the deadline;
 * gives up when `signal` aborts.
 */
export async function untilReady(service, { url, deadlineMs, signal }) {
  const ready = async () => signal.aborted || (service.isUp() && (await answersReady(url, signal)));
  return (await until(ready, { deadlineMs })) && !signal.aborted;
}

/** SIGTERM, then SIGKILL after the grace time, to the process and whatever it started. */
export async function stopService(service, graceMs) {
  signalGroup(service.child, "SIGTERM");
  const timer = setTimeout(() => signalGroup(service.child, "SIGKILL"), graceMs);
  await service.exited;
  clearTimeout(timer);
  signalGroup(service.child, "SIGKILL");
}
