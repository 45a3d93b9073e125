import { createEnvReader, type Env } from "@larkline/process/config";
import type { ParseResult } from "@larkline/protocol";
import { logLevels, type LogLevel } from "@larkline/process/telemetry";

export interface PlaygroundConfig {
  host: string;
  port: number;
  logLevel: LogLevel;
  appId: string;
  appSecret: string;
  encryptKey: string | undefined;
  verificationToken: string | undefined;
  /** Where events go while the bot has no long connection. */
  webhookUrl: string | undefined;
  /** Port of the scripted model server; without it none is started. */
  modelPort: number | undefined;
}

const defaultAppId = "cli_1a2b3c4d5e6f7081";

/** Reads the environment; every problem is reported at once, one per line, naming the variable. */
export function loadConfig(env: Env): ParseResult<PlaygroundConfig> {
  const reader = createEnvReader(env);
  const appId = reader.text("FEISHU_APP_ID", { default: defaultAppId });
  if (!/^cli_[0-9a-fA-F]{16}$/.test(appId)) reader.problem("FEISHU_APP_ID must be cli_ and 16 hex digits.");
  return reader.finish({
    host: reader.text("HOST", { default: "127.0.0.1" }),
    port: reader.port("PORT", { default: 8004 }),
    logLevel: reader.choice("LOG_LEVEL", logLevels, { default: "info" }),
    appId,
    appSecret: reader.secret("FEISHU_APP_SECRET", { default: "playground" }),
    encryptKey: reader.secret("FEISHU_ENCRYPT_KEY"),
    verificationToken: reader.secret("FEISHU_VERIFICATION_TOKEN"),
    webhookUrl: reader.url("FEISHU_WEBHOOK_URL"),
    modelPort: reader.port("MODEL_PORT"),
  });
}
