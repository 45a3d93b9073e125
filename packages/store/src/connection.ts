import { pause, systemClock, type Clock } from "@larkline/protocol/clock";
import { Cluster, Redis, type RedisOptions as AnyRedisOptions } from "ioredis";
import { runScript, script, scriptTimeAt } from "./lua.ts";

// The reply mapping is not ours to choose: BullMQ and this package read the classic reply shapes.
type RedisOptions = Omit<AnyRedisOptions, "replyMapping" | "protocol">;

/** A connection to a single node, a Sentinel-managed master or a Cluster. */
export type RedisConnection = Redis | Cluster;

export interface ConnectOptions {
  /**
   * `request`: fails after a few tries, so that a caller can answer. `worker`: waits for Redis
   * without limit, as queue workers must (they would lose their loop otherwise).
   */
  role?: "request" | "worker";
  /**
   * How long a command may go without any answer before the connection counts as dead and is opened anew, and up to an
   * eighth more; default 10 s, of a worker's 6 s: longer than its blocking commands wait (`blockForS` of
   * queues/job-worker.ts).
   */
  silenceMs?: number;
  /** Called with connection errors; without it they are ignored, because ioredis retries by itself. */
  onError?: (error: Error) => void;
  /** The machine's if absent. */
  clock?: Clock;
}

// Reconnects within a second of Redis coming back; BullMQ's own strategy takes up to 20 s.
function retryDelayMs(attempt: number): number {
  return Math.min(attempt * 100, 1_000);
}

const silencesMs = { request: 10_000, worker: 6_000 };

function optionsFor({ role = "request" }: ConnectOptions): RedisOptions {
  return {
    retryStrategy: retryDelayMs,
    // A command that was on the wire when the connection broke may have run. Sending it again could
    // append history twice; its caller gets an error and recovers as after a crash.
    autoResendUnfulfilledCommands: role === "worker",
    maxRetriesPerRequest: role === "worker" ? null : 3,
    enableReadyCheck: true,
    connectTimeout: 5_000,
  };
}

interface Target {
  kind: "single" | "sentinel" | "cluster";
  nodes: { host: string; port: number }[];
  options: RedisOptions;
  master: string;
}

function nodesOf(hosts: string, defaultPort: number): { host: string; port: number }[] {
  return hosts.split(",").map((node) => {
    const [host = "", port] = node.split(":");
    return { host, port: port === undefined ? defaultPort : Number(port) };
  });
}

function kindOf(protocol: string): Target["kind"] {
  if (protocol.includes("sentinel")) return "sentinel";
  return protocol.includes("cluster") ? "cluster" : "single";
}

function credentialsOf(user: string, password: string): RedisOptions {
  return {
    ...(user === "" ? {} : { username: decodeURIComponent(user) }),
    ...(password === "" ? {} : { password: decodeURIComponent(password) }),
  };
}

/**
 * Understands `redis://`, `rediss://` (TLS), `redis+sentinel://h1:26379,h2:26379/mymaster` and
 * `redis+cluster://h1:6379,h2:6379`, each with optional `user:password@`. Throws a RangeError that
 * does not repeat the password.
 */
function parseRedisUrl(url: string): Target {
  const match =
    /^(rediss?(?:\+sentinel|\+cluster)?):\/\/(?:([^:@/]*)(?::([^@/]*))?@)?([^/@]+)(?:\/([^?]*))?$/.exec(
      url,
    );
  if (match === null) {
    throw new RangeError("REDIS_URL must look like redis://[user:password@]host:port[/db]");
  }
  const [, protocol = "", user = "", password = "", hosts = "", path = ""] = match;
  const kind = kindOf(protocol);
  const options = credentialsOf(user, password);
  if (protocol.startsWith("rediss")) options.tls = {};
  if (kind === "single" && path !== "") options.db = Number(path);
  const nodes = nodesOf(hosts, kind === "sentinel" ? 26_379 : 6_379);
  if (
    nodes.some((node) => node.host === "" || !Number.isInteger(node.port)) ||
    Number.isNaN(options.db ?? 0)
  ) {
    throw new RangeError("REDIS_URL names no valid host, port or database");
  }
  return { kind, nodes, options, master: path === "" ? "mymaster" : path };
}

/** Whether a URL can be used with {@link connectRedis}; the problem in words otherwise. */
export function redisUrlProblem(url: string): string | undefined {
  try {
    parseRedisUrl(url);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : "invalid";
  }
}

/** A connection broke before a command was answered. */
class BrokenOffError extends Error {
  override readonly name = "BrokenOffError";

  constructor() {
    super("the connection to Redis broke before it answered; the command may have run");
  }
}

