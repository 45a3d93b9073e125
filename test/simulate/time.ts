import { AsyncLocalStorage } from "node:async_hooks";
import nodeCrypto from "node:crypto";
import net, { type Server } from "node:net";
import { syncBuiltinESMExports } from "node:module";
import timersPromises from "node:timers/promises";
import type { Clock } from "@larkline/protocol/clock";
import type { SeededRandom } from "../chaos/random.ts";

// Time and chance of this whole process. Apps get `simulatedClock`; what has no other way to be given a clock gets it in
// place of the globals: BullMQ, ioredis, the vendors' clients, and the streams and servers of Node. To be loaded before
// anything else.

const real = {
  setTimeout: globalThis.setTimeout,
  setImmediate: globalThis.setImmediate,
  monotonic: performance.now.bind(performance),
};

/** A "process": what runs in it has its timers and servers, and loses them when it dies. */
export interface Owner {
  readonly name: string;
  isDead: boolean;
  /** Until then its timers are late, as those of a process that was stopped. */
  stoppedUntilMs: number;
  readonly servers: Set<Server>;
}

const owners = new AsyncLocalStorage<Owner>();

/** Runs `work` as part of a process: all timers and servers that it makes, however late, belong to it. */
export function within<T>(owner: Owner, work: () => T): T {
  return owners.run(owner, work);
}

/** Runs `work` as part of no process: it lives as long as the simulation. */
export function outside<T>(work: () => T): T {
  return owners.exit(work);
}

export function ownerOfThis(): Owner | undefined {
  return owners.getStore();
}

/** Nothing that the process has planned happens any more. */
export function kill(owner: Owner): void {
  owner.isDead = true;
  for (const server of owner.servers) {
    if ("closeAllConnections" in server) (server.closeAllConnections as () => void)();
    server.close();
  }
  owner.servers.clear();
}

interface Timer {
  dueMs: number;
  /** The order among those that are due at the same time. */
  number: number;
  everyMs: number | undefined;
  owner: Owner | undefined;
  work: () => void;
  isOff: boolean;
}

/** When every simulation begins. Later than today: Redis would drop at once what expires at a time that has passed. */
const epochMs = Date.UTC(2040, 0, 2, 3);

/** Times in it are ms since the simulation began. */
class VirtualTime {
  #nowMs = 0;
  #numbers = 0;
  #timers = new TimerHeap();

  now(): number {
    return this.#nowMs;
  }

  /** What `Date.now` gives. */
  epochNow(): number {
    return epochMs + this.#nowMs;
  }

  after(ms: number, work: () => void, everyMs?: number): Timer {
    const dueMs = this.#nowMs + Math.max(1, Number.isFinite(ms) ? ms : 1);
    const run = AsyncLocalStorage.bind(work);
    const timer = {
      dueMs,
      number: ++this.#numbers,
      everyMs,
      owner: owners.getStore(),
      work: run,
      isOff: false,
    };
    this.#timers.push(timer);
    return timer;
  }

  /** When the next timer is due; undefined: there is none. */
  nextMs(): number | undefined {
    for (let first = this.#timers.first; first !== undefined; first = this.#timers.first) {
      if (!first.isOff && first.owner?.isDead !== true) {
        const untilMs = first.owner?.stoppedUntilMs ?? 0;
        if (untilMs <= first.dueMs) return first.dueMs;
        this.#timers.pop();
        this.#timers.push(Object.assign(first, { dueMs: untilMs }));
      } else this.#timers.pop();
    }
    return undefined;
  }

  /** Goes to a time and rings what is due by then. */
  advanceTo(ms: number): void {
    this.#nowMs = Math.max(this.#nowMs, ms);
    for (
      let next = this.nextMs();
      next !== undefined && next <= this.#nowMs;
      next = this.nextMs()
    ) {
      const timer = this.#timers.pop();
      if (timer === undefined) return;
      if (timer.everyMs === undefined) timer.isOff = true;
      else {
        this.#timers.push(
          Object.assign(timer, { dueMs: this.#nowMs + timer.everyMs, number: ++this.#numbers }),
        );
      }
      timer.work();
    }
  }

  /** Forgets all timers, and begins anew. */
  begin(): void {
    this.#timers = new TimerHeap();
    this.#nowMs = 0;
    this.#numbers = 0;
  }
}

/** Timers by when they are due: a binary heap. */
class TimerHeap {
  readonly #heap: Timer[] = [];

  get first(): Timer | undefined {
    return this.#heap[0];
  }

  push(timer: Timer): void {
    const heap = this.#heap;
    let at = heap.push(timer) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!this.#isBefore(timer, heap[above])) break;
      this.#swap(at, above);
      at = above;
    }
  }

  pop(): Timer | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    heap[0] = last;
    for (let at = 0; ;) {
      let least = at;
      for (const below of [2 * at + 1, 2 * at + 2]) {
        if (this.#isBefore(heap[below], heap[least])) least = below;
      }
      if (least === at) return first;
      this.#swap(at, least);
      at = least;
    }
  }

  #isBefore(one: Timer | undefined, other: Timer | undefined): boolean {
    if (one === undefined || other === undefined) return false;
    return one.dueMs === other.dueMs ? one.number < other.number : one.dueMs < other.dueMs;
  }

  #swap(one: number, other: number): void {
    const [first, second] = [this.#heap[one], this.#heap[other]];
    if (first === undefined || second === undefined) return;
    this.#heap[one] = second;
    this.#heap[other] = first;
  }
}

