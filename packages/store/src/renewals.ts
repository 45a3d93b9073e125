import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { createKeyspace } from "./keys.ts";
import {
  heartbeatMs,
  lockMs,
  LockTable,
  monotonicMs,
  sharedTimes,
  type FromThread,
  type JobLock,
  type RenewalOrders,
} from "./renewal-memory.ts";

export interface RenewalOptions {
  redisUrl: string;
  namespace: string;
  /** The worker whose heartbeat is renewed; absent: this process has none, and renews locks only. */
  owner?: string;
  /** Told when renewals begin to fail, and when the thread has ended and is started again. */
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
  readonly #buffer = new SharedArrayBuffer(Object.keys(sharedTimes).length * BigInt64Array.BYTES_PER_ELEMENT);
  readonly #times = new BigInt64Array(this.#buffer);
  readonly #held = new LockTable();
  readonly #beating: NodeJS.Timeout;
  readonly #listeners: (() => void)[] = [];
  #thread: Worker;
  #closed: Promise<void> | undefined;

  /** Resolves after the first renewal. Rejects if Redis does not take it. */
  static async start(options: RenewalOptions): Promise<Renewals> {
    const renewals = new Renewals(options);
    try {
      await renewals.#firstRenewal();
      return renewals;
    } catch (error) {
      await renewals.close();
      throw error;
    }
  }

  private constructor(options: RenewalOptions) {
    this.#options = options;
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
    const { redisUrl, namespace, owner } = this.#options;
    const { global } = createKeyspace(namespace);
    const keys = { heartbeat: global(`alive:${owner ?? ""}`), workers: global("workers") };
    const workerData: RenewalOrders = { redisUrl, owner, keys, times: this.#buffer, locks: this.#held.buffer };
    const resourceLimits = { maxYoungGenerationSizeMb: 2, maxOldGenerationSizeMb: 64 };
    const thread = new Worker(new URL("./renewal-thread.ts", import.meta.url), { workerData, resourceLimits });
    thread.unref();
    thread.on("message", (message: FromThread) => this.#hear(message));
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

  #hear(message: FromThread): void {
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
