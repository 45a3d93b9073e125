import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";

// Heartbeat and locks are renewed by a thread of their own (renewal-thread.ts), which loads nothing but this file and a
// connection, so that a process starts soon: this file loads nothing else of this package before a thread is started.

export interface RenewalOptions {
  redisUrl: string;
  namespace: string;
  /** The worker whose heartbeat is renewed; absent: this process has none, and renews locks only. */
  owner?: string;
  /** Called when renewals begin to fail, and when the thread has ended and is started again. */
  onError: (error: Error) => void;
}

/** How often the main thread says that it is not stuck. */
const beatEveryMs = 250;
/** Longer than living processes take to connect to Redis again and to renew. */
const settleMs = 2_000;
const restartMs = 500;
/** How long the thread may take to end. */
const endMs = 2_000;

/**
 * Renews the heartbeat of this process and the locks of its running jobs from a thread with a connection of its own: a
 * busy event loop delays no renewal, so heartbeat and locks can expire soon after a death. While the main thread has
 * been stuck for 4 s nothing is renewed, and others take over.
 */
export class Renewals {
  /** How long a lock is good for, ms: the first one of a job, and each renewed one. */
  readonly lockMs = lockMs;
  readonly #options: RenewalOptions;
  readonly #keys: RenewalOrders["keys"];
  readonly #buffer = new SharedArrayBuffer(Object.keys(sharedTimes).length * BigInt64Array.BYTES_PER_ELEMENT);
  readonly #times = new BigInt64Array(this.#buffer);
  readonly #held = new LockTable();
  readonly #beating: NodeJS.Timeout;
  readonly #listeners: (() => void)[] = [];
  #thread: Worker;
  #closed: Promise<void> | undefined;

  /** Resolves after the first renewal. Rejects if Redis does not take it. */
  static async start(options: RenewalOptions): Promise<Renewals> {
    const { createKeyspace } = await import("./keys.ts");
    const { global } = createKeyspace(options.namespace);
    const keys = { heartbeat: global(`alive:${options.owner ?? ""}`), workers: global("workers") };
    const renewals = new Renewals(options, keys);
    try {
      await renewals.#firstRenewal();
      return renewals;
    } catch (error) {
      await renewals.close();
      throw error;
    }
  }

