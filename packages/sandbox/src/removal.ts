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

/** Where something is mounted below a path. */
async function mountsBelow(path: string): Promise<string[]> {
  const table = await readFile("/proc/self/mountinfo", "utf8");
  return table
    .split("\n")
    .map((line) =>
      (line.split(" ")[4] ?? "").replace(/\\([0-7]{3})/g, (_, code: string) => octal(code)),
    )
    .filter((point) => point.startsWith(`${path}/`));
}

function octal(code: string): string {
  return String.fromCharCode(Number.parseInt(code, 8));
}

/**
 * Takes away the mounts below a real path, used or not. Rejects when one stays: removing the path
 * could then remove what is mounted there, which may be a view of a deployer's files.
 */
export async function unmountBelow(path: string): Promise<void> {
  for (const point of await mountsBelow(path)) {
    await runCommand("umount", ["-l", point]).catch(() => {});
  }
  const [left] = await mountsBelow(path);
  if (left !== undefined) throw new Error(`${left} cannot be unmounted`);
}
