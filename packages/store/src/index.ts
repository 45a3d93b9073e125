export { ClaimRefusedError, SessionStore } from "./session-store.ts";
export {
  deathsTogether,
  maxExcuses,
  type AppendResult,
  type BeginResult,
  type CallFacts,
  type Claim,
  type ClaimOptions,
  type CommitRequest,
  type CommitResult,
  type DeliverDetails,
  type DeliverResult,
  type ExcuseResult,
  type FencedWrite,
  type HandedIn,
  type HandoffRefusal,
  type OpenCall,
  type OutboxLease,
  type OutboxRecord,
  type OutboxTarget,
  type ResetOptions,
  type ResetResult,
  type SaveRequest,
  type SaveResult,
  type SessionSettings,
  type SessionSummary,
  type StaleSession,
  type StoredTurn,
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
export {
  AuditLog,
  type AuditBounds,
  type AuditEntry,
  type AuditPlace,
  approvalFactsOf,
  auditResultOf,
  ruleFactsOf,
} from "./audit-log.ts";
export { PermissionRules } from "./permission-rules.ts";
export { applyOrder, messageAgain, type OrderDeps, OperatorOrders, type OrderOutcome } from "./operator-orders.ts";
export { cancelledRun } from "./stored.ts";
export {
  keepResult,
  nameResult,
  putResult,
  readResultName,
  removeResult,
  resultHandlesIn,
  resultPage,
  shortenedResult,
  type ResultDesk,
  type ResultPage,
} from "./stored-result.ts";
export { CardLedger, replyModes, type CardEntry, type CardFence, type CardReply, type ReplyMode } from "./outbox.ts";
export {
  deadLetterLimits,
  DeadLetters,
  letterFactsOf,
  letterOfReply,
  replyAgain,
  type DeadLetter,
  type DeadLetterFacts,
} from "./dead-letters.ts";
export {
  SessionIndex,
  type IndexedSession,
  type GateState,
  type CallMark,
  type SessionLedger,
  type UnsentReply,
} from "./session-index.ts";
export {
  RateGovernor,
  type BucketState,
  type RateBucket,
  type RateCeiling,
  type RateGrant,
  type RateLane,
  appOfBuckets,
  bucketStateOf,
  ceilingMs,
  rateWindowsOf,
} from "./rate-governor.ts";
export {
  blobFactsFrom,
  blobIdOf,
  blobTooLarge,
  defaultBlobTtlMs,
  defaultMaxBlobBytes,
  isBlobId,
  type BlobFacts,
  type BlobStore,
  type StoredBlob,
  RedisBlobStore,
} from "./blob-store.ts";
export {
  BudgetStore,
  chargeKnownMs,
  nanoUsdOf,
  spendingKeptMs,
  usdOf,
  type BigSpender,
  type Charge,
  type Spending,
  type SpendingAccount,
  type SpendingGroup,
} from "./budget-store.ts";
export { LookupCache, maxLookupBytes, TokenCache, type TokenSource } from "./caches.ts";
export {
  awayMs,
  RunnerDirectory,
  viewOfRunners,
  type AnnouncedInstance,
  type AnnounceResult,
  type AvailableTool,
  type AwayRunner,
  type LivingRunner,
  type RunnerInstance,
  type RunnersView,
  runnerScripts,
  type PublishedScript,
} from "./runner-directory.ts";
export {
  InstanceDirectory,
  silentInstanceMs,
  refuseOlderInstances,
  stateVersion,
  type AppFeed,
  type Instance,
  type KnownInstance,
  Announcer,
} from "./instance-directory.ts";
export { EventWatchReports, maxMissed, type EventWatchReport, type MissedMessage } from "./event-watch-reports.ts";
export {
  defaultTraceTtlMs,
  maxTraceEntries,
  maxTracesOfSubject,
  subjectKinds,
  TraceLog,
  type FoundTrace,
  type SubjectKind,
  type TraceSubject,
  type TraceWrite,
} from "./trace-log.ts";
export {
  removeParkedMessages,
  SessionRetention,
  type EndedSession,
  type Redaction,
  type RemovalResult,
  type StoredHistory,
} from "./retention.ts";
export type { Archive, ArchiveBatch, ArchivedMessage, ArchiveEnd } from "./archive.ts";
export {
  closeRedis,
  connectRedis,
  isAnswered,
  isRedisTrouble,
  mastersOf,
  redisUrlProblem,
  takesWrites,
  type ConnectOptions,
  type RedisConnection,
} from "./connection.ts";
export {
  RunnerHandoff,
  type RunnerHandoffOptions,
  HandoffImport,
  type HandoffImportOptions,
  type RefusedHandoff,
} from "./handoff.ts";
export { defaultNamespace } from "./keys.ts";
export { Presence } from "./presence.ts";
export { readServerStates, type ServerState, readServerFacts, type RedisServerFacts } from "./server-facts.ts";
export { StateMigration, type StateMigrationOptions } from "./state-migration.ts";
export { ServerClock } from "./server-clock.ts";
export { WarmUpLookups, WarmUpStore } from "./warm-up-store.ts";
export { Renewals, type RenewalOptions } from "./renewals.ts";
