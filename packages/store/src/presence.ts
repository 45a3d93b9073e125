import type { SessionKey } from "@larkline/protocol";
import { pause, systemClock, type Clock } from "@larkline/protocol/clock";
import { Cluster, type Redis } from "ioredis";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

/**
 * What has become of a process. `died`: its connection was closed and it has not said so. `left`: it has said that it ends.
 * `silent`: its connection stands, but it has not beaten for {@link heartbeatMs}; it may be stopped or cut off, and it
 * is not known to have died. `unknown`: it has not said anything within a day.
 */
export type Fate = "alive" | "left" | "died" | "silent" | "unknown";

/**
 * How long a beat is good for, ms: a process may stand still for 15 s, just before its next beat. It decides only where
 * a connection hangs open, where Redis has restarted, and where Redis does not tell which connections stand. Where a
 * loop alone stands still, the thread that will end its process beats for it ({@link beatForStalled}).
 */
export const heartbeatMs = 15_250;
/** How long the lock of a job is good for, ms. Jobs of dead processes are found by their connections. */
export const lockMs = 30_000;

const beatEveryMs = 250;
const renewEveryMs = 5_000;
/** Between two looks at a connection that is not there: a living process has another one by then. */
const secondLookMs = 150;
/** The verdict of two looks is good for so long. */
const verdictMs = 2_000;
/** How long the last beat of a process is remembered. */
const keptMs = 24 * 3_600_000;
/** Others that were silent for longer are not reported any more. */
const reportedMs = 60_000;
/** Sessions of a worker that has left are taken up within seconds. */
const leftKeptMs = 3_600_000;
/** Longer than a sweeper needs to find a session once it can be written again; noted anew while it cannot. */
const unreleasedKeptMs = 3_600_000;
/** A server that says nothing for so long is asked by another connection: before a beat has run out. */
const silenceMs = 5_000;
/** Locks renewed by one script; Lua takes no more than some thousand arguments at once. */
const locksAtOnce = 500;
const reopenPausesMs = [20, 100, 500, 1_000];

/** The group of agent-workers. */
export const workersGroup = "workers";

/** The group of the instances of one runner; with `:` and the name of an instance behind it, the id of that one. */
export function runnerGroup(runner: string): string {
  return `runner:${runner}`;
}

const beat = script("beat");
const lookAtProcesses = script("look-at-processes");
const renewLocks = script("renew-locks");

/** How beats are made: as whom, and whether others of the group may look at it from then on. */
interface Beat {
  id: string;
  group: string;
  joins: boolean;
}

/** Returns 1 where the connection of that process was seen, and the others of its group that may have ended. */
async function beatOnce(
  redis: RedisConnection,
  keyspace: Keyspace,
  { id, group, joins }: Beat,
): Promise<[seen: number, ...ended: string[]]> {
  const channels = keyspace.presenceOf("");
  const values = { id, channels, keptMs, heartbeatMs, reportedMs, joins: joins ? "1" : "0" };
  const keys = { alive: keyspace.aliveOf(id), group: keyspace.presentOf(group) };
  return (await runScript(redis, beat, keys, values)) as [number, ...string[]]; // its reply
}

/**
 * Beats once for a worker whose event loop stands still, by a connection of its own: the thread that will end it lives,
 * so others do not take its turns over before its death is known, and counted.
 */
export async function beatForStalled({
  redisUrl,
  namespace,
  id,
}: {
  redisUrl: string;
  namespace: string;
  id: string;
}): Promise<void> {
  const redis = connectRedis(redisUrl);
  try {
    await beatOnce(redis, createKeyspace(namespace), { id, group: workersGroup, joins: true });
  } finally {
    await closeRedis(redis);
  }
}

/** What one look finds: `gone` is no verdict yet. */
type Sight = Exclude<Fate, "died"> | "gone";

/** Which processes are alive. */
export class Presence {
  readonly #redis: RedisConnection;
  protected readonly keys: Keyspace;
  readonly #clock: Clock;
  /** Those that two looks have found dead, with the time of the second one. */
  readonly #verdicts = new Map<string, number>();

  constructor({ redis, namespace, clock = systemClock }: StoreOptions) {
    this.#redis = redis;
    this.keys = createKeyspace(namespace);
    this.#clock = clock;
  }

