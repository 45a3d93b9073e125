// Announcements of processes, and what operators see and order.
export {
  type AgentVersion,
  AgentVersions,
  type RefusedVersion,
  type StoredVersions,
} from "./agent-versions.ts";
export {
  AddedProviders,
  sealProviderKey,
  type ListedProvider,
  type OpenedProvider,
} from "./added-providers.ts";
export {
  AddedProvider,
  type CheckedApp,
  AgentChange,
  OperatorOrder,
  OperatorOrders,
  type OrderAct,
  OrderResult,
} from "./operator-orders.ts";
export { SessionIndex, type GateState, type SessionLedger } from "./session-index.ts";
export {
  InstanceDirectory,
  refuseOlderInstances,
  type AppFeed,
  type KnownInstance,
  Announcer,
} from "./instance-directory.ts";
export {
  EventWatchReports,
  maxMissed,
  type EventWatchReport,
  type MissedMessage,
} from "./event-watch-reports.ts";
export {
  maxTracesOfSubject,
  subjectKinds,
  TraceLog,
  type FoundTrace,
  type SubjectKind,
  type TraceSubject,
  type TraceWrite,
} from "./trace-log.ts";
export {
  maxReasonChars,
  outcomeKind,
  outcomeKinds,
  type OutcomeKind,
  placeOfRun,
  type RatedReply,
  type Rating,
  RatingStore,
  ratingWords,
  type RatingWord,
  RunLog,
  type RunPage,
  type RunQuery,
  type RunRecord,
  type Said,
  type SentReply,
  sessionOfRun,
} from "./runs.ts";
export { NameBook } from "./name-book.ts";
export {
  countIn,
  quantileOf,
  timesBy,
  type TimesOf,
  usageBy,
  type UsageBucket,
  UsageCounter,
  usageField,
  type UsageGroup,
  type UsageOf,
  type UsageSize,
  usageSizes,
  UsageStore,
} from "./usage-store.ts";
export { type Pause, Pauses } from "./pauses.ts";
export { Presence } from "./presence.ts";
export {
  readServerStates,
  type ServerState,
  readServerFacts,
  type RedisServerFacts,
} from "./server-facts.ts";
