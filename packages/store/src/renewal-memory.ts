// What two threads of a process share: the main one (renewals.ts) and the one that renews (renewal-thread.ts). The second
// loads nothing but this file and a connection, so that a process starts soon.

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
  /** Tells this use of its place in the table from all others. */
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
