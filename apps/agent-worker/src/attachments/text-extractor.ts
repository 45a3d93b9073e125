import { availableParallelism, totalmem } from "node:os";
import { createHash } from "node:crypto";
import { LRUCache } from "lru-cache";
import { pictureSize } from "@larkline/model";
import { deadline, systemClock, type Clock } from "@larkline/protocol/clock";
import { newEngineError } from "@larkline/protocol/error";
import type {
  AttachedFile,
  Extraction,
  PictureBounds,
  ReadingJob,
  ScaledPicture,
} from "./extraction.ts";
import { fileKindOf, unreadableKind } from "./file-kind.ts";
import { type ReaderLimits, ReaderProcess, type ReadingEnd } from "./reader-process.ts";

export interface TextExtractorOptions {
  /** Largest file, bytes. Default 30 MiB. */
  maxBytes?: number;
  /** Longest text, characters; the rest is cut off. Default 200,000. */
  maxChars?: number;
  /** CPU time for one file, ms. Default 5 s. */
  cpuMs?: number;
  /** Longest time for one file, ms, from the moment that a process takes it: for a busy machine. Default 20 s. */
  deadlineMs?: number;
  /** Memory of one process at most, MB; about 110 of it are the process itself. Default 512. */
  memoryMb?: number;
  /**
   * Files read at the same time; others wait. Default: as many as there are processors and as memory has room for, 2
   * to 4.
   */
  processes?: number;
  /** Default: that of the machine. */
  clock?: Clock;
}

/** Turns files into text for a model, and pictures into smaller ones, in processes of their own. */
export interface TextExtractor {
  /**
   * Never rejects for what is in the file: a bad file is a value. Rejects with the signal's reason
   * on abort, and with an EngineError when the extractor is or gets closed. The deadline begins when
   * a process takes the file; a caller that will not wait for a free one passes a signal. Of several processes one is always
   * left to others than `owner`, whose file it is.
   */
  extract(file: AttachedFile, signal?: AbortSignal, owner?: string): Promise<Extraction>;
  /**
   * The picture within these bounds; undefined: it cannot be made. Never rejects. A conversation sends a picture with each
   * of its requests, so that the latest results are kept, also those of pictures that cannot be scaled.
   */
  scale(
    picture: Uint8Array,
    bounds: PictureBounds,
    signal?: AbortSignal,
  ): Promise<ScaledPicture | undefined>;
  /** Ends the processes at once; files that are being read or wait are abandoned. */
  close(): Promise<void>;
}

/** What the process that reads the answers takes itself, MB. */
const ownMb = 512;

/** Two even where memory is short: one file that takes its time must not hold up all others. */
function processesThatFit(memoryMb: number): number {
  const limit = process.constrainedMemory();
  const bytes = limit > 0 ? Math.min(limit, totalmem()) : totalmem();
  const fit = Math.floor((bytes / 1_048_576 - ownMb) / memoryMb);
  return Math.max(2, Math.min(4, fit, availableParallelism()));
}

const reasons = {
  memory: "Reading the file needed too much memory.",
  time: "Reading the file took too long.",
  unknown: "The file cannot be read.",
} as const;

/** Pixels of a picture that is decoded: each takes eleven bytes while it is made smaller. */
const maxDecodedPixels = 30_000_000;
/** Characters of scaled pictures that are kept. */
const maxKeptPictures = 32_000_000;

// A process keeps the memory of the largest file it has read.
const idleMs = 300_000;
// Part of the deadline and of the CPU time after which a reader ends with what it has.
const patience = 0.8;

/** Starts no process before the first file comes. The caller closes it. */
export function createTextExtractor(options: TextExtractorOptions = {}): TextExtractor {
  return new ProcessTextExtractor(options);
}

