import { loadConfigFile, takeEnvironment, type Env } from "@larkline/process/config";
import { TraceLog } from "@larkline/store/operations";
import { createLogger, Metrics, openTelemetry, runUntilSignal, startOpsServer } from "@larkline/process/telemetry";
import { AnnouncementRefusedError, startRunner, type ToolRunner } from "./runner.ts";
import { IsolationRefusedError } from "./levels.ts";
import { missingVariables } from "./mcp/mounts.ts";
import { loadRunnerConfig, type RunnerConfig, type RunnerDefaults } from "./runner-config.ts";
import type { LoadedTools } from "./tool-modules.ts";

export interface RunnerProgram {
  /** Settings, and the variables that tools name. Default: the environment of the process, which is left clean. */
  env?: Env | undefined;
  defaults?: RunnerDefaults;
  /** Finds the tools; an error is a text of one line for each problem. */
  load(): Promise<{ ok: true; value: LoadedTools } | { ok: false; error: string }>;
  /** Prints the problem and ends the process. */
  refuse(problem: string): never;
}

/** The part of the stop that follows the grace period of calls. */
const settleMs = 1_800;

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function problemOf(error: unknown): string {
  if (error instanceof IsolationRefusedError) return `The tools are refused: ${error.message}`;
  if (error instanceof AnnouncementRefusedError) {
    return `The tools are refused: ${error.message}. Stop the other runner, or give the tool another name.`;
  }
  return `Cannot start, is Redis at REDIS_URL running? ${messageOf(error)}`;
}

interface Started {
  config: RunnerConfig;
  runner: ToolRunner;
  refuse: RunnerProgram["refuse"];
}

async function serve({ config, runner, refuse }: Started, telemetry: Telemetry): Promise<() => Promise<void>> {
  const { host, port } = config;
  const ops = await startOpsServer({ host, port, ...telemetry, ready: runner.ready }).catch(async (error: unknown) => {
    await runner.close();
    return refuse(`Cannot listen on ${host}:${port} (HOST, PORT): ${messageOf(error)}`);
  });
  telemetry.logger.info({ port: ops.port, runner: config.runner }, "tool-runner ready");
  return async () => {
    await ops.close();
    await runner.close();
  };
}

interface Telemetry {
  logger: ReturnType<typeof createLogger>;
  metrics: Metrics;
}

/**
 * A runner as a whole process: reads its environment, serves health, readiness and metrics, works
 * until a signal. Resolves when it works. SIGHUP attacks its sandbox again.
 */
export async function runRunner({ env: given, defaults, load, refuse }: RunnerProgram): Promise<void> {
  const { env, problem: unclean } = given === undefined ? takeEnvironment() : { env: given };
  const read = loadRunnerConfig(env, defaults);
  if (!read.ok) return refuse(read.error);
  const config = read.value;
  const loaded = await load();
  if (!loaded.ok) return refuse(loaded.error);
  const settings = await loadConfigFile(config.configFile);
  if (!settings.ok) return refuse(settings.error);
  const mcpServers = settings.value.mcp.servers.filter((server) => server.runner === config.runner);
  const missing = mcpServers.flatMap((server) => missingVariables(server, env));
  if (missing.length > 0) return refuse(missing.join("\n"));
  const logger = createLogger({ service: "tool-runner", level: config.logLevel });
  if (unclean !== undefined) logger.warn({ reason: unclean }, "other processes of this user can read the environment");
  const metrics = new Metrics({ service: "tool-runner" });
  const traceLog = TraceLog.connect({ ...config, ttlMs: settings.value.retention.traceDays * 86_400_000 });
  const watch = { service: "tool-runner", logger, metrics, traceLog, modules: settings.value.observers } as const;
  const watching = await openTelemetry({ ...watch, ...config });
  if (!watching.ok) return refuse(watching.error);
  const { telemetry, close: closeTelemetry } = watching.value;
  const runner = await startRunner({
    config,
    graceMs: config.drainMs,
    loaded: loaded.value,
    mcpServers,
    allowUnboundedMemory: settings.value.sandbox.allowUnboundedMemory,
    blobTtlMs: settings.value.retention.blobDays * 86_400_000,
    environment: env,
    logger,
    metrics,
    telemetry,
    onRefused: (conflict) => refuse(`The tools are refused: ${conflict}.`),
  }).catch((error: unknown) => refuse(problemOf(error)));
  const tools = loaded.value.registry.tools().map(({ name, isolation }) => `${name} (${isolation.level})`);
  logger.info({ tools }, "tools");
  const close = await serve({ config, runner, refuse }, { logger, metrics });
  process.on("SIGHUP", () => void runner.recheck());
  runUntilSignal({
    logger,
    givesWay: true,
    deadlineMs: config.drainMs + settleMs,
    close: async () => {
      await close();
      await closeTelemetry();
    },
  });
}
