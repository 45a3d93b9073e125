import { randomUUID } from "node:crypto";
import { inject, onTestFinished } from "vitest";
import {
  closeRedis,
  connectRedis,
  createRedisApprovalStore,
  createRedisBudgetStore,
  createRedisCardLedger,
  createRedisDeadLetters,
  createRedisEventLog,
  createRedisEventWatchReports,
  createRedisInstanceDirectory,
  createRedisLookupCache,
  createRedisPermissionRules,
  createRedisRateGovernor,
  createRedisSessionStore,
  createRedisTokenCache,
} from "@larkline/store/redis";
import type { TestMemory } from "./backend.fixture.ts";

// For tests: what replicas share, in Redis.

export interface SharedRedis {
  memory: TestMemory;
  close(): Promise<void>;
}

/** Shared by what one test starts, which ends first. */
export function testMemory(): TestMemory {
  const { memory, close } = connectSharedRedis();
  onTestFinished(close);
  return memory;
}

/** A namespace of its own. */
export function connectSharedRedis(limits: { maxWaiting?: number } = {}): SharedRedis {
  const redis = connectRedis(inject("redisUrl"));
  const options = { redis, namespace: `test-${randomUUID()}` };
  const log = createRedisEventLog(options);
  return {
    memory: {
      store: createRedisSessionStore({ ...options, ...limits, stateKey: "0".repeat(64) }),
      log,
      cards: createRedisCardLedger(options),
      approvals: createRedisApprovalStore(options),
      rules: createRedisPermissionRules(options),
      budgets: createRedisBudgetStore(options),
      lookups: createRedisLookupCache({ ...options, owner: "ingress" }),
      letters: createRedisDeadLetters(options),
      instances: createRedisInstanceDirectory(options),
      watches: createRedisEventWatchReports(options),
      tokenCache: createRedisTokenCache(options),
      governor: createRedisRateGovernor(options),
    },
    close: async () => {
      log.close();
      await closeRedis(redis);
    },
  };
}
