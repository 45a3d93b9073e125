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

/** Runs inside. Gives "held" for each attack that failed, otherwise what it got. */
export const probeCode = `
const fs = require("node:fs"), net = require("node:net"), { spawn, spawnSync } = require("node:child_process");
const outcome = {};
const attack = async (name, work) => {
  try { outcome[name] = (await work()) ?? "held"; } catch { outcome[name] = "held"; }
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
await attack("a file of the host", () => fs.readFileSync(input.secret) && "was read");
await attack("writing beside it", () => { fs.writeFileSync(input.secret + ".new", "x"); return "was possible"; });
if (!isApart) await attack("the runner's environment", () => fs.readFileSync("/proc/" + input.pid + "/environ") && "was read");
if (!isApart) await attack("the runner's memory", () => fs.openSync("/proc/" + input.pid + "/mem", "r") && "was opened");
if (!isApart) await attack("the runner", () => process.kill(input.pid, 0) && "can be signalled");
await attack("a service on loopback", () => connects({ port: input.port, host: "127.0.0.1" }));
await attack("an abstract socket", () => connects(input.abstractName));
await attack("a socket at a path", () => connects(input.socketPath));
await attack("a namespace of its own", () => spawnSync("/usr/bin/unshare", ["-Ur", "/bin/true"]).status === 0 && "was made" || "held");
await attack("its environment", () => {
  const names = Object.keys(process.env).filter((name) => /KEY|TOKEN|SECRET|REDIS|DATABASE|PASS/i.test(name));
  return names.length > 0 ? "holds " + names.join() : "held";
});
await attack("an inherited descriptor", () => {
  const open = fs.readdirSync("/proc/self/fd").map(Number).filter((fd) => fd > 3);
  const foreign = open.filter((fd) => { try { return /^\\/|^socket/.test(fs.readlinkSync("/proc/self/fd/" + fd)) && fs.fstatSync(fd).isFile(); } catch { return false; } });
  return foreign.length > 0 ? "is open: " + foreign.join() : "held";
});
await attack("the limit of descriptors", () => {
  const opened = [];
  try { for (let i = 0; i < input.openFiles + 10; i += 1) opened.push(fs.openSync("/dev/null")); }
  finally { for (const fd of opened) fs.closeSync(fd); }
  return "does not hold";
});
await attack("the limit of a file", () => {
  fs.writeFileSync("large", "");
  fs.truncateSync("large", (input.diskMb + 1) * 1048576); // takes no room: only the limit can refuse it
  return "does not hold";
});
await attack("the limit of processes", async () => {
  const children = [];
  for (let i = 0; i < input.started; i += 1) children.push(spawn("/bin/sleep", ["20"], { stdio: "ignore" }).on("error", () => {}));
  const running = children.filter(({ pid }) => pid !== undefined);
  for (const child of running) child.kill("SIGKILL");
  return running.length >= input.processes ? running.length + " were started where " + input.processes + " may be" : "held";
});
return outcome;
`;
