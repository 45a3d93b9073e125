import { fork } from "node:child_process";
import { createSocket } from "node:dgram";
import { lookup, Resolver } from "node:dns";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import process, { env } from "node:process";
import { Worker } from "node:worker_threads";
import { confine } from "./confinement.ts";

// A program that tries what a hostile file would want of the reading process, and tells its parent
// which attempts were stopped. Its argument is the port of a web server that answers.

const port = Number(process.argv[2]);

const attempts: Record<string, () => unknown> = {
  "read a file of the machine": () => readFileSync("/etc/hostname"),
  "list the checkout": () => readdirSync(new URL("../../../../", import.meta.url)),
  "read another package": () =>
    readFileSync(new URL("../../../../packages/store/package.json", import.meta.url)),
  "read the code of the worker": () => readFileSync(new URL("../main.ts", import.meta.url)),
  "write a file": () => writeFileSync("/tmp/attachments-probe", ""),
  "write into its own code": () => writeFileSync(new URL("probe.txt", import.meta.url), ""),
  "start a process": () => fork("x.js"),
  "start a thread": () => new Worker("1", { eval: true }),
  "run code from text": () => Function("return 1")(),
  "open a connection": () => connect(port, "127.0.0.1"),
  "write a file as a database": async () =>
    new (await import("node:sqlite")).DatabaseSync("/tmp/attachments-probe"),
  "signal another process": () => process.kill(process.ppid, 0),
  "wait for connections": () => createServer().listen(0),
  "look up a name": () => lookup("localhost", () => undefined),
  "look up a name elsewhere": () => new Resolver(),
  "send a datagram": () => createSocket("udp4").send("x", port, "127.0.0.1"),
};

async function stopped(attempt: () => unknown): Promise<boolean> {
  try {
    await attempt();
    return false;
  } catch {
    return true;
  }
}

confine();
const outcome: Record<string, boolean> = {};
for (const [what, attempt] of Object.entries(attempts)) outcome[what] = await stopped(attempt);
outcome["fetch a page"] = await stopped(async () => await fetch(`http://127.0.0.1:${port}/`));
process.send?.({ outcome, environment: Object.keys(env) });