export const time = new VirtualTime();

/** The clock that apps are started with: its timers belong to the process that asks for them. */
export const simulatedClock: Clock = {
  now: () => Math.floor(time.epochNow()),
  monotonic: () => time.now(),
  after: (ms, work) => cancelOf(time.after(ms, work)),
  every: (ms, work) => cancelOf(time.after(ms, work, Math.max(1, ms))),
};

function cancelOf(timer: Timer): () => void {
  return () => void (timer.isOff = true);
}

/** A round of the real event loop: whatever has arrived on a socket is handled. */
export async function oneRound(): Promise<void> {
  await new Promise<void>((resolve) => void real.setImmediate(resolve));
}

/** Ms of real time, for measuring. */
export function realMs(): number {
  return real.monotonic();
}

/** What `setTimeout` gives back: libraries call its methods. */
function handleOf(start: () => Timer): NodeJS.Timeout {
  let timer = start();
  const handle = {
    ref: () => handle,
    unref: () => handle,
    hasRef: () => true,
    refresh: () => {
      timer.isOff = true;
      timer = start();
      return handle;
    },
    close: () => {
      timer.isOff = true;
      return handle;
    },
    [Symbol.toPrimitive]: () => timer.number,
    [Symbol.dispose]: () => void (timer.isOff = true),
  };
  return handle as unknown as NodeJS.Timeout; // has what Node documents of it
}

function clear(handle: unknown): void {
  if (typeof handle === "object" && handle !== null && "close" in handle) {
    (handle.close as () => void)();
  }
}

async function wait<T>(
  ms = 1,
  value?: T,
  { signal }: { signal?: AbortSignal } = {},
): Promise<T | undefined> {
  signal?.throwIfAborted();
  return await new Promise((resolve, reject) => {
    const timer = time.after(ms, () => {
      signal?.removeEventListener("abort", abort);
      resolve(value);
    });
    const abort = (): void => {
      timer.isOff = true;
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** From now on all code of this process has this clock and this chance. */
export function ownTimeAndChance(random: () => SeededRandom): void {
  ownTime();
  ownChance(random);
  const listen = net.Server.prototype.listen;
  net.Server.prototype.listen = function (this: Server, ...given: unknown[]) {
    owners.getStore()?.servers.add(this);
    return Reflect.apply(listen, this, given);
  } as typeof listen;
  net.Socket.prototype.setTimeout = silenceTimeout;
  syncBuiltinESMExports();
}

const silences = new WeakMap<net.Socket, Timer>();

/** As the method of sockets that it replaces: `timeout` is emitted when nothing is read or written for so long. */
function silenceTimeout(this: net.Socket, ms: number, onTimeout?: () => void): net.Socket {
  const before = silences.get(this);
  if (before !== undefined) before.isOff = true;
  silences.delete(this);
  if (onTimeout !== undefined) this[ms > 0 ? "once" : "off"]("timeout", onTimeout);
  if (ms > 0) watchSilence(this, ms);
  return this;
}

function watchSilence(socket: net.Socket, ms: number): void {
  const bytes = socket.bytesRead + socket.bytesWritten;
  const look = (): void => {
    if (socket.destroyed) return;
    if (socket.bytesRead + socket.bytesWritten === bytes) socket.emit("timeout");
    else watchSilence(socket, ms);
  };
  silences.set(socket, time.after(ms, look));
}

function ownTime(): void {
  const setTimeout = (work: (...given: unknown[]) => void, ms = 1, ...given: unknown[]) =>
    handleOf(() => time.after(ms, () => work(...given)));
  const setInterval = (work: (...given: unknown[]) => void, ms = 1, ...given: unknown[]) =>
    handleOf(() => time.after(ms, () => work(...given), Math.max(1, ms)));
  Object.assign(globalThis, { setTimeout, setInterval, clearTimeout: clear, clearInterval: clear });
  Object.assign(timersPromises, { setTimeout: wait });
  Date.now = () => Math.floor(time.epochNow());
  globalThis.Date = new Proxy(Date, {
    construct: (target, given, newTarget) =>
      Reflect.construct(target, given.length === 0 ? [time.epochNow()] : given, newTarget) as Date,
  });
  performance.now = () => time.now();
  process.hrtime.bigint = () => BigInt(Math.round(time.now() * 1e6));
  AbortSignal.timeout = (ms) => {
    const late = new AbortController();
    time.after(ms, () =>
      late.abort(new DOMException("The operation was aborted due to timeout", "TimeoutError")),
    );
    return late.signal;
  };
}

function ownChance(random: () => SeededRandom): void {
  const fill = <T extends ArrayBufferView | null>(view: T): T => {
    if (view === null) return view;
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = random().below(256);
    return view;
  };
  const bytesOf = (size: number): Buffer => fill(Buffer.alloc(size));
  const uuid = (): `${string}-${string}-${string}-${string}-${string}` => {
    const hex = bytesOf(16).toString("hex");
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
  };
  Math.random = () => random().next();
  Object.assign(globalThis.crypto, { randomUUID: uuid, getRandomValues: fill });
  Object.assign(nodeCrypto, { randomUUID: uuid, randomBytes: bytesOf, randomFillSync: fill });
}
