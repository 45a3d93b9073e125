import { execFile } from "node:child_process";
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const execute = promisify(execFile);
const commandMs = 30_000;

/** Runs a program of the system. Rejects when it fails. */
export async function runCommand(command: string, args: readonly string[]): Promise<void> {
  await execute(command, args, {
    timeout: commandMs,
    killSignal: "SIGKILL",
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
  });
}

/**
 * Removes a tree that a hostile program filled: nothing in it is followed. Directories without
 * rights, and paths longer than the kernel takes in one piece, are for the system's own tools.
 * Rejects when something stays.
 */
export async function removeTree(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch {
    await runCommand("chmod", ["-R", "u+rwX", "--", path]).catch(() => {});
    await runCommand("rm", ["-rf", "--one-file-system", "--", path]);
  }
}

/** Empties a directory and keeps it. Rejects when something stays. */
export async function emptyDirectory(path: string): Promise<void> {
  const names = await readdir(path);
  for (const name of names) await removeTree(join(path, name));
}

/** Takes away the mounts below a path, used or not. */
export async function unmountBelow(path: string): Promise<void> {
  const table = await readFile("/proc/self/mountinfo", "utf8").catch(() => "");
  // Spaces and the like are written as octal codes there; our paths have none.
  const points = table.split("\n").map((line) => line.split(" ")[4] ?? "");
  for (const point of points.filter((entry) => entry.startsWith(`${path}/`))) {
    await runCommand("umount", ["-l", point]).catch(() => {});
  }
}