class ProcessTextExtractor implements TextExtractor {
  readonly #maxBytes: number;
  readonly #maxChars: number;
  readonly #limits: ReaderLimits;
  readonly #clock: Clock;
  readonly #slots: ReturnType<typeof createSlots>;
  readonly #closing = new AbortController();
  readonly #readers = new Set<ReaderProcess>();
  readonly #idle = new Map<ReaderProcess, () => void>();
  readonly #scaled = new LRUCache<string, { picture: ScaledPicture | undefined }>({
    maxSize: maxKeptPictures,
    sizeCalculation: ({ picture }) => 100 + (picture?.data.length ?? 0),
  });

  constructor(options: TextExtractorOptions) {
    this.#maxBytes = options.maxBytes ?? 30 * 1024 * 1024;
    this.#maxChars = options.maxChars ?? 200_000;
    const { memoryMb = 512, cpuMs = 5_000, deadlineMs = 20_000 } = options;
    this.#limits = { memoryMb, cpuMs, deadlineMs };
    this.#clock = options.clock ?? systemClock;
    this.#slots = createSlots(options.processes ?? processesThatFit(memoryMb));
  }

  async extract(file: AttachedFile, signal?: AbortSignal, owner?: string): Promise<Extraction> {
    const stop = signal ? AbortSignal.any([signal, this.#closing.signal]) : this.#closing.signal;
    stop.throwIfAborted();
    const refused = this.#refusalOf(file);
    if (refused !== undefined) return refused;
    const release = await this.#slots.take(stop, owner);
    try {
      const read = await this.#read(file, stop);
      if (read.state !== "scaled") return read;
      return { state: "failed", mediaType: read.mediaType, detail: reasons.unknown };
    } finally {
      release();
    }
  }

  async scale(
    picture: Uint8Array,
    bounds: PictureBounds,
    signal?: AbortSignal,
  ): Promise<ScaledPicture | undefined> {
    const key = `${createHash("sha256").update(picture).digest("hex")} ${Object.values(bounds).join(" ")}`;
    const known = this.#scaled.get(key);
    if (known !== undefined) return known.picture;
    const { width, height } = pictureSize(picture) ?? { width: 0, height: 0 };
    const pixels = width * height;
    if (pixels === 0 || pixels > maxDecodedPixels || picture.byteLength > this.#maxBytes) {
      return undefined;
    }
    const stop = signal ? AbortSignal.any([signal, this.#closing.signal]) : this.#closing.signal;
    try {
      const release = await this.#slots.take(stop);
      try {
        const { maxSide, maxPixels, maxBytes } = bounds;
        const scaleTo = { maxSide, maxPixels, maxBytes };
        const read = await this.#read({ bytes: picture, name: "" }, stop, scaleTo);
        const result = read.state === "scaled" ? read : undefined;
        this.#scaled.set(key, { picture: result });
        return result;
      } finally {
        release();
      }
    } catch {
      return undefined; // aborted
    }
  }

  async close(): Promise<void> {
    this.#closing.abort(
      newEngineError("internal_error", "the text extractor is closed", { retryable: true }),
    );
    for (const forget of this.#idle.values()) forget();
    this.#idle.clear();
    await Promise.all([...this.#readers].map(async (reader) => await reader.end()));
  }

  /** What the size and the first bytes decide, without a process. */
  #refusalOf({ bytes }: AttachedFile): Extraction | undefined {
    const kind = fileKindOf(bytes);
    const { mediaType } = kind;
    const detail = unreadableKind(kind);
    if (detail !== undefined) return { state: "unsupported", mediaType, detail };
    if (bytes.byteLength === 0) return { state: "failed", mediaType, detail: "The file is empty." };
    if (bytes.byteLength <= this.#maxBytes) return undefined;
    const limitMb = Math.max(0.1, Math.round((this.#maxBytes / 1024 / 1024) * 10) / 10);
    return { state: "too_large", mediaType, detail: `The file is larger than ${limitMb} MB.` };
  }

  async #read(
    file: AttachedFile,
    stop: AbortSignal,
    scaleTo?: PictureBounds,
  ): Promise<Extraction | ScaledPicture> {
    const failed = (detail: string): Extraction => ({
      state: "failed",
      mediaType: fileKindOf(file.bytes).mediaType,
      detail,
    });
    const late = deadline(this.#clock, this.#limits.deadlineMs);
    try {
      let end = await this.#readOnce(file, AbortSignal.any([stop, late]), scaleTo);
      // Ended from outside, perhaps before it had begun; a file that kills gets no third process.
      if (end.kind === "died" && end.reason === "unknown") {
        end = await this.#readOnce(file, AbortSignal.any([stop, late]), scaleTo);
      }
      if (end.kind === "answer") return end.result;
      return failed(reasons[end.reason]);
    } catch (error) {
      if (stop.aborted || !late.aborted) throw error;
      return failed(reasons.time);
    }
  }

  async #readOnce(
    file: AttachedFile,
    signal: AbortSignal,
    scaleTo?: PictureBounds,
  ): Promise<ReadingEnd> {
    const reader = this.#takeIdle() ?? this.#start();
    const job: ReadingJob = {
      bytes: file.bytes,
      name: file.name,
      ...(file.mediaType === undefined ? {} : { mediaType: file.mediaType }),
      maxChars: this.#maxChars,
      patienceMs: this.#limits.deadlineMs * patience,
      patienceCpuMs: this.#limits.cpuMs * patience,
      ...(scaleTo === undefined ? {} : { scaleTo }),
    };
    const end = await reader.read(job, signal);
    if (end.kind === "answer" && !end.retire && !this.#closing.signal.aborted) this.#keep(reader);
    else reader.kill();
    return end;
  }

  #start(): ReaderProcess {
    const reader = new ReaderProcess(this.#limits);
    this.#readers.add(reader);
    void reader.ended.then(() => this.#readers.delete(reader));
    return reader;
  }

  #takeIdle(): ReaderProcess | undefined {
    for (const [reader, forget] of this.#idle) {
      forget();
      this.#idle.delete(reader);
      if (reader.alive) return reader;
      reader.kill();
    }
    return undefined;
  }

  #keep(reader: ReaderProcess): void {
    // Unlike `after` it keeps no process alive; the first round is the last one.
    const forget = this.#clock.every(idleMs, () => {
      forget();
      this.#idle.delete(reader);
      reader.kill();
    });
    this.#idle.set(reader, forget);
  }
}

/* ---- Places for files ---- */

/** A number of places. Callers take them in the order in which they came, except that one owner never holds them all. */
export interface Slots {
  /**
   * Resolves with a function that gives the place back; rejects with the signal's reason on abort. Of several places
   * one is always left to others than `owner`; takers without an owner are all different.
   */
  take(signal: AbortSignal, owner?: string): Promise<() => void>;
}

interface Waiter {
  owner: string | undefined;
  enter(): void;
}

export function createSlots(count: number): Slots {
  const share = Math.max(1, count - 1);
  const held = new Map<string, number>();
  const waiting = new Set<Waiter>();
  let free = count;

  function mayEnter(owner: string | undefined): boolean {
    return free > 0 && (owner === undefined || (held.get(owner) ?? 0) < share);
  }

  function enter(owner: string | undefined): () => void {
    free -= 1;
    if (owner !== undefined) held.set(owner, (held.get(owner) ?? 0) + 1);
    return () => leave(owner);
  }

  function leave(owner: string | undefined): void {
    free += 1;
    if (owner !== undefined) {
      const left = (held.get(owner) ?? 0) - 1;
      if (left > 0) held.set(owner, left);
      else held.delete(owner);
    }
    for (const waiter of waiting) if (mayEnter(waiter.owner)) waiter.enter();
  }

  return {
    async take(signal, owner) {
      signal.throwIfAborted();
      if (mayEnter(owner)) return enter(owner);
      const { promise, resolve, reject } = Promise.withResolvers<() => void>();
      const waiter: Waiter = {
        owner,
        enter: () => {
          waiting.delete(waiter);
          resolve(enter(owner));
        },
      };
      const giveUp = (): void => {
        waiting.delete(waiter);
        reject(signal.reason);
      };
      waiting.add(waiter);
      signal.addEventListener("abort", giveUp, { once: true });
      return await promise.finally(() => signal.removeEventListener("abort", giveUp));
    },
  };
}
