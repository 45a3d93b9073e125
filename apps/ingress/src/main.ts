import { loadConfigFile, readEdges, takeEnvironment } from "@larkline/process/config";
import { connectTraceLog } from "@larkline/store/redis";
import { createLogger, createMetrics, openObservers, runUntilSignal } from "@larkline/process/telemetry";
import { connectBots } from "./bots.ts";
import { loadConfig } from "./config.ts";
import { startIngress } from "./ingress.ts";
import { eventConsumers } from "./other-events.ts";
import { connectBackend } from "./redis-backend.ts";

function refuse(problem: string): never {
  console.error(problem);
  process.exit(1);
}

const { env, problem: unclean } = takeEnvironment();
const loaded = loadConfig(env);
if (!loaded.ok) refuse(loaded.error);
const config = loaded.value;
const settings = await loadConfigFile(config.configFile);
if (!settings.ok) refuse(settings.error);
const edges = readEdges(env, settings.value.bots, config.feishu);
if (!edges.ok) refuse(edges.error);

const logger = createLogger({ service: "ingress", level: config.logLevel });
if (unclean !== undefined) logger.warn({ reason: unclean }, "other processes of this user can read the environment");
const metrics = createMetrics({ service: "ingress" });
const traceLog = connectTraceLog({ ...config, ttlMs: settings.value.retention.traceDays * 86_400_000 });
const watch = { service: "ingress", logger, metrics, traceLog, modules: settings.value.observers } as const;
const watching = await openObservers({ ...watch, ...config });
if (!watching.ok) refuse(watching.error);
const { observation, close: closeObservers } = watching.value;
const backend = connectBackend({ ...config, logger });
const bots = connectBots(edges.value, { settings: settings.value, backend, observation, logger });

const consumers = await eventConsumers(settings.value.events, config.eventsKey);
if (!consumers.ok) refuse(consumers.error);

const parts = {
  consumers: consumers.value,
  config,
  settings: settings.value,
  backend,
  bots,
  metrics,
  logger,
  observation,
};
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
