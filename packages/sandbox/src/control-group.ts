import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { readdir, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { type Clock, pause } from "@larkline/protocol/clock";

/** What bounds and finds everything that one run starts. */
export interface ControlGroup {
  /** A process that writes "0" to each of these is in, with all it starts. */
  readonly entryFiles: readonly string[];
  /** Sets the bounds of the next run and starts its measurements. */
  bound(limits: { memoryMb: number; processes: number }): void;
  /** Sends SIGKILL to all that are in. */
  kill(): void;
  isEmpty(): boolean;
  /** Processes killed for memory so far. */
  memoryKills(): number;
  peakBytes(): number | undefined;
  /** CPU time of the run, ms, where the kernel counts it. */
  cpuMs(): number | undefined;
  /** Removes it when nothing is in it any more; gives up after a second. */
  remove(): Promise<void>;
}

/** Where groups can be made on this host. */
export interface ControlGroups {
  create(name: string): ControlGroup;
}

const mount = "/sys/fs/cgroup";

function text(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

function attempt(work: () => void): void {
  try {
    work();
  } catch {
    // Not every kernel has the file; what must work is not done through here.
  }
}

function processIds(directories: readonly string[]): number[] {
  const ids = directories.flatMap((directory) =>
    text(join(directory, "cgroup.procs")).split("\n").filter(Boolean),
  );
  return [...new Set(ids)].map(Number);
}

// Those that fork while the list is read are found by the next round.
function killAll(directories: readonly string[]): void {
  for (let round = 0; round < 50; round += 1) {
    const ids = processIds(directories);
    if (ids.length === 0) return;
    for (const id of ids) attempt(() => process.kill(id, "SIGKILL"));
  }
}

const removalRounds = 40;
const roundMs = 25;

/** What was killed stays in its group until its parent has taken note of that. */
async function removeDirectories(clock: Clock, directories: readonly string[]): Promise<void> {
  for (const directory of directories) {
    for (let round = 0; round < removalRounds; round += 1) {
      const { code } = await rmdir(directory).then(
        noProblem,
        (error: NodeJS.ErrnoException) => error,
      );
      if (code !== "EBUSY") break;
      await pause(clock, roundMs);
    }
  }
}

const noProblem = (): { code?: string } => ({});

function counter(file: string, name: string): number {
  return Number(new RegExp(`^${name} (\\d+)`, "m").exec(text(file))?.[1] ?? 0);
}

/** The group of this process in a hierarchy, as a directory; undefined where there is none. */
function ownDirectory(controller: string): string | undefined {
  for (const line of text("/proc/self/cgroup").split("\n")) {
    const [, controllers = "", ...path] = line.split(":");
    if (path.length > 0 && controllers.split(",").includes(controller)) {
      return join(mount, controller, path.join(":"));
    }
  }
  return undefined;
}

/** Version 1: two hierarchies. */
function firstParents(): [memory: string, pids: string] | undefined {
  const memory = ownDirectory("memory");
  const pids = ownDirectory("pids");
  return memory === undefined || pids === undefined ? undefined : [memory, pids];
}

function firstVersion(clock: Clock): ControlGroups | undefined {
  const parents = firstParents();
  if (parents === undefined) return undefined;
  const [memory, pids] = parents;
  const create = (name: string): ControlGroup => {
    const [bytes, tasks] = [join(memory, name), join(pids, name)];
    for (const directory of [bytes, tasks]) mkdirSync(directory, { recursive: true });
    return {
      entryFiles: [bytes, tasks].map((directory) => join(directory, "cgroup.procs")),
      bound: ({ memoryMb, processes }) => {
        const limit = String(memoryMb * 1_048_576);
        attempt(() => writeFileSync(join(bytes, "memory.memsw.limit_in_bytes"), "-1"));
        writeFileSync(join(bytes, "memory.limit_in_bytes"), limit);
        attempt(() => writeFileSync(join(bytes, "memory.memsw.limit_in_bytes"), limit));
        attempt(() => writeFileSync(join(bytes, "memory.max_usage_in_bytes"), "0"));
        writeFileSync(join(tasks, "pids.max"), String(processes));
      },
      kill: () => killAll([bytes, tasks]),
      isEmpty: () => processIds([bytes, tasks]).length === 0,
      memoryKills: () => counter(join(bytes, "memory.oom_control"), "oom_kill"),
      peakBytes: () => Number(text(join(bytes, "memory.max_usage_in_bytes"))) || undefined,
      cpuMs: () => undefined,
      remove: async () => await removeDirectories(clock, [bytes, tasks]),
    };
  };
  return { create };
}

/**
 * Version 2: one hierarchy. A group with processes of its own cannot have bounded children; where
 * this process is alone in it, as in a service or a container, it moves into a child itself.
 */
function secondVersion(clock: Clock): ControlGroups | undefined {
  const own = secondParent();
  if (own === undefined) return undefined;
  if (!/\bmemory\b.*\bpids\b/.test(text(join(own, "cgroup.controllers")))) return undefined;
  makeRoomForChildren(own);
  const create = (name: string): ControlGroup => {
    const directory = join(own, name);
    mkdirSync(directory, { recursive: true });
    const file = (entry: string): string => join(directory, entry);
    let usedBefore = 0;
    const used = (): number => counter(file("cpu.stat"), "usage_usec");
    return {
      entryFiles: [file("cgroup.procs")],
      bound: ({ memoryMb, processes }) => {
        writeFileSync(file("memory.max"), String(memoryMb * 1_048_576));
        attempt(() => writeFileSync(file("memory.swap.max"), "0"));
        attempt(() => writeFileSync(file("memory.oom.group"), "1"));
        attempt(() => writeFileSync(file("memory.peak"), "reset"));
        writeFileSync(file("pids.max"), String(processes));
        usedBefore = used();
      },
      kill: () => {
        attempt(() => writeFileSync(file("cgroup.kill"), "1"));
        killAll([directory]);
      },
      isEmpty: () => processIds([directory]).length === 0,
      memoryKills: () => counter(file("memory.events"), "oom_kill"),
      peakBytes: () => Number(text(file("memory.peak"))) || undefined,
      cpuMs: () => Math.round((used() - usedBefore) / 1_000),
      remove: async () => await removeDirectories(clock, [directory]),
    };
  };
  return { create };
}

const runnerGroup = "larkline-runner";

function secondParent(): string | undefined {
  const path = /^0::(.*)$/m.exec(text("/proc/self/cgroup"))?.[1];
  if (path === undefined) return undefined;
  return join(mount, path.endsWith(`/${runnerGroup}`) ? path.slice(0, -runnerGroup.length) : path);
}

function makeRoomForChildren(own: string): void {
  const enable = (): void => writeFileSync(join(own, "cgroup.subtree_control"), "+memory +pids");
  const ids = processIds([own]);
  if (ids.length === 1 && ids[0] === process.pid) {
    mkdirSync(join(own, runnerGroup), { recursive: true });
    writeFileSync(join(own, runnerGroup, "cgroup.procs"), String(process.pid));
  }
  enable();
}

/** The directories in which this process would make groups, so that a successor finds them. */
export function groupParents(): string[] {
  return [secondParent() ?? [], firstParents() ?? []].flat();
}

/** Where groups can be made, proved by making one; undefined where none can be. */
export async function findControlGroups(
  proofName: string,
  clock: Clock,
): Promise<ControlGroups | undefined> {
  for (const version of [secondVersion, firstVersion]) {
    let group: ControlGroup | undefined;
    try {
      const groups = version(clock);
      group = groups?.create(proofName);
      group?.bound({ memoryMb: 64, processes: 16 });
      if (groups !== undefined) return groups;
    } catch {
      // No right to; the next version, or none.
    } finally {
      await group?.remove();
    }
  }
  return undefined;
}

/** Kills and removes what the groups of a dead process hold. */
export async function removeGroups(
  clock: Clock,
  parents: readonly string[],
  prefix: string,
): Promise<void> {
  for (const parent of parents) {
    const names = await readdir(parent).catch(() => []);
    for (const name of names.filter((entry) => entry.startsWith(prefix))) {
      const directory = join(parent, name);
      killAll([directory]);
      await removeDirectories(clock, [directory]);
    }
  }
}
