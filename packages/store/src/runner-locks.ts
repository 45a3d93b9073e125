import {
  pause,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

const takeLock = script("take-lock");
const leaveLock = script("leave-lock");

/** A process that dies holds its locks up for that long. */
const holdMs = 15_000;

interface LockOptions {
  /** Whose call it is: people take turns. */
  person: string;
  signal: AbortSignal;
  /**
   * The least time between the beginnings of two calls, ms. Such a lock is not held: it gives calls their pace. Default:
   * one call at a time, at any pace.
   */
  everyMs?: number;
}

/**
 * Locks that the processes of one runner share, for objects of which a service takes one change at a time. They reach no
 * further than the runner: a stolen one can delay its own calls. Without them the service's own refusal is waited for.
 */
export class RunnerLocks {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #runner: string;
  readonly #clock: Clock;
  readonly #random: Random;

  constructor({
    redis,
    namespace,
    runner,
    clock = systemClock,
    random = systemRandom,
  }: StoreOptions & { runner: string }) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#runner = runner;
    this.#clock = clock;
    this.#random = random;
  }

  /** Runs the work when the object is free. Rejects with the signal's reason when that comes first. */
  async run<T>(object: string, options: LockOptions, work: () => Promise<T>): Promise<T> {
    const ticket = this.#random.id();
    const isHeld = options.everyMs === undefined;
    const take = async (renews = false): Promise<number> =>
      Number(
        await runScript(this.#redis, takeLock, this.#keysOf(object), {
          ticket,
          person: options.person,
          holdMs: isHeld ? holdMs : 0,
          everyMs: options.everyMs ?? 0,
          renews: renews ? "1" : "0",
        }),
      );
    let release: (() => void) | undefined;
    try {
      for (let waitMs = await take(); waitMs > 0; waitMs = await take()) {
        await pause(this.#clock, waitMs, options.signal);
        options.signal.throwIfAborted();
      }
      if (isHeld) release = this.#hold(async () => await take(true));
      return await work();
    } finally {
      release?.();
      if (isHeld || options.signal.aborted) {
        await runScript(this.#redis, leaveLock, this.#keysOf(object), { ticket }).catch(() => 0);
      }
    }
  }

  /** Renews the lock until the returned function is called. A renewal that fails is made up for by the next one. */
  #hold(renew: () => Promise<number>): () => void {
    let isOver = false;
    let cancel: (() => void) | undefined;
    const later = (): void => {
      if (!isOver) cancel = this.#clock.after(holdMs / 3, () => void renew().then(later, later));
    };
    later();
    return () => {
      isOver = true;
      cancel?.();
    };
  }

  #keysOf(object: string): { lock: string; waiting: string; seen: string } {
    return {
      lock: this.#keys.lockOf(this.#runner, object),
      waiting: this.#keys.lockWaiting(this.#runner, object),
      seen: this.#keys.lockSeen(this.#runner, object),
    };
  }
}
