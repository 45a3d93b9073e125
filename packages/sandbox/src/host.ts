import { execFile } from "node:child_process";
import { constants, readFileSync } from "node:fs";
import {
  access,
  chmod,
  copyFile,
  cp,
  link,
  mkdir,
  realpath,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Clock, Random } from "@larkline/protocol/clock";
import { type HostParts, type HostPython, systemDirectories } from "./launch.ts";
import { runCommand } from "./removal.ts";
import { filterFiles } from "./seccomp.ts";
import { architectureOf } from "./system-call.ts";

/* ---- What this process may do ---- */

/** What this process may do for its sandboxes. */
export interface HostPowers {
  /** Whether programs can run as users of their own. */
  ownUsers: boolean;
  /** Whether working directories can be file systems of their own, with an exact size. */
  mounts: boolean;
}

const capability = {
  chown: 0,
  dacOverride: 1,
  fowner: 3,
  kill: 5,
  setgid: 6,
  setuid: 7,
  sysAdmin: 21,
};
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
  const effective =
    /^CapEff:\s+([0-9a-f]+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  const held = BigInt(`0x${effective}`);
  const holds = (bit: number): boolean => ((held >> BigInt(bit)) & 1n) === 1n;
  return { ownUsers: forUsers.every(holds), mounts: holds(capability.sysAdmin) };
}

/* ---- What all tiers use ---- */

const execute = promisify(execFile);
const askMs = 10_000;

/** Replaces the host's `/etc`: one account, no names. */
const etc = {
  passwd:
    "root:x:0:0:root:/nonexistent:/bin/false\nsandbox:x:1000:1000:sandbox:/sandbox:/bin/bash\n",
  group: "root:x:0:\nsandbox:x:1000:\n",
  hosts: "127.0.0.1 localhost sandbox\n::1 localhost\n",
  "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
};

const sourceDirectory = fileURLToPath(new URL("../guest", import.meta.url));
/** Where `sbx/build.sh` puts the launcher. */
export const defaultLauncherPath = fileURLToPath(new URL("sbx/build/sbx", import.meta.url));

async function makeReadable(
  path: string,
  files: Readonly<Record<string, string | Buffer>>,
): Promise<string> {
  await mkdir(path, { mode: 0o755 });
  await chmod(path, 0o755); // whatever the mask is
  for (const [name, content] of Object.entries(files)) {
    await writeFile(join(path, name), content);
    await chmod(join(path, name), 0o644);
  }
  return path;
}

/** Node.js under a name and a path that every slot's user can reach. */
async function placeNode(nodePath: string, directory: string): Promise<string> {
  const real = await realpath(nodePath);
  const placed = join(directory, "node");
  await mkdir(directory, { mode: 0o755 });
  await chmod(directory, 0o755);
  if (((await stat(real)).mode & 0o001) !== 0 && (await isOpenToAll(real))) {
    await symlink(real, placed);
    return placed;
  }
  // Without a second copy where the file systems allow it.
  await link(real, placed).catch(async () => await copyFile(real, placed));
  await chmod(placed, 0o755);
  return placed;
}

/** The Python for programs; undefined when there is none that works. */
async function findPython(pythonPath: string): Promise<HostPython | undefined> {
  try {
    const question = "import sys; print(sys.executable); print(sys.base_prefix)";
    const { stdout } = await execute(pythonPath, ["-I", "-c", question], {
      timeout: askMs,
      env: {},
    });
    const [executable = "", prefix = ""] = stdout.split("\n");
    const path = await realpath(executable);
    const isOfSystem = systemDirectories.some((directory) => path.startsWith(`${directory}/`));
    return { path, readable: isOfSystem ? [] : [await realpath(prefix)] };
  } catch {
    return undefined;
  }
}

async function isExecutable(path: string): Promise<boolean> {
  return await access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** Prepares what the tiers have in common, in an instance's directory. Rejects for a Node.js that is not there, or an unknown processor. */
export async function prepareParts(
  directory: string,
  options: {
    nodePath: string;
    pythonPath: string;
    launcherPath: string;
    clock: Clock;
    random: Random;
  },
): Promise<HostParts> {
  const architecture = architectureOf(process.arch);
  if (architecture === undefined) {
    throw new Error(`the system calls of ${process.arch} are not known`);
  }
  const guestDirectory = await makeReadable(join(directory, "guest"), {});
  await cp(sourceDirectory, guestDirectory, { recursive: true });
  return {
    clock: options.clock,
    random: options.random,
    nodePath: await placeNode(options.nodePath, join(directory, "bin")),
    python: await findPython(options.pythonPath),
    hasBash: await isExecutable("/bin/bash"),
    guestDirectory,
    etcDirectory: await makeReadable(join(directory, "etc"), etc),
    filterDirectory: await makeReadable(join(directory, "filter"), filterFiles(architecture)),
    launcherPath: (await isExecutable(options.launcherPath)) ? options.launcherPath : undefined,
  };
}

/* ---- Views of files ---- */

/** Whether any user of the host can get at it. */
export async function isOpenToAll(path: string): Promise<boolean> {
  const facts = await stat(path);
  const needed = facts.isDirectory() ? 0o005 : 0o004;
  if ((facts.mode & needed) !== needed) return false;
  for (let above = dirname(path); above !== "/"; above = dirname(above)) {
    if (((await stat(above)).mode & 0o001) === 0) return false;
  }
  return true;
}

export interface ViewsOptions {
  /** Where views are made. */
  directory: string;
  /** Whether programs run as users of their own; otherwise they get at what this process gets at. */
  ownUsers: boolean;
  mounts: boolean;
  random: Random;
}

/**
 * Lets the users of slots get at what lies below a directory that is shut to them, such as `/root`: a
 * read-only view of it, at a path that cannot be guessed.
 */
export class Views {
  readonly #options: ViewsOptions;
  readonly #made = new Map<string, Promise<string>>();

  constructor(options: ViewsOptions) {
    this.#options = options;
  }

  /** Where to find what is at a path: there, or in a view. Rejects when it cannot be found at all. */
  async sourceOf(path: string): Promise<string> {
    const known = this.#made.get(path);
    if (known !== undefined) return await known;
    const found = this.#find(path);
    this.#made.set(path, found);
    // A missing path may exist at the next run.
    found.catch(() => this.#made.delete(path));
    return await found;
  }

  async #find(path: string): Promise<string> {
    const isOpen = await isOpenToAll(path);
    if (!this.#options.ownUsers || isOpen) return path;
    if (!this.#options.mounts) {
      throw new Error("it, or a directory above it, is shut to other users of this host");
    }
    return await this.#make(path);
  }

  async #make(path: string): Promise<string> {
    const view = join(this.#options.directory, `view-${this.#options.random.id()}`);
    if ((await stat(path)).isDirectory()) await mkdir(view);
    else await writeFile(view, "");
    await runCommand("mount", ["--bind", path, view]);
    try {
      await runCommand("mount", ["-o", "remount,bind,ro", view]);
    } catch (error) {
      await runCommand("umount", ["-l", view]);
      throw error;
    }
    return view;
  }
}