/**
 * What was on the wire when the connection broke is neither sent again nor left without an answer: of one server
 * ioredis forgets it, and its caller would wait without end; in a Cluster it sends it to the server that has taken over.
 * So it fails before ioredis notices the end. What has not been sent yet is left to ioredis.
 */
function failUnanswered(redis: Redis): void {
  const fail = (): void => {
    const error = new BrokenOffError();
    for (
      let item = redis.commandQueue.shift();
      item !== undefined;
      item = redis.commandQueue.shift()
    ) {
      item.command.reject(error);
    }
  };
  redis.on("connect", () => redis.stream.prependOnceListener("close", fail));
}

/** Commands that are sent in one round of the event loop leave in one system call, not in one each. */
function writeTogether(redis: Redis): void {
  const send = redis.sendCommand.bind(redis);
  let isHeld = false;
  redis.sendCommand = (command, stream) => {
    if (!isHeld) {
      const held = redis.stream;
      isHeld = true;
      held?.cork();
      setImmediate(() => {
        isHeld = false;
        held?.uncork();
      });
    }
    return send(command, stream);
  };
}

/** So many looks in a row without a word, and a server counts as silent. */
const silentLooks = 8;

/**
 * Ends a connection whose commands have had no answer for `silenceMs`. A machine that loses its power ends no connection:
 * the kernel alone would wait for it for a quarter of an hour, and no process would find the server that has taken over.
 *
 * Looks are counted, not time: a process that has stood still looks once, and then reads what has come meanwhile. The
 * `socketTimeout` of ioredis would end its connection before.
 */
function endWhenSilent(redis: Redis, silenceMs: number, machine: Clock = systemClock): void {
  redis.on("connect", () => {
    const { stream } = redis;
    let looks = 0;
    // Not the clock of the process, which a simulation may move: the network keeps to the machine's.
    const stop = machine.every(silenceMs / silentLooks, () => {
      looks = isWaiting(redis) ? looks + 1 : 0;
      if (looks <= silentLooks) return;
      stream.destroy(new Error(`Redis has said nothing for ${silenceMs} ms`));
    });
    stream.on("data", () => (looks = 0));
    stream.once("close", stop);
  });
}

/** Longer than a blocking command waits, and short enough for `/ready` to tell within 10 s. */
const longestSilenceMs = 7_000;
/** How long a failed wait is remembered. */
const betweenWaitsMs = 2_000;

/** Whether one connection, of a Cluster to all its nodes, gets answers to what it asks. */
class AnswerWatch {
  /** When each node with open commands answered last. */
  readonly #lastDataMs = new Map<Redis, number>();
  /** The blocking command that was sent last. It fails and is sent anew when its connection breaks. */
  #waiting: { command: object; sinceMs: number; failedMs: number | undefined } | undefined;
  /** What Redis has not let its user do. */
  #refused: { command: string; atMs: number } | undefined;
  readonly #clock: Clock;

  constructor(connection: RedisConnection, clock: Clock) {
    this.#clock = clock;
    if (connection instanceof Redis) this.#watch(connection);
    else connection.on("+node", (node: Redis) => this.#watch(node));
  }

  isAnswered(): boolean {
    const nowMs = this.#clock.monotonic();
    const isStillWaiting = this.#waiting !== undefined && !this.#hasGivenUp(nowMs);
    if (isStillWaiting && nowMs - (this.#waiting?.sinceMs ?? nowMs) > longestSilenceMs) {
      return false;
    }
    return [...this.#lastDataMs].every(
      ([redis, lastDataMs]) => !isWaiting(redis) || nowMs - lastDataMs <= longestSilenceMs,
    );
  }

  /** A command that Redis has refused to its user within the last minute. */
  refusedCommand(): string | undefined {
    const { command, atMs = Number.NEGATIVE_INFINITY } = this.#refused ?? {};
    return this.#clock.monotonic() - atMs < refusalKnownMs ? command : undefined;
  }

  #hasGivenUp(nowMs: number): boolean {
    return nowMs - (this.#waiting?.failedMs ?? nowMs) > betweenWaitsMs;
  }

  #watch(redis: Redis): void {
    const noteData = (): void => void this.#lastDataMs.set(redis, this.#clock.monotonic());
    noteData();
    const send = redis.sendCommand.bind(redis);
    redis.sendCommand = (command, stream) => {
      if (!isWaiting(redis)) noteData();
      if (command.name === "bzpopmin") this.#noteWait(command);
      command.promise.catch((error: unknown) => this.#noteRefusal(command.name, error));
      return send(command, stream);
    };
    redis.on("connect", () => redis.stream.on("data", noteData));
    redis.on("end", () => this.#lastDataMs.delete(redis));
  }

  #noteRefusal(name: string, error: unknown): void {
    if (!(error instanceof Error) || !refusesUser.test(error.message)) return;
    const named = /'([^']+)' command/.exec(error.message)?.[1];
    const command = error.message.startsWith("NOPERM")
      ? `'${named ?? name}'`
      : "a command of one of its scripts";
    this.#refused = { command, atMs: this.#clock.monotonic() };
  }

