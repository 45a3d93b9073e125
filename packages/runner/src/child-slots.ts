import { createProcessPool, ProcessCallError, type ProcessCallOptions, type ProcessPool } from "@larkline/sandbox";
import type { HostLoad } from "./host-message.ts";

export interface ChildSlotsOptions {
  /** Children at most; further calls wait. */
  most: number;
  /** Children that are kept although nobody calls. */
  warm: number;
  memoryMb?: number | undefined;
  env: Readonly<Record<string, string>>;
  /** The first thing that each child does. */
  load: HostLoad;
  onLine(line: string, stream: "stdout" | "stderr"): void;
}

/** Children for calls: as many as are called at once, started when they are needed. */
export interface ChildSlots {
  /** Resolves when the first child has loaded the modules; rejects with the reason why it could not. */
  ready(): Promise<void>;
  call(body: unknown, options: ProcessCallOptions): Promise<unknown>;
  /** Kills all; calls under way reject. Idempotent. */
  close(): Promise<void>;
}

const entry = new URL("tool-host.ts", import.meta.url);
const maxCalls = 5_000;
const loadMs = 30_000;
const idleMs = 60_000;
/** A child that was told to stop is killed after 2 s; until then it is not given another call. */
const leavingMs = 2_500;

interface Slot {
  pool: ProcessPool;
  /** Never rejects. */
  loaded: Promise<ProcessCallError | undefined>;
  idleSinceMs: number;
}

class Slots implements ChildSlots {
  readonly #options: ChildSlotsOptions;
  /** The last one was used last, and is used first. */
  readonly #idle: Slot[] = [];
  readonly #all = new Set<Slot>();
  readonly #waiting: PromiseWithResolvers<void>[] = [];
  readonly #shrinking: NodeJS.Timeout;
  #closed: Promise<void> | undefined;
  /** Slots that calls may use: those in `all` without the leaving ones. */
  #usable = 0;

  constructor(options: ChildSlotsOptions) {
    this.#options = options;
    this.#shrinking = setInterval(() => this.#shrink(), idleMs / 4).unref();
    this.#fill();
  }

  async ready(): Promise<void> {
    const [first] = this.#all;
    const problem = await first?.loaded;
    if (problem !== undefined) throw problem;
  }

  async call(body: unknown, options: ProcessCallOptions): Promise<unknown> {
    const slot = await this.#take(options.signal);
    let leaves = false;
    try {
      return await slot.pool.call(body, options);
    } catch (error) {
      if (!(error instanceof ProcessCallError)) throw error;
      // The child of a call that was broken off may still be at it; a dead one has a successor.
      leaves = error.failure === "timeout" || error.failure === "cancelled";
      if (!leaves && error.failure !== "handler") slot.loaded = loadIn(slot.pool, this.#options.load);
      throw error;
    } finally {
      if (leaves) this.#retire(slot, leavingMs);
      else this.#idle.push(Object.assign(slot, { idleSinceMs: performance.now() }));
      this.#waiting.shift()?.resolve();
    }
  }

  async close(): Promise<void> {
    this.#closed ??= (async () => {
      clearInterval(this.#shrinking);
      for (const { reject } of this.#waiting) reject(closedError());
      await Promise.all([...this.#all].map(async ({ pool }) => await pool.close()));
    })();
    await this.#closed;
  }

  async #take(signal: AbortSignal): Promise<Slot> {
    for (;;) {
      if (this.#closed !== undefined) throw closedError();
      const slot = this.#idle.pop();
      if (slot !== undefined) return slot;
      if (this.#usable < this.#options.most) return this.#start();
      await this.#turn(signal);
    }
  }

  async #turn(signal: AbortSignal): Promise<void> {
    const waiter = Promise.withResolvers<void>();
    const leave = (): void => waiter.reject(new ProcessCallError("cancelled", "cancelled", { childFault: false }));
    this.#waiting.push(waiter);
    signal.addEventListener("abort", leave, { once: true });
    if (signal.aborted) leave();
    try {
      await waiter.promise;
    } catch (error) {
      const place = this.#waiting.indexOf(waiter);
      if (place >= 0) this.#waiting.splice(place, 1);
      else this.#waiting.shift()?.resolve(); // its turn had come: it is the next one's
      throw error;
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  #start(): Slot {
    const { memoryMb, env, onLine } = this.#options;
    const limits = memoryMb === undefined ? {} : { memoryMb };
    const pool = createProcessPool({ entry, size: 1, maxCalls, env, onLog: onLine, ...limits });
    const slot = { pool, loaded: loadIn(pool, this.#options.load), idleSinceMs: performance.now() };
    this.#all.add(slot);
    this.#usable += 1;
    return slot;
  }

  #retire(slot: Slot, afterMs: number): void {
    this.#usable -= 1;
    setTimeout(() => {
      void slot.pool.close().finally(() => this.#all.delete(slot));
    }, afterMs).unref();
    this.#fill();
  }

  #fill(): void {
    while (this.#closed === undefined && this.#usable < this.#options.warm) this.#idle.push(this.#start());
  }

  #shrink(): void {
    const beforeMs = performance.now() - idleMs;
    while (this.#usable > this.#options.warm && (this.#idle[0]?.idleSinceMs ?? Infinity) < beforeMs) {
      const slot = this.#idle.shift();
      if (slot !== undefined) this.#retire(slot, 0);
    }
  }
}

async function loadIn(pool: ProcessPool, load: HostLoad): Promise<ProcessCallError | undefined> {
  const { signal } = new AbortController();
  try {
    await pool.call(load, {
      signal,
      timeoutMs: loadMs,
      onEvent: () => {},
      onRequest: () => Promise.reject(new Error()),
    });
    return undefined;
  } catch (error) {
    return error instanceof ProcessCallError ? error : closedError();
  }
}

function closedError(): ProcessCallError {
  return new ProcessCallError("closed", "the runner was stopped during the call", { childFault: false });
}

/** Starts the warm children. */
export function createChildSlots(options: ChildSlotsOptions): ChildSlots {
  return new Slots(options);
}
