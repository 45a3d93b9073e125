export { allAbilities } from "./abilities/index.ts";
export { approvals } from "./abilities/approvals/approvals.ts";
export type { FilesClient } from "./abilities/files/files.ts";
export { structured } from "./abilities/structured/structured-answer.ts";
export {
  abilityOf,
  toolsOfAbilities,
  type Ability,
  type AbilityClients,
  type AbilityWork,
  type SchemaFacts,
} from "./turn/ability.ts";
export { absorb, joinedEvent } from "./turn/absorb.ts";
export { isCancelOf } from "./turn/cancel.ts";
export {
  startTurn,
  atRevision,
  newTurn,
  refuseTurn,
  withNotes,
  type LostState,
} from "./turn/start.ts";
export { abandonTurn, afterControl, outOfSteps, offeredSpecs, resumeTurn } from "./turn/turn.ts";
export { afterStep } from "./turn/after-step.ts";
export {
  readChoice,
  selectionRequest,
  speakerChosen,
  teamFactsIn,
  teamNote,
  withoutTeam,
  continueTeam,
  type Choice,
  type DecidingFacts,
  type TeamFacts,
  type TeamMember,
  type TeamSettings,
} from "./abilities/team/team.ts";
export type { TurnEnvironment } from "./turn/ability.ts";
export type {
  StepResult,
  CallPolicy,
  LiveStep,
  NextAction,
  AbsorbedMessage,
  SessionChoices,
  Transition,
  TurnModel,
  WantedCall,
  TurnLimits,
  OfferedTool,
} from "./turn/facts.ts";
export { askWithoutRefused, isRefused, withoutRefused, type Asking } from "./turn/refusal.ts";
export {
  readStep,
  type StepFollower,
  createAccumulator,
  type Accumulator,
  deltaEventOf,
} from "./turn/stream.ts";
export { stepRestart, withOtherUse } from "./turn/step.ts";
export {
  answerUuid,
  callIdsOf,
  continuedFrom,
  languageOf,
  languageOfMessage,
  attachmentText,
  modelMessagesOf,
  personMessageOf,
  sessionTitleOf,
  sessionIdOf,
  sessionKeyOf,
  type MessagePlace,
  speakerName,
  overheard,
  underSpeaker,
  type UserMessage,
  userTextOf,
  type Mention,
  type MessageContent,
} from "./turn/messages.ts";
export {
  isOwn,
  usageText,
  type BudgetWords,
  endOverBudget,
  warnNearBudget,
  warningIn,
  type BudgetFacts,
} from "./abilities/budget/budget-turn.ts";
export { endPaused } from "./abilities/pauses/pauses.ts";
export { largeResults, type LargeResult } from "./turn/tool-round.ts";
export {
  commandNames,
  describedCommands,
  helpText,
  panelCommands,
  parseCommand,
  type CommandName,
  type CustomCommands,
  type ParsedCommand,
  modelText,
  statusText,
  whoamiText,
  type AskedCall,
  type ModelFacts,
  type StatusFacts,
  commandDone,
  commandTurn,
  type AgentFacts,
  type CommandFacts,
  permissionsOrder,
  permissionsText,
  ruleNamed,
  type PermissionsOrder,
} from "./turn/commands.ts";
export {
  conversationFor,
  isOfTeam,
  signedBy,
  compactionPlan,
  type CompactionNeed,
  type CompactionPlan,
  compactionRequest,
  summaryIn,
  type CompactionRequest,
  compactedTransition,
  type Compacted,
  type CompactionReport,
  requestTokens,
  allTokens,
  callUses,
  addUse,
  noUse,
  stepUse,
  type CallUse,
  type StepRequest,
} from "./turn/context.ts";
export {
  exhaustedText,
  noticeText,
  oneLine,
  textHead,
  type NoticeName,
  type NoticeValues,
} from "./texts/index.ts";
export { answerToStore, callInputOf } from "./abilities/questions/server-question.ts";
export {
  finalView,
  inLanguage,
  notesOf,
  runningView,
  withAgentTitles,
  type ViewOptions,
} from "./turn/view.ts";
export { resultShare, turnLimits } from "./turn/transition.ts";
export { attemptOf } from "./turn/tool-call.ts";
export {
  helperEnd,
  helperTool,
  runningHelpers,
  waitOf,
  taskMessage,
  type HelperEnd,
  type HelperFacts,
  type HelperLink,
  type HelperTarget,
  type HelperTool,
} from "./abilities/helpers/helper.ts";
export {
  handedOverBy,
  transferTool,
  type Handoff,
  type TransferTarget,
  type TransferTool,
} from "./abilities/handover/transfer.ts";
