import { join } from "node:path";
import { reservedMbOf, type Launch } from "./launch.ts";
import type { KernelLimits } from "./limits.ts";
import type { SandboxProgram } from "./sandbox.ts";

/** What a sandbox can do before it is known what for: load a module, in the environment of its runs. */
export interface Preparation {
  module: string;
  preparation: unknown;
  env: Readonly<Record<string, string>>;
}

/** What of a program is fixed before its run. Programs with the same one can use the same warm sandboxes. */
export interface GuestProfile {
  runtime: SandboxProgram["runtime"];
  readable: Launch["readable"];
  limits: KernelLimits;
  /** What the warm ones have done already; undefined: they have booted. */
  prepared: Preparation | undefined;
}

/** A text that is the same for the same profile only; `kernelLimits` gives limits an order. */
export function profileKey({ runtime, readable, limits, prepared }: GuestProfile): string {
  return JSON.stringify([runtime, readable, limits, prepared]);
}

// Outside its heap a program needs memory too.
const heapShare = 0.6;
const leastHeapMb = 32;

function command({ runtime, limits }: GuestProfile): Launch["command"] {
  const heapMb = Math.max(leastHeapMb, Math.floor(limits.memoryMb * heapShare));
  return ({ node, python, guest }) => {
    if (runtime === "python") return [python, "-I", "-B", "-u", join(guest, "python.py")];
    if (runtime === "bash") return ["/bin/bash", "--noprofile", "--norc", join(guest, "bash.sh")];
    return [
      node,
      `--max-old-space-size=${heapMb}`,
      "--max-semi-space-size=8",
      "--no-warnings",
      join(guest, "node.cjs"),
    ];
  };
}

/** The start of an interpreter that waits for its job. */
export function guestLaunch(profile: GuestProfile, egressSocket: string | undefined): Launch {
  return {
    command: command(profile),
    limits: profile.limits,
    hasControl: true,
    reservedMb: reservedMbOf(profile.runtime, egressSocket !== undefined),
    readable: profile.readable,
    egressSocket,
    env: {},
  };
}
