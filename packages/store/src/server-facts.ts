import { machineNow, systemClock, type Clock } from "@larkline/protocol/clock";
import { type RedisConnection, mastersOf } from "./connection.ts";

/** What a Redis server says about itself. */
export interface RedisServerFacts {
  product: "redis" | "valkey";
  /** For example `7.2.4`; of Valkey its own version. */
  version: string;
  /** `maxmemory-policy`; empty when the server hides it. */
  evictionPolicy: string;
  appendOnly: boolean;
  /** Absent when the server does not let its settings be read. */
  appendFsync?: string;
  /** Servers that copy this one. */
  replicas: number;
  /** Whether it takes nothing that none of them could copy. */
  needsReplica: boolean;
  /** Median of some round trips. */
  pingMs: number;
  /** The server's clock minus ours, give or take half a round trip. */
  clockOffsetMs: number;
}

const pings = 5;

function fieldsOf(info: string): ReadonlyMap<string, string> {
  return new Map(
    info.split(/\r?\n/).flatMap((line): [string, string][] => {
      const colon = line.indexOf(":");
      return colon > 0 ? [[line.slice(0, colon), line.slice(colon + 1)]] : [];
    }),
  );
}

async function medianPingMs(redis: RedisConnection, clock: Clock): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < pings; round += 1) {
    const startedMs = clock.monotonic();
    await redis.ping();
    times.push(clock.monotonic() - startedMs);
  }
  return times.sort((one, other) => one - other)[Math.floor(pings / 2)] ?? 0;
}

async function clockOffsetMs(redis: RedisConnection): Promise<number> {
  const askedMs = machineNow();
  const [seconds, micros] = await redis.time();
  const oursMs = (askedMs + machineNow()) / 2;
  return Number(seconds) * 1_000 + Number(micros) / 1_000 - oursMs;
}

/** Managed services often refuse CONFIG. */
async function appendFsync(redis: RedisConnection): Promise<string | undefined> {
  const answer: unknown = await redis.config("GET", "appendfsync").catch(() => undefined);
  const value: unknown = Array.isArray(answer) ? answer[1] : undefined;
  return typeof value === "string" ? value : undefined;
}

/** Asks the server (of a Cluster: one of them); rejects when it does not answer. */
export async function readServerFacts(
  redis: RedisConnection,
  clock = systemClock,
): Promise<RedisServerFacts> {
  const info = fieldsOf(await redis.info());
  const valkey = info.get("valkey_version");
  const fsync = await appendFsync(redis);
  return {
    product: valkey === undefined ? "redis" : "valkey",
    version: valkey ?? info.get("redis_version") ?? "",
    evictionPolicy: info.get("maxmemory_policy") ?? "",
    appendOnly: info.get("aof_enabled") === "1",
    ...(fsync === undefined ? {} : { appendFsync: fsync }),
    replicas: Number(info.get("connected_slaves") ?? 0),
    needsReplica: info.has("min_slaves_good_slaves"), // shown only where `min-replicas-to-write` is set
    pingMs: await medianPingMs(redis, clock),
    clockOffsetMs: await clockOffsetMs(redis),
  };
}

/** How a server of Redis is that holds keys. */
export interface ServerState {
  /** `host:port`, as this process knows it. */
  node: string;
  memoryBytes: number;
  /** What it may take; without a setting, the memory of its machine. */
  memoryLimitBytes: number;
  /** It keeps an append-only file and could write it last time: a restart brings back what it has. */
  persists: boolean;
}

function factsOf(info: string): (name: string) => string {
  const facts = new Map(
    [...info.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name = "", value = ""]) => [name, value]),
  );
  return (name) => facts.get(name) ?? "";
}

/** The state of every server that holds keys: of a Cluster each master. Rejects when one of them does not answer. */
export async function readServerStates(redis: RedisConnection): Promise<ServerState[]> {
  return await Promise.all(
    mastersOf(redis).map(async (server) => {
      const fact = factsOf(`${await server.info("memory")}${await server.info("persistence")}`);
      const { host = "", port = 0 } = server.options;
      return {
        node: `${host}:${port}`,
        memoryBytes: Number(fact("used_memory")),
        memoryLimitBytes: Number(fact("maxmemory")) || Number(fact("total_system_memory")),
        persists: fact("aof_enabled") === "1" && fact("aof_last_write_status") === "ok",
      };
    }),
  );
}
