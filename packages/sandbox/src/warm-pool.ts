import { setTimeout as delay } from "node:timers/promises";
import type { Guest } from "./guest.ts";
import { profileKey, type GuestProfile } from "./guest-launch.ts";

export interface WarmPoolOptions {
  /** Guests kept for each profile. */
  size: number;
  /** Boots one; undefined when it did not boot. */
  boot(profile: GuestProfile, signal: AbortSignal): Promise<Guest | undefined>;
  /** Kills one that nobody takes any more and gives its slot back. Never rejects. */
  discard(guest: Guest): Promise<void>;
}

interface Shelf {
  profile: GuestProfile;
  ready: Guest[];
  usedAtMs: number;
  isFilling: boolean;
}

/** Kinds of programs for which guests are kept. */
export const maxProfiles = 4;
const idleMs = 300_000;
const lookMs = 30_000;
const pauseMs = 2_000;
/** Boots that fail in a row until it is left to the next run to try again. */
const mostFailures = 3;
const politenessMs = 10;

/** Guests that were booted ahead, and prepared for their tool, each for one run: that is off the way, and nothing is carried over. */
export class WarmPool {
  readonly #options: WarmPoolOptions;
  readonly #shelves = new Map<string, Shelf>();
  readonly #closing = new AbortController();
  readonly #look: NodeJS.Timeout;
  readonly #fillings = new Set<Promise<void>>();

  constructor(options: WarmPoolOptions) {
    this.#options = options;
    this.#look = setInterval(() => void this.#dropIdle(), lookMs).unref();
  }

  /** One that fits, to be used once; undefined when there is none. From now on some are kept for the profile. */
  take(profile: GuestProfile): Guest | undefined {
    if (this.#options.size === 0 || this.#closing.signal.aborted) return undefined;
    const shelf = this.#shelf(profile);
    shelf.usedAtMs = Date.now();
    const guest = this.#firstAlive(shelf);
    this.#fill(shelf);
    return guest;
  }

  async close(): Promise<void> {
    this.#closing.abort();
    clearInterval(this.#look);
    await Promise.all(this.#fillings);
    await Promise.all([...this.#shelves.keys()].map(async (key) => await this.#drop(key)));
  }

  #firstAlive({ ready }: Shelf): Guest | undefined {
    for (let guest = ready.shift(); guest !== undefined; guest = ready.shift()) {
      if (guest.isAlive) return guest;
      void this.#options.discard(guest);
    }
    return undefined;
  }

  #shelf(profile: GuestProfile): Shelf {
    const key = profileKey(profile);
    const known = this.#shelves.get(key);
    const shelf = known ?? { profile, ready: [], usedAtMs: 0, isFilling: false };
    // The map keeps the order of use: the first one was not used for the longest time.
    this.#shelves.delete(key);
    this.#shelves.set(key, shelf);
    const [oldest] = this.#shelves.keys();
    if (this.#shelves.size > maxProfiles && oldest !== undefined) void this.#drop(oldest);
    return shelf;
  }

  #fill(shelf: Shelf): void {
    if (shelf.isFilling) return;
    shelf.isFilling = true;
    const filling = this.#fillUp(shelf).finally(() => {
      shelf.isFilling = false;
      this.#fillings.delete(filling);
    });
    this.#fillings.add(filling);
  }

  /** One after the other: boots would only slow each other and the runs down. */
  async #fillUp(shelf: Shelf): Promise<void> {
    const { signal } = this.#closing;
    // Starting a process holds this one up for some milliseconds: first the run has its beginning.
    await delay(politenessMs, undefined, { signal, ref: false }).catch(() => {});
    let failures = 0;
    while (
      !signal.aborted &&
      this.#isKept(shelf) &&
      shelf.ready.length < this.#options.size &&
      failures < mostFailures
    ) {
      const guest = await this.#options.boot(shelf.profile, signal).catch(() => undefined);
      failures = guest === undefined ? failures + 1 : 0;
      if (guest === undefined) await delay(pauseMs, undefined, { signal, ref: false }).catch(() => {});
      else if (!signal.aborted && this.#isKept(shelf)) this.#keep(shelf, guest);
      else await this.#options.discard(guest);
    }
  }

  #keep(shelf: Shelf, guest: Guest): void {
    shelf.ready.push(guest);
    void this.#removeWhenEnded(shelf, guest);
  }

  async #removeWhenEnded({ ready }: Shelf, guest: Guest): Promise<void> {
    await guest.ended;
    const at = ready.indexOf(guest);
    if (at === -1) return; // it was taken: whoever has it sees its end
    ready.splice(at, 1);
    await this.#options.discard(guest);
  }

  #isKept(shelf: Shelf): boolean {
    return this.#shelves.get(profileKey(shelf.profile)) === shelf;
  }

  async #dropIdle(): Promise<void> {
    const since = Date.now() - idleMs;
    for (const [key, { usedAtMs }] of this.#shelves) if (usedAtMs < since) await this.#drop(key);
  }

  async #drop(key: string): Promise<void> {
    const ready = this.#shelves.get(key)?.ready.splice(0) ?? [];
    this.#shelves.delete(key);
    await Promise.all(ready.map(async (guest) => await this.#options.discard(guest)));
  }
}
