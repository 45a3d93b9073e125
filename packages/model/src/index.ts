export type { LlmBackend, ModelRequest, ResponseFormat, SystemBlock } from "./backend.ts";
export type { ModelInfo } from "./model-info.ts";
export { builtinModels, completeModelInfo, findModelInfo, isKnownModel } from "./model-catalog.ts";
export { costOf } from "./cost.ts";
export { parseModelList, type ModelChoice, type ProviderType } from "./model-list.ts";
export {
  createModelChain,
  type ChainModel,
  type ChainRequest,
  type ModelChain,
  type ModelChainOptions,
} from "./model-chain.ts";
export type { RetryPolicy, StepPast } from "./retry-plan.ts";
export type { StreamTimeouts } from "./timed-stream.ts";
export { textStream } from "./text-stream.ts";
export { failureOfRefusal, failureOfSdkError, modelFailure, refusalIn, requestIdOf, retryAfterOf } from "./failure.ts";
export { ModelHealth } from "./model-health.ts";
export { serverEvents, type ServerEvent } from "./server-events.ts";
export {
  estimateTokens,
  imageProblem,
  outputLimit,
  requestProblem,
  responseFormatProblem,
  systemBlocksOf,
  toolLimitProblem,
  worthCaching,
} from "./request-rules.ts";
export { httpFetch } from "./http-fetch.ts";
