import { type ChildProcess, spawn, type SpawnOptions } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import type { Clock } from "@larkline/protocol/clock";

async function statusOf(id: string): Promise<string> {
  return await readFile(`/proc/${id}/status`, "utf8").catch(() => "");
}

async function processesOf(first: number, last: number): Promise<number[]> {
  const ids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const found = ids.map(async (id) => {
    const status = await statusOf(id);
    const user = Number(/^Uid:\s+(\d+)/m.exec(status)?.[1] ?? -1);
    const isRunning = !/^State:\s+[ZX]/m.test(status);
    return user >= first && user <= last && isRunning ? [Number(id)] : [];
  });
  return (await Promise.all(found)).flat();
}

/** Kills everything that runs as one of the users. Whether nothing does any more; gives up after 50 rounds. */
export async function killUsers(first: number, last = first): Promise<boolean> {
  for (let round = 0; round < 50; round += 1) {
    const ids = await processesOf(first, last);
    if (ids.length === 0) return true;
    for (const id of ids) {
      try {
        process.kill(id, "SIGKILL");
      } catch {
        // It has just ended.
      }
    }
  }
  return false;
}

/** Whether a process has ended; a zombie has. */
export async function hasEnded(id: number): Promise<boolean> {
  return !/^State:\s+[^ZX\s]/m.test(await statusOf(String(id)));
}

let counted: { atMs: number; tasks: number } | undefined;
const countedForMs = 1_000;

/** Threads that run as this process's user, on the whole host; up to a second old. */
export async function ownTasks(clock: Clock): Promise<number> {
  const nowMs = clock.monotonic();
  const user = process.getuid?.();
  if (counted !== undefined && nowMs - counted.atMs < countedForMs) return counted.tasks;
  const ids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const threads = ids.map(async (id) => {
    const status = await statusOf(id);
    const isOurs = Number(/^Uid:\s+(\d+)/m.exec(status)?.[1] ?? -1) === user;
    return isOurs ? Number(/^Threads:\s+(\d+)/m.exec(status)?.[1] ?? 0) : 0;
  });
  const tasks = (await Promise.all(threads)).reduce((sum, count) => sum + count, 0);
  counted = { atMs: nowMs, tasks };
  return tasks;
}

/**
 * Starts a process. Throws where none can be made because this process has no descriptors left: Node
 * then returns one without streams. Other failures come as the event `error`.
 */
export function spawnProcess(
  command: string,
  args: readonly string[],
  options: SpawnOptions,
): ChildProcess {
  const child = spawn(command, args, options);
  child.on("error", () => {}); // callers that wait for the end listen too
  const stdio: unknown = child.stdio;
  if (stdio === undefined) throw new Error("no process can be started: too many open files");
  return child;
}
