import type { SeededRandom } from "../chaos/random.ts";
import type { Arrival, Held, Traffic } from "./lines.ts";
import { connections } from "./connections.ts";
import type { RedisClock } from "./redis-time.ts";
import { oneRound, time } from "./time.ts";

/** Rounds of the event loop without anything on a line after which nothing more comes by itself. */
const quietRounds = 5;
/** Rounds of the event loop after which what is still under way is lost: its reader has closed. */
const lostRounds = 300;
/** What the event loop waits for that is soon over, such as the reading of a file. */
const busyWith =
  /^(?:FS|File|Dir|Immediate|GetAddrInfo|Connect|SimpleShutdown|SimpleWrite|Zlib|Random|Scrypt|PBKDF2|Sign|Hash|Hmac|Cipher|Key)/;

/** Called for each piece of traffic: passes it on, or harms it. */
export type Pass = (held: Held) => void;

/**
 * The one that lets things happen, one after the other: while nothing moves, it passes a piece of traffic on, chosen by
 * chance; when none is left, it moves the clock to the next timer.
 */
export class Driver implements Traffic {
  pending = 0;
  readonly clock: RedisClock;
  /** Pieces of traffic so far: when, whose, and what. */
  readonly trace: string[] = [];
  readonly #random: SeededRandom;
  #held: Held[] = [];
  #activity = 0;
  /** The activity that Redis was last asked about. */
  #asked = -1;
  #arrivals: Arrival[] = [];

  constructor(clock: RedisClock, random: SeededRandom) {
    this.clock = clock;
    this.#random = random;
  }

  readonly noteActivity = (): void => {
    this.#activity += 1;
  };

  hold(held: Held): void {
    this.#activity += 1;
    this.#held.push(held);
  }

  arrived(arrival: Arrival): void {
    this.#arrivals.push(arrival);
  }

  /** Until `isOver`, or until a time of the simulation: gives whether it is over. */
  async run(
    isOver: () => boolean,
    untilMs: number,
    pass: Pass = (held) => held.pass(),
  ): Promise<boolean> {
    for (;;) {
      await this.#untilQuiet();
      if (isOver()) return true;
      const held = this.#next();
      if (held !== undefined) {
        this.trace.push(`${time.now()} ${held.owner.name}: ${held.what}`);
        this.noteActivity();
        pass(held);
        continue;
      }
      const nextMs = Math.min(time.nextMs() ?? untilMs, untilMs);
      if (time.now() >= untilMs) return false;
      const seen = this.#activity;
      await this.clock.set(nextMs - time.now());
      await this.#untilQuiet();
      // What Redis has said meanwhile comes first, as it was there first.
      if (this.#activity === seen) time.advanceTo(nextMs);
    }
  }

  /** One that may go on: its process is not stopped. */
  #next(): Held | undefined {
    this.#held = this.#held.filter((held) => !held.isOver() && !held.owner.isDead);
    const ready = this.#held.filter(
      ({ owner, kind }) => kind === "answer" || owner.stoppedUntilMs <= time.now(),
    );
    if (ready.length === 0) return undefined;
    // In an order that does not depend on which of them arrived a little sooner.
    const held = this.#random.pick(
      ready.sort((one, other) => byConnection(one, other) || compare(one.what, other.what)),
    );
    this.#held = this.#held.filter((other) => other !== held);
    return held;
  }

  /** Until nothing moves: what Redis has said by then is delivered in an order that does not depend on when it came. */
  async #untilQuiet(): Promise<void> {
    do await this.#untilStill();
    while (await this.#deliverArrivals());
  }

  async #deliverArrivals(): Promise<boolean> {
    if (this.#asked === this.#activity) return false;
    // Once it answers, it has sent what it had to send to others, too.
    await this.clock.ask("PING");
    await this.#untilStill();
    this.#asked = this.#activity;
    const arrivals = this.#arrivals.sort(byConnection);
    this.#arrivals = [];
    for (const { deliver } of arrivals) deliver();
    return arrivals.length > 0;
  }

  async #untilStill(): Promise<void> {
    let waited = 0;
    for (let quiet = 0; quiet < quietRounds;) {
      const seen = this.#activity;
      await oneRound();
      quiet = this.#activity === seen && this.pending === 0 ? quiet + 1 : 0;
      if (quiet < quietRounds) continue;
      waited += quietRounds;
      if (isWorking() || (waited < lostRounds && !connections.isStill())) quiet = 0;
    }
  }
}

function isWorking(): boolean {
  return process.getActiveResourcesInfo().some((name) => busyWith.test(name));
}

function byConnection(
  one: Pick<Held, "owner" | "connection">,
  other: Pick<Held, "owner" | "connection">,
): number {
  return compare(one.owner.name, other.owner.name) || one.connection - other.connection;
}

function compare(one: string, other: string): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}
