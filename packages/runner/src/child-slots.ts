import { availableParallelism } from "node:os";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import type { ToolOutcome } from "@larkline/protocol/tool";
import {
  createProcessPool,
  ProcessCallError,
  type ProcessCallOptions,
  type ProcessPool,
} from "@larkline/sandbox";
import type { LentPackages } from "./tool-modules.ts";
import type { BeginCall } from "./level.ts";

/** Asks a process to load modules before it is called. */
export interface HostLoad {
  load: readonly string[];
  lend?: LentPackages | undefined;
}

/**
 * How many children fit into the memory of this process, over all sets of them. The children that are kept warm do
 * not count: without them nothing would run at all.
 */
export class ChildRoom {
  readonly #most: number;
  readonly #sets = new Set<{ giveUpIdle(): boolean; grow(): void }>();
  #taken = 0;

  constructor(most: number) {
    this.#most = most;
  }

  join(set: { giveUpIdle(): boolean; grow(): void }): void {
    this.#sets.add(set);
  }

  /** Takes a place for a child. When all are taken, an idle child of another set is ended to make room. */
  take(): boolean {
    if (this.#taken < this.#most) {
      this.#taken += 1;
      return true;
    }
    for (const set of this.#sets) if (set.giveUpIdle()) break;
    return false;
  }

  free(): void {
    this.#taken -= 1;
    this.changed();
  }

  /** A child is idle, or gone: others may be waiting for its place. */
  changed(): void {
    for (const set of this.#sets) set.grow();
  }
}

export interface ChildSlotsOptions {
  /** Children at most; further calls wait. */
  most: number;
  /** Calls that one child has at once. */
  callsAtOnce: number;
  /** Shared with the other sets of children. */
  room: ChildRoom;
  /** Children that are kept while there are no calls. */
  warm: number;
  memoryMb?: number | undefined;
  env: Readonly<Record<string, string>>;
  /** Where children keep compiled code for each other. */
  codeCache: string | undefined;
  /** The first thing that each child does. */
  load: HostLoad;
  onLine(line: string, stream: "stdout" | "stderr"): void;
  clock?: Clock | undefined;
}

/** One call for a child. */
export interface SlotCall {
  /** What the child gets; asked when the call has begun. */
  body(): unknown;
  /** Called when a child is there for it; the call does not take place where this gives an outcome. */
  begin: BeginCall;
  /** When all of it is over at the latest, in ms from now, waiting for a child included. Default: no bound. */
  endsWithinMs?: number | undefined;
}

/** Children for calls: started when calls wait for one, kept while they are needed. */
export interface ChildSlots {
  /**
   * Starts the warm children before there is a call, which would start them, too. Resolves when the first one has loaded
   * the modules; rejects with the reason why it could not.
   */
  warm(): Promise<void>;
  call(
    call: SlotCall,
    options: ProcessCallOptions,
  ): Promise<{ answer: unknown } | { instead: ToolOutcome }>;
  /** Kills all; calls under way reject. Idempotent. */
  close(): Promise<void>;
}

const entry = new URL("tool-process.ts", import.meta.url);
const maxCalls = 5_000;
const loadMs = 30_000;
const idleMs = 60_000;
/** A child that should stop is killed after 2 s; until then it gets no other call. */
const leavingMs = 2_500;
/** After a child that could not load the modules. */
const pauseMs = 1_000;
/** While no call has ended for this long, waiting for one takes longer than starting a child. */
const stallMs = 50;
/**
 * Starting a child keeps a processor busy, so on a dedicated machine more at a time do not start sooner. On a shared
 * machine they do: each gets its share of the processors.
 */
const startsAtOnce = Math.max(8, 4 * availableParallelism());
/** Node fires longer timers at once. */
const maxTimerMs = 2_147_483_647;

interface Slot {
  pool: ProcessPool;
  /** Places for calls that are not taken. */
  free: number;
  /** `leaving`, `broken`: takes no further call until all of its calls have ended, and then ends, or loads the modules again. */
  state: "open" | "leaving" | "broken";
  /** Whether its child has loaded the modules; never rejects. */
  loaded: Promise<ProcessCallError | undefined>;
  idleSinceMs: number;
  /** Whether it has a place of the room: the warm ones have none. */
  hasPlace: boolean;
}

interface Waiter {
  take(slot: Slot): void;
  reject(error: ProcessCallError): void;
}

/**
 * A call takes whatever place is free first: in a child that was busy, or in one that has just been started. Short calls
 * share a few children; when calls wait and none ends, as many are started as the waiting calls need.
 */
class Slots implements ChildSlots {
  readonly #options: ChildSlotsOptions;
  /** Those with a free place. The last one was used last, and is used first. */
  readonly #idle: Slot[] = [];
  readonly #all = new Set<Slot>();
  /** In the order they came. */
  readonly #waiting = new Set<Waiter>();
  readonly #clock: Clock;
  /** Functions that cancel the timers. */
  readonly #later = new Set<() => void>();
  #closed: Promise<void> | undefined;
  /** Slots that calls may use: those in `all` without the leaving ones. */
  #usable = 0;
  #starting = 0;
  /** When a child was last free for a waiting call. */
  #endedMs = 0;
  #looksAgain = false;
  #shrinks = false;

  constructor(options: ChildSlotsOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    options.room.join({ giveUpIdle: () => this.#giveUpIdle(), grow: () => this.#grow() });
  }

  async warm(): Promise<void> {
    this.#fill();
    const [first] = this.#all;
    const problem = await first?.loaded;
    if (problem !== undefined) throw problem;
  }

  async call(
    { body, begin, endsWithinMs }: SlotCall,
    options: ProcessCallOptions,
  ): Promise<{ answer: unknown } | { instead: ToolOutcome }> {
    const calledMs = this.#clock.monotonic();
    const slot = await this.#take(options.signal, endsWithinMs);
    let state: Slot["state"] = "open";
    let isCalled = false;
    try {
      if (options.signal.aborted) throw cancelledError();
      const instead = await begin();
      if (instead !== undefined) return { instead };
      isCalled = true;
      const leftMs = (endsWithinMs ?? Infinity) - (this.#clock.monotonic() - calledMs);
      const timeoutMs = Math.max(1, Math.min(options.timeoutMs, leftMs));
      return { answer: await slot.pool.call(body(), { ...options, timeoutMs }) };
    } catch (error) {
      if (!isCalled || !(error instanceof ProcessCallError)) throw error;
      // The child of an aborted call may still run it; a dead child has a successor.
      if (error.failure === "timeout" || error.failure === "cancelled") state = "leaving";
      else if (error.failure !== "handler") state = "broken";
      throw error;
    } finally {
      this.#endedMs = this.#clock.monotonic();
      this.#giveBack(slot, state);
      this.#grow();
    }
  }

  async close(): Promise<void> {
    this.#closed ??= (async () => {
      for (const cancel of this.#later) cancel();
      for (const waiter of this.#waiting) waiter.reject(closedError());
      await Promise.all([...this.#all].map(async ({ pool }) => await pool.close()));
    })();
    await this.#closed;
  }

  async #take(signal: AbortSignal, withinMs: number | undefined): Promise<Slot> {
    if (this.#closed !== undefined) throw closedError();
    if (signal.aborted) throw cancelledError();
    const slot = this.#idle.at(-1);
    if (slot === undefined) {
      this.#fill();
      return await this.#nextFree(signal, withinMs);
    }
    this.#takePlace(slot);
    return slot;
  }

  #takePlace(slot: Slot): void {
    slot.free -= 1;
    if (slot.free === 0) this.#hide(slot);
  }

  /** Calls do not find it any more. */
  #hide(slot: Slot): void {
    const at = this.#idle.indexOf(slot);
    if (at >= 0) this.#idle.splice(at, 1);
  }

  /** Records the state in which a call has left its child. An earlier finding of another call takes precedence. */
  #giveBack(slot: Slot, state: Slot["state"]): void {
    slot.free += 1;
    if (slot.state === "open" && state !== "open") {
      slot.state = state;
      this.#hide(slot);
      if (state === "leaving") {
        this.#usable -= 1;
        this.#fill();
      }
    }
    if (slot.state === "open") return this.#offer(slot);
    if (slot.free < this.#options.callsAtOnce) return;
    if (slot.state === "broken") this.#load(slot);
    else this.#after(leavingMs, () => this.#end(slot));
  }

  async #nextFree(signal: AbortSignal, withinMs: number | undefined): Promise<Slot> {
    const { promise, resolve, reject } = Promise.withResolvers<Slot>();
    const waiter: Waiter = { take: resolve, reject };
    const leave = (): void => {
      if (this.#waiting.delete(waiter)) reject(cancelledError());
    };
    const late = (): void => {
      if (this.#waiting.delete(waiter)) reject(lateError());
    };
    if (this.#waiting.size === 0) this.#endedMs = this.#clock.monotonic();
    this.#waiting.add(waiter);
    this.#grow();
    signal.addEventListener("abort", leave, { once: true });
    const cancel =
      withinMs === undefined
        ? undefined
        : this.#clock.after(Math.min(Math.max(0, withinMs), maxTimerMs), late);
    return await promise.finally(() => {
      cancel?.();
      this.#waiting.delete(waiter);
      signal.removeEventListener("abort", leave);
    });
  }

  #offer(slot: Slot): void {
    for (const waiter of this.#waiting) {
      if (slot.free === 0) return;
      this.#waiting.delete(waiter);
      this.#takePlace(slot);
      waiter.take(slot);
    }
    if (slot.free === 0) return;
    this.#hide(slot);
    this.#idle.push(slot);
    if (!this.#isUnused(slot)) return;
    slot.idleSinceMs = this.#clock.monotonic();
    if (this.#usable > this.#options.warm) this.#options.room.changed();
  }

  #isUnused({ free }: Slot): boolean {
    return free === this.#options.callsAtOnce;
  }

  /** Starts children for those that wait while no call ends: short ones make room sooner than a new child is there. */
  #grow(): void {
    while (
      this.#isShort() &&
      this.#clock.monotonic() - this.#endedMs >= stallMs &&
      this.#options.room.take()
    ) {
      this.#start(true);
    }
    if (!this.#isShort() || this.#looksAgain) return;
    this.#looksAgain = true;
    this.#after(stallMs / 2, () => {
      this.#looksAgain = false;
      this.#grow();
    });
  }

  #isShort(): boolean {
    const { most } = this.#options;
    const isAllowed =
      this.#closed === undefined && this.#usable < most && this.#starting < startsAtOnce;
    return isAllowed && this.#waiting.size > this.#starting * this.#options.callsAtOnce;
  }

  #start(hasPlace: boolean): void {
    const { memoryMb, env, codeCache, onLine, callsAtOnce } = this.#options;
    const limits = memoryMb === undefined ? {} : { memoryMb };
    const pool = createProcessPool({
      entry,
      size: 1,
      callsAtOnce,
      maxCalls,
      env,
      codeCache,
      onLog: onLine,
      clock: this.#clock,
      ...limits,
    });
    const slot: Slot = {
      pool,
      free: 0,
      state: "open",
      loaded: Promise.resolve(undefined),
      idleSinceMs: 0,
      hasPlace,
    };
    this.#all.add(slot);
    this.#usable += 1;
    this.#load(slot);
    this.#shrinkLater();
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
    if (problem === undefined) {
      slot.state = "open";
      slot.free = this.#options.callsAtOnce;
      this.#offer(slot);
    } else this.#giveUp(slot, problem);
    this.#grow();
  }

  /** Fails the call that has waited longest; a new child is started after a pause. */
  #giveUp(slot: Slot, problem: ProcessCallError): void {
    const [first] = this.#waiting;
    if (first !== undefined) this.#waiting.delete(first);
    first?.reject(problem);
    this.#drop(slot);
    this.#after(pauseMs, () => this.#fill());
  }

  #drop(slot: Slot): void {
    this.#hide(slot);
    this.#usable -= 1;
    this.#end(slot);
  }

  #end(slot: Slot): void {
    void slot.pool.close().finally(() => {
      this.#all.delete(slot);
      if (slot.hasPlace) this.#options.room.free();
      slot.hasPlace = false;
    });
  }

