export {
  ClaimRefusedError,
  deathsTogether,
  maxExcuses,
  type ExcuseResult,
  type AppendResult,
  type BeginResult,
  type CallFacts,
  type Claim,
  type ClaimOptions,
  type CommitRequest,
  type CommitResult,
  type DeliverDetails,
  type DeliverResult,
  type EventLog,
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
  type SessionStore,
  type SessionSummary,
  type StoredTurn,
  type StaleSession,
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
export { applyOrder, messageAgain, type OrderDeps } from "./apply-order.ts";
export { approvalFactsOf, auditResultOf, ruleFactsOf } from "./audit-facts.ts";
export { cancelledRun } from "./cancelled-run.ts";
export { answersKind, settlesAlone } from "./decision-words.ts";
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
export type { BucketState, RateBucket, RateCeiling, RateGovernor, RateGrant, RateLane } from "./rate-governor.ts";
export { appOfBuckets, bucketStateOf, ceilingMs, rateWindowsOf } from "./rate-windows.ts";
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
export { maxLookupBytes, type LookupCache } from "./lookup-cache.ts";
export {
  awayMs,
  viewOfRunners,
  type AnnouncedInstance,
  type AnnounceResult,
  type AvailableTool,
  type AwayRunner,
  type LivingRunner,
  type RunnerDirectory,
  type RunnerInstance,
  type RunnersView,
} from "./runner-directory.ts";
export {
  silentInstanceMs,
  stateVersion,
  type AppFeed,
  type Instance,
  type InstanceDirectory,
  type KnownInstance,
} from "./instance-directory.ts";
export { startAnnouncing, type AnnouncerOptions } from "./announcer.ts";
export { maxMissed, type EventWatchReport, type EventWatchReports, type MissedMessage } from "./event-watch-report.ts";
export type { TokenCache, TokenValidity } from "./token-cache.ts";
export {
  defaultTraceTtlMs,
  maxTraceEntries,
  maxTracesOfSubject,
  subjectKinds,
  type FoundTrace,
  type SubjectKind,
  type TraceLog,
  type TraceSubject,
  type TraceWrite,
} from "./trace-log.ts";
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
