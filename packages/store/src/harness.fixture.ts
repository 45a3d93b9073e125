import type { BlobStoreDemands, BlobStoreHarness } from "./blob-store.suite.ts";
import { mastersOf, type RedisConnection } from "./connection.ts";
import type { MemoryStoreHarness } from "./memory-store.suite.ts";
import type { RateGovernorHarness } from "./rate-governor.suite.ts";
import { RedisBlobStore } from "./blob-store.ts";
import type { SessionStoreDemands, SessionStoreHarness } from "./session-store-harness.ts";
import { AgentVersions } from "./agent-versions.ts";
import type { AgentVersionsHarness } from "./agent-versions.suite.ts";
import { createKeyspace } from "./keys.ts";
import { Pauses } from "./pauses.ts";
import { LookupCache } from "./platform.ts";
import { NameBook } from "./name-book.ts";
import { RatingStore, RunLog } from "./runs.ts";
import { openElsewhere, openTestStores, type TestStoreOptions } from "./testing.ts";
import { TraceLog } from "./trace-log.ts";

const outboxLeaseMs = 30_000;
const cardsLeaseMs = 30_000;
const dedupTtlMs = 86_400_000;

/** A session store with a namespace of its own, for the contract suite. */
export async function makeStore(
  url: string,
  demands: SessionStoreDemands,
): Promise<SessionStoreHarness> {
  const options = { ...demands, outboxLeaseMs, cardsLeaseMs, dedupTtlMs };
  const { here, there, close } = openTwice(url, options);
  return {
    ...here,
    elsewhere: there,
    audit: there.audit,
    index: there.index,
    leaseMs: outboxLeaseMs,
    cardsLeaseMs,
    dedupTtlMs,
    close,
  };
}

const ttlMs = 10_000;

/** The stores of two processes, and what the suites of shared values need. */
function openTwice(url: string, options: TestStoreOptions = {}) {
  const here = openTestStores(options, url);
  const there = openElsewhere(here, options);
  const close = async (): Promise<void> => {
    await Promise.all([here.close(), there.close()]);
  };
  const expire = async (): Promise<void> => await here.advance(ttlMs + 1);
  return { here, there, close, rest: { ttlMs, expire, close } };
}

export async function makeDirectory(url: string) {
  const { here, there, rest } = openTwice(url);
  return {
    ...rest,
    later: async () => await here.advance(1),
    directory: here.runners,
    elsewhere: there.runners,
  };
}

export async function makeInstanceDirectory(url: string) {
  const { here, there, rest } = openTwice(url);
  return { ...rest, directory: here.instances, elsewhere: there.instances, now: here.now };
}

export async function makeEventWatchReports(url: string) {
  const { here, there, rest } = openTwice(url);
  return { ...rest, reports: here.watches, elsewhere: there.watches };
}

export async function makeLookupCache(url: string) {
  const { here, there, rest } = openTwice(url);
  const { redis, namespace } = here;
  const ofIngress = new LookupCache({ redis, namespace, owner: "ingress" });
  return { ...rest, cache: here.lookups, elsewhere: there.lookups, ofIngress };
}

export async function makeRateGovernor(url: string): Promise<RateGovernorHarness> {
  const { here, there, close } = openTwice(url, { isClockStill: true });
  const { now, advance } = here;
  return { governor: here.governor, elsewhere: there.governor, now, advance, close };
}

export async function makeBudgetStore(url: string) {
  const { here, there, rest } = openTwice(url);
  return { ...rest, store: here.budgets, elsewhere: there.budgets };
}

export async function makeSessionFiles(url: string) {
  const { here, there, close } = openTwice(url);
  return {
    files: here.files,
    elsewhere: there.files,
    store: here.store,
    retention: here.retention,
    close,
  };
}

export async function makeMemoryStore(url: string): Promise<MemoryStoreHarness> {
  const { here, there, close } = openTwice(url);
  const { namespace, redis, now, advance } = here;
  const keys = async () => await keysOf(redis, namespace);
  return { store: here.memories, elsewhere: there.memories, keys, now, advance, close };
}

