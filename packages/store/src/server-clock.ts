import {
  followClock,
  machineNow,
  sharedNow,
  systemClock,
  type Clock,
} from "@larkline/protocol/clock";
import type { Redis } from "ioredis";
import { mastersOf, type RedisConnection } from "./connection.ts";

/** Clocks that differ by less disagree about nothing that matters. */
const toleratedMs = 2_000;
const askEveryMs = 2_000;
const firstAskMs = 100;
/** An answer that took longer says too little about the moment when it was given. */
const longestTripMs = 500;

/** The clock of one server: its epoch ms minus `clock.monotonic()`, give or take half of the round trip. */
interface Reading {
  anchor: number;
  tripMs: number;
}

/** How far a clock is off, give or take `uncertainMs`. */
interface Off {
  name: string;
  aheadMs: number;
  uncertainMs: number;
  of: string;
}

/** For people: `the clock of this machine is 10 s ahead of Redis`. */
function inWords({ name, aheadMs, of }: Off): string {
  return `${name} is ${Math.round(Math.abs(aheadMs) / 1_000)} s ${aheadMs > 0 ? "ahead of" : "behind"} ${of}`;
}

async function readClock(server: Redis, clock: Clock): Promise<Reading> {
  const askedMs = clock.monotonic();
  const [seconds, micros] = await server.time();
  const tripMs = clock.monotonic() - askedMs;
  return {
    anchor: Number(seconds) * 1_000 + Number(micros) / 1_000 - (askedMs + tripMs / 2),
    tripMs,
  };
}

/** Which of two readings to believe: the more exact one, unless the newer one shows that the clock was set. */
function better(known: Reading | undefined, fresh: Reading): Reading {
  if (known === undefined || fresh.tripMs <= known.tripMs) return fresh;
  const contradicts = Math.abs(fresh.anchor - known.anchor) > (fresh.tripMs + known.tripMs) / 2;
  return contradicts && fresh.tripMs <= longestTripMs ? fresh : known;
}

function nameOf({ options: { host = "", port = 0 } }: Redis): string {
  return `${host}:${port}`;
}

/**
 * Makes the shared clock of this process (`sharedNow`) follow that of Redis, and watches how far this machine and, in a
 * Cluster, single nodes are off. Of a Cluster the clock in the middle is followed.
 */
export class ServerClock {
  readonly #redis: RedisConnection;
  readonly #onChange: (problem: string | undefined) => void;
  readonly #readings = new Map<string, Reading>();
  /** In words, which clocks differ by 2 s or more; undefined: none. */
  problem: string | undefined;
  /** Their names. */
  #off = "";
  readonly #clock: Clock;
  #stop: () => void = () => undefined;
  #closed = false;
  /** Settles when the shared clock follows Redis; rejects when Redis does not answer the first question. */
  readonly followed: Promise<void>;

  /** Calls `onChange` when a difference begins to matter, and when none does any more. */
  constructor(
    redis: RedisConnection,
    onChange: (problem: string | undefined) => void = () => undefined,
    clock = systemClock,
  ) {
    this.#redis = redis;
    this.#clock = clock;
    this.#onChange = onChange;
    this.followed = this.#start();
    this.followed.then(this.#again, this.#again);
  }

  close(): void {
    this.#closed = true;
    this.#stop();
  }

  async #start(): Promise<void> {
    await this.#redis.ping(); // of a Cluster: its nodes are known then
    await this.#ask();
  }

  readonly #again = (): void => {
    if (this.#closed) return;
    const pauseMs = this.#readings.size === 0 ? firstAskMs : askEveryMs;
    // The next try gets what this one did not; other parts report that Redis is away.
    this.#stop = this.#clock.every(pauseMs, () => {
      this.#stop();
      void this.#ask().then(this.#again, this.#again);
    });
  };

  async #ask(): Promise<void> {
    const servers = mastersOf(this.#redis);
    if (servers.length === 0) throw new Error("no server of Redis is known yet");
    const fresh = await Promise.all(
      servers.map(
        async (server) => [nameOf(server), await readClock(server, this.#clock)] as const,
      ),
    );
    const names = new Set(servers.map(nameOf));
    for (const node of this.#readings.keys()) if (!names.has(node)) this.#readings.delete(node);
    for (const [node, reading] of fresh) {
      this.#readings.set(node, better(this.#readings.get(node), reading));
    }
    const readings = [...this.#readings.values()].sort((one, other) => one.anchor - other.anchor);
    const middle = readings[Math.floor((readings.length - 1) / 2)];
    if (middle === undefined) return;
    followClock(middle.anchor, 0);
    this.#compare(middle);
  }

  /** Says nothing of a difference that may be one of the reading: a process that was stopped read the clock late. */
  #compare(middle: Reading): void {
    const nodes = [...this.#readings].map(([node, { anchor, tripMs }]) => ({
      name: `the clock of Redis at ${node}`,
      aheadMs: anchor - middle.anchor,
      uncertainMs: (tripMs + middle.tripMs) / 2,
      of: "the other nodes",
    }));
    const aheadMs = machineNow() - sharedNow();
    const own = {
      name: "the clock of this machine",
      aheadMs,
      uncertainMs: middle.tripMs / 2,
      of: "Redis",
    };
    const off = [own, ...nodes].filter(
      (one) => Math.abs(one.aheadMs) - one.uncertainMs >= toleratedMs,
    );
    const before = this.#off;
    this.#off = off.map(({ name }) => name).join();
    this.problem = off.length === 0 ? undefined : off.map(inWords).join("; ");
    if (this.#off !== before) this.#onChange(this.problem);
  }
}
