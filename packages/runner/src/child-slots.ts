import { availableParallelism } from "node:os";
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

/** Children for calls: started when calls wait for one, kept while they are needed. */
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
/** After a child that could not load the modules. */
const pauseMs = 1_000;
/** A call that has taken this long may take much longer. */
const longCallMs = 200;
const startsAtOnce = availableParallelism();

interface Slot {
  pool: ProcessPool;
  /** Whether its child has loaded the modules; never rejects. */
  loaded: Promise<ProcessCallError | undefined>;
  idleSinceMs: number;
  /** When its call began; undefined while it has none. */
  busySinceMs: number | undefined;
}

interface Waiter {
  take(slot: Slot): void;
  reject(error: ProcessCallError): void;
}

/**
 * A call takes whatever child is free first: one that was busy, or one that has just been started. So short
 * calls share a few children, and only calls that stay bring more of them.
 */
class Slots implements ChildSlots {
  readonly #options: ChildSlotsOptions;
  /** The last one was used last, and is used first. */
  readonly #idle: Slot[] = [];
  readonly #all = new Set<Slot>();
  /** In the order they came. */
  readonly #waiting = new Set<Waiter>();
  readonly #shrinking: NodeJS.Timeout;
  #closed: Promise<void> | undefined;
  /** Slots that calls may use: those in `all` without the leaving ones. */
  #usable = 0;
  #starting = 0;
  #lookAgain: NodeJS.Timeout | undefined;

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
    if (options.signal.aborted) {
      this.#offer(slot);
      throw cancelledError();
    }
    let next: () => void = () => this.#offer(slot);
    slot.busySinceMs = performance.now();
    try {
      return await slot.pool.call(body, options);
    } catch (error) {
      if (!(error instanceof ProcessCallError)) throw error;
      // The child of a call that was broken off may still be at it; a dead one has a successor.
      if (error.failure === "timeout" || error.failure === "cancelled") next = () => this.#retire(slot, leavingMs);
      else if (error.failure !== "handler") next = () => this.#load(slot);
      throw error;
    } finally {
      slot.busySinceMs = undefined;
      next();
      this.#grow();
    }
  }

  async close(): Promise<void> {
    this.#closed ??= (async () => {
      clearInterval(this.#shrinking);
      clearTimeout(this.#lookAgain);
      for (const waiter of this.#waiting) waiter.reject(closedError());
      await Promise.all([...this.#all].map(async ({ pool }) => await pool.close()));
    })();
    await this.#closed;
  }

  async #take(signal: AbortSignal): Promise<Slot> {
    if (this.#closed !== undefined) throw closedError();
    if (signal.aborted) throw cancelledError();
    return this.#idle.pop() ?? (await this.#nextFree(signal));
  }

  async #nextFree(signal: AbortSignal): Promise<Slot> {
    const { promise, resolve, reject } = Promise.withResolvers<Slot>();
    const waiter: Waiter = { take: resolve, reject };
    const leave = (): void => {
      if (this.#waiting.delete(waiter)) reject(cancelledError());
    };
    this.#waiting.add(waiter);
    this.#grow();
    signal.addEventListener("abort", leave, { once: true });
    return await promise.finally(() => {
      this.#waiting.delete(waiter);
      signal.removeEventListener("abort", leave);
    });
  }

  #offer(slot: Slot): void {
    const [first] = this.#waiting;
    if (first === undefined) {
      this.#idle.push(Object.assign(slot, { idleSinceMs: performance.now() }));
      return;
    }
    this.#waiting.delete(first);
    first.take(slot);
  }

  /**
   * Starts children for those that wait, no more at once than there are processors to start them, and only
   * while all others have long calls: short ones make room sooner than a new child is there.
   */
  #grow(): void {
    while (this.#isShort() && this.#staysBusy()) this.#start();
    if (!this.#isShort() || this.#lookAgain !== undefined) return;
    this.#lookAgain = setTimeout(() => {
      this.#lookAgain = undefined;
      this.#grow();
    }, longCallMs / 4).unref();
  }

  #isShort(): boolean {
    const { most } = this.#options;
    const isAllowed = this.#closed === undefined && this.#usable < most && this.#starting < startsAtOnce;
    return isAllowed && this.#waiting.size > this.#starting;
  }

  #staysBusy(): boolean {
    const sinceMs = performance.now() - longCallMs;
    return [...this.#all].every(({ busySinceMs = 0 }) => busySinceMs < sinceMs);
  }

  #start(): void {
    const { memoryMb, env, onLine } = this.#options;
    const limits = memoryMb === undefined ? {} : { memoryMb };
    const pool = createProcessPool({ entry, size: 1, maxCalls, env, onLog: onLine, ...limits });
    const slot: Slot = { pool, loaded: Promise.resolve(undefined), idleSinceMs: 0, busySinceMs: undefined };
    this.#all.add(slot);
    this.#usable += 1;
    this.#load(slot);
  }

  #load(slot: Slot): void {
    this.#starting += 1;
    slot.loaded = loadIn(slot.pool, this.#options.load);
    void this.#useWhenLoaded(slot);
  }

  async #useWhenLoaded(slot: Slot): Promise<void> {
    const problem = await slot.loaded;
    this.#starting -= 1;
    if (this.#closed !== undefined) return;
    if (problem === undefined) this.#offer(slot);
    else this.#giveUp(slot, problem);
    this.#grow();
  }

  /** Whoever has waited longest is told; a new child is tried after a pause. */
  #giveUp(slot: Slot, problem: ProcessCallError): void {
    const [first] = this.#waiting;
    if (first !== undefined) this.#waiting.delete(first);
    first?.reject(problem);
    this.#drop(slot);
    setTimeout(() => this.#fill(), pauseMs).unref();
  }

  #retire(slot: Slot, afterMs: number): void {
    this.#usable -= 1;
    setTimeout(() => this.#end(slot), afterMs).unref();
    this.#fill();
  }

  #drop(slot: Slot): void {
    this.#usable -= 1;
    this.#end(slot);
  }

  #end(slot: Slot): void {
    void slot.pool.close().finally(() => this.#all.delete(slot));
  }

  #fill(): void {
    while (this.#closed === undefined && this.#usable < this.#options.warm) this.#start();
  }

  #shrink(): void {
    const beforeMs = performance.now() - idleMs;
    while (this.#usable > this.#options.warm && (this.#idle[0]?.idleSinceMs ?? Infinity) < beforeMs) {
      const slot = this.#idle.shift();
      if (slot !== undefined) this.#drop(slot);
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

function cancelledError(): ProcessCallError {
  return new ProcessCallError("cancelled", "cancelled", { childFault: false });
}

function closedError(): ProcessCallError {
  return new ProcessCallError("closed", "the runner was stopped during the call", { childFault: false });
}

/** Starts the warm children. */
export function createChildSlots(options: ChildSlotsOptions): ChildSlots {
  return new Slots(options);
}
