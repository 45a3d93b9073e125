export { allAbilities } from "./abilities/index.ts";
export { approvals } from "./abilities/approvals/approvals.ts";
export type { FilesClient } from "./abilities/files/files.ts";
export type { PrivateChatsClient } from "./abilities/identity/group-reads.ts";
export { structured } from "./abilities/structured/structured-answer.ts";
export {
  abilityOf,
  toolsOfAbilities,
  type AbilityClients,
  type AbilityWork,
  type SchemaFacts,
} from "./turn/ability.ts";
export {
  joinedEvent,
  isCancelOf,
  startTurn,
  atRevision,
  newTurn,
  refuseTurn,
  withNotes,
  abandonTurn,
  afterControl,
  outOfSteps,
  resumeTurn,
} from "./turn/turn.ts";
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
  type TeamSettings,
} from "./abilities/team/team.ts";
export type { TurnEnvironment } from "./turn/ability.ts";
export type {
  StepResult,
  CallPolicy,
  LiveStep,
  AbsorbedMessage,
  SessionChoices,
  Transition,
  TurnModel,
  TurnLimits,
  OfferedTool,
} from "./turn/facts.ts";
export { readStep } from "./turn/stream.ts";
export { stepRestart, withOtherUse, resultShare, turnLimits } from "./turn/step.ts";
export {
  answerUuid,
  languageOf,
  languageOfMessage,
  attachmentText,
  personMessageOf,
  sessionIdOf,
  sessionKeyOf,
  speakerName,
  overheard,
  underSpeaker,
  type UserMessage,
  userTextOf,
  type Mention,
} from "./turn/messages.ts";
export {
  isOwn,
  usageText,
  endOverBudget,
  warnNearBudget,
  warningIn,
  type BudgetFacts,
} from "./abilities/budget/budget-turn.ts";
export { endPaused } from "./abilities/pauses/pauses.ts";
export { largeResults } from "./turn/tool-round.ts";
export {
  commandNames,
  describedCommands,
  helpText,
  panelCommands,
  parseCommand,
  type CommandName,
  type CustomCommands,
  statusText,
  whoamiText,
  type AskedCall,
  commandTurn,
  type AgentFacts,
  type CommandFacts,
  permissionsOrder,
  permissionsText,
  ruleNamed,
} from "./turn/commands.ts";
export { signedBy, type CompactionRequest, allTokens, noUse, stepUse } from "./turn/context.ts";
export { exhaustedText, noticeText, oneLine, type NoticeName } from "./texts/index.ts";
export { answerToStore, callInputOf } from "./abilities/questions/question.ts";
export {
  finalView,
  inLanguage,
  notesOf,
  runningView,
  withAgentTitles,
  type ViewOptions,
} from "./turn/view.ts";
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
} from "./abilities/handover/handover.ts";