  /** What has become of `ids`. Takes {@link secondLookMs} longer where a connection is not there. */
  async fatesOf(ids: readonly string[]): Promise<Map<string, Fate>> {
    const first = await this.#look(ids);
    const gone = ids.filter((id) => first.get(id) === "gone");
    const unsure = gone.filter(
      (id) => this.#clock.monotonic() - (this.#verdicts.get(id) ?? -verdictMs) >= verdictMs,
    );
    if (unsure.length > 0) {
      await pause(this.#clock, secondLookMs);
      for (const [id, sight] of await this.#look(unsure)) first.set(id, sight);
    }
    const nowMs = this.#clock.monotonic();
    for (const [id, atMs] of this.#verdicts) {
      if (nowMs - atMs >= verdictMs) this.#verdicts.delete(id);
    }
    return new Map(
      [...first].map(([id, sight]) => {
        if (sight !== "gone") return [id, sight];
        if (!this.#verdicts.has(id)) this.#verdicts.set(id, nowMs);
        return [id, "died"];
      }),
    );
  }

  /** The fate of one process, see {@link fatesOf}. */
  async fateOf(id: string): Promise<Fate> {
    return (await this.fatesOf([id])).get(id) ?? "unknown";
  }

  /** All of a group that live. For diagnosis: it may miss one that began a moment ago. */
  async members(group = workersGroup): Promise<string[]> {
    const ids = await this.#redis.zrange(this.keyOf(group), "0", "-1");
    const sights = await this.#look(ids);
    return ids.filter((id) => sights.get(id) === "alive");
  }

  /**
   * Says that `id` could not give a session back, since its part of Redis took no writes: its death must not count as
   * one of the message. Kept for an hour, outside of that part.
   */
  async noteUnreleased(id: string, session: SessionKey, epoch: string): Promise<void> {
    await this.#redis.set(this.#unreleasedKey(id, session), epoch, "PX", unreleasedKeptMs);
  }

  /** The epoch of such a run. */
  async unreleased(id: string, session: SessionKey): Promise<string | undefined> {
    return (await this.#redis.mget(this.#unreleasedKey(id, session)))[0] ?? undefined;
  }

  /** Takes a periodic duty for `ttlMs`; false when another process has it. */
  async takeDuty(duty: string, id: string, ttlMs: number): Promise<boolean> {
    return (await this.#redis.set(this.keys.dutyOf(duty), id, "PX", ttlMs, "NX")) === "OK";
  }

  /** Beats of others before this time of the server count as made then, epoch ms. */
  protected sinceMs(): number {
    return 0;
  }

  protected aliveKey(id: string): string {
    return this.keys.aliveOf(id);
  }

  protected leftKey(id: string): string {
    return this.keys.leftOf(id);
  }

  protected keyOf(group: string): string {
    return this.keys.presentOf(group);
  }

  /** What the names of presence channels begin with. */
  protected get channels(): string {
    return this.keys.presenceOf("");
  }

  async #look(ids: readonly string[]): Promise<Map<string, Sight>> {
    if (ids.length === 0) return new Map();
    const keys = ids.flatMap((id) => [this.aliveKey(id), this.leftKey(id)]);
    const asked = { channels: this.channels, heartbeatMs, sinceMs: this.sinceMs(), ids };
    const sights = (await runScript(this.#redis, lookAtProcesses, { keys }, asked)) as Sight[]; // as the script has it
    return new Map(ids.map((id, at) => [id, sights[at] ?? "unknown"]));
  }

  #unreleasedKey(id: string, session: SessionKey): string {
    return this.keys.unexcusedOf(id, session);
  }
}

/** The lock of a running job of BullMQ. */
export interface JobLock {
  /** What the keys of its queue begin with, such as `{larkline}:turns:`. */
  queue: string;
  id: string;
  /** What the lock holds while the job is this process's. */
  token: string;
}

export interface OwnPresenceOptions {
  redisUrl: string;
  namespace: string;
  /** Of this process; no other one has it. */
  id: string;
  /** Whose deaths this process learns of: {@link workersGroup}, or that of a runner. */
  group: string;
  /** Called when beats begin to fail, and when Redis does not tell which connections stand. */
  onError: (error: Error) => void;
  clock?: Clock;
}

/**
 * The presence of this process: it is alive while its connection to Redis stands. It subscribes to a channel of its
 * own, and scripts of other processes ask how many listen there. Beats and locks are renewed by the event loop, on the
 * same terms as the work that they stand for: one that stands still for less than {@link heartbeatMs} loses nothing.
 */
export class OwnPresence extends Presence {
  readonly id: string;
  /** How long a lock is good for, ms: the first one of a job, and each renewed one. */
  readonly lockMs = lockMs;
  readonly #options: OwnPresenceOptions;
  readonly #own: RedisConnection;
  readonly #time: Clock;
  readonly #line: PresenceLine;
  readonly #locks = new Set<JobLock>();
  readonly #listeners: (() => void)[] = [];
  readonly #returnListeners: (() => void)[] = [];
  readonly #stops: (() => void)[] = [];
  /** Others that were reported already. */
  #reported = new Set<string>();
  #round: Promise<void> | undefined;
  #renewing: Promise<void> | undefined;
  /** By the clock of this process, ms: the last beat that Redis has taken, and the first one of those without a gap. */
  #beatAtMs = Number.NEGATIVE_INFINITY;
  #beatingSinceMs = Number.NEGATIVE_INFINITY;
  /** Beats in a row whose connection was not seen. */
  #unseen = 0;
  #isFailing = false;
  #isFirst = true;
  #closed: Promise<void> | undefined;

  /** Resolves after the first beat. Rejects if Redis does not take it. */
  static async start(options: OwnPresenceOptions): Promise<OwnPresence> {
    const { redisUrl, namespace, clock = systemClock } = options;
    const redis = connectRedis(redisUrl, { silenceMs, clock });
    const presence = new OwnPresence(options, redis, clock, namespace);
    try {
      await presence.#begin();
      return presence;
    } catch (error) {
      await presence.#end();
      throw error;
    }
  }

  private constructor(
    options: OwnPresenceOptions,
    redis: RedisConnection,
    clock: Clock,
    namespace: string,
  ) {
    super({ redis, namespace, clock });
    this.id = options.id;
    this.#options = options;
    this.#own = redis;
    this.#time = clock;
    const returned = (): void => {
      for (const listener of this.#returnListeners) listener();
    };
    this.#line = new PresenceLine(redis, `${this.channels}${options.id}`, { clock, returned });
  }

  /** Renews the lock of a job until the returned function is called or another process has the job. */
  hold(lock: JobLock): () => void {
    this.#locks.add(lock);
    return () => void this.#locks.delete(lock);
  }

  /** Whether Redis has taken beats for so long that locks and beats of all who live are there. */
  isSteady(): boolean {
    const nowMs = this.#time.monotonic();
    return (
      nowMs - this.#beatAtMs < silenceMs &&
      (this.#isFirstRun() || nowMs - this.#beatingSinceMs >= heartbeatMs)
    );
  }

  /** `listener` is called when others of the group may have ended without saying so. */
  onEnded(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /**
   * `listener` is called when the connection of this process stands again after its end. Redis may have lost its last
   * writes meanwhile, by a restart or a failover.
   */
  onReturned(listener: () => void): void {
    this.#returnListeners.push(listener);
  }

  /** Says that this process ends in an orderly way, and stops. Idempotent. */
  async close(): Promise<void> {
    this.#closed ??= this.#leave().then(async () => await this.#end());
    await this.#closed;
  }

  /** No beat has failed or come late since this process began. */
  #isFirstRun(): boolean {
    return this.#beatingSinceMs === Number.NEGATIVE_INFINITY;
  }

  /** Right after an outage, of Redis or of this machine, others need the time of a beat to come back. */
  protected override sinceMs(): number {
    if (this.#isFirstRun()) return 0;
    return this.#time.now() - (this.#time.monotonic() - this.#beatingSinceMs);
  }

  async #begin(): Promise<void> {
    // Whether Redis takes beats. To others of its group a process without a connection would look like a dead one.
    await this.#beat({ joins: false });
    await this.#line.open().catch((error: unknown) => this.#options.onError(unseenError(error)));
    await this.#beat();
    this.#stops.push(
      this.#time.every(beatEveryMs, () => this.#beatInTime()),
      this.#time.every(renewEveryMs, () => this.#renew()),
    );
  }

  #beatInTime(): void {
    this.#round ??= this.#beat()
      .catch((error: unknown) => this.#failed(error))
      .finally(() => (this.#round = undefined));
  }

  async #beat({ joins = true } = {}): Promise<void> {
    const { group } = this.#options;
    const [seen, ...ended] = await beatOnce(this.#own, this.keys, { id: this.id, group, joins });
    const [nowMs, beforeMs] = [this.#time.monotonic(), this.#beatAtMs];
    const wasAway = this.#isFailing || nowMs - beforeMs > silenceMs;
    this.#beatAtMs = nowMs;
    this.#isFailing = false;
    if (wasAway && !this.#isFirst) {
      this.#beatingSinceMs = nowMs;
      this.#renew();
    }
    this.#isFirst = false;
    this.#unseen = seen === 1 ? 0 : this.#unseen + 1;
    // Two beats: the first one may have been on its way while the line was opened.
    if (this.#unseen === 2) this.#line.reopen();
    this.#report(ended);
  }

  #failed(error: unknown): void {
    if (!this.#isFailing) {
      this.#options.onError(
        new Error(`beats and locks are not renewed: ${messageOf(error)}`, { cause: error }),
      );
    }
    this.#isFailing = true;
  }

  #report(ended: readonly string[]): void {
    const fresh = ended.filter((id) => !this.#reported.has(id));
    this.#reported = new Set(ended);
    if (fresh.length > 0) for (const listener of this.#listeners) listener();
  }

  #renew(): void {
    if (this.#locks.size === 0) return;
    this.#renewing ??= this.#renewAll()
      .catch((error: unknown) => this.#failed(error))
      .finally(() => (this.#renewing = undefined));
  }

  async #renewAll(): Promise<void> {
    const held = [...this.#locks];
    for (let from = 0; from < held.length; from += locksAtOnce) {
      const part = held.slice(from, from + locksAtOnce);
      const queueKeys = part.flatMap(({ queue, id }) => [
        `${queue}${id}:lock`,
        `${queue}stalled`,
        `${queue}active`,
      ]);
      const jobs = part.flatMap(({ id, token }) => [id, token]);
      const kept = (await runScript(
        this.#own,
        renewLocks,
        { queueKeys },
        { lockMs, jobs },
      )) as number[]; // its reply
      for (const [at, lock] of part.entries()) if (kept[at] === 0) this.#locks.delete(lock);
    }
  }

  async #leave(): Promise<void> {
    for (const stop of this.#stops.splice(0)) stop();
    await Promise.all([this.#round, this.#renewing]);
    try {
      await this.#own.set(this.leftKey(this.id), "1", "PX", leftKeptMs);
      await this.#own.del(this.aliveKey(this.id));
      await this.#own.zrem(this.keyOf(this.#options.group), this.id);
      // Those that died without saying so.
      await this.#own.zremrangebyscore(
        this.keyOf(this.#options.group),
        "-inf",
        String(this.#time.now() - keptMs),
      );
    } catch (error) {
      this.#options.onError(asError(error));
    }
  }

  async #end(): Promise<void> {
    this.#line.close();
    await closeRedis(this.#own, this.#time);
  }
}

/** The subscription by which others see that this process lives: opened again whenever its connection has ended. */
class PresenceLine {
  readonly #redis: RedisConnection;
  readonly #channel: string;
  readonly #clock: Clock;
  /** Called when it is open again after its end. */
  readonly #returned: () => void;
  #connection: Redis | undefined;
  #hasEnded = false;
  #tries = 0;
  #cancelNext: (() => void) | undefined;
  #isClosed = false;

  constructor(
    redis: RedisConnection,
    channel: string,
    { clock, returned }: { clock: Clock; returned: () => void },
  ) {
    this.#redis = redis;
    this.#channel = channel;
    this.#clock = clock;
    this.#returned = returned;
  }

  /** Rejects where Redis takes no subscription; it is tried again by itself. */
  async open(): Promise<void> {
    try {
      const connection = await this.#subscribed();
      if (this.#isClosed) return connection.disconnect();
      this.#connection = connection;
      this.#tries = 0;
      connection.once("end", () => this.#openLater(connection));
      if (this.#hasEnded) this.#returned();
    } catch (error) {
      this.#openLater(undefined);
      throw error;
    }
  }

  /** The server does not know the connection any more. */
  reopen(): void {
    this.#connection?.disconnect();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelNext?.();
    this.#connection?.disconnect();
  }

  #openLater(ended: Redis | undefined): void {
    if (this.#isClosed || this.#connection !== ended) return;
    this.#connection = undefined;
    this.#hasEnded ||= ended !== undefined;
    const pauseMs = reopenPausesMs[Math.min(this.#tries, reopenPausesMs.length - 1)] ?? 0;
    this.#tries += 1;
    this.#cancelNext = this.#clock.after(pauseMs, () => void this.open().catch(() => undefined)); // tried again
  }

  /** The connection that subscribes: in a Cluster the master that has the slot, since the others refuse the channel. */
  async #subscribed(): Promise<Redis> {
    const nodes = this.#redis instanceof Cluster ? this.#redis.nodes("master") : [this.#redis];
    let refusal: unknown = new Error("no server of the Cluster is known yet");
    for (const node of nodes) {
      const connection = node.duplicate({
        lazyConnect: true,
        retryStrategy: () => null,
        maxRetriesPerRequest: 0,
        // Nothing else looks after a copy of a Cluster's node.
        commandTimeout: silenceMs,
      });
      connection.on("error", () => undefined); // the beats notice that a connection has ended
      try {
        await connection.connect();
        await connection.ssubscribe(this.#channel);
        return connection;
      } catch (error) {
        refusal = error;
        connection.disconnect();
      }
    }
    throw refusal;
  }
}

function unseenError(cause: unknown): Error {
  const why =
    "Redis does not tell which connections stand, so deaths are noticed by missing beats alone";
  return new Error(`${why}: ${messageOf(cause)}`, { cause });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function asError(cause: unknown): Error {
  return cause instanceof Error ? cause : new Error(String(cause));
}
