import { lendPackages } from "@larkline/config";
import { AnnouncementRefusedError, loadTools, startRunner } from "@larkline/runner";
import { createLogger, createMetrics, runUntilSignal, startOpsServer } from "@larkline/telemetry";
import { loadConfig } from "./config.ts";

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
// A tool may be a single file anywhere.
lendPackages(["@larkline/tool-kit", "typebox"], import.meta.url);
const tools = await loadTools(config.toolModules, process.cwd());
if (!tools.ok) refuse(tools.error);

const logger = createLogger({ service: "tool-runner", level: config.logLevel });
const metrics = createMetrics({ service: "tool-runner" });
const runner = await startRunner({
  config,
  registry: tools.value,
  logger,
  metrics,
  onRefused: (conflict) => refuse(`The tools are refused: ${conflict}.`),
}).catch((error: unknown) =>
  refuse(
    error instanceof AnnouncementRefusedError
      ? `The tools are refused: ${error.message}. Stop the other runner, or give the tool another name.`
      : `Cannot start, is Redis at REDIS_URL running? ${messageOf(error)}`,
  ),
);
const { host, port } = config;
const ops = await startOpsServer({ host, port, metrics, logger, ready: runner.ready }).catch(async (error: unknown) => {
  await runner.close();
  return refuse(`Cannot listen on ${host}:${port} (HOST, PORT): ${messageOf(error)}`);
});
logger.info(
  { port: ops.port, runner: config.runner, tools: tools.value.specs().map((spec) => spec.name) },
  "tool-runner ready",
);

runUntilSignal({
  logger,
  deadlineMs: 9_800,
  close: async () => {
    await ops.close();
    await runner.close();
  },
});
