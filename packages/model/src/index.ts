export type { LlmBackend, ModelRequest, ResponseFormat, SystemBlock } from "./backend.ts";
export type { ModelInfo } from "./model-info.ts";
export { builtinModels, completeModelInfo, findModelInfo } from "./model-catalog.ts";
export { costOf } from "./cost.ts";
export { parseModelList, type ModelChoice, type ModelProvider } from "./model-list.ts";
export {
  createModelChain,
  type ChainModel,
  type ChainRequest,
  type ModelChain,
  type ModelChainOptions,
} from "./model-chain.ts";
export type { RetryPolicy } from "./retry-plan.ts";
export type { StreamTimeouts } from "./timed-stream.ts";
export { textStream } from "./text-stream.ts";
export { failureOfRefusal, modelFailure, retryAfterOf, type VendorRefusal } from "./failure.ts";
export {
  estimateTokens,
  imageProblem,
  requestProblem,
  responseFormatProblem,
  systemBlocksOf,
  toolLimitProblem,
  worthCaching,
} from "./request-rules.ts";
export { httpFetch } from "./http-fetch.ts";
