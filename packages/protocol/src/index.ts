export {
  jsonParserOf,
  parseJson,
  parserOf,
  type ParseResult,
  type Parser,
  wellFormed,
} from "./schema.ts";
export {
  childSessionOf,
  isChildSession,
  apiApp,
  chatOf,
  memoryOwnersOf,
  type MemoryOwner,
  peopleOf,
  rootSessionOf,
  Sender,
  isProgram,
  programSender,
  type ReplyObject,
  objectFeatures,
  ReplyTarget,
  SessionKey,
  knownFeatures,
  turnIdOf,
} from "./session.ts";
export { hideSecrets } from "./secret-text.ts";
export { filledFormat, OutputForm, outputFormProblem } from "./output-form.ts";
export {
  Attachment,
  cancelReasons,
  ControlEntry,
  HelperUse,
  HelperWait,
  InboundMessage,
  MessageReferences,
  RunModelOptions,
  SessionCommand,
  type CancelReason,
  type QueuedMessage,
} from "./inbox.ts";
export { LocalText, moneyText, replyLanguages, textIn, type ReplyLanguage } from "./local-text.ts";
