import { parentPort, workerData } from "node:worker_threads";
import { closeRedis, connectRedis, runScript, script } from "./connection.ts";
import {
  LockTable,
  type HeldLock,
  heartbeatMs,
  lockMs,
  monotonicMs,
  sharedTimes,
  type FromThread,
  type RenewalOrders,
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
  readonly #post: (message: FromThread) => void;
  readonly #locks: LockTable;
  /** Uses of places in the table whose locks others have. */
  #lost = new Set<number>();
  readonly #timer: NodeJS.Timeout;
  #silent = new Set<string>();
  #running: Promise<void> | undefined;
  #isFailing = false;
  #rounds = 0;

  constructor({ redisUrl, owner = "", keys, times, locks }: RenewalOrders, post: (message: FromThread) => void) {
    this.#owner = owner;
    this.#times = new BigInt64Array(times);
    this.#locks = new LockTable(locks);
    this.#redis = connectRedis(redisUrl, { silenceMs });
    this.#keys = keys;
    this.#post = post;
    this.#timer = setInterval(() => this.#start(), renewEveryMs);
    this.#start();
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#running;
    await closeRedis(this.#redis);
    parentPort?.close();
  }

  #start(): void {
    if (monotonicMs() - this.#read(sharedTimes.beatAt) > stuckMs) return;
    this.#running ??= this.#round().finally(() => (this.#running = undefined));
  }

  async #round(): Promise<void> {
    this.#rounds += 1;
    const locks = this.#rounds % 2 === 0 ? this.#heldLocks() : [];
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
      if (!this.#isFailing) this.#post({ error: error instanceof Error ? error.message : String(error) });
      this.#isFailing = true;
    }
  }

  /** Those that are held, as far as they are not lost. */
  #heldLocks(): HeldLock[] {
    const held = this.#locks.read();
    const uses = new Set(held.map(({ use }) => use));
    this.#lost = new Set([...this.#lost].filter((use) => uses.has(use)));
    return held.filter(({ use }) => !this.#lost.has(use));
  }

  async #renew(locks: readonly HeldLock[]): Promise<void> {
    const queueKeys = locks.flatMap(({ queue, id }) => [`${queue}${id}:lock`, `${queue}stalled`, `${queue}active`]);
    const jobs = locks.flatMap(({ id, token }) => [id, token]);
    const kept = (await runScript(this.#redis, renewLocks, { queueKeys }, { lockMs, jobs })) as number[]; // its answer
    for (const [at, { use }] of locks.entries()) if (kept[at] === 0) this.#lost.add(use);
  }

  #noteSuccess(): void {
    const [nowMs, before] = [monotonicMs(), this.#read(sharedTimes.renewedAt)];
    if (before > 0 && nowMs - before > lateMs) this.#write(sharedTimes.steadySince, nowMs);
    this.#write(sharedTimes.renewedAt, nowMs);
    this.#isFailing = false;
    if (before === 0) this.#post("renewed");
  }

  #report(silent: readonly string[]): void {
    const fresh = silent.filter((worker) => !this.#silent.has(worker));
    this.#silent = new Set(silent);
    if (fresh.length > 0) this.#post({ silent: fresh });
  }

  #read(place: number): number {
    return Number(Atomics.load(this.#times, place));
  }

  #write(place: number, ms: number): void {
    Atomics.store(this.#times, place, BigInt(ms));
  }
}

const orders = workerData as RenewalOrders; // written by Renewals
const loop = new RenewalLoop(orders, (message) => parentPort?.postMessage(message));
// The only message is the order to end.
parentPort?.on("message", () => void loop.close());
