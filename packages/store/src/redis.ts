export { createRedisApprovalStore, type RedisApprovalStoreOptions } from "./approval-store.ts";
export { createRedisAuditLog, createRedisAuditRetention, type RedisAuditLogOptions } from "./audit-log.ts";
export { createRedisBlobStore, type RedisBlobStoreOptions } from "./redis-blob-store.ts";
export { createRedisBudgetStore, type RedisBudgetStoreOptions } from "./budget-store.ts";
export { createRedisCardLedger, type RedisCardLedgerOptions } from "./card-ledger.ts";
export {
  closeRedis,
  connectRedis,
  isAnswered,
  mastersOf,
  redisUrlProblem,
  isRedisTrouble,
  takesWrites,
  type ConnectOptions,
  type RedisConnection,
} from "./connection.ts";
export { createRedisDeadLetters, type RedisDeadLettersOptions } from "./dead-letters.ts";
export { createRedisEventLog, type RedisEventLogOptions } from "./event-log.ts";
export { RunnerHandoff, type RunnerHandoffOptions } from "./handoff.ts";
export { HandoffImport, type HandoffImportOptions, type RefusedHandoff } from "./handoff-import.ts";
export { createGateStateReader, type GateState, type GateStateOptions } from "./gate-state.ts";
export { defaultNamespace } from "./keys.ts";
export { createRedisEventWatchReports, type RedisEventWatchReportsOptions } from "./event-watch-reports.ts";
export { createRedisInstanceDirectory, type RedisInstanceDirectoryOptions } from "./instance-directory.ts";
export { createRedisLookupCache, type RedisLookupCacheOptions } from "./lookup-cache.ts";
export { OperatorOrders, type HandedIn, type OperatorOrdersOptions } from "./operator-orders.ts";
export { createRedisPermissionRules, type RedisPermissionRulesOptions } from "./permission-rules.ts";
export { createRedisPresence, type Presence, type RedisPresenceOptions } from "./presence.ts";
export { createRedisRateGovernor, type RedisRateGovernorOptions } from "./rate-governor.ts";
export { createRedisRetention, removeParkedMessages, type RedisRetentionOptions } from "./retention.ts";
export { createRedisRunnerDirectory, type RedisRunnerDirectoryOptions } from "./runner-directory.ts";
export { runnerScripts, type PublishedScript } from "./runner-scripts.ts";
export { createRedisSessionIndex, type RedisSessionIndexOptions } from "./session-index.ts";
export { Renewals, type RenewalOptions } from "./renewals.ts";
export { readServerStates, type ServerState } from "./server-state.ts";
export { createRedisSessionStore, type RedisSessionStoreOptions } from "./redis-session-store.ts";
export { StateMigration, type StateMigrationOptions } from "./state-migration.ts";
export { ServerClock } from "./server-clock.ts";
export { createRedisTokenCache, type RedisTokenCacheOptions } from "./token-cache.ts";
export { readServerFacts, type RedisServerFacts } from "./server-facts.ts";
export { connectTraceLog, TraceLog, type TraceLogConnection, type TraceLogOptions } from "./trace-log.ts";
export { createSessionLedgers, type CallMark, type SessionLedger, type UnsentReply } from "./session-ledgers.ts";
