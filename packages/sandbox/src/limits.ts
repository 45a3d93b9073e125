import type { SandboxLimits } from "./sandbox.ts";

/** What a run gets when it asks for nothing else. */
export const defaultLimits: Readonly<SandboxLimits> = {
  wallMs: 30_000,
  cpuSeconds: 30,
  memoryMb: 256,
  processes: 64,
  openFiles: 256,
  diskMb: 64,
  files: 4_096,
  outputBytes: 4 * 1024 * 1024,
  resultBytes: 1024 * 1024,
};

// With less no interpreter boots.
const lowest: Partial<SandboxLimits> = { memoryMb: 32, processes: 16, openFiles: 32, files: 64 };
// Beyond these a number is a mistake, and some of them would overflow what the kernel or a timer takes.
const highest: Readonly<SandboxLimits> = {
  wallMs: 86_400_000,
  cpuSeconds: 86_400,
  memoryMb: 1_048_576,
  processes: 32_768,
  openFiles: 1_048_576,
  diskMb: 1_048_576,
  files: 10_000_000,
  outputBytes: 1024 * 1024 * 1024,
  resultBytes: 64 * 1024 * 1024,
};

/** Completes limits with the defaults. Throws a RangeError that names what is not a whole number in range. */
export function limitsFrom(asked: Partial<SandboxLimits> | undefined, defaults = defaultLimits): SandboxLimits {
  const limits = { ...defaults, ...asked };
  for (const [name, value] of Object.entries(limits)) {
    if (!isLimit(name)) throw new RangeError(`limit ${JSON.stringify(name)} does not exist`);
    const [least, most] = [lowest[name] ?? 1, highest[name]];
    if (!Number.isInteger(value) || value < least || value > most) {
      throw new RangeError(`limit ${name} must be a whole number from ${least} to ${most}`);
    }
  }
  return limits;
}

function isLimit(name: string): name is keyof SandboxLimits {
  return Object.hasOwn(highest, name);
}

/** What the kernel holds a program to from its start on; the rest is watched from outside. */
export type KernelLimits = Omit<SandboxLimits, "wallMs" | "outputBytes" | "resultBytes">;

export function kernelLimits(limits: SandboxLimits): KernelLimits {
  const { cpuSeconds, memoryMb, processes, openFiles, diskMb, files } = limits;
  return { cpuSeconds, memoryMb, processes, openFiles, diskMb, files };
}
