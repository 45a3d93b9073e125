import type { Readable, Writable } from "node:stream";
import type { Clock } from "@larkline/protocol/clock";
import type { EgressProxy } from "./egress.ts";
import { type GuestEnd, GuestProcess, supervisorEnds, watchDisk } from "./guest-process.ts";
import type { Views } from "./host.ts";
import { type Launch, reservedMbOf, type TierPlan } from "./launch.ts";
import { findReadable, problemOfEnv, problemOfNetwork } from "./run.ts";
import {
  defaultLimits,
  limitsFrom,
  type SandboxCommand,
  type SandboxLimits,
  type SandboxSession,
} from "./sandbox.ts";
import type { Slot, SlotStore } from "./slot.ts";

interface SessionHost {
  plan: TierPlan;
  store: SlotStore;
  views: Views;
  clock: Clock;
  openProxy(allow: readonly string[], slot: Slot): Promise<{ proxy: EgressProxy; socket: string }>;
}

/** A session, and the moment when its slot is free again. */
export interface LocalSession extends SandboxSession {
  readonly wiped: Promise<void>;
}

// A session lives for hours, so a long CPU time is no fault.
const sessionDefaults: SandboxLimits = { ...defaultLimits, cpuSeconds: 86_400, processes: 128 };

interface Checked {
  limits: SandboxLimits;
  readable: Launch["readable"];
}

async function checked(command: SandboxCommand, { plan, views }: SessionHost): Promise<Checked> {
  const { env = {}, network = "none" } = command;
  const problem = problemOfEnv(env) ?? problemOfNetwork(network, plan.hasNetwork);
  if (problem !== undefined) throw new Error(problem);
  const readable = await findReadable(command.readable, { views, hasOwnPaths: plan.hasOwnPaths });
  if (typeof readable === "string") throw new Error(readable);
  return { limits: limitsFrom(command.limits, sessionDefaults), readable };
}

interface Start extends Checked {
  slot: Slot;
  egressSocket: string | undefined;
}

async function start(
  { command, args, env = {} }: SandboxCommand,
  { plan, clock }: SessionHost,
  { slot, ...more }: Start,
): Promise<GuestProcess> {
  const launch: Launch = {
    command: () => [command, ...args],
    hasControl: false,
    reservedMb: reservedMbOf("node", true), // most servers are written for it, and any may be
    env,
    ...more,
  };
  return new GuestProcess(await plan.plan(launch, slot), slot, { clock, hasControl: false });
}

function words({ exitCode, signal, spawnError }: GuestEnd, reason: string | undefined): string {
  const limit = supervisorEnds[signal ?? ""];
  if (limit !== undefined) return `It used more ${limit} than it may, and was stopped.`;
  return (
    reason ??
    spawnError ??
    (signal === undefined ? `It ended with exit code ${exitCode}.` : `It was ended by ${signal}.`)
  );
}

/** Starts a command that lives on. Rejects with a reason for people when it cannot be started as asked. */
export async function openSession(
  command: SandboxCommand,
  host: SessionHost,
): Promise<LocalSession> {
  const { limits, readable } = await checked(command, host);
  const { clock } = host;
  const slot = await host.store.take(limits);
  let proxy: EgressProxy | undefined;
  let process: GuestProcess;
  try {
    const { network = "none" } = command;
    const opened = network === "none" ? undefined : await host.openProxy(network.allow, slot);
    proxy = opened?.proxy;
    process = await start(command, host, { slot, limits, readable, egressSocket: opened?.socket });
  } catch (error) {
    await proxy?.close();
    await host.store.giveBack(slot);
    throw error;
  }
  let reason: string | undefined;
  const stopWatching = process.isDiskWatched
    ? () => {}
    : watchDisk(clock, slot, limits.diskMb, () => {
        reason = `It wrote more than ${limits.diskMb} MB, or more than ${limits.files} files, and was stopped.`;
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
