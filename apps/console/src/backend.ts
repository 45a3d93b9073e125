import { createCancelBus, createQueueCatalog, createTurnQueue, type CancelBus, type TurnQueue } from "@larkline/queue";
import type { QueueCatalog } from "@larkline/queue";
import type {
  ApprovalStore,
  AuditLog,
  EventLog,
  BudgetStore,
  DeadLetters,
  EventWatchReports,
  InstanceDirectory,
  LookupCache,
  PermissionRules,
  RateGovernor,
  RunnerDirectory,
  SessionIndex,
  SessionStore,
  TokenValidity,
  TraceLog,
} from "@larkline/session";
import {
  closeRedis,
  connectRedis,
  createGateStateReader,
  createRedisApprovalStore,
  createRedisAuditLog,
  createRedisBudgetStore,
  createRedisDeadLetters,
  createRedisEventWatchReports,
  createRedisInstanceDirectory,
  createRedisLookupCache,
  createRedisPermissionRules,
  createRedisPresence,
  createRedisRateGovernor,
  createRedisRunnerDirectory,
  createRedisEventLog,
  createRedisSessionIndex,
  createRedisSessionStore,
  createRedisTokenCache,
  createRedisTraceLog,
  createSessionLedgers,
  mastersOf,
  readServerStates,
  type GateState,
  type Presence,
  type SessionLedger,
  type ServerState,
} from "@larkline/session-redis";
import { createOutageLog, type Logger } from "@larkline/telemetry";

/** Everything that the console looks at and acts upon. It holds nothing itself. */
export interface Backend {
  /** What was done for each message. */
  traces: TraceLog;
  log: Pick<EventLog, "read">;
  ledgers: (session: string) => Promise<SessionLedger>;
  store: Pick<SessionStore, "waiting" | "seqOf" | "summary" | "history" | "append" | "cancel" | "reset">;
  index: SessionIndex;
  /** What was given up. */
  letters: Pick<DeadLetters, "find" | "list" | "count" | "resend" | "discard">;
  instances: Pick<InstanceDirectory, "instances">;
  /** Looks for events that never came. */
  watches: Pick<EventWatchReports, "of">;
  tokens: TokenValidity;
  approvals: Pick<ApprovalStore, "pending" | "dueExpiries">;
  rules: Pick<PermissionRules, "list" | "revoke">;
  budgets: Pick<BudgetStore, "spent" | "biggest">;
  audit: Pick<AuditLog, "append">;
  directory: Pick<RunnerDirectory, "runners">;
  presence: Pick<Presence, "members" | "takeDuty">;
  /** How all sessions are. */
  gate: () => Promise<GateState>;
  /** How the servers of Redis are. */
  servers: () => Promise<ServerState[]>;
  lookups: LookupCache;
  governor: Pick<RateGovernor, "take" | "callsOf" | "look">;
  catalog: QueueCatalog;
  turns: Pick<TurnQueue, "wake">;
  cancels: Pick<CancelBus, "publish">;
  ping(): Promise<boolean>;
  close(): Promise<void>;
}

/** Opens the connection of the process. Resolves at once: until Redis answers the console is not ready. */
export function connectBackend(options: { redisUrl: string; namespace: string; logger: Logger }): Backend {
  const { namespace, logger } = options;
  const { failed: onError, back } = createOutageLog(logger, "Redis");
  const redis = connectRedis(options.redisUrl, { onError });
  redis.on("ready", back);
  const queue = { connection: redis, prefix: `{${namespace}}`, onError };
  const turns = createTurnQueue(queue);
  const log = createRedisEventLog({ redis, namespace });
  const catalog = createQueueCatalog({ ...queue, masters: () => mastersOf(redis) });
  return {
    traces: createRedisTraceLog({ redis, namespace }),
    log,
    ledgers: createSessionLedgers({ redis, namespace }),
    store: createRedisSessionStore({ redis, namespace }),
    index: createRedisSessionIndex({ redis, namespace }),
    letters: createRedisDeadLetters({ redis, namespace }),
    instances: createRedisInstanceDirectory({ redis, namespace }),
    watches: createRedisEventWatchReports({ redis, namespace }),
    tokens: createRedisTokenCache({ redis, namespace }),
    approvals: createRedisApprovalStore({ redis, namespace }),
    rules: createRedisPermissionRules({ redis, namespace }),
    audit: createRedisAuditLog({ redis, namespace }),
    budgets: createRedisBudgetStore({ redis, namespace }),
    directory: createRedisRunnerDirectory({ redis, namespace }),
    presence: createRedisPresence({ redis, namespace }),
    gate: createGateStateReader({ redis, namespace }),
    servers: async () => await readServerStates(redis),
    lookups: createRedisLookupCache({ redis, namespace }),
    governor: createRedisRateGovernor({ redis, namespace }),
    catalog,
    turns,
    cancels: createCancelBus({ connection: redis, channel: `{${namespace}}:cancel` }),
    ping: async () => (await redis.ping()) === "PONG",
    async close() {
      log.close();
      await Promise.all([turns.close(), catalog.close()]);
      await closeRedis(redis);
    },
  };
}
