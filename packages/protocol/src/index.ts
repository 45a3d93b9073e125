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
  ReplyTarget,
  SessionKey,
  knownFeatures,
  TurnJob,
  turnIdOf,
  turnJobId,
  turnsQueue,
} from "./session.ts";
export { auditKinds, AuditRecord } from "./audit.ts";
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
  RunModelOptions,
  SessionCommand,
  type CancelReason,
  type MemoryOwner,
  type QueuedMessage,
} from "./inbox.ts";
export type { ReplyObject } from "./session.ts";
export { LocalText, moneyText, replyLanguages, textIn, type ReplyLanguage } from "./local-text.ts";
export { AddedProvider, AgentChange, OperatorOrder, OrderResult } from "./operator-order.ts";
