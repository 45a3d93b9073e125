import { type TraceId, jsonParserOf, TraceEntry, sharedNow } from "@larkline/protocol";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";
import { defineScript } from "./script.ts";

/**
 * What traces are found by, besides their ids: the platform's ids of message, chat and person. For the chat of a
 * message of the HTTP API stands `api.<session id>`.
 */
export const subjectKinds = ["message", "chat", "person"] as const;
export type SubjectKind = (typeof subjectKinds)[number];

/** What a trace is about. */
export type TraceSubject = Readonly<Partial<Record<SubjectKind, string>>>;

/** What is added to one trace. */
export interface TraceWrite {
  traceId: TraceId;
  entries: readonly TraceEntry[];
  /** Given: the trace can be found by these from now on. */
  subject?: TraceSubject;
}

export interface FoundTrace {
  traceId: TraceId;
  /** When it was last made findable: about the time of its message. */
  atMs: number;
}

/** How long a trace is kept after its last entry, where nothing else is said. */
export const defaultTraceTtlMs = 3 * 86_400_000;

/** Entries kept per trace, about: of a longer one the first and the newest. */
export const maxTraceEntries = 1_000;

/** Traces that can be found by one message, chat or person: the newest ones. */
export const maxTracesOfSubject = 300;

/**
 * What was done for each message, by trace id, for people who ask why there is no answer. Bounded in
 * number and time; losing an entry is harmless, and nothing may wait for it.
 */
export interface TraceLog {
  /** Adds entries to traces. Rejects when that is not certain: some may be there. */
  append(writes: readonly TraceWrite[]): Promise<void>;
  /** All entries of a trace, in the order in which they were added; empty when nothing is known of it. */
  read(traceId: TraceId): Promise<TraceEntry[]>;
  /** Traces by what they are about, newest first. */
  find(kind: SubjectKind, id: string, limit: number): Promise<FoundTrace[]>;
}

/** The first entries of a trace, which say what it is about, stay when it gets too long. */
export const keptHeadEntries = 50;

export interface RedisTraceLogOptions {
  redis: RedisConnection;
  namespace?: string;
  /** How long a trace is kept after its last entry, ms. */
  ttlMs?: number;
}

const parseEntry = jsonParserOf(TraceEntry);

/** Down to this many: the script runs seldom. */
const shortened = Math.floor(maxTraceEntries * 0.75);

/** KEYS: trace. ARGV: entries kept at its beginning, and in all. */
const shortenTrace = `
local length = redis.call("llen", KEYS[1])
local head, all = tonumber(ARGV[1]), tonumber(ARGV[2])
if length <= all then return 0 end
local first = redis.call("lrange", KEYS[1], 0, head - 1)
redis.call("ltrim", KEYS[1], length - all + head, -1)
for at = #first, 1, -1 do redis.call("lpush", KEYS[1], first[at]) end
return 1
`;

/** The part of a key that says in which slot it is. */
function tagOf(key: string): string {
  return key.slice(0, key.indexOf("}"));
}

type Pipeline = ReturnType<RedisConnection["pipeline"]>;

/** Pipelines by slot: a Cluster takes no others. */
function pipelinesOf(redis: RedisConnection) {
  const pipelines = new Map<string, Pipeline>();
  return {
    at: (key: string): Pipeline => {
      const known = pipelines.get(tagOf(key));
      if (known !== undefined) return known;
      const pipeline = redis.pipeline();
      pipelines.set(tagOf(key), pipeline);
      return pipeline;
    },
    /** Rejects with the first error of a command. */
    run: async (): Promise<void> => {
      const results = await Promise.all([...pipelines.values()].map(async (pipeline) => await pipeline.exec()));
      for (const [error] of results.flatMap((result) => result ?? [])) if (error !== null) throw error;
    },
  };
}

/** Traces on Redis: a list for each, and sorted sets to find them by. Expiry is Redis's. */
export function createRedisTraceLog(options: RedisTraceLogOptions): TraceLog {
  const { redis, namespace = defaultNamespace, ttlMs = defaultTraceTtlMs } = options;
  const keys = createKeyspace(namespace);
  const shorten = defineScript(redis, "shortenTrace", shortenTrace);

  const note = (at: (key: string) => Pipeline, traceId: TraceId, subject: TraceSubject): void => {
    const nowMs = sharedNow();
    for (const kind of subjectKinds) {
      const id = subject[kind];
      if (id === undefined) continue;
      const key = keys.tracesOf(kind, id);
      at(key)
        .zadd(key, nowMs, traceId)
        .zremrangebyrank(key, 0, -maxTracesOfSubject - 1)
        .pexpire(key, ttlMs);
    }
  };

  /** `onLength` is told how many entries the trace has then. */
  const add = (at: (key: string) => Pipeline, write: TraceWrite, onLength: (key: string, length: number) => void) => {
    const { traceId, entries, subject } = write;
    const key = keys.trace(traceId);
    if (entries.length > 0) {
      const lines = entries.map((entry) => JSON.stringify(entry));
      at(key)
        .rpush(key, ...lines, (_error, length) => onLength(key, length ?? 0))
        .pexpire(key, ttlMs);
    }
    if (subject !== undefined) note(at, traceId, subject);
  };

  return {
    append: async (writes) => {
      const pipelines = pipelinesOf(redis);
      const long = new Set<string>();
      const onLength = (key: string, length: number): void => {
        if (length > maxTraceEntries) long.add(key);
      };
      for (const write of writes) add(pipelines.at, write, onLength);
      await pipelines.run();
      for (const key of long) await shorten([key], [keptHeadEntries, shortened]);
    },
    read: async (traceId) => {
      const lines = await redis.lrange(keys.trace(traceId), 0, -1);
      // What a newer version writes in another way is left out: the rest still tells something.
      return lines.map(parseEntry).flatMap((parsed) => (parsed.ok ? [parsed.value] : []));
    },
    find: async (kind, id, limit) => {
      const found = await redis.zrevrange(keys.tracesOf(kind, id), 0, limit - 1, "WITHSCORES");
      return found.flatMap((traceId, at) => (at % 2 === 0 ? [{ traceId, atMs: Number(found[at + 1]) }] : []));
    },
  };
}

export interface TraceLogConnection {
  log: TraceLog;
  close(): Promise<void>;
}

/**
 * A trace log on a connection of its own: what is only watched must not stand in the way of what is done,
 * nor be held up by it. Problems of the connection are those of its commands.
 */
export function connectTraceLog(options: { redisUrl: string; namespace: string; ttlMs?: number }): TraceLogConnection {
  const { redisUrl, ...rest } = options;
  const redis = connectRedis(redisUrl);
  return { log: createRedisTraceLog({ redis, ...rest }), close: async () => await closeRedis(redis) };
}
