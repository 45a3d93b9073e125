export { absorb } from "./absorb.ts";
export { accumulateStream, createAccumulator, type Accumulator, type StepResult } from "./accumulate.ts";
export { answerUuid } from "./answer-uuid.ts";
export { attachmentText } from "./attachment-text.ts";
export { isOwn, usageText, type BudgetWords } from "./budget-text.ts";
export { endOverBudget, warnNearBudget, type BudgetFacts } from "./budget-turn.ts";
export { callIdsOf } from "./call-id.ts";
export {
  commandNames,
  describedCommands,
  helpText,
  parseCommand,
  type CommandName,
  type CustomCommands,
  type ParsedCommand,
} from "./command.ts";
export {
  modelText,
  statusText,
  whoamiText,
  type AskedCall,
  type ModelFacts,
  type StatusFacts,
} from "./command-text.ts";
export { commandDone, commandTurn, type CommandFacts, type CompactionReport } from "./command-turn.ts";
export { compactionPlan, type CompactionNeed, type CompactionPlan } from "./compaction-plan.ts";
export { compactionRequest, type CompactionRequest } from "./compaction-request.ts";
export { compactedTransition, type Compacted } from "./compaction-summary.ts";
export { deltaEventOf } from "./delta-event.ts";
export { outputReader } from "./step-ending.ts";
export { stepRestart } from "./step-report.ts";
export { largeResults, type LargeResult } from "./large-results.ts";
export { modelMessagesOf } from "./model-messages.ts";
export {
  exhaustedText,
  languageOf,
  languageOfMessage,
  noticeText,
  type NoticeName,
  type NoticeValues,
} from "./notice.ts";
export { permissionsOrder, permissionsText, ruleNamed, type PermissionsOrder } from "./permissions-text.ts";
export { finalView, notesOf, runningView, type ViewOptions } from "./reply-view.ts";
export { sessionIdOf, sessionKeyOf, type MessagePlace } from "./session-id.ts";
export type { OfferedTool } from "./prepared-call.ts";
export { abandonTurn, afterControl, afterStep, resumeTurn, startTurn } from "./turn.ts";
export type {
  CallJudge,
  LiveStep,
  NextAction,
  Transition,
  TurnEnvironment,
  TurnModel,
  WantedCall,
} from "./turn-environment.ts";
export { requestTokens } from "./token-estimate.ts";
export { resultShare, turnLimits, type TurnLimits } from "./turn-limits.ts";
export { allTokens, callUses, stepUse, type CallUse, type StepRequest } from "./used-tokens.ts";
export { speakerName, underSpeaker } from "./user-message.ts";
export { userTextOf, type Mention, type MessageContent } from "./user-text.ts";
export { newTurn, withNotes, type LostState } from "./new-turn.ts";
