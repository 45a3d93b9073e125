/** Time as one process sees it. Given to an app when it starts; a simulation passes its own. */
export interface Clock {
  /** Epoch ms by the clock that all processes of a deployment share, see {@link sharedNow}. */
  now(): number;
  /** Ms since some moment, never going back whatever is done to the machine's clock. For measuring. */
  monotonic(): number;
  /** Calls `work` once after `ms`; the returned function cancels that. */
  after(ms: number, work: () => void): () => void;
  /** Calls `work` every `ms` until the returned function is called. Keeps no process alive. */
  every(ms: number, work: () => void): () => void;
}

/** Chance as one process sees it. */
export interface Random {
  uuid(): string;
  /** An id of 22 characters (128 bits, base64url) that cannot be guessed. */
  id(): string;
  /** From 0 up to, but without, 1. Good enough to spread waits, no secret. */
  fraction(): number;
}

/** The clock of the machine, set by that of Redis. */
export const systemClock: Clock = {
  now: sharedNow,
  monotonic: () => performance.now(),
  after: (ms, work) => {
    const timer = setTimeout(work, ms);
    return () => clearTimeout(timer);
  },
  every: (ms, work) => {
    const timer = setInterval(work, ms);
    timer.unref();
    return () => clearInterval(timer);
  },
};

/** The machine's source of secrets. It loads `node:crypto` with the first one: tools in sandboxes load this file for the clock. */
export const systemRandom: Random = {
  uuid: () => crypto.randomUUID(),
  id: () => Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString("base64url"),
  fraction: () => Math.random(),
};

/**
 * Rejects when `work` takes longer than `ms`; the work itself is not stopped. Answers that have arrived by then are read
 * first: a process that was too busy to read them in time must not call its work undone.
 */
export async function withDeadline<T>(clock: Clock, work: Promise<T>, ms: number): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const cancel = clock.after(
    ms,
    () => void setImmediate(() => reject(new Error(`no answer within ${ms} ms`))),
  );
  work.finally(cancel).then(resolve, reject);
  return await promise;
}

/**
 * Aborts after `ms` with a `TimeoutError`, as the signal of `AbortSignal.timeout` does, or before with one of `others`.
 * Keeps no process alive.
 */
export function deadline(clock: Clock, ms: number, ...others: AbortSignal[]): AbortSignal {
  const late = new AbortController();
  const cancel = clock.every(ms, () => {
    cancel();
    late.abort(new DOMException("The operation was aborted due to timeout", "TimeoutError"));
  });
  return others.length === 0 ? late.signal : AbortSignal.any([...others, late.signal]);
}

/** Resolves after `ms`, or as soon as `signal` aborts: the caller looks at the signal afterwards. */
export async function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted === true) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const cancel = clock.after(ms, resolve);
  const wake = (): void => resolve();
  signal?.addEventListener("abort", wake, { once: true });
  await promise;
  cancel();
  signal?.removeEventListener("abort", wake);
}

/** Epoch ms of the shared clock minus `performance.now()`; undefined until Redis has answered with its time. */
let anchor: number | undefined;

/**
 * Epoch ms by the clock that all processes of a deployment share, that of Redis: for every time that another process
 * compares with its own. A machine whose own clock is wrong, or is set while it runs, does not disagree with the rest.
 * Until {@link followClock} has been called it is the machine's clock.
 */
export function sharedNow(): number {
  return anchor === undefined ? Date.now() : Math.round(performance.now() + anchor);
}

/** Epoch ms by the clock of this machine: only for what is compared with it, as BullMQ and file systems do. */
export function machineNow(): number {
  return Date.now();
}

/** Sets the shared clock: it shows `epochMs` at the moment when `performance.now()` is `atMs`. */
export function followClock(epochMs: number, atMs: number): void {
  anchor = epochMs - atMs;
}

/** Goes back to the machine's clock, as before the first {@link followClock}. */
export function forgetClock(): void {
  anchor = undefined;
}
