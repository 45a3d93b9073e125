import { loadConfigFile } from "@larkline/config";
import { createLogger, createMetrics, runUntilSignal, startOpsServer, unobserved } from "@larkline/telemetry";
import { loadConfig } from "./config.ts";
import { createModelChoices } from "./models.ts";
import { createWorkerMetrics } from "./worker-metrics.ts";
import { startWorker } from "./worker.ts";

function refuse(problem: string): never {
  console.error(problem);
  process.exit(1);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const loaded = loadConfig(process.env);
if (!loaded.ok) refuse(loaded.error);
const config = loaded.value;
const settings = await loadConfigFile(config.configFile);
if (!settings.ok) refuse(settings.error);
const models = createModelChoices(config, settings.value);
if (!models.ok) refuse(models.error);

const logger = createLogger({ service: "agent-worker", level: config.logLevel });
const metrics = createMetrics({ service: "agent-worker" });
const worker = await startWorker({
  config,
  settings: settings.value,
  models: models.value,
  metrics: createWorkerMetrics(metrics),
  logger,
  observation: unobserved,
}).catch((error: unknown) => refuse(`Redis (REDIS_URL) does not answer: ${messageOf(error)}`));
const { host, port } = config;
const ops = await startOpsServer({ host, port, metrics, logger, ready: worker.ready }).catch(async (error: unknown) => {
  await worker.close();
  return refuse(`Cannot listen on ${host}:${port} (HOST, PORT): ${messageOf(error)}`);
});
logger.info({ port: ops.port, model: models.value.defaultName, concurrency: config.concurrency }, "agent-worker ready");

runUntilSignal({
  logger,
  deadlineMs: 9_000,
  close: async () => {
    await ops.close();
    await worker.close();
  },
});