  /** Unless all is closed before. */
  #after(ms: number, work: () => void): void {
    if (this.#closed !== undefined) return;
    const cancel = this.#clock.after(ms, () => {
      this.#later.delete(cancel);
      work();
    });
    this.#later.add(cancel);
  }

  #fill(): void {
    while (this.#closed === undefined && this.#usable < this.#options.warm) this.#start(false);
  }

  /** Frees the place of an idle child at once, where there is one. */
  #giveUpIdle(): boolean {
    const slot = this.#idle.find((each) => each.hasPlace && this.#isUnused(each));
    if (slot === undefined || this.#waiting.size > 0) return false;
    this.#drop(slot);
    return true;
  }

  /** Looks for children that are not needed any more, as long as there are more than the warm ones. */
  #shrinkLater(): void {
    if (this.#shrinks || this.#usable <= this.#options.warm) return;
    this.#shrinks = true;
    this.#after(idleMs / 4, () => {
      this.#shrinks = false;
      this.#shrink();
      this.#shrinkLater();
    });
  }

  #shrink(): void {
    const beforeMs = this.#clock.monotonic() - idleMs;
    const unused = this.#idle.filter((slot) => this.#isUnused(slot) && slot.idleSinceMs < beforeMs);
    for (const slot of unused) if (this.#usable > this.#options.warm) this.#drop(slot);
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

function lateError(): ProcessCallError {
  const message = "no process was free for the call before its deadline; it was not run";
  return new ProcessCallError("timeout", message, { childFault: false });
}

function closedError(): ProcessCallError {
  return new ProcessCallError("closed", "the runner was stopped during the call", {
    childFault: false,
  });
}

/** Starts no child yet. */
export function createChildSlots(options: ChildSlotsOptions): ChildSlots {
  return new Slots(options);
}
