export type {
  AppendResult,
  BeginResult,
  CallFacts,
  Claim,
  CommitRequest,
  CommitResult,
  DeliverDetails,
  DeliverResult,
  EventLog,
  FencedWrite,
  OpenCall,
  OutboxLease,
  OutboxRecord,
  OutboxTarget,
  ResetOptions,
  ResetResult,
  SaveRequest,
  SaveResult,
  SessionSettings,
  SessionStore,
  SessionSummary,
  StaleSession,
} from "./session-store.ts";
export type {
  ApprovalCard,
  ApprovalLease,
  ApprovalStatus,
  ApprovalStore,
  AuditLog,
  DecideResult,
  PermissionRules,
} from "./approval-store.ts";
export { approvalFactsOf, auditResultOf, ruleFactsOf } from "./audit-facts.ts";
export { cancelledRun } from "./cancelled-run.ts";
export { answersKind, settlesAlone } from "./decision-words.ts";
export {
  keepResult,
  readResultName,
  resultPage,
  shortenedResult,
  type ResultDesk,
  type ResultPage,
} from "./stored-result.ts";
export {
  replyModes,
  type CardEntry,
  type CardFence,
  type CardLedger,
  type CardReply,
  type ReplyMode,
} from "./card-ledger.ts";
export {
  deadLetterLimits,
  letterFactsOf,
  letterOfReply,
  replyAgain,
  type DeadLetter,
  type DeadLetterFacts,
  type DeadLetters,
} from "./dead-letters.ts";
export type { IndexedSession, SessionIndex } from "./session-index.ts";
export type { BucketState, RateBucket, RateGovernor, RateGrant, RateLane } from "./rate-governor.ts";
export { appOfBuckets, bucketStateOf, ratePacesOf } from "./rate-pace.ts";
export { createMemoryRateGovernor } from "./memory-rate-governor.ts";
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
} from "./blob-store.ts";
export { createMemoryBlobStore, type MemoryBlobStoreOptions } from "./memory-blob-store.ts";
export {
  chargeKnownMs,
  nanoUsdOf,
  spendingKeptMs,
  usdOf,
  type BigSpender,
  type BudgetStore,
  type Charge,
  type Spending,
  type SpendingAccount,
  type SpendingGroup,
} from "./budget-store.ts";
export { createMemoryBudgetStore } from "./memory-budget-store.ts";
export { maxLookupBytes, type LookupCache } from "./lookup-cache.ts";
export type {
  AnnounceResult,
  AvailableTool,
  LivingRunner,
  RunnerDirectory,
  RunnerInstance,
} from "./runner-directory.ts";
export {
  silentInstanceMs,
  type AppFeed,
  type Instance,
  type InstanceDirectory,
  type KnownInstance,
} from "./instance-directory.ts";
export { startAnnouncing, type AnnouncerOptions } from "./announcer.ts";
export { createMemoryInstanceDirectory } from "./memory-instance-directory.ts";
export { maxMissed, type EventWatchReport, type EventWatchReports, type MissedMessage } from "./event-watch-report.ts";
export { createMemoryEventWatchReports } from "./memory-event-watch-reports.ts";
export type { TokenCache, TokenValidity } from "./token-cache.ts";
export { createMemoryLookupCache } from "./memory-lookup-cache.ts";
export type { MemorySessionStoreOptions } from "./memory-session-store.ts";
export { createMemorySessionStore } from "./memory-stores.ts";
export { createMemoryRunnerDirectory } from "./memory-runner-directory.ts";
export { createMemoryTokenCache } from "./memory-token-cache.ts";
export {
  defaultTraceTtlMs,
  keptHeadEntries,
  maxTraceEntries,
  maxTracesOfSubject,
  subjectKinds,
  type FoundTrace,
  type SubjectKind,
  type TraceLog,
  type TraceSubject,
  type TraceWrite,
} from "./trace-log.ts";
export { createMemoryTraceLog, type MemoryTraceLogOptions } from "./memory-trace-log.ts";
export type {
  AuditBounds,
  AuditEntry,
  AuditPlace,
  AuditRetention,
  EndedSession,
  PersonalData,
  Redaction,
  RemovalResult,
  SessionRetention,
  StoredHistory,
} from "./retention.ts";
export type { Archive, ArchiveBatch, ArchivedMessage, ArchiveEnd } from "./archive.ts";
export { createMemoryArchive } from "./memory-archive.ts";
