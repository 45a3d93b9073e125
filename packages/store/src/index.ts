// Sessions, and all that belongs to them: approvals, rules, memories, replies, budgets, files, records of audits.
export { ClaimRefusedError, SessionStore } from "./session-store.ts";
export type {
  AppendResult,
  ApprovalCard,
  ApprovalStatus,
  AskerAnswer,
  AskerUpdate,
  CallFacts,
  CardEntry,
  CardReply,
  ChildFacts,
  ChildSession,
  Claim,
  CommitRequest,
  CommitResult,
  DeliverResult,
  UncountedRelease,
  OpenCall,
  OutboxLease,
  OutboxRecord,
  OutboxTarget,
  ReplyMode,
  ResetOptions,
  SaveRequest,
  SaveResult,
  SessionSettings,
  SessionTotals,
  SessionSummary,
  StaleSession,
} from "./session-types.ts";
export { compileTurnSchemas } from "./stored.ts";
export { EventLog } from "./event-log.ts";
export {
  ApprovalStore,
  type ApprovalLease,
  type AskedInReply,
  type DecideResult,
  answersKind,
  settlesAlone,
} from "./approval-store.ts";
export { auditKinds, AuditLog, type AuditPlace, AuditRecord } from "./audit-log.ts";
export { PermissionRules } from "./permission-rules.ts";
export {
  folderLimits,
  problemOfPath,
  SessionFiles,
  type SessionFile,
  type WriteResult,
} from "./session-files.ts";
export { keepAliveMs, GrantStore, type StoredGrant, warnMs } from "./grant-store.ts";
export {
  endingKeptMs,
  forgetGrant,
  GrantBook,
  GrantEnds,
  grantEndsAtMs,
  grantStateAt,
  type GrantEnd,
  type GrantOwner,
  type GrantRecord,
} from "./grant-book.ts";
export {
  maxSchedules,
  ScheduleStore,
  type DueSchedule,
  type StoredSchedule,
} from "./schedule-store.ts";
export {
  SubscriptionStore,
  type DueSubscription,
  type Subscription,
  type SubscriptionOwner,
} from "./subscription-store.ts";
/** Consents that wait for their person. */
export {
  codeFlowMs,
  ConsentCallbacks,
  ConsentStore,
  type ConsentMember,
  type PendingConsent,
} from "./consent-store.ts";
export { MemoryStore, type Memory, type OwnedMemory } from "./memory-store.ts";
export { CardLedger, Outbox, type CardFence } from "./outbox.ts";
export { DeadLetters, type DeadLetter, type DeadLetterFacts } from "./dead-letters.ts";
export { blobIdOf, defaultBlobTtlMs, type BlobStore, RedisBlobStore } from "./blob-store.ts";
export { BudgetStore, type Spending } from "./budget-store.ts";
export { removeParkedMessages, SessionRetention } from "./retention.ts";
export type { Archive, ArchiveEnd } from "./archive.ts";
export { forgetKeptResponses, isKeptFor, noteKeptResponse } from "./kept-response.ts";
export { WarmUpLookups, WarmUpStore } from "./warm-up-store.ts";
