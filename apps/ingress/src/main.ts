import { loadConfigFile, readEdges } from "@larkline/config";
import { connectTraceLog } from "@larkline/session-redis";
import { createLogger, createMetrics, openObservers, runUntilSignal } from "@larkline/telemetry";
import { connectBots } from "./bots.ts";
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
const edges = readEdges(process.env, settings.value.bots, config.feishu);
if (!edges.ok) refuse(edges.error);

const logger = createLogger({ service: "ingress", level: config.logLevel });
const metrics = createMetrics({ service: "ingress" });
const traceLog = connectTraceLog({ ...config, ttlMs: settings.value.retention.traceDays * 86_400_000 });
const watch = { service: "ingress", logger, metrics, traceLog, modules: settings.value.observers } as const;
const watching = await openObservers({ ...watch, ...config });
if (!watching.ok) refuse(watching.error);
const { observation, close: closeObservers } = watching.value;
const backend = connectBackend({ ...config, logger });
const bots = connectBots(edges.value, { settings: settings.value, backend, observation, logger });

const parts = { config, settings: settings.value, backend, bots, metrics, logger, observation };
const ingress = await startIngress(parts).catch((error: unknown) =>
  refuse(`ingress cannot start: ${error instanceof Error ? error.message : String(error)}`),
);
const served = edges.value.map(({ name, websocket, webhook }) => ({ name, websocket, webhook }));
logger.info({ port: ingress.port, bots: served }, "ingress ready");

runUntilSignal({
  logger,
  close: async () => {
    await ingress.close();
    for (const { api } of bots) api.close();
    await backend.close();
    await closeObservers();
  },
});
