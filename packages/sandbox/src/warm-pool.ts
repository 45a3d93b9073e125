import { constants } from "node:fs";
import { chmod, lstat, mkdir, open, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Clock, pause } from "@larkline/protocol/clock";
import { type Guest, type GuestProfile, profileKey } from "./guest.ts";
import { removeTree } from "./removal.ts";

export interface WarmPoolOptions {
  /** Guests kept for each profile. */
  size: number;
  clock: Clock;
  /** Boots one; undefined when it did not boot. */
  boot(profile: GuestProfile, signal: AbortSignal): Promise<Guest | undefined>;
  /** Kills an unused guest and gives its slot back. Never rejects. */
  discard(guest: Guest): Promise<void>;
}

interface Shelf {
  profile: GuestProfile;
  ready: Guest[];
  usedAtMs: number;
  isFilling: boolean;
}

/** Guests are kept for at most so many profiles. */
const maxProfiles = 4;
const idleMs = 300_000;
const lookMs = 30_000;
const pauseMs = 2_000;
/** After so many failed boots in a row the pool waits for the next run before it tries again. */
const mostFailures = 3;
const politenessMs = 10;

/** Guests that were booted and prepared for their tool ahead of time. Each serves one run, so nothing is carried over. */
export class WarmPool {
  readonly #options: WarmPoolOptions;
  readonly #shelves = new Map<string, Shelf>();
  readonly #closing = new AbortController();
  readonly #stopLooking: () => void;
  readonly #fillings = new Set<Promise<void>>();

  constructor(options: WarmPoolOptions) {
    this.#options = options;
    this.#stopLooking = options.clock.every(lookMs, () => void this.#dropIdle());
  }

  /** A guest of the profile, to be used once; undefined when none is ready. From now on guests of the profile are kept. */
  take(profile: GuestProfile): Guest | undefined {
    if (this.#options.size === 0 || this.#closing.signal.aborted) return undefined;
    const shelf = this.#shelf(profile);
    shelf.usedAtMs = this.#options.clock.monotonic();
    const guest = this.#firstAlive(shelf);
    this.#fill(shelf);
    return guest;
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#stopLooking();
    await Promise.all(this.#fillings);
    await Promise.all([...this.#shelves.keys()].map(async (key) => await this.#drop(key)));
  }

  #firstAlive({ ready }: Shelf): Guest | undefined {
    for (let guest = ready.shift(); guest !== undefined; guest = ready.shift()) {
      if (guest.isAlive) return guest;
      void this.#options.discard(guest);
    }
    return undefined;
  }

  #shelf(profile: GuestProfile): Shelf {
    const key = profileKey(profile);
    const known = this.#shelves.get(key);
    const shelf = known ?? { profile, ready: [], usedAtMs: 0, isFilling: false };
    // The map is in order of use, so its first entry is the least recently used.
    this.#shelves.delete(key);
    this.#shelves.set(key, shelf);
    const [oldest] = this.#shelves.keys();
    if (this.#shelves.size > maxProfiles && oldest !== undefined) void this.#drop(oldest);
    return shelf;
  }

  #fill(shelf: Shelf): void {
    if (shelf.isFilling) return;
    shelf.isFilling = true;
    const filling = this.#fillUp(shelf).finally(() => {
      shelf.isFilling = false;
      this.#fillings.delete(filling);
    });
    this.#fillings.add(filling);
  }

  /** Boots one guest at a time: parallel boots slow each other and the runs down. */
  async #fillUp(shelf: Shelf): Promise<void> {
    const { signal } = this.#closing;
    const { clock } = this.#options;
    // Starting a process blocks this one for some milliseconds, so let the run begin first.
    await pause(clock, politenessMs, signal);
    let failures = 0;
    while (
      !signal.aborted &&
      this.#isKept(shelf) &&
      shelf.ready.length < this.#options.size &&
      failures < mostFailures
    ) {
      const guest = await this.#options.boot(shelf.profile, signal).catch(() => undefined);
      failures = guest === undefined ? failures + 1 : 0;
      if (guest === undefined) await pause(clock, pauseMs, signal);
      else if (!signal.aborted && this.#isKept(shelf)) this.#keep(shelf, guest);
      else await this.#options.discard(guest);
    }
  }

  #keep(shelf: Shelf, guest: Guest): void {
    shelf.ready.push(guest);
    void this.#removeWhenEnded(shelf, guest);
  }

  async #removeWhenEnded({ ready }: Shelf, guest: Guest): Promise<void> {
    await guest.ended;
    const at = ready.indexOf(guest);
    if (at === -1) return; // taken: its run handles the end
    ready.splice(at, 1);
    await this.#options.discard(guest);
  }

  #isKept(shelf: Shelf): boolean {
    return this.#shelves.get(profileKey(shelf.profile)) === shelf;
  }

  async #dropIdle(): Promise<void> {
    const since = this.#options.clock.monotonic() - idleMs;
    for (const [key, { usedAtMs }] of this.#shelves) if (usedAtMs < since) await this.#drop(key);
  }

  async #drop(key: string): Promise<void> {
    const ready = this.#shelves.get(key)?.ready.splice(0) ?? [];
    this.#shelves.delete(key);
    await Promise.all(ready.map(async (guest) => await this.#options.discard(guest)));
  }
}

/* ---- Compiled code of what guests load ---- */

/** Directory, below the slot's, in which a guest leaves the compiled code. */
export const compileTo = "compiled";

/** Code of at most so many profiles is kept. */
const maxKept = 16;
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

  /** `directory`: where the code is kept; every slot's user must be able to enter it. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** True once for a profile: the caller then compiles its code. */
  begin(profile: string): boolean {
    if (this.#kept.has(profile)) return false;
    this.#kept.set(profile, undefined);
    return true;
  }

  /**
   * Copies the compile cache that an untrusted guest has left in a directory: regular files only, up to 64 MB. Call it
   * when nothing inside runs any more. Rejects, and keeps nothing, when there is no cache or anything else in it.
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

  /** The directory with the code of a profile for a guest that runs as `user`; undefined when there is none. */
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
    if (this.#kept.size <= maxKept || oldest === undefined) return;
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
  if (whole.length > most.files) {
    throw new Error(`the compile cache has more than ${most.files} files`);
  }
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
    if (!facts.isFile() || facts.nlink !== 1) {
      throw new Error("the compile cache holds more than plain files");
    }
    if (facts.size > maxBytes) {
      throw new Error(`the compile cache has more than ${most.bytes} bytes`);
    }
    return await file.readFile();
  } finally {
    await file.close();
  }
}
