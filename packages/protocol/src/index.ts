export {
  followClock,
  forgetClock,
  machineNow,
  sharedNow,
  pause,
  systemClock,
  systemRandom,
  withDeadline,
  type Clock,
  type Random,
} from "./clock.ts";
export { compileJsonSchema, jsonParserOf, parserOf, type ParseResult, type Parser } from "./schema.ts";
export { canaryMessage, canarySessionId, isCanary, Sender, SessionKey, knownFeatures, Needs } from "./session.ts";
export {
  AssistantPart,
  attachmentStates,
  FilePart,
  ImagePart,
  ImageSource,
  Message,
  ProviderMetadata,
  TextPart,
  textOf,
  ThinkingPart,
  ToolResultPart,
  toolResultPart,
  ToolUsePart,
  UserPart,
  type AttachmentState,
  type ContentPart,
} from "./content.ts";
export {
  messageStop,
  stopReasons,
  toolCallDelta,
  type MessageStop,
  type ModelChunk,
  type ModelFailure,
  type ModelRestart,
  type ModelRetry,
  type UsageSoFar,
  type ModelWarning,
  type StopReason,
  type TextDelta,
  type ThinkingDelta,
  type ToolCallDelta,
  type Usage,
} from "./model-chunk.ts";
export {
  EngineError,
  errorCodes,
  formatErrorForDisplay,
  isRetryable,
  newEngineError,
  wrapError,
  type EngineErrorOptions,
  type ErrorCode,
} from "./error.ts";
export {
  Actor,
  outcomeText,
  RiskLevel,
  riskLevels,
  StoredResult,
  ToolAnnouncement,
  ToolEffect,
  toolDigestOf,
  toolEffects,
  ToolLimits,
  ToolOutcome,
  ToolSpec,
  type ToolCall,
} from "./tool.ts";
export { announcementMac, readAnnouncement, RunnerAnnouncement } from "./runner-announcement.ts";
export {
  ApprovalDecision,
  ApprovalId,
  decisionWords,
  SettledState,
  settledStates,
  stateAfter,
  type ApprovalState,
  type DecisionWord,
} from "./decision.ts";
export { ApiApproval, ApiApprovals, ApiDecision, ApiRule, ApiRules } from "./api-approval.ts";
export { Approval, Deciders, PermissionRule, RuleProposal } from "./approval.ts";
export { auditKinds, AuditRecord, type AuditKind } from "./audit.ts";
export {
  argumentsHashOf,
  CallAuthority,
  CallClaims,
  runnerKeyOf,
  stateKeyOf,
  signCall,
  verifyCall,
} from "./call-envelope.ts";
export {
  HandoffAnswer,
  HandoffEntry,
  HandoffRing,
  handoffMac,
  maxHandoffBytes,
  parseHandoffAnswer,
  parseHandoffRing,
  readHandoff,
} from "./handoff.ts";
export { hideSecrets } from "./secret-text.ts";
export {
  Attachment,
  CallTiming,
  cancelReasons,
  ControlEntry,
  InboundMessage,
  MessageReferences,
  ReplyTarget,
  SessionCommand,
  turnIdOf,
  type CancelReason,
  type QueuedMessage,
} from "./inbox.ts";
export { ReplyFooter, replyLanguages, ReplyView, ShownTool, type ReplyLanguage } from "./reply-view.ts";
export { CallState, HeldStep, OpenStep, PutOffStep, ShownSoFar, StepUse, TurnState, TurnTotals } from "./turn.ts";
export {
  attemptIdOf,
  backgroundPriority,
  RunnerName,
  FinishedCall,
  finishedCallOf,
  ToolJob,
  toolJobId,
  toolsQueue,
  TurnJob,
  turnJobId,
  turnsQueue,
} from "./job.ts";
export {
  agentChanges,
  engineEventTypes,
  isTerminal,
  warningCodes,
  type EngineEvent,
  type EngineEventType,
  type EventOf,
  type EventRecord,
  type McpOrigin,
  type MemoryFound,
  type StepCalls,
  type NewEvent,
} from "./event.ts";
export { TraceEntry, TraceId, traceIdOf, Traceparent, traceparentOf, traceparentOfMessage } from "./trace.ts";
export {
  ChatRequest,
  formatSseEvent,
  sseEvent,
  streamErrors,
  StreamFrame,
  streamFramesOf,
  streamFramesOfRecord,
} from "./stream-frame.ts";
export {
  imageBlobIdOf,
  imageMarkOf,
  imageNameOf,
  imageTypeOf,
  maxImageBytes,
  splitAtOpenMark,
  withoutImageMarks,
} from "./stored-image.ts";
export { OperatorOrder, OrderResult } from "./operator-order.ts";
