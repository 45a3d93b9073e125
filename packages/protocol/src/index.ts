export { jsonParserOf, parserOf, type ParseResult, type Parser } from "./schema.ts";
export { parseJson, wellFormed } from "./well-formed.ts";
export {
  childSessionOf,
  isChildSession,
  apiApp,
  rootSessionOf,
  Sender,
  isProgram,
  programSender,
  SessionKey,
  knownFeatures,
  Needs,
  TurnJob,
  turnIdOf,
  turnJobId,
  turnsQueue,
} from "./session.ts";
export { auditKinds, AuditRecord, type AuditKind } from "./audit.ts";
export { hideSecrets } from "./secret-text.ts";
export { filledFormat, OutputForm, outputFormProblem } from "./output-form.ts";
export {
  Attachment,
  cancelReasons,
  chatOf,
  ControlEntry,
  HelperUse,
  HelperWait,
  InboundMessage,
  memoryOwnersOf,
  MessageReferences,
  peopleOf,
  RunMetadata,
  RunModelOptions,
  SessionCommand,
  TaskOrigin,
  type CancelReason,
  type MemoryOwner,
  type QueuedMessage,
} from "./inbox.ts";
export { ReplyTarget } from "./session.ts";
export { LocalText, replyLanguages, textIn, type ReplyLanguage } from "./local-text.ts";
export { AgentChange, OperatorOrder, OrderResult } from "./operator-order.ts";