  #noteWait(command: { promise: Promise<unknown> }): void {
    const nowMs = this.#clock.monotonic();
    if (this.#waiting?.command === command) return; // sent again by ioredis
    const sinceMs = this.#hasGivenUp(nowMs) ? nowMs : (this.#waiting?.sinceMs ?? nowMs);
    const waiting = { command, sinceMs, failedMs: undefined as number | undefined };
    this.#waiting = waiting;
    const answered = (): void => {
      if (this.#waiting === waiting) this.#waiting = undefined;
    };
    command.promise.then(answered, () => void (waiting.failedMs = this.#clock.monotonic()));
  }
}

/** Of a command, and of one inside a script. */
const refusesUser = /^NOPERM\b|can't (?:run this command|access at least one)/;
const refusalKnownMs = 60_000;

function isWaiting({ commandQueue, status }: Redis): boolean {
  return commandQueue.length > 0 || !["ready", "wait", "end"].includes(status);
}

const watches = new WeakMap<RedisConnection, Set<AnswerWatch>>();

/** Watches the answers to a connection, and to those that others (BullMQ, for its blocking commands) make of it. */
function watchAnswers(
  connection: RedisConnection,
  watched: Set<AnswerWatch>,
  { silenceMs, clock }: { silenceMs: number; clock: Clock },
): void {
  // Never removed: BullMQ closes its blocking connection and opens the same one again.
  watched.add(new AnswerWatch(connection, clock));
  if (connection instanceof Redis) endWhenSilent(connection, silenceMs);
  else connection.on("+node", (node: Redis) => endWhenSilent(node, silenceMs));
  // The signatures of both kinds differ; what is passed is passed on.
  const duplicate = connection.duplicate.bind(connection) as (
    ...options: unknown[]
  ) => RedisConnection;
  const watchedDuplicate = (...options: unknown[]): RedisConnection => {
    const copy = duplicate(...options);
    watchAnswers(copy, watched, { silenceMs, clock });
    return copy;
  };
  Object.assign(connection, { duplicate: watchedDuplicate });
}

/**
 * Whether a connection of role `worker` and its copies, one of which waits for jobs, are answered: false when one has
 * waited for any word of its server, or for the end of a blocking command, for longer than such a command may take.
 */
export function isAnswered(connection: RedisConnection): boolean {
  return [...(watches.get(connection) ?? [])].every((watch) => watch.isAnswered());
}

const refusesWrites = /^(?:OOM|READONLY|MISCONF|NOREPLICAS)\b/;
/** Redis runs a script with a first line like this only where it would let it write; the script does nothing. */
const mayWriteLua = "#!lua\nreturn 1";

/**
 * Whether every server that holds keys takes writes: it is not full, not read-only, and can write its disk. A text says
 * which command Redis has refused to the user of this connection, or of one of `others`, within the last minute.
 */
export async function takesWrites(
  connection: RedisConnection,
  ...others: RedisConnection[]
): Promise<boolean | string> {
  const watched = [connection, ...others].flatMap((each) => [...(watches.get(each) ?? [])]);
  const refused = watched
    .map((watch) => watch.refusedCommand())
    .find((command) => command !== undefined);
  if (refused !== undefined) {
    return `Redis does not let this user run ${refused}: see npm run redis-users`;
  }
  try {
    await Promise.all(
      mastersOf(connection).map(async (server) => await server.eval(mayWriteLua, 0)),
    );
    return true;
  } catch (error) {
    if (error instanceof Error && refusesWrites.test(error.message)) return false;
    throw error;
  }
}

/** Answers of a server that cannot work now, whatever it is asked for, or of a script before a worker has taken over what is stored. */
const unableNow =
  /^(?:OOM|READONLY|MISCONF|NOREPLICAS|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY)\b/;
/** Errors of ioredis without an answer; they have no class or code in common. */
const withoutAnswer =
  /^(?:Connection is closed\.|Reached the max retries per request limit|Failed to refresh slots cache|Cluster isn't ready|None of startup nodes is available|Too many Cluster redirections|Command timed out)/;

/**
 * Whether a command failed because Redis is away or takes no writes, and not because of what it was asked for. It may
 * have run.
 */
export function isRedisTrouble(error: unknown): boolean {
  if (error instanceof BrokenOffError) return true;
  if (!(error instanceof Error)) return false;
  return (
    unableNow.test(error.message) ||
    withoutAnswer.test(error.message) ||
    isRedisTrouble(error.cause)
  );
}

/**
 * A connection for subscriptions, with the settings of another one. To subscribe twice is harmless,
 * so what was on the wire when it broke is sent again.
 */
export function subscriberOf(connection: RedisConnection): RedisConnection {
  return connection instanceof Cluster
    ? connection.duplicate()
    : connection.duplicate({ autoResendUnfulfilledCommands: true });
}

/** Connections to every node that holds keys: of a Cluster each master, otherwise the connection itself. */
export function mastersOf(connection: RedisConnection): Redis[] {
  return connection instanceof Cluster ? connection.nodes("master") : [connection];
}

/** Opens a connection. The caller closes it with {@link closeRedis}. */
export function connectRedis(url: string, settings: ConnectOptions = {}): RedisConnection {
  const target = parseRedisUrl(url);
  const options: RedisOptions = { ...optionsFor(settings), ...target.options };
  const connection = open(target, options);
  const prepare = (redis: Redis): void => {
    if (options.autoResendUnfulfilledCommands === false) failUnanswered(redis);
    writeTogether(redis);
  };
  if (connection instanceof Redis) prepare(connection);
  else connection.on("+node", prepare);
  const watched = new Set<AnswerWatch>();
  watches.set(connection, watched);
  const { silenceMs = silencesMs[settings.role ?? "request"], clock = systemClock } = settings;
  watchAnswers(connection, watched, { silenceMs, clock });
  connection.on("error", (error: Error) => settings.onError?.(error));
  return connection;
}

function open(target: Target, options: RedisOptions): RedisConnection {
  if (target.kind === "cluster") {
    return new Cluster(target.nodes, { redisOptions: options, clusterRetryStrategy: retryDelayMs });
  }
  if (target.kind === "sentinel") {
    return new Redis({
      ...options,
      sentinels: target.nodes,
      name: target.master,
      sentinelRetryStrategy: retryDelayMs,
    });
  }
  const node = target.nodes[0];
  return new Redis({ ...options, host: node?.host ?? "127.0.0.1", port: node?.port ?? 6_379 });
}

/** Closes a connection: politely if Redis answers within a second, otherwise at once. */
export async function closeRedis(connection: RedisConnection, clock = systemClock): Promise<void> {
  const answered = new AbortController();
  const late = pause(clock, 1_000, answered.signal);
  await Promise.race([connection.quit().catch(() => undefined), late]).finally(() =>
    answered.abort(),
  );
  connection.disconnect();
}

/** The time as scripts see it that are called over this connection, epoch ms with a fraction. */
export async function scriptTime(redis: RedisConnection): Promise<number> {
  const [seconds, microseconds] = await redis.time();
  return scriptTimeAt(redis, Number(seconds) * 1_000 + Number(microseconds) / 1_000);
}

const findOldest = script("oldest-members");
const measureStreams = script("stream-lengths");

/**
 * Members of several sorted sets up to a score, lowest first: no set comes before another one. Sweepers ask this every
 * second of indexes that are empty most of the time, so one server is asked once, and a Cluster for each set.
 */
export async function oldestMembers(
  redis: RedisConnection,
  keys: readonly string[],
  { untilMs, limit }: { untilMs: number; limit: number },
): Promise<string[]> {
  const lists = await Promise.all(
    redis instanceof Cluster
      ? keys.map(
          async (key) =>
            await redis.zrangebyscore(key, "-inf", untilMs, "WITHSCORES", "LIMIT", 0, limit),
        )
      : [runScript(redis, findOldest, { sets: keys }, { untilMs, limit }) as Promise<string[]>], // as the script has it
  );
  const found = lists.flatMap((list) =>
    list.flatMap((member, at) => (at % 2 === 0 ? [{ member, score: Number(list[at + 1]) }] : [])),
  );
  return found
    .sort((one, other) => one.score - other.score)
    .slice(0, limit)
    .map(({ member }) => member);
}

/** How many entries each stream has: asked as {@link oldestMembers} are. */
export async function streamLengths(
  redis: RedisConnection,
  streams: readonly string[],
): Promise<number[]> {
  if (streams.length === 0) return [];
  if (redis instanceof Cluster) {
    return await Promise.all(streams.map(async (stream) => await redis.xlen(stream)));
  }
  return (await runScript(redis, measureStreams, { streams })) as number[]; // as the script has it
}

/** {@link oldestMembers} where members are `session|id`; session keys have no bar. */
export async function duePairs(
  ...given: Parameters<typeof oldestMembers>
): Promise<[session: string, id: string][]> {
  const members = await oldestMembers(...given);
  return members.map((member) => {
    const bar = member.indexOf("|");
    return [member.slice(0, bar), member.slice(bar + 1)];
  });
}