  private constructor(options: RenewalOptions, keys: RenewalOrders["keys"]) {
    this.#options = options;
    this.#keys = keys;
    const beat = (): void => void Atomics.store(this.#times, sharedTimes.beatAt, BigInt(monotonicMs()));
    beat();
    this.#beating = setInterval(beat, beatEveryMs).unref();
    this.#thread = this.#spawn();
  }

  /** Renews the lock of a job until the returned function is called or another process has the job. */
  hold(lock: JobLock): () => void {
    return this.#held.add(lock);
  }

  /** Whether Redis takes renewals at this moment. */
  isTaken(): boolean {
    return monotonicMs() - this.#read(sharedTimes.renewedAt) <= heartbeatMs;
  }

  /** Whether renewals are taken, and have been for so long that those of all who live are there. */
  isSteady(): boolean {
    return this.isTaken() && this.#untilSteadyMs() === 0;
  }

  /** Resolves when the renewals of all who live are there, if Redis still takes them. */
  async settled(): Promise<void> {
    const restMs = this.#untilSteadyMs();
    if (restMs > 0) await delay(restMs);
  }

  /** `listener` is called when heartbeats of other workers have expired that have not said that they end. */
  onSilence(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Stops renewing; what was renewed expires by itself. Idempotent. */
  async close(): Promise<void> {
    this.#closed ??= this.#close();
    await this.#closed;
  }

  #spawn(): Worker {
    const { redisUrl, owner } = this.#options;
    const workerData: RenewalOrders = {
      redisUrl,
      owner,
      keys: this.#keys,
      times: this.#buffer,
      locks: this.#held.buffer,
    };
    const resourceLimits = { maxYoungGenerationSizeMb: 2, maxOldGenerationSizeMb: 64 };
    const thread = new Worker(new URL("./renewal-thread.ts", import.meta.url), { workerData, resourceLimits });
    thread.unref();
    thread.on("message", (message: FromThread) => this.#onThreadMessage(message));
    thread.on("error", (error) => this.#options.onError(asError(error)));
    thread.on("exit", () => this.#restart());
    return thread;
  }

  async #firstRenewal(): Promise<void> {
    const ended = new AbortController();
    const { signal } = ended;
    try {
      const failed = once(this.#thread, "exit", { signal }).then(() => {
        throw new Error("the thread that renews locks has ended");
      });
      const [message] = (await Promise.race([once(this.#thread, "message", { signal }), failed])) as [FromThread];
      if (typeof message === "object" && "error" in message) throw new Error(message.error);
    } finally {
      ended.abort();
    }
  }

  #onThreadMessage(message: FromThread): void {
    if (message === "renewed") return;
    if ("error" in message) this.#options.onError(new Error(`locks and heartbeat are not renewed: ${message.error}`));
    else for (const listener of this.#listeners) listener();
  }

  /** A thread ends by itself only when it fails. */
  #restart(): void {
    if (this.#closed !== undefined) return;
    this.#options.onError(new Error("the thread that renews locks and heartbeat has ended; another one is started"));
    setTimeout(() => {
      if (this.#closed !== undefined) return;
      this.#thread = this.#spawn();
    }, restartMs).unref();
  }

  #read(place: number): number {
    return Number(Atomics.load(this.#times, place));
  }

  #untilSteadyMs(): number {
    const since = this.#read(sharedTimes.steadySince);
    return since === 0 ? 0 : Math.max(0, since + settleMs - monotonicMs());
  }

  async #close(): Promise<void> {
    clearInterval(this.#beating);
    const thread = this.#thread;
    const ended = once(thread, "exit");
    thread.postMessage("close");
    await Promise.race([ended, delay(endMs, undefined, { ref: false })]);
    await thread.terminate();
  }
}

function asError(cause: unknown): Error {
  return cause instanceof Error ? cause : new Error(String(cause));
}

// What both threads share.

/** What the thread is started with. */
export interface RenewalOrders {
  redisUrl: string;
  /** The worker whose heartbeat is renewed. */
  owner: string | undefined;
  keys: { heartbeat: string; workers: string };
  /** See {@link sharedTimes}. */
  times: SharedArrayBuffer;
  /** The locks to renew. */
  locks: SharedArrayBuffer;
}

/** `silent` are workers that have stopped beating since the last report, and have not said that they end. */
export type FromThread = { error: string } | { silent: string[] } | "renewed";

/** Where in the memory of both threads which time is, by {@link monotonicMs}. */
export const sharedTimes = {
  /** When the main thread was not stuck last. */
  beatAt: 0,
  /** When Redis took the last renewal. */
  renewedAt: 1,
  /** Since when no renewal has been late. */
  steadySince: 2,
} as const;

/** How long a heartbeat is good for. Workers whose heartbeat has expired count as dead. */
export const heartbeatMs = 800;
/** How long the lock of a job is good for. */
export const lockMs = 1_000;

/** A clock that all threads of a process share, and that is never set. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000_000n);
}

/** The lock of a running job of BullMQ. */
export interface JobLock {
  /** What the keys of its queue begin with, such as `{larkline}:turns:`. */
  queue: string;
  id: string;
  /** What the lock holds while the job is this process's. */
  token: string;
}

/** A lock in the table. */
export interface HeldLock extends JobLock {
  /** Distinguishes this use of its place in the table from all others. */
  use: number;
}

/** Longer than any id and name of ours together. */
const slotBytes = 2_048;
const firstSlots = 64;
const maxSlots = 65_536;
/** A slot begins with its state (0: free) and the length of its text. */
const headBytes = 8;
/** The largest number of a signed integer of 32 bits. */
const lastUse = 0x7fffffff;

/**
 * The locks that a process holds, in memory that two threads share: the one that runs the jobs writes it, the one that
 * renews locks reads it. A message between threads for each job would cost more than the rest of holding its lock.
 */
export class LockTable {
  readonly buffer: SharedArrayBuffer;
  /** Grows with the memory, as the other view does. */
  readonly #bytes: Buffer;
  readonly #heads: Int32Array;
  readonly #free: number[] = [];
  /** Slots below it have been used. */
  #used = 0;
  /** Numbers the uses; 0 is none. */
  #uses = 0;

  constructor(buffer = new SharedArrayBuffer(firstSlots * slotBytes, { maxByteLength: maxSlots * slotBytes })) {
    this.buffer = buffer;
    this.#bytes = Buffer.from(buffer);
    this.#heads = new Int32Array(buffer);
  }

  /** Adds a lock; the returned function takes it out again. Throws a `RangeError` when a name is too long. */
  add({ queue, id, token }: JobLock): () => void {
    const text = `${queue}\n${id}\n${token}`;
    if (Buffer.byteLength(text) > slotBytes - headBytes) throw new RangeError(`the id ${id.slice(0, 80)}… is too long`);
    const slot = this.#free.pop() ?? this.#newSlot();
    const at = slot * slotBytes;
    const head = at / Int32Array.BYTES_PER_ELEMENT;
    this.#heads[head + 1] = this.#bytes.write(text, at + headBytes);
    this.#uses = this.#uses === lastUse ? 1 : this.#uses + 1;
    Atomics.store(this.#heads, head, this.#uses);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      Atomics.store(this.#heads, head, 0);
      this.#free.push(slot);
    };
  }

  /** All locks at this moment. */
  read(): HeldLock[] {
    const found: HeldLock[] = [];
    for (let at = 0; at < this.buffer.byteLength; at += slotBytes) {
      const head = at / Int32Array.BYTES_PER_ELEMENT;
      const use = Atomics.load(this.#heads, head);
      if (use === 0) continue;
      const text = this.#bytes.toString("utf8", at + headBytes, at + headBytes + (this.#heads[head + 1] ?? 0));
      // It was freed, perhaps used anew, while it was read.
      if (Atomics.load(this.#heads, head) !== use) continue;
      const [queue = "", id = "", token = ""] = text.split("\n");
      found.push({ use, queue, id, token });
    }
    return found;
  }

  #newSlot(): number {
    const slot = this.#used;
    if ((slot + 1) * slotBytes > this.buffer.byteLength) this.buffer.grow(2 * this.buffer.byteLength);
    this.#used += 1;
    return slot;
  }
}
