import { createCancelBus, createTurnQueue } from "@larkline/queue";
import type { RateGovernor, TokenCache } from "@larkline/store";
import {
  closeRedis,
  connectRedis,
  takesWrites,
  createRedisApprovalStore,
  createRedisBudgetStore,
  createRedisCardLedger,
  createRedisDeadLetters,
  createRedisEventLog,
  createRedisEventWatchReports,
  createRedisInstanceDirectory,
  createRedisLookupCache,
  createRedisPermissionRules,
  createRedisPresence,
  createRedisRateGovernor,
  createRedisSessionStore,
  createRedisTokenCache,
  ServerClock,
} from "@larkline/store/redis";
import { createClockLog, createOutageLog, type Logger } from "@larkline/process/telemetry";
import type { Backend } from "./backend.ts";

export interface RedisBackend extends Backend {
  tokenCache: TokenCache;
  governor: RateGovernor;
  close(): Promise<void>;
}

/** Answers of Redis that come before anything is written: full, read-only, still loading, without a master. */
const refusals = /^(?:OOM|READONLY|MISCONF|LOADING|MASTERDOWN|CLUSTERDOWN|NOREPLICAS|NOPERM|NOAUTH)\b/;

function isRefusedWrite(error: unknown): boolean {
  return error instanceof Error && error.name === "ReplyError" && refusals.test(error.message);
}

/** Opens the connections of the process. Resolves at once: until Redis answers the backend is not ready. */
export function connectBackend(options: { redisUrl: string; namespace: string; logger: Logger }): RedisBackend {
  const { namespace, logger } = options;
  const { failed: onError, back } = createOutageLog(logger, "Redis");
  const redis = connectRedis(options.redisUrl, { onError });
  let wasReady = redis.status === "ready";
  redis.on("ready", () => {
    wasReady = true;
    back();
  });
  const clock = new ServerClock(redis, createClockLog(logger));
  const log = createRedisEventLog({ redis, namespace });
  const presence = createRedisPresence({ redis, namespace });
  const turns = createTurnQueue({ connection: redis, prefix: `{${namespace}}`, onError });
  return {
    store: createRedisSessionStore({ redis, namespace }),
    approvals: createRedisApprovalStore({ redis, namespace }),
    rules: createRedisPermissionRules({ redis, namespace }),
    budgets: createRedisBudgetStore({ redis, namespace }),
    log,
    turns,
    cancels: createCancelBus({ connection: redis, channel: `{${namespace}}:cancel` }),
    lookups: createRedisLookupCache({ redis, namespace, owner: "ingress" }),
    ledger: createRedisCardLedger({ redis, namespace }),
    letters: createRedisDeadLetters({ redis, namespace }),
    instances: createRedisInstanceDirectory({ redis, namespace }),
    watches: createRedisEventWatchReports({ redis, namespace }),
    takeDuty: async (duty, ttlMs) => await presence.takeDuty(duty, `ingress-${process.pid}`, ttlMs),
    governor: createRedisRateGovernor({ redis, namespace }),
    tokenCache: createRedisTokenCache({ redis, namespace }),
    isReady: () => redis.status === "ready",
    wasReady: () => wasReady,
    refused: isRefusedWrite,
    ping: async () => (await redis.ping()) === "PONG",
    takesWrites: async () => await takesWrites(redis),
    clockProblem: clock.problem,
    async close() {
      clock.close();
      log.close();
      await turns.close();
      await closeRedis(redis);
    },
  };
}
