import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { BlobStoreDemands, BlobStoreHarness } from "../blob-store.suite.ts";
import type { RateGovernorHarness } from "../rate-governor.suite.ts";
import type { SessionStoreDemands, SessionStoreHarness } from "../session-store.suite.ts";
import { createRedisApprovalStore } from "./approval-store.ts";
import { createRedisAuditLog, createRedisAuditRetention } from "./audit-log.ts";
import { createRedisBlobStore } from "./blob-store.ts";
import { createRedisBudgetStore } from "./budget-store.ts";
import { createRedisCardLedger } from "./card-ledger.ts";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { createRedisDeadLetters } from "./dead-letters.ts";
import { createRedisEventLog } from "./event-log.ts";
import { createRedisEventWatchReports } from "./event-watch-reports.ts";
import { createRedisInstanceDirectory } from "./instance-directory.ts";
import { createRedisLookupCache } from "./lookup-cache.ts";
import { createRedisPermissionRules } from "./permission-rules.ts";
import { createRedisRetention } from "./retention.ts";
import { createRedisRateGovernor } from "./rate-governor.ts";
import { createRedisRunnerDirectory } from "./runner-directory.ts";
import { createRedisSessionIndex } from "./session-index.ts";
import { createRedisSessionStore } from "./session-store.ts";
import { createRedisTokenCache } from "./token-cache.ts";
import { createRedisTraceLog } from "./trace-log.ts";

/** A session store with a namespace of its own, for the contract suite. */
export async function makeStore(
  url: string,
  { maxWaiting, maxApprovals, shortLived }: SessionStoreDemands,
): Promise<SessionStoreHarness> {
  const redis = connectRedis(url);
  const other = connectRedis(url);
  const namespace = `test-${randomUUID()}`;
  const outboxLeaseMs = shortLived === true ? 300 : 30_000;
  const cardsLeaseMs = outboxLeaseMs;
  const dedupTtlMs = shortLived === true ? 300 : 86_400_000;
  const events = createRedisEventLog({ redis, namespace });
  const kept = maxApprovals === undefined ? {} : { maxApprovals };
  const limits = { ...kept, ...(maxWaiting === undefined ? {} : { maxWaiting }) };
  return {
    store: createRedisSessionStore({
      redis,
      namespace,
      stateKey: "0".repeat(64),
      outboxLeaseMs,
      dedupTtlMs,
      ...limits,
    }),
    events,
    cards: createRedisCardLedger({ redis, namespace }),
    approvals: createRedisApprovalStore({ redis, namespace, cardsLeaseMs, ...kept }),
    rules: createRedisPermissionRules({ redis, namespace }),
    elsewhere: {
      approvals: createRedisApprovalStore({ redis: other, namespace, cardsLeaseMs, ...kept }),
      rules: createRedisPermissionRules({ redis: other, namespace }),
    },
    audit: createRedisAuditLog({ redis: other, namespace }),
    retention: createRedisRetention({ redis, namespace }),
    auditRetention: createRedisAuditRetention({ redis, namespace }),
    letters: createRedisDeadLetters({ redis, namespace, outboxLeaseMs }),
    index: createRedisSessionIndex({ redis: other, namespace }),
    leaseMs: outboxLeaseMs,
    cardsLeaseMs,
    dedupTtlMs,
    now: Date.now,
    advance: async (ms) => {
      await delay(ms + 1);
    },
    close: async () => {
      events.close();
      await Promise.all([closeRedis(redis), closeRedis(other)]);
    },
  };
}

const ttlMs = 200;

/** Two connections, as two processes have them, and what the suites of shared values need. */
function connectTwice(url: string) {
  const namespace = `test-${randomUUID()}`;
  const redis = connectRedis(url);
  const other = connectRedis(url);
  return {
    here: { redis, namespace },
    there: { redis: other, namespace },
    rest: {
      ttlMs,
      expire: async () => await delay(ttlMs + 20),
      close: async () => {
        await Promise.all([closeRedis(redis), closeRedis(other)]);
      },
    },
  };
}

async function timeMs(redis: RedisConnection): Promise<number> {
  const [seconds, micros] = await redis.time();
  return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
}

export async function makeDirectory(url: string) {
  const { here, there, rest } = connectTwice(url);
  const later = async (): Promise<void> => {
    const fromMs = await timeMs(here.redis);
    while ((await timeMs(here.redis)) <= fromMs) await delay(1);
  };
  return { ...rest, later, directory: createRedisRunnerDirectory(here), elsewhere: createRedisRunnerDirectory(there) };
}

export async function makeInstanceDirectory(url: string) {
  const { here, there, rest } = connectTwice(url);
  const directory = createRedisInstanceDirectory(here);
  return { ...rest, directory, elsewhere: createRedisInstanceDirectory(there), now: Date.now };
}

export async function makeEventWatchReports(url: string) {
  const { here, there, rest } = connectTwice(url);
  return { ...rest, reports: createRedisEventWatchReports(here), elsewhere: createRedisEventWatchReports(there) };
}

export async function makeLookupCache(url: string) {
  const { here, there, rest } = connectTwice(url);
  const owner = "worker";
  const cache = createRedisLookupCache({ ...here, owner });
  return { ...rest, cache, elsewhere: createRedisLookupCache({ ...there, owner }) };
}

export async function makeRateGovernor(url: string): Promise<RateGovernorHarness> {
  const { here, there, rest } = connectTwice(url);
  return {
    governor: createRedisRateGovernor(here),
    elsewhere: createRedisRateGovernor(there),
    now: () => performance.now(),
    advance: async (ms) => await delay(ms),
    close: rest.close,
  };
}

export async function makeBudgetStore(url: string) {
  const { here, there, rest } = connectTwice(url);
  return { ...rest, store: createRedisBudgetStore(here), elsewhere: createRedisBudgetStore(there) };
}

export async function makeTokenCache(url: string) {
  const { here, there, rest } = connectTwice(url);
  return { ...rest, cache: createRedisTokenCache(here), elsewhere: createRedisTokenCache(there) };
}

export async function makeTraceLog(url: string, keptMs: number) {
  const { here, there, rest } = connectTwice(url);
  return {
    log: createRedisTraceLog({ ...here, ttlMs: keptMs }),
    elsewhere: createRedisTraceLog({ ...there, ttlMs: keptMs }),
    expire: async () => await delay(keptMs + 20),
    close: rest.close,
  };
}

export async function makeBlobStore(url: string, demands: BlobStoreDemands): Promise<BlobStoreHarness> {
  const { here, there, rest } = connectTwice(url);
  return {
    store: createRedisBlobStore({ ...here, ...demands }),
    elsewhere: createRedisBlobStore({ ...there, ...demands }),
    advance: async (ms) => await delay(ms + 1),
    close: rest.close,
  };
}
