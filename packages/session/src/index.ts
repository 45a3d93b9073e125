export type {
  AppendResult,
  BeginResult,
  Claim,
  CommitRequest,
  CommitResult,
  DeliverResult,
  EventLog,
  FencedWrite,
  OpenCall,
  OutboxLease,
  OutboxRecord,
  SaveRequest,
  SaveResult,
  SessionStore,
  SessionSummary,
  StaleSession,
} from "./session-store.ts";
export type { AvailableTool, RunnerDirectory, RunnerInstance } from "./runner-directory.ts";
export type { TokenCache } from "./token-cache.ts";
export { createMemorySessionStore, type MemorySessionStoreOptions } from "./memory-session-store.ts";
export { createMemoryRunnerDirectory } from "./memory-runner-directory.ts";
export { createMemoryTokenCache } from "./memory-token-cache.ts";
