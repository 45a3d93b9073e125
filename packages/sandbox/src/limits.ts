import type { SandboxLimits } from "./sandbox.ts";

/** What a run gets when it asks for nothing else. */
export const defaultLimits: Readonly<SandboxLimits> = {
  wallMs: 30_000,
  cpuSeconds: 30,
  memoryMb: 256,
  processes: 64,
  openFiles: 256,
  diskMb: 64,
  outputBytes: 4 * 1024 * 1024,
  resultBytes: 1024 * 1024,
};

// Beyond these a number is a mistake, and some of them would overflow what the kernel or a timer takes.
const highest: Readonly<SandboxLimits> = {
  wallMs: 86_400_000,
  cpuSeconds: 86_400,
  memoryMb: 1_048_576,
  processes: 32_768,
  openFiles: 1_048_576,
  diskMb: 1_048_576,
  outputBytes: 1024 * 1024 * 1024,
  resultBytes: 64 * 1024 * 1024,
};

/** Completes limits with the defaults. Throws a RangeError that names what is not a whole number in range. */
export function limitsFrom(asked: Partial<SandboxLimits> | undefined, defaults = defaultLimits): SandboxLimits {
  const limits = { ...defaults, ...asked };
  for (const [name, value] of Object.entries(limits)) {
    const most = Object.entries(highest).find(([known]) => known === name)?.[1];
    if (most === undefined) throw new RangeError(`limit ${JSON.stringify(name)} does not exist`);
    if (!Number.isInteger(value) || value < 1 || value > most) {
      throw new RangeError(`limit ${name} must be a whole number from 1 to ${most}`);
    }
  }
  return limits;
}
