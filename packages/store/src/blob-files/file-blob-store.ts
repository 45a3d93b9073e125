import { link, mkdir, open, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { machineNow, systemRandom, type Random } from "@larkline/protocol/clock";
import {
  type BlobFacts,
  blobIdOf,
  type BlobStore,
  blobTooLarge,
  defaultBlobTtlMs,
  defaultMaxBlobBytes,
  isBlobId,
  type StoredBlob,
} from "../blob-store.ts";
import { blobFileOf, blobFrom } from "./blob-file.ts";

export interface FileBlobStoreOptions {
  /** Holds the blobs and nothing else; made when it is missing. Processes may share it. */
  directory: string;
  /** How long a blob is kept after its last put. Default 7 days. */
  ttlMs?: number;
  /** Largest blob, bytes. Default 32 MiB. */
  maxBytes?: number;
  /** Shortest time between two sweeps of expired files, ms. A put starts them. Default 1 hour. */
  sweepIntervalMs?: number;
  /** The clock, epoch ms. */
  now?: () => number;
  /** The machine's if absent. */
  random?: Random;
}

// A put takes seconds at most; what is older was left by a process that died.
const abandonedMs = 3_600_000;
const partialPattern = /^partial-[\w-]+$/;

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}

/** Runs a file operation; undefined when another process removed the file in the meantime. */
async function unlessGone<T>(operation: Promise<T>): Promise<T | undefined> {
  try {
    return await operation;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** The blob store on a file system: one file per blob, named by its id. Its age is the file's. */
export function createFileBlobStore(options: FileBlobStoreOptions): BlobStore {
  return new FileBlobStore(options);
}

class FileBlobStore implements BlobStore {
  readonly #directory: string;
  readonly #ttlMs: number;
  readonly #maxBytes: number;
  readonly #sweepIntervalMs: number;
  readonly #now: () => number;
  readonly #random: Random;
  #nextSweepMs = 0;

  constructor(options: FileBlobStoreOptions) {
    this.#directory = options.directory;
    this.#ttlMs = options.ttlMs ?? defaultBlobTtlMs;
    this.#maxBytes = options.maxBytes ?? defaultMaxBlobBytes;
    this.#sweepIntervalMs = options.sweepIntervalMs ?? 3_600_000;
    this.#now = options.now ?? machineNow;
    this.#random = options.random ?? systemRandom;
  }

  async put(bytes: Uint8Array, facts: BlobFacts): Promise<string> {
    if (bytes.byteLength > this.#maxBytes) throw blobTooLarge(bytes.byteLength, this.#maxBytes);
    // The id is made of the very bytes that are written, whatever the caller does to his.
    const content = Buffer.from(bytes);
    const id = blobIdOf(content);
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const partial = this.#partialPath();
    try {
      await this.#write(partial, blobFileOf(content, facts));
      await rename(partial, join(this.#directory, id));
    } catch (error) {
      await rm(partial, { force: true });
      throw error;
    }
    await this.#sweepWhenDue().catch(() => undefined); // the blob is stored; the next sweep tries again
    return id;
  }

  async get(blobId: string): Promise<StoredBlob | undefined> {
    if (!isBlobId(blobId)) return undefined;
    const path = join(this.#directory, blobId);
    const facts = await unlessGone(stat(path));
    if (facts === undefined || this.#expired(facts.mtimeMs)) return undefined;
    const file = await unlessGone(readFile(path));
    return file && blobFrom(file, blobId);
  }

  async delete(blobId: string): Promise<void> {
    if (isBlobId(blobId)) await rm(join(this.#directory, blobId), { force: true });
  }

  #expired(writtenAtMs: number): boolean {
    return writtenAtMs + this.#ttlMs <= this.#now();
  }

  #partialPath(): string {
    return join(this.#directory, `partial-${this.#random.uuid()}`);
  }

  async #write(path: string, content: Buffer): Promise<void> {
    const file = await open(path, "wx", 0o600);
    try {
      await file.writeFile(content);
      const writtenAt = new Date(this.#now());
      await file.utimes(writtenAt, writtenAt);
      await file.sync(); // a rename can reach the disk before the bytes do
    } finally {
      await file.close();
    }
  }

  async #sweepWhenDue(): Promise<void> {
    if (this.#now() < this.#nextSweepMs) return;
    this.#nextSweepMs = this.#now() + this.#sweepIntervalMs;
    for (const name of await readdir(this.#directory)) {
      if (isBlobId(name)) await this.#dropExpired(name);
      else if (partialPattern.test(name)) await this.#dropAbandoned(name);
    }
  }

  async #dropExpired(id: string): Promise<void> {
    const path = join(this.#directory, id);
    const seen = await unlessGone(stat(path));
    if (seen === undefined || !this.#expired(seen.mtimeMs)) return;
    // Another process may put the blob again between the look and the removal: take the file aside,
    // look again, and give a fresh one back.
    const aside = this.#partialPath();
    if ((await unlessGone(rename(path, aside).then(() => true))) === undefined) return;
    const taken = await unlessGone(stat(aside));
    if (taken !== undefined && !this.#expired(taken.mtimeMs)) {
      await link(aside, path).catch((error: unknown) => {
        if (!hasCode(error, "EEXIST")) throw error; // put once more: even fresher
      });
    }
    await rm(aside, { force: true });
  }

  async #dropAbandoned(name: string): Promise<void> {
    const path = join(this.#directory, name);
    const seen = await unlessGone(stat(path));
    if (seen !== undefined && seen.mtimeMs + abandonedMs <= this.#now()) {
      await rm(path, { force: true });
    }
  }
}
