import type { SandboxLimits } from "./sandbox.ts";

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
