export { loadConfigFile } from "./config-file.ts";
export { lendPackages } from "./lent-packages.ts";
export type { BusyPolicy, ConfigInput, GroupPolicy, SessionScope } from "./config-schema.ts";
export { createEnvReader, type Env, type EnvReader, type Read, type ReadOptions } from "./env-reader.ts";
export {
  defineConfig,
  resolveConfig,
  type AgentConfig,
  type FeishuSettings,
  type LarklineConfig,
} from "./larkline-config.ts";
export {
  mcpToolSettings,
  type McpConfig,
  type McpServerAccess,
  type McpServerConfig,
  type McpToolSettings,
} from "./mcp-config.ts";
export { checkNamespace, redisProtocols } from "./redis-settings.ts";
