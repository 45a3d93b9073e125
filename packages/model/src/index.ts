export type { LlmBackend, ModelRequest, ResponseFormat, SystemBlock } from "./backend.ts";
export {
  type ModelInfo,
  builtinModels,
  completeModelInfo,
  findModelInfo,
  isKnownModel,
  costOf,
  parseModelList,
  type ModelChoice,
  type ProviderType,
} from "./model-catalog.ts";
export {
  createModelChain,
  type ChainModel,
  type ChainRequest,
  type ModelChain,
  type ModelChainOptions,
  type RetryPolicy,
  type StepPast,
  ModelHealth,
} from "./model-chain.ts";
export { type StreamTimeouts, serverEvents, type ServerEvent, httpFetch } from "./http.ts";
export { textStream } from "./text-stream.ts";
export { failureOfRefusal, failureOfSdkError, modelFailure, refusalIn, requestIdOf, retryAfterOf } from "./failure.ts";
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
