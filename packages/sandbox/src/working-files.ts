import { constants } from "node:fs";
import { chown, lstat, mkdir, open, opendir, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import type { SandboxFile, SandboxLimits, SandboxResult } from "./sandbox.ts";
import type { Slot } from "./slot.ts";

const most = { files: 32, bytes: 8 * 1_048_576, skipped: 50, entries: 2_000, depth: 8, nameCharacters: 200 };

/** Why files cannot be given to a program, in words; undefined when they can. */
export function problemOfFiles(files: readonly SandboxFile[], limits: SandboxLimits): string | undefined {
  let bytes = 0;
  for (const file of files) {
    const parts = file.name.split("/");
    const isInside = !file.name.startsWith("/") && !file.name.includes("\0");
    const isPlain = parts.every(
      (part) => part !== "" && part !== "." && part !== ".." && Buffer.byteLength(part) < 256,
    );
    if (!isInside || !isPlain || parts.length > most.depth) {
      return `The file name ${JSON.stringify(file.name.slice(0, most.nameCharacters))} is not a path inside the working directory.`;
    }
    bytes += file.bytes.length;
  }
  return bytes > limits.diskMb * 1_048_576 ? `The files have more than ${limits.diskMb} MB.` : undefined;
}

/** Writes a program's files before anything untrusted runs in the slot. */
export async function writeFiles(files: readonly SandboxFile[], slot: Slot): Promise<void> {
  for (const { name, bytes } of files) {
    const path = join(slot.directory, name);
    await makeDirectories(dirname(path), slot);
    await writeFile(path, bytes);
    if (slot.user !== undefined) await chown(path, slot.user, slot.user);
  }
}

async function makeDirectories(path: string, slot: Slot): Promise<void> {
  const first = await mkdir(path, { recursive: true });
  if (slot.user === undefined || first === undefined) return;
  for (let made = path; made.length >= first.length; made = dirname(made)) await chown(made, slot.user, slot.user);
}

type Harvest = Pick<SandboxResult, "files" | "skipped">;

/** Collects what is left of a run, piece by piece. */
class Harvester {
  readonly #slot: Slot;
  readonly #given: ReadonlyMap<string, Uint8Array>;
  readonly #harvest: Harvest = { files: [], skipped: [] };
  #bytes = 0;
  #entries = 0;

  constructor(slot: Slot, given: readonly SandboxFile[]) {
    this.#slot = slot;
    this.#given = new Map(given.map(({ name, bytes }) => [name, bytes]));
  }

  async walk(directory: string, depth: number): Promise<Harvest> {
    for await (const { name } of await opendir(directory)) {
      this.#entries += 1;
      if (this.#entries > most.entries) break;
      const path = join(directory, name);
      try {
        await this.#look(path, depth);
      } catch {
        this.#skip(path, "cannot be read");
      }
    }
    return this.#harvest;
  }

  async #look(path: string, depth: number): Promise<void> {
    const facts = await lstat(path);
    if (facts.isDirectory()) {
      if (depth >= most.depth || path.endsWith("/node_modules")) this.#skip(path, "directory is not looked into");
      else await this.walk(path, depth + 1);
    } else if (facts.isSymbolicLink()) this.#skip(path, "symbolic link");
    else if (!facts.isFile()) this.#skip(path, "not a regular file");
    else if (facts.nlink !== 1) this.#skip(path, "has several names");
    else await this.#take(path);
  }

  async #take(path: string): Promise<void> {
    const name = relative(this.#slot.directory, path);
    const bytes = await this.#read(path);
    if (bytes === undefined) return this.#skip(path, `over the limit of ${most.files} files and ${most.bytes} bytes`);
    const given = this.#given.get(name);
    if (given !== undefined && Buffer.compare(given, bytes) === 0) return;
    if (this.#harvest.files.length >= most.files) return this.#skip(path, `more than ${most.files} files`);
    this.#bytes += bytes.length;
    this.#harvest.files.push({ name, bytes });
  }

  /** Undefined when it is too large. Nothing changes the file meanwhile: nothing runs any more. */
  async #read(path: string): Promise<Buffer | undefined> {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const { size } = await file.stat();
      return size > most.bytes - this.#bytes ? undefined : await file.readFile();
    } finally {
      await file.close();
    }
  }

  #skip(path: string, reason: string): void {
    const name = relative(this.#slot.directory, path).slice(0, most.nameCharacters);
    if (this.#harvest.skipped.length < most.skipped) this.#harvest.skipped.push({ name, reason });
  }
}

/**
 * Takes what a run left in its working directory: at most 32 regular files of 8 MB together, none
 * that was given and is unchanged. To be called when nothing inside runs any more. Never rejects.
 */
export async function harvestFiles(slot: Slot, given: readonly SandboxFile[]): Promise<Harvest> {
  try {
    return await new Harvester(slot, given).walk(slot.directory, 0);
  } catch {
    return { files: [], skipped: [{ name: ".", reason: "cannot be read" }] };
  }
}