/** Names and values of all keys of a namespace, on every node. */
async function keysOf(redis: RedisConnection, namespace: string): Promise<string> {
  const found: unknown[] = [];
  for (const master of mastersOf(redis)) {
    for (const key of await master.keys(`*${namespace}*`)) {
      const type = await master.type(key);
      if (type === "hash") found.push(key, await master.hgetall(key));
      else {
        found.push(
          key,
          type === "zset" ? await master.zrange(key, "0", "-1") : await master.get(key),
        );
      }
    }
  }
  return JSON.stringify(found);
}

export async function makeTokenCache(url: string) {
  const { here, there, rest } = openTwice(url);
  return { ...rest, cache: here.tokens, elsewhere: there.tokens };
}

export async function makeTraceLog(url: string, keptMs: number) {
  const { here, there, close } = openTwice(url);
  return {
    log: new TraceLog({ ...here, ttlMs: keptMs }),
    elsewhere: new TraceLog({ ...there, ttlMs: keptMs }),
    expire: async () => await here.advance(keptMs + 1),
    close,
  };
}

export async function makeRunLog(url: string, keptMs: number) {
  const { here, there, close } = openTwice(url);
  return {
    log: new RunLog({ ...here, ttlMs: keptMs }),
    elsewhere: new RunLog({ ...there, ttlMs: keptMs }),
    left: async () => {
      const lists = mastersOf(here.redis).map(
        async (master) => await master.keys(`{${here.namespace}:runs:*`),
      );
      const lines = (await Promise.all(lists))
        .flat()
        .map(async (list) => await here.redis.lrange(list, 0, -1));
      return (await Promise.all(lines)).flat().join("\n");
    },
    now: here.now,
    advance: here.advance,
    close,
  };
}

export async function makeUsageStore(url: string) {
  const { here, there, close } = openTwice(url);
  return { store: here.usage, elsewhere: there.usage, now: here.now, advance: here.advance, close };
}

export async function makeNameBook(url: string) {
  const { here, there, close } = openTwice(url);
  return { book: new NameBook({ ...here, most: 5 }), elsewhere: there.names, close };
}

export async function makeRatingStore(url: string) {
  const { here, there, close } = openTwice(url);
  const { namespace, redis, now, advance } = here;
  const most = 4;
  return {
    store: new RatingStore({ ...here, most }),
    elsewhere: new RatingStore({ ...there, most }),
    keys: async () => await keysOf(redis, namespace),
    now,
    advance,
    close,
  };
}

export async function makePauses(url: string) {
  const { here, there, close } = openTwice(url);
  return {
    pauses: new Pauses({ ...here, most: 2 }),
    elsewhere: new Pauses(there),
    audit: there.audit,
    close,
  };
}

export async function makeAgentVersions(url: string): Promise<AgentVersionsHarness> {
  const { here, there, close } = openTwice(url);
  const key = createKeyspace(here.namespace).agentVersions;
  const options = { stateKey: "0".repeat(64), most: 3 };
  return {
    versions: new AgentVersions({ ...here, ...options }),
    elsewhere: new AgentVersions({ ...there, ...options }),
    foreign: new AgentVersions({ ...here, stateKey: "1".repeat(64) }),
    audit: there.audit,
    read: async (field) => (await here.redis.hget(key, field)) ?? "",
    write: async (field, text) => void (await here.redis.hset(key, field, text)),
    lose: async () => void (await here.redis.del(key)),
    close,
  };
}

export async function makeBlobStore(
  url: string,
  demands: BlobStoreDemands,
): Promise<BlobStoreHarness> {
  const { here, there, close } = openTwice(url);
  return {
    store: new RedisBlobStore({ ...here, ...demands }),
    elsewhere: new RedisBlobStore({ ...there, ...demands }),
    advance: here.advance,
    close,
  };
}
