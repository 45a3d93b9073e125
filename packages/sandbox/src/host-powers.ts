import { chownSync, readFileSync } from "node:fs";

/** What this process may do for its sandboxes. */
export interface HostPowers {
  /** Whether programs can run as users of their own. */
  ownUsers: boolean;
  /** Whether working directories can be file systems of their own, with an exact size. */
  mounts: boolean;
}

const capability = { chown: 0, dacOverride: 1, fowner: 3, kill: 5, setgid: 6, setuid: 7, sysAdmin: 21 };
const forUsers = [
  capability.chown,
  capability.dacOverride,
  capability.fowner,
  capability.kill,
  capability.setgid,
  capability.setuid,
];

/** Reads it from the kernel. */
export function hostPowers(): HostPowers {
  const effective = /^CapEff:\s+([0-9a-f]+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  const held = BigInt(`0x${effective}`);
  const holds = (bit: number): boolean => ((held >> BigInt(bit)) & 1n) === 1n;
  return { ownUsers: forUsers.every(holds), mounts: holds(capability.sysAdmin) };
}

/** Users per instance. */
export const usersPerInstance = 256;

// The first range is free on every Linux by convention; in a container with few users, the second one is.
const ranges = [
  { first: 1_900_000_000, instances: 1_000 },
  { first: 40_000, instances: 80 },
];

/** How many instances can have users of their own, and the first user of each; undefined where users cannot be given away. */
export function userRange(
  proofDirectory: string,
): { instances: number; firstUser(instance: number): number } | undefined {
  for (const { first, instances } of ranges) {
    try {
      const last = first + instances * usersPerInstance - 1;
      chownSync(proofDirectory, last, last);
      chownSync(proofDirectory, process.getuid?.() ?? 0, process.getgid?.() ?? 0);
      return { instances, firstUser: (instance) => first + instance * usersPerInstance };
    } catch {
      // Not mapped here.
    }
  }
  return undefined;
}
