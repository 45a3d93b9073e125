import { randomUUID } from "node:crypto";
import { inject, onTestFinished } from "vitest";
import {
  ConsentCallbacks,
  GrantBook,
  GrantEnds,
  GrantStore,
  ApprovalStore,
  BudgetStore,
  CardLedger,
  DeadLetters,
  EventLog,
  MemoryStore,
  ScheduleStore,
  SubscriptionStore,
  PermissionRules,
  SessionRetention,
  SessionStore,
} from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import {
  AgentVersions,
  EventWatchReports,
  InstanceDirectory,
  RatingStore,
} from "@larkline/store/operations";
import { LookupCache, RateGovernor, TokenCache } from "@larkline/store/platform";
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
  const log = new EventLog(options);
  return {
    memory: {
      store: new SessionStore({ ...options, ...limits, stateKey: "0".repeat(64) }),
      sessions: new SessionRetention(options),
      log,
      cards: new CardLedger(options),
      approvals: new ApprovalStore(options),
      rules: new PermissionRules(options),
      schedules: new ScheduleStore(options),
      subscriptions: new SubscriptionStore(options),
      memories: new MemoryStore(options),
      ratings: new RatingStore(options),
      budgets: new BudgetStore(options),
      agentVersions: new AgentVersions({ ...options, stateKey: "0".repeat(64) }),
      lookups: new LookupCache({ ...options, owner: "ingress" }),
      grants: new GrantBook(options),
      grantStore: new GrantStore({ ...options, grantKeys: ["a".repeat(64)] }),
      grantEnds: new GrantEnds(options),
      consentCallbacks: new ConsentCallbacks(options),
      letters: new DeadLetters(options),
      instances: new InstanceDirectory(options),
      watches: new EventWatchReports(options),
      tokenCache: new TokenCache(options),
      governor: new RateGovernor(options),
    },
    close: async () => {
      log.close();
      await closeRedis(redis);
    },
  };
}
