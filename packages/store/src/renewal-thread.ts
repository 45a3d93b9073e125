import { parentPort, workerData } from "node:worker_threads";
import { closeRedis, connectRedis, runScript, script } from "./connection.ts";
import { createKeyspace } from "./keys.ts";
import {
  heartbeatMs,
  lockMs,
  monotonicMs,
  sharedTimes,
  type FromThread,
  type JobLock,
  type RenewalOrders,
  type ToThread,
} from "./renewals.ts";

/** Locks are renewed every other time. */
const renewEveryMs = 150;
/** Renewals that are further apart may have been too late for heartbeats, of this process or of another one. */
const lateMs = heartbeatMs / 2;
/** How long the main thread may be stuck before others take over. */
const stuckMs = 4_000;
/** A server that says nothing for so long is gone. */
const silenceMs = 2_000;
/** Workers that died longer ago are not reported any more. */
const reportedForMs = 60_000;

/** Locks renewed by one script; Lua takes no more than some thousand arguments at once. */
const locksAtOnce = 500;

const beat = script("beat");
const renewLocks = script("renew-locks");

/** Runs in the thread. */
class RenewalLoop {
  readonly #owner: string;
  readonly #times: BigInt64Array;
  readonly #redis;
  readonly #keys: { heartbeat: string; workers: string };
  readonly #tell: (message: FromThread) => void;
  /** By queue, job and token. */
  readonly #locks = new Map<string, JobLock>();
  readonly #timer: NodeJS.Timeout;
  #silent = new Set<string>();
  #running: Promise<void> | undefined;
  #isFailing = false;
  #rounds = 0;

  constructor({ redisUrl, namespace, owner = "", times }: RenewalOrders, tell: (message: FromThread) => void) {
    const { global } = createKeyspace(namespace);
    this.#owner = owner;
    this.#times = new BigInt64Array(times);
    this.#redis = connectRedis(redisUrl, { silenceMs });
    this.#keys = { heartbeat: global(`alive:${owner}`), workers: global("workers") };
    this.#tell = tell;
    this.#timer = setInterval(() => this.#start(), renewEveryMs);
    this.#start();
  }

  hear(message: ToThread): void {
    if (message === "close") return void this.#close();
    for (const lock of message.released) this.#locks.delete(keyOf(lock));
    for (const lock of message.held) this.#locks.set(keyOf(lock), lock);
  }

  #start(): void {
    if (monotonicMs() - this.#read(sharedTimes.beatAt) > stuckMs) return;
    this.#running ??= this.#round().finally(() => (this.#running = undefined));
  }

  async #round(): Promise<void> {
    this.#rounds += 1;
    const locks = this.#rounds % 2 === 0 ? [...this.#locks.values()] : [];
    const parts = Array.from({ length: Math.ceil(locks.length / locksAtOnce) }, (_, at) =>
      locks.slice(at * locksAtOnce, (at + 1) * locksAtOnce),
    );
    const beating = { owner: this.#owner, heartbeatMs, reportedForMs };
    try {
      const [silent] = await Promise.all([
        runScript(this.#redis, beat, this.#keys, beating) as Promise<string[]>, // as the script has it
        ...parts.map(async (part) => await this.#renew(part)),
      ]);
      this.#noteSuccess();
      this.#report(silent);
    } catch (error) {
      if (!this.#isFailing) this.#tell({ error: error instanceof Error ? error.message : String(error) });
      this.#isFailing = true;
    }
  }

  async #renew(locks: readonly JobLock[]): Promise<void> {
    const queueKeys = locks.flatMap(({ queue, id }) => [`${queue}${id}:lock`, `${queue}stalled`, `${queue}active`]);
    const jobs = locks.flatMap(({ id, token }) => [id, token]);
    const kept = (await runScript(this.#redis, renewLocks, { queueKeys }, { lockMs, jobs })) as number[]; // its answer
    for (const [at, lock] of locks.entries()) if (kept[at] === 0) this.#locks.delete(keyOf(lock));
  }

  #noteSuccess(): void {
    const [nowMs, before] = [monotonicMs(), this.#read(sharedTimes.renewedAt)];
    if (before > 0 && nowMs - before > lateMs) this.#write(sharedTimes.steadySince, nowMs);
    this.#write(sharedTimes.renewedAt, nowMs);
    this.#isFailing = false;
    if (before === 0) this.#tell("renewed");
  }

  #report(silent: readonly string[]): void {
    const fresh = silent.filter((worker) => !this.#silent.has(worker));
    this.#silent = new Set(silent);
    if (fresh.length > 0) this.#tell({ silent: fresh });
  }

  #read(place: number): number {
    return Number(Atomics.load(this.#times, place));
  }

  #write(place: number, ms: number): void {
    Atomics.store(this.#times, place, BigInt(ms));
  }

  async #close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#running;
    await closeRedis(this.#redis);
    parentPort?.close();
  }
}

function keyOf({ queue, id, token }: JobLock): string {
  return `${queue}${id} ${token}`;
}

const orders = workerData as RenewalOrders; // written by Renewals
const loop = new RenewalLoop(orders, (message) => parentPort?.postMessage(message));
parentPort?.on("message", (message: ToThread) => loop.hear(message));
