import { loadConfigFile, readBots, readProviders, takeEnvironment } from "@larkline/process/config";
import { TraceLog } from "@larkline/store/operations";
import { createLogger, Metrics, openTelemetry, runUntilSignal, startOpsServer } from "@larkline/process/telemetry";
import { formatErrorForDisplay, systemRandom } from "@larkline/protocol";
import { loadConfig } from "./config.ts";
import { createAgentModels } from "./agents.ts";
import { connect, createCounters } from "./services.ts";
import { startWorker } from "./worker.ts";

function refuse(problem: string): never {
  console.error(problem);
  process.exit(1);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const { env, problem: unclean } = takeEnvironment();
const loaded = loadConfig(env);
if (!loaded.ok) refuse(loaded.error);
const config = loaded.value;
const settings = await loadConfigFile(config.configFile);
if (!settings.ok) refuse(settings.error);
const bots = readBots(env, settings.value.bots, config.feishu);
if (!bots.ok) refuse(bots.error);
const providers = readProviders(env, settings.value.providers);
if (!providers.ok) refuse(providers.error);
const models = createAgentModels(config, settings.value, providers.value);
if (!models.ok) refuse(models.error);

const logger = createLogger({ service: "agent-worker", level: config.logLevel });
if (unclean !== undefined) logger.warn({ reason: unclean }, "other processes of this user can read the environment");
const metrics = new Metrics({ service: "agent-worker" });
const traceLog = TraceLog.connect({ ...config, ttlMs: settings.value.retention.traceDays * 86_400_000 });
const watch = { service: "agent-worker", logger, metrics, traceLog, modules: settings.value.observers } as const;
const watching = await openTelemetry({ ...watch, ...config });
if (!watching.ok) refuse(watching.error);
const { telemetry, close: closeTelemetry } = watching.value;
const parts = {
  config,
  settings: settings.value,
  owner: `worker-${systemRandom.uuid()}`,
  models: models.value,
  counters: createCounters(metrics),
  log: logger,
  telemetry,
};
const connections = await connect(parts, bots.value).catch((error: unknown) =>
  refuse(`Redis (REDIS_URL) does not answer: ${messageOf(error)}`),
);
const worker = await startWorker(connections).catch((error: unknown) =>
  refuse(`agent-worker cannot start: ${formatErrorForDisplay(error)}`),
);
const { host, port } = config;
const ops = await startOpsServer({ host, port, metrics, logger, ready: worker.ready }).catch(async (error: unknown) => {
  await worker.close();
  return refuse(`Cannot listen on ${host}:${port} (HOST, PORT): ${messageOf(error)}`);
});
logger.info(
  {
    port: ops.port,
    worker: parts.owner,
    model: models.value.defaultName,
    bots: bots.value.map(({ name }) => name),
    concurrency: config.concurrency,
  },
  "agent-worker ready",
);

runUntilSignal({
  logger,
  givesWay: true,
  deadlineMs: 9_000,
  close: async () => {
    await ops.close();
    await worker.close();
    await closeTelemetry();
  },
});
