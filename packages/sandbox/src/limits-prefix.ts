import { dataMb, type Launch } from "./launch.ts";
import type { Slot } from "./slot.ts";
import { ownTasks } from "./user-processes.ts";

/** Processes that the limit of the kernel has to allow. It counts all of a user, so those of this process's own user come on top. */
export async function taskLimit(launch: Launch, slot: Slot): Promise<number> {
  const others = slot.user === undefined ? await ownTasks() : 0;
  return others + launch.limits.processes;
}

function quoted(path: string): string {
  return `'${path.replaceAll("'", `'\\''`)}'`;
}

/**
 * A shell that gives up the descriptors this process has itself inherited (Node passes them on),
 * enters the control group, takes its limits and becomes what follows.
 */
export async function limitsPrefix(launch: Launch, slot: Slot): Promise<string[]> {
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
    `ulimit -d ${dataMb(launch, slot) * 1_024} 2>/dev/null`,
    `ulimit -u ${await taskLimit(launch, slot)} 2>/dev/null`,
    'exec "$@"',
  ].join("\n");
  return ["--noprofile", "--norc", "-c", script, "sh"];
}
