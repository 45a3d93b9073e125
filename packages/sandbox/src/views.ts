import { randomBytes } from "node:crypto";
import { mkdir, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { runCommand } from "./removal.ts";

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
}

/**
 * Lets the users of slots get at what lies below a directory that is shut to them, such as `/root`: a
 * read-only view of it, at a path that nobody can guess.
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
    // What is not there now may be there later.
    found.catch(() => this.#made.delete(path));
    return await found;
  }

  async #find(path: string): Promise<string> {
    const isOpen = await isOpenToAll(path);
    if (!this.#options.ownUsers || isOpen) return path;
    if (!this.#options.mounts) throw new Error("it, or a directory above it, is shut to other users of this host");
    return await this.#make(path);
  }

  async #make(path: string): Promise<string> {
    const view = join(this.#options.directory, `view-${randomBytes(16).toString("hex")}`);
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
