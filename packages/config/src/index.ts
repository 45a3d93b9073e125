export { loadConfigFile } from "./config-file.ts";
export { lendPackages } from "./lent-packages.ts";
export { groupPolicies, type ConfigInput, type GroupPolicy } from "./config-schema.ts";
export { createEnvReader, type Env, type EnvReader, type Read, type ReadOptions } from "./env-reader.ts";
export { defineConfig, resolveConfig, type AgentConfig, type LarklineConfig } from "./larkline-config.ts";
export { checkNamespace, redisProtocols } from "./redis-settings.ts";
