import { createQueueCatalog, type QueueCatalog } from "@larkline/queue";
import type {
  ApprovalStore,
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
} from "@larkline/store";
import {
  closeRedis,
  connectRedis,
  takesWrites,
  createGateStateReader,
  createRedisApprovalStore,
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
  TraceLog,
  createSessionLedgers,
  OperatorOrders,
  mastersOf,
  readServerStates,
  type GateState,
  type Presence,
  type SessionLedger,
  type ServerState,
  ServerClock,
} from "@larkline/store/redis";
import { createClockLog, createOutageLog, type Logger } from "@larkline/process/telemetry";

/** Everything that the console looks at and acts upon. It holds nothing itself. */
export interface Backend {
  /** What was done for each message. */
  traces: TraceLog;
  log: Pick<EventLog, "read">;
  ledgers: (session: string) => Promise<SessionLedger>;
  store: Pick<SessionStore, "waiting" | "seqOf" | "summary" | "history">;
  /** The way to have something done: workers look at orders, do them and keep a record. */
  orders: Pick<OperatorOrders, "handIn">;
  index: SessionIndex;
  /** What was given up. */
  letters: Pick<DeadLetters, "find" | "list" | "count">;
  instances: Pick<InstanceDirectory, "instances">;
  /** Looks for events that never came. */
  watches: Pick<EventWatchReports, "of">;
  tokens: TokenValidity;
  approvals: Pick<ApprovalStore, "pending" | "dueExpiries">;
  rules: Pick<PermissionRules, "list">;
  budgets: Pick<BudgetStore, "spent" | "biggest">;
  directory: Pick<RunnerDirectory, "runners" | "away" | "forget">;
  presence: Pick<Presence, "members" | "takeDuty">;
  /** How all sessions are. */
  gate: () => Promise<GateState>;
  /** How the servers of Redis are. */
  servers: () => Promise<ServerState[]>;
  lookups: LookupCache;
  governor: Pick<RateGovernor, "take" | "callsOf" | "look">;
  catalog: QueueCatalog;
  ping(): Promise<boolean>;
  /** Whether it takes what is written: it is not full, not read-only, and can write its disk. */
  takesWrites(): Promise<boolean>;
  /** Which clocks differ, in English. */
  clockProblem(): string | undefined;
  close(): Promise<void>;
}

/** Opens the connection of the process. Resolves at once: until Redis answers the console is not ready. */
export function connectBackend(options: {
  redisUrl: string;
  namespace: string;
  /** How long traces are kept, ms. */
  tracesKeptMs: number;
  logger: Logger;
}): Backend {
  const { namespace, logger } = options;
  const { failed: onError, back } = createOutageLog(logger, "Redis");
  const redis = connectRedis(options.redisUrl, { onError });
  redis.on("ready", back);
  const clock = new ServerClock(redis, createClockLog(logger));
  const queue = { connection: redis, prefix: `{${namespace}}`, onError };
  const log = createRedisEventLog({ redis, namespace });
  const catalog = createQueueCatalog({ ...queue, masters: () => mastersOf(redis) });
  return {
    traces: new TraceLog({ redis, namespace, ttlMs: options.tracesKeptMs }),
    log,
    ledgers: createSessionLedgers({ redis, namespace }),
    store: createRedisSessionStore({ redis, namespace }),
    orders: new OperatorOrders({ redis, namespace }),
    index: createRedisSessionIndex({ redis, namespace }),
    letters: createRedisDeadLetters({ redis, namespace }),
    instances: createRedisInstanceDirectory({ redis, namespace }),
    watches: createRedisEventWatchReports({ redis, namespace }),
    tokens: createRedisTokenCache({ redis, namespace }),
    approvals: createRedisApprovalStore({ redis, namespace }),
    rules: createRedisPermissionRules({ redis, namespace }),
    budgets: createRedisBudgetStore({ redis, namespace }),
    directory: createRedisRunnerDirectory({ redis, namespace }),
    presence: createRedisPresence({ redis, namespace }),
    gate: createGateStateReader({ redis, namespace }),
    servers: async () => await readServerStates(redis),
    lookups: createRedisLookupCache({ redis, namespace, owner: "console" }),
    governor: createRedisRateGovernor({ redis, namespace }),
    catalog,
    ping: async () => (await redis.ping()) === "PONG",
    takesWrites: async () => await takesWrites(redis),
    clockProblem: clock.problem,
    async close() {
      clock.close();
      log.close();
      await catalog.close();
      await closeRedis(redis);
    },
  };
}
