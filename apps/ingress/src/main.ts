import { loadConfigFile } from "@larkline/config";
import { createFeishuApi } from "@larkline/feishu";
import { createLogger, createMetrics, runUntilSignal, unobserved } from "@larkline/telemetry";
import { loadConfig } from "./config.ts";
import { startIngress } from "./ingress.ts";
import { connectBackend } from "./redis-backend.ts";

function refuse(problem: string): never {
  console.error(problem);
  process.exit(1);
}

const loaded = loadConfig(process.env);
if (!loaded.ok) refuse(loaded.error);
const config = loaded.value;
const settings = await loadConfigFile(config.configFile);
if (!settings.ok) refuse(settings.error);

const logger = createLogger({ service: "ingress", level: config.logLevel });
const metrics = createMetrics({ service: "ingress" });
const backend = connectBackend({ ...config, logger });
const { tokenCache, governor } = backend;
const { monthlyCalls, rateLimits } = settings.value.feishu;
const limiter = rateLimits ? { governor } : {};
const api =
  config.feishu === undefined
    ? undefined
    : createFeishuApi({ ...config.feishu, ...limiter, tokenCache, monthlyCalls, logger });

const parts = { config, settings: settings.value, backend, api, metrics, logger, observation: unobserved };
const ingress = await startIngress(parts).catch((error: unknown) =>
  refuse(`ingress cannot start: ${error instanceof Error ? error.message : String(error)}`),
);
const { feishu } = config;
logger.info(
  { port: ingress.port, websocket: feishu?.websocket ?? false, webhook: feishu?.webhook ?? false },
  "ingress ready",
);

runUntilSignal({
  logger,
  close: async () => {
    await ingress.close();
    api?.close();
    await backend.close();
  },
});
