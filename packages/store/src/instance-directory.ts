import { hostname } from "node:os";
import { knownFeatures } from "@larkline/protocol";
import { pause, systemClock, type Clock } from "@larkline/protocol/clock";
import { newEngineError } from "@larkline/protocol/error";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";
import type { ServerClock } from "./server-clock.ts";

/** How one process gets the events of one app. */
export interface AppFeed {
  app: string;
  transport: "websocket" | "webhook";
  /** For a long connection: its state. A webhook listens as long as its process lives. */
  state: string;
  /** Epoch ms; absent before the first event. */
  lastEventAtMs?: number;
}

/** One process of a deployment, as it announces itself. */
export interface Instance {
  id: string;
  /** Such as `ingress`. */
  service: string;
  host: string;
  version: string;
  /** The form of what it stores, see {@link stateVersion}; absent: the first. */
  stateVersion?: number;
  /** What it knows of stored values, see `knownFeatures`; absent in versions that do not say. */
  features?: readonly string[];
  startedAtMs: number;
  /** Apps as which it speaks. */
  apps: readonly string[];
  /** Apps whose events it takes. */
  feeds: readonly AppFeed[];
  /** Which clocks it finds to differ, in English; absent: none. */
  clock?: string | undefined;
}

/** One that has not withdrawn. */
export interface KnownInstance extends Instance {
  /** Epoch ms; in the past: it has ended without saying so. */
  expiresAtMs: number;
}

/**
 * The form in which sessions are stored. Raised when processes of an older form must have stopped before those of a
 * newer one may begin.
 */
export const stateVersion = 3;

/** Longer than a process that was killed counts as alive. */
const olderPatienceMs = 30_000;
const lookEveryMs = 500;

/**
 * Resolves when no process lives that stores sessions in an older form; rejects when one still does after half a minute.
 * A process of this version would read what that one writes as nothing, and the other way round.
 */
export async function refuseOlderInstances(
  directory: Pick<InstanceDirectory, "instances">,
  {
    patienceMs = olderPatienceMs,
    onWait,
    clock = systemClock,
  }: { patienceMs?: number; onWait?: (processes: string[]) => void; clock?: Clock } = {},
): Promise<void> {
  const untilMs = clock.monotonic() + patienceMs;
  for (let look = 0; ; look += 1) {
    const older = (await directory.instances()).filter(
      ({ stateVersion: version = 1, expiresAtMs }) =>
        version < stateVersion && expiresAtMs > clock.now(),
    );
    if (older.length === 0) return;
    const processes = older.map(({ service, host, id }) => `${service} ${host} ${id}`);
    if (clock.monotonic() >= untilMs) {
      throw newEngineError(
        "internal_error",
        `processes of an older version still run: ${processes.join(", ")}`,
        {
          suggestion:
            "Stop all of them, then start this version: both cannot run side by side (docs/operations.md, Upgrades).",
        },
      );
    }
    if (look === 0) onWait?.(processes);
    await pause(clock, lookEveryMs);
  }
}

/** How long an instance that went silent is still shown. */
const silentInstanceMs = 3_600_000;

/**
 * Which processes there are: for people who look, and for workers that wait until older ones have stopped. Times are of
 * the clocks of the processes, which are compared with each other only for people who look.
 */
export class InstanceDirectory {
  readonly #redis: RedisConnection;
  readonly #key: string;
  readonly #clock: Clock;

  constructor({ redis, namespace, clock = systemClock }: StoreOptions) {
    this.#clock = clock;
    this.#redis = redis;
    this.#key = createKeyspace(namespace).instances;
  }

  /** Announces or renews an instance; it counts as gone after `ttlMs` without renewal. */
  async announce(instance: Instance, ttlMs: number): Promise<void> {
    const stored: KnownInstance = { ...instance, expiresAtMs: this.#clock.now() + ttlMs };
    const isNew = (await this.#redis.hset(this.#key, instance.id, JSON.stringify(stored))) > 0;
    if (isNew) await this.#purge();
  }

  async withdraw(id: string): Promise<void> {
    await this.#redis.hdel(this.#key, id);
    await this.#purge();
  }

  /** The living ones, and those that went silent within the last hour. */
  async instances(): Promise<KnownInstance[]> {
    const known = await this.#known();
    return known.filter(({ expiresAtMs }) => expiresAtMs > this.#clock.now() - silentInstanceMs);
  }

  async #known(): Promise<KnownInstance[]> {
    return Object.values(await this.#redis.hgetall(this.#key)).map(
      (text) => JSON.parse(text) as KnownInstance,
    ); // written by announce
  }

  /** Removes those that are not shown any more; called when a process comes or goes. */
  async #purge(): Promise<void> {
    const old = (await this.#known()).filter(
      ({ expiresAtMs }) => expiresAtMs <= this.#clock.now() - silentInstanceMs,
    );
    if (old.length > 0) await this.#redis.hdel(this.#key, ...old.map(({ id }) => id));
  }
}

export interface AnnouncerOptions {
  directory: Pick<InstanceDirectory, "announce" | "withdraw">;
  id: string;
  service: string;
  version: string;
  apps: readonly string[];
  /** How events come in at this moment; absent: this process takes none. */
  feeds?: () => Instance["feeds"];
  /** It knows which clocks differ. */
  serverClock?: Pick<ServerClock, "problem">;
  /** Called when an announcement failed; it is repeated soon. */
  onError: (error: unknown) => void;
  /** The machine's if absent. */
  clock?: Clock;
}

const intervalMs = 5_000;
const ttlMs = 16_000;
const withdrawMs = 1_000;

/** Announces this process in the directory every few seconds, in the background: no work depends on it. */
export class Announcer {
  readonly #options: AnnouncerOptions;
  readonly #clock: Clock;
  readonly #startedAtMs: number;
  readonly #stop: () => void;
  #announcing: Promise<void>;

  constructor(options: AnnouncerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#startedAtMs = this.#clock.now();
    this.#announcing = this.#announce();
    this.#stop = this.#clock.every(intervalMs, () => void (this.#announcing = this.#announce()));
  }

  async #announce(): Promise<void> {
    const {
      directory,
      id,
      service,
      version,
      apps,
      feeds = () => [],
      serverClock,
      onError,
    } = this.#options;
    const shown = {
      id,
      service,
      host: hostname(),
      version,
      stateVersion,
      startedAtMs: this.#startedAtMs,
      apps,
    };
    const instance = {
      ...shown,
      features: knownFeatures,
      feeds: feeds(),
      clock: serverClock?.problem,
    };
    await directory.announce(instance, ttlMs).catch(onError);
  }

  /**
   * Removes this process from the directory. Waits for a second at most, because the announcement expires by itself.
   */
  async close(): Promise<void> {
    const { directory, id, onError } = this.#options;
    this.#stop();
    const withdrawn = this.#announcing
      .then(async () => await directory.withdraw(id))
      .catch(onError);
    const said = new AbortController();
    await Promise.race([withdrawn, pause(this.#clock, withdrawMs, said.signal)]).finally(() =>
      said.abort(),
    );
  }
}
