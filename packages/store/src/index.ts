export { ClaimRefusedError, SessionStore } from "./session-store.ts";
export type {
  AppendResult,
  CallFacts,
  Claim,
  CommitRequest,
  CommitResult,
  DeliverResult,
  ExcuseResult,
  OpenCall,
  OutboxLease,
  OutboxRecord,
  OutboxTarget,
  SaveRequest,
  SaveResult,
  SessionSettings,
  SessionTotals,
  SessionSummary,
  StaleSession,
} from "./session-types.ts";
export { EventLog } from "./event-log.ts";
export {
  ApprovalStore,
  type ApprovalCard,
  type ApprovalLease,
  type ApprovalStatus,
  type DecideResult,
  answersKind,
  settlesAlone,
} from "./approval-store.ts";
export { AuditLog, type AuditPlace } from "./audit-log.ts";
export { PermissionRules } from "./permission-rules.ts";
export { MemoryStore, type Memory, type MemoryOwner, type OwnedMemory } from "./memory-store.ts";
export { applyOrder, type OrderDeps, OperatorOrders } from "./operator-orders.ts";
export { keepResult, putResult, removeResult, resultHandlesIn, resultPage } from "./stored-result.ts";
export { CardLedger, type CardEntry, type CardFence, type CardReply, type ReplyMode } from "./outbox.ts";
export { DeadLetters, type DeadLetter, type DeadLetterFacts } from "./dead-letters.ts";
export { SessionIndex, type GateState, type SessionLedger } from "./session-index.ts";
export {
  RateGovernor,
  type BucketState,
  type RateBucket,
  type RateCeiling,
  type RateGrant,
  type RateLane,
} from "./rate-governor.ts";
export { blobIdOf, defaultBlobTtlMs, type BlobStore, RedisBlobStore } from "./blob-store.ts";
export { BudgetStore, type Spending } from "./budget-store.ts";
export { LookupCache, TokenCache, type TokenSource } from "./caches.ts";
export {
  RunnerDirectory,
  type AvailableTool,
  type AwayRunner,
  type LivingRunner,
  type RunnerInstance,
  runnerScripts,
} from "./runner-directory.ts";
export {
  InstanceDirectory,
  refuseOlderInstances,
  type AppFeed,
  type KnownInstance,
  Announcer,
} from "./instance-directory.ts";
export { EventWatchReports, maxMissed, type EventWatchReport, type MissedMessage } from "./event-watch-reports.ts";
export {
  maxTracesOfSubject,
  subjectKinds,
  TraceLog,
  type FoundTrace,
  type SubjectKind,
  type TraceSubject,
  type TraceWrite,
} from "./trace-log.ts";
export { removeParkedMessages, SessionRetention } from "./retention.ts";
export type { Archive, ArchiveEnd } from "./archive.ts";
export {
  closeRedis,
  connectRedis,
  isAnswered,
  isRedisTrouble,
  mastersOf,
  redisUrlProblem,
  takesWrites,
  type RedisConnection,
} from "./connection.ts";
export { RunnerHandoff, HandoffImport, type RefusedHandoff } from "./handoff.ts";
export { Presence } from "./presence.ts";
export { readServerStates, type ServerState, readServerFacts, type RedisServerFacts } from "./server-facts.ts";
export { StateMigration } from "./state-migration.ts";
export { ServerClock } from "./server-clock.ts";
export { WarmUpLookups, WarmUpStore } from "./warm-up-store.ts";
export { Renewals } from "./renewals.ts";
