import type { Readable, Writable } from "node:stream";
import { watchDisk } from "./disk-watch.ts";
import type { EgressProxy } from "./egress.ts";
import { GuestProcess, type GuestEnd } from "./guest-process.ts";
import { reservedMbOf, type TierPlan } from "./launch.ts";
import { defaultLimits, limitsFrom } from "./limits.ts";
import { problemOfEnv, problemOfNetwork, problemOfReadable } from "./request-check.ts";
import type { SandboxCommand, SandboxLimits, SandboxSession } from "./sandbox.ts";
import type { Slot, SlotStore } from "./slot.ts";

interface SessionHost {
  plan: TierPlan;
  store: SlotStore;
  openProxy(allow: readonly string[], slot: Slot): Promise<{ proxy: EgressProxy; socket: string }>;
}

/** A session, and the moment when its slot is free again. */
export interface LocalSession extends SandboxSession {
  readonly wiped: Promise<void>;
}

// A session lives for hours: its time is no sign of a fault.
const sessionDefaults: SandboxLimits = { ...defaultLimits, cpuSeconds: 86_400, processes: 128 };

async function checkedLimits(command: SandboxCommand, plan: TierPlan): Promise<SandboxLimits> {
  const { env = {}, network = "none", readable } = command;
  const problem =
    problemOfEnv(env) ?? problemOfNetwork(network, plan.hasNetwork) ?? (await problemOfReadable(readable));
  if (problem !== undefined) throw new Error(problem);
  return limitsFrom(command.limits, sessionDefaults);
}

async function start(
  command: SandboxCommand,
  {
    host,
    slot,
    limits,
    egressSocket,
  }: { host: SessionHost; slot: Slot; limits: SandboxLimits; egressSocket: string | undefined },
): Promise<GuestProcess> {
  const plan = await host.plan.plan(
    {
      command: () => [command.command, ...command.args],
      limits,
      hasControl: false,
      reservedMb: reservedMbOf("node", true), // most servers are written for it, and any may be
      readable: command.readable,
      egressSocket,
      env: command.env ?? {},
    },
    slot,
  );
  return new GuestProcess(plan, slot, false);
}

function words({ exitCode, signal, spawnError }: GuestEnd, reason: string | undefined): string {
  return (
    reason ??
    spawnError ??
    (signal === undefined ? `It ended with exit code ${exitCode}.` : `It was ended by ${signal}.`)
  );
}

/** Starts a command that lives on. Rejects with words when it cannot be started as asked. */
export async function openSession(command: SandboxCommand, host: SessionHost): Promise<LocalSession> {
  const limits = await checkedLimits(command, host.plan);
  const slot = await host.store.take(limits);
  let proxy: EgressProxy | undefined;
  let process: GuestProcess;
  try {
    const { network = "none" } = command;
    const opened = network === "none" ? undefined : await host.openProxy(network.allow, slot);
    proxy = opened?.proxy;
    process = await start(command, { host, slot, limits, egressSocket: opened?.socket });
  } catch (error) {
    await proxy?.close();
    await host.store.giveBack(slot);
    throw error;
  }
  let reason: string | undefined;
  const stopWatching = watchDisk(slot, limits.diskMb, () => {
    reason = `It wrote more than ${limits.diskMb} MB, or more than 4096 files, and was stopped.`;
    process.kill();
  });
  const wipe = async (): Promise<void> => {
    const { isStuck } = await process.ended;
    stopWatching();
    await proxy?.close();
    await (isStuck ? host.store.discard(slot) : host.store.giveBack(slot));
  };
  const wiped = wipe();
  return {
    stdin: process.stdin as Writable, // open, because there is no control channel
    stdout: process.stdout satisfies Readable,
    stderr: process.stderr satisfies Readable,
    ended: process.ended.then((end) => words(end, reason)),
    wiped,
    close: async () => {
      reason ??= "It was closed.";
      process.kill();
      await wiped;
    },
  };
}
