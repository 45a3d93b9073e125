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
  resumeTurn,
} from "./turn/turn.ts";
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
export { stepRestart, withOtherUse, resultShare, turnLimits, outOfSteps } from "./turn/step.ts";
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
export { signedBy, type CompactionRequest, allTokens, noUse, stepUse } from "./turn/context.ts";
export { exhaustedText, noticeText, oneLine, type NoticeName } from "./texts/index.ts";
export { answerToStore, callInputOf } from "./abilities/questions/question.ts";
export { attemptOf } from "./turn/tool-call.ts";
