import { chownSync } from "node:fs";

// The users that programs run as: each instance has a range of its own.

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
