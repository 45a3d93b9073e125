export { agentInChat, agentNamed, agentOfMessage, appIdsOf, botOfApp } from "./agent-choice.ts";
export { botVariable, readBots, readEdges, type BotAccess, type EdgeAccess } from "./bot-access.ts";
export { didYouMean, nearestName } from "./did-you-mean.ts";
export { domainProblem, groupsAtBot, type BotConfig, type FeishuSettings } from "./bot-config.ts";
export { loadConfigFile } from "./config-file.ts";
export { lendPackages } from "./lent-packages.ts";
export type { BusyPolicy, ConfigInput, GroupPolicy, SessionScope } from "./config-schema.ts";
export { takeEnvironment } from "./environment.ts";
export { createEnvReader, type Env, type EnvReader, type Read, type ReadOptions } from "./env-reader.ts";
export {
  defineConfig,
  resolveConfig,
  type AgentConfig,
  type LarklineConfig,
  type ModelOptions,
} from "./larkline-config.ts";
export {
  mcpToolSettings,
  type McpConfig,
  type McpServerAccess,
  type McpServerConfig,
  type McpToolSettings,
} from "./mcp-config.ts";
export {
  readModelNames,
  readProviders,
  type KnownModels,
  type ModelAccess,
  type ModelProviders,
} from "./provider-config.ts";
export type { RetentionSettings } from "./retention-config.ts";
export { archiveProtocols, checkNamespace, redisProtocols } from "./redis-settings.ts";
