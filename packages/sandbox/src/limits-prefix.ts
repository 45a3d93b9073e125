import { release } from "node:os";
import { addressMb, dataMb, type Launch } from "./launch.ts";
import type { Slot } from "./slot.ts";
import { ownTasks } from "./user-processes.ts";

/** Processes that the limit of the kernel has to allow. It counts all of a user, so those of this process's own user come on top. */
async function taskLimit(launch: Launch, slot: Slot): Promise<number> {
  const others = slot.user === undefined ? await ownTasks() : 0;
  return others + launch.limits.processes;
}

function quoted(path: string): string {
  return `'${path.replaceAll("'", `'\\''`)}'`;
}

/** Since Linux 5.14 a user namespace counts the processes in it for itself. */
const [major = 0, minor = 0] = release().split(".").map(Number);
const countsInNamespaces = major > 5 || (major === 5 && minor >= 14);

/**
 * For the inside of a user namespace that has no user of its own: limits the processes there exactly,
 * whatever else runs as this user, which a limit set outside would count as well.
 */
export function taskLimitInside({ limits }: Launch, slot: Slot): string[] {
  if (slot.user !== undefined || !countsInNamespaces) return [];
  return ["/bin/bash", "--noprofile", "--norc", "-c", `ulimit -u ${limits.processes} && exec "$@"`, "bash"];
}

/**
 * A shell that gives up the descriptors this process has itself inherited (Node passes them on),
 * enters the control group, takes its limits and becomes what follows. What follows may limit the
 * processes itself, in a namespace.
 */
export async function limitsPrefix(launch: Launch, slot: Slot, limitedInside = false): Promise<string[]> {
  const { limits } = launch;
  const enter = (slot.group?.entryFiles ?? []).map((file) => `echo 0 > ${quoted(file)} || exit 71`);
  const script = [
    'for f in /proc/self/fd/*; do n=${f##*/}; [ "$n" -gt 6 ] && eval "exec $n>&-"; done',
    ...enter,
    "ulimit -c 0",
    // A limit that cannot be set is already lower.
    `ulimit -n ${limits.openFiles} 2>/dev/null`,
    `ulimit -f ${limits.diskMb * 1_024} 2>/dev/null`,
    `ulimit -t ${limits.cpuSeconds} 2>/dev/null`,
    `ulimit -v ${addressMb * 1_024} 2>/dev/null`,
    `ulimit -d ${dataMb(launch, slot) * 1_024} 2>/dev/null`,
    ...(limitedInside ? [] : [`ulimit -u ${await taskLimit(launch, slot)} 2>/dev/null`]),
    'exec "$@"',
  ].join("\n");
  return ["--noprofile", "--norc", "-c", script, "sh"];
}
