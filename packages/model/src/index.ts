export {
  type ModelInfo,
  builtinModels,
  completeModelInfo,
  findModelInfo,
  isKnownModel,
  costOf,
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
export {
  type StreamTimeouts,
  type LlmBackend,
  endOf,
  messageStop,
  toolCallDelta,
  type ModelRequest,
  type ResponseFormat,
  type SystemBlock,
  estimateTokens,
  imageProblem,
  outputLimit,
  requestProblem,
  responseFormatProblem,
  systemBlocksOf,
  toolLimitProblem,
  worthCaching,
  pictureSize,
  type PictureScaling,
  bodyWith,
  extraProblem,
  headersWith,
  hostedToolProblem,
  joinedExtra,
  type HostedTool,
  type RequestExtra,
} from "./backend.ts";
export { httpFetch, serverEvents, type ServerEvent } from "./http.ts";
export {
  profileNames,
  profileOf,
  signerOf,
  type EndMeaning,
  type PictureLimits,
  type ProfileInput,
  type ProfileLayer,
  type ThoughtRequest,
  type VendorProfile,
} from "./profile.ts";
export { checkedBackend } from "./module-backend.ts";
export { toolProblem } from "./tool-schema.ts";
export { textStream } from "./text-stream.ts";
export {
  failureOfCall,
  failureOfRefusal,
  modelFailure,
  refusalIn,
  requestIdOf,
  retryAfterOf,
  type VendorRefusal,
} from "./failure.ts";
