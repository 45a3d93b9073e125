import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { probeCode, type ProbeTargets } from "./probe-code.ts";
import type { Sandbox, SandboxLimits, TierFinding } from "./sandbox.ts";

const limits: Partial<SandboxLimits> = { wallMs: 10_000, processes: 24, diskMb: 16, openFiles: 200 };
const started = 40;

async function listening(address: string | number): Promise<Server> {
  const server = createServer((socket) => socket.on("error", () => {}).end());
  server.listen(typeof address === "number" ? { port: address, host: "127.0.0.1" } : { path: address });
  await once(server, "listening");
  return server;
}

const processLimit = "the limit of processes";
const rootHint = " (only a control group holds root to it: make one writable, or run as another user)";

/** Attacks that got through, in words; empty when the tier holds. */
async function attack(sandbox: Sandbox, targets: ProbeTargets): Promise<string> {
  const { status, value, error, stderr } = await sandbox.run({
    program: { runtime: "node", code: probeCode, input: targets },
    limits,
    signal: AbortSignal.timeout(30_000),
  });
  if (status !== "ok") return `it does not start here: ${error} ${stderr.split("\n")[0] ?? ""}`.trim();
  const hint = process.getuid?.() === 0 ? rootHint : "";
  const outcome = Object.entries(value as Record<string, string>); // our own code gave it, as far as the tier holds
  return outcome
    .filter(([, result]) => result !== "held")
    .map(([name, result]) => `${name}: ${result}${name === processLimit ? hint : ""}`)
    .join("; ");
}

/**
 * Lets a program inside try to get out, in the situation in which this process is right now: that a
 * launcher is installed, or a kernel new enough, proves nothing.
 */
export async function attackTier(sandbox: Sandbox, directory: string): Promise<TierFinding> {
  const place = await mkdtemp(join(directory, "probe-"));
  await chmod(place, 0o777); // no other right may be what keeps the program out
  const secret = join(place, "secret");
  await writeFile(secret, "secret");
  await chmod(secret, 0o666);
  const abstractName = `\0larkline-probe-${process.pid}-${place}`;
  const socketPath = join(place, "listener.sock");
  const servers = await Promise.all([0, abstractName, socketPath].map(listening));
  await chmod(socketPath, 0o777);
  const address = servers[0]?.address();
  const port = typeof address === "object" ? (address?.port ?? 0) : 0;
  try {
    const pid = process.pid;
    const reason = await attack(sandbox, { secret, pid, port, abstractName, socketPath, started, ...limits });
    return { tier: sandbox.tier, holds: reason === "", reason };
  } finally {
    for (const server of servers) server.close();
    await rm(place, { recursive: true, force: true });
  }
}
