import { constants } from "node:fs";
import { chmod, lstat, mkdir, open, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "./removal.ts";

/** The directory, in that of a slot, in which a guest leaves the compiled code. */
export const compileTo = "compiled";

/** More profiles than these have their code compiled again. */
const maxProfiles = 16;
const most = { files: 5_000, bytes: 64 * 1_048_576 };

/** Code of one profile, as Node's compile cache has it: a directory whose name ends in the user, and files in it. */
interface Kept {
  path: string;
  /** Without the user. */
  tag: string;
  users: Set<number>;
}

/**
 * Compiled code of the modules that sandboxes load ahead of their calls, one directory for each profile. A guest that
 * never gets a job leaves it behind; from then on every guest of the same profile reads it and none can change it. So
 * nothing of a call gets in, and nothing of one tool reaches another. Loading a module from it takes a fraction of the
 * CPU time.
 */
export class CompiledCode {
  readonly #directory: string;
  /** By profile; undefined: it is being compiled, or could not be. */
  readonly #kept = new Map<string, Kept | undefined>();
  #made = 0;

  /** `directory`: where to keep it, below which every slot's user can read what is open to it. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Whether the caller is to have it compiled; true once for a profile. */
  begin(profile: string): boolean {
    if (this.#kept.has(profile)) return false;
    this.#kept.set(profile, undefined);
    return true;
  }

  /**
   * Keeps what a guest has left in a directory, which is as hostile as any: regular files of a compile cache only, up to 64 MB. To be
   * called when nothing inside runs any more. Rejects, and keeps nothing, when there is none or something else in it.
   */
  async keep(profile: string, directory: string): Promise<void> {
    const from = await cacheIn(directory);
    this.#made += 1;
    const path = join(this.#directory, `code-${this.#made}`);
    try {
      await copyCache(from, path);
    } catch (error) {
      await removeTree(path);
      throw error;
    }
    this.#kept.delete(profile);
    this.#kept.set(profile, { path, tag: from.tag, users: new Set() });
    await this.#dropOldest();
  }

  /** Where the code of a profile is for a guest that runs as `user`; undefined when there is none. */
  async directoryFor(profile: string, user: number): Promise<string | undefined> {
    const kept = this.#kept.get(profile);
    if (kept === undefined) return undefined;
    if (!kept.users.has(user)) {
      kept.users.add(user);
      await symlink(`${kept.tag}-shared`, join(kept.path, `${kept.tag}-${user}`));
    }
    return kept.path;
  }

  async #dropOldest(): Promise<void> {
    const [oldest] = this.#kept;
    if (this.#kept.size <= maxProfiles || oldest === undefined) return;
    const [profile, kept] = oldest;
    this.#kept.delete(profile);
    // Guests that still load from it compile for themselves.
    if (kept !== undefined) await removeTree(kept.path);
  }
}

interface LeftCache {
  path: string;
  tag: string;
  files: string[];
}

async function copyCache(from: LeftCache, path: string): Promise<void> {
  const files = join(path, `${from.tag}-shared`);
  for (const each of [path, files]) await makeOpen(each);
  let left = most.bytes;
  for (const name of from.files) {
    const bytes = await readPlain(join(from.path, name), left);
    left -= bytes.length;
    await writeFile(join(files, name), bytes);
    await chmod(join(files, name), 0o644); // whatever the mask is
  }
}

/** The one cache in a directory. Rejects when there is none, or something else is there too. */
async function cacheIn(directory: string): Promise<LeftCache> {
  await expectDirectory(directory);
  const [name = "", ...others] = await readdir(directory);
  const tag = /^(v[\w.-]{1,100})-\d{1,10}$/.exec(name)?.[1];
  if (tag === undefined || others.length > 0) throw new Error("no compile cache was left");
  const path = join(directory, name);
  await expectDirectory(path);
  const files = await readdir(path);
  // Node writes to a file with a longer name first.
  const whole = files.filter((file) => /^[0-9a-f]{1,8}$/.test(file));
  if (whole.length > most.files) throw new Error(`the compile cache has more than ${most.files} files`);
  return { path, tag, files: whole };
}

async function expectDirectory(path: string): Promise<void> {
  if (!(await lstat(path)).isDirectory()) throw new Error("the compile cache is no directory");
}

async function makeOpen(path: string): Promise<void> {
  await mkdir(path);
  await chmod(path, 0o755); // whatever the mask is
}

async function readPlain(path: string, maxBytes: number): Promise<Buffer> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const facts = await file.stat();
    if (!facts.isFile() || facts.nlink !== 1) throw new Error("the compile cache holds more than plain files");
    if (facts.size > maxBytes) throw new Error(`the compile cache has more than ${most.bytes} bytes`);
    return await file.readFile();
  } finally {
    await file.close();
  }
}
