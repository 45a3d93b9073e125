export {
  agentNamed,
  agentOfMessage,
  appIdsOf,
  botOfApp,
  botVariable,
  readBots,
  readIngressBots,
  type BotAccess,
  type IngressBotAccess,
  domainProblem,
  groupsAtBot,
  readFirstApp,
} from "./bot-config.ts";
export {
  agentBounds,
  agentHash,
  coveredFields,
  budgetsWith,
  narrowChange,
  withChanges,
  type AgentBounds,
  type ChangeProblem,
} from "./agent-change.ts";
export {
  addedModelNames,
  addedProviderProblem,
  isNamedHost,
  type AddedProviderProblem,
} from "./added-providers.ts";
export {
  openDoors,
  subscriptionsOf,
  readTriggerSecrets,
  triggerVariable,
  type OpenDoor,
  type ApprovalDoor,
  type TriggerDoor,
} from "./doors-config.ts";
export { defineConfig } from "@larkline/tool-kit";
export { placeOfError } from "./module-errors.ts";
export { didYouMean, nearestName } from "./did-you-mean.ts";
export { loadConfigFile } from "./config-file.ts";
export { lendPackages } from "./lent-packages.ts";
export { ConfigInput } from "./config-schema.ts";
export type { BusyPolicy, GroupPolicy, SessionScope, RetentionSettings } from "./config-schema.ts";
export {
  takeEnvironment,
  createEnvReader,
  type Env,
  type EnvReader,
  type Read,
  type ReadOptions,
  archiveProtocols,
  checkNamespace,
  redisProtocols,
} from "./environment.ts";
export { modelOptionsOf, resolveConfig } from "./larkline-config.ts";
export type {
  AgentConfig,
  BotConfig,
  FeishuSettings,
  LarklineConfig,
  ModelOptions,
} from "./resolved-config.ts";
export {
  mcpToolSettings,
  mountsServer,
  type McpConfig,
  type McpServerAccess,
  type McpServerConfig,
  type McpToolSettings,
} from "./mcp-config.ts";
export { isKnownModel, toolProblem } from "@larkline/model";
export {
  loadModelModules,
  profileOfModel,
  readModelNames,
  readProviders,
  readTranscription,
  type Transcription,
  standardModels,
  type KnownModels,
  type ModelAccess,
  type ModelProviders,
} from "./provider-config.ts";
