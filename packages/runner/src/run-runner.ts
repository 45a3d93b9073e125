import {
  accept,
  openApp,
  runApp,
  startError,
  StartError,
  type AppOptions,
  type RunningApp,
} from "@larkline/process/app";
import { loadConfigFile, mountsServer, type Env } from "@larkline/process/config";
import { openInstruments, startOpsServer } from "@larkline/process/telemetry";
import type { ParseResult } from "@larkline/protocol";
import { systemRandom, systemClock } from "@larkline/protocol/clock";
import { AnnouncementRefusedError, startRunner, type ToolRunner } from "./runner.ts";
import { IsolationRefusedError } from "./levels.ts";
import { missingVariables } from "./mcp/mounts.ts";
import { loadRunnerConfig, type RunnerDefaults } from "./runner-config.ts";
import type { LoadedTools } from "./tool-modules.ts";

export interface RunnerProgram {
  defaults?: RunnerDefaults;
  /** Finds the tools; an error is a text of one line for each problem. */
  load(env: Env): Promise<ParseResult<LoadedTools>>;
}

/** A runner with its servers for health, readiness and metrics. */
export interface RunnerApp extends RunningApp {
  /** Attacks the sandbox again, where there is one; also done every hour. */
  recheck(): Promise<void>;
}

/**
 * A runner as a whole process: works until a signal. Resolves when it works. SIGHUP attacks its sandbox again. Without
 * `env` it takes that of the process, which is left clean.
 */
export async function runRunner(program: RunnerProgram, env?: Env): Promise<void> {
  const app = await runApp(
    async (taken, options) => await startRunnerApp(program, taken, options),
    {
      givesWay: true,
      env,
    },
  );
  process.on("SIGHUP", () => void app.recheck());
}

/** The part of the stop that follows the grace period of calls. */
const settleMs = 1_800;

/** Starts a runner of these tools with this environment, of which tools get the variables that they name. Rejects with a {@link StartError}. */
export async function startRunnerApp(
  { defaults, load }: RunnerProgram,
  env: Env,
  options: AppOptions = {},
): Promise<RunnerApp> {
  const { clock = systemClock, random = systemRandom, destination, onFatal = fail } = options;
  const config = accept(loadRunnerConfig(env, defaults));
  const loaded = accept(await load(env));
  const settings = accept(await loadConfigFile(config.configFile, clock));
  const mcpServers = settings.mcp.servers.filter((server) => mountsServer(config.runner, server));
  const missing = mcpServers.flatMap((server) => missingVariables(server, env));
  if (missing.length > 0) throw new StartError(missing.join("\n"));
  return await openApp(async (opened) => {
    const {
      log: logger,
      metrics,
      telemetry,
      close,
    } = accept(
      await openInstruments({
        service: "tool-runner",
        config,
        settings,
        destination,
        clock,
        random,
      }),
    );
    opened.defer(close);
    for (const server of settings.mcp.servers.filter((each) => !mcpServers.includes(each))) {
      const mountedBy = server.runner ?? "default";
      logger.info(
        { server: server.name, runner: mountedBy },
        "an MCP server of another runner is not mounted here",
      );
    }
    const runner = await startRunner({
      config,
      graceMs: config.drainMs,
      loaded,
      mcpServers,
      allowUnboundedMemory: settings.sandbox.allowUnboundedMemory,
      blobTtlMs: settings.retention.blobDays * 86_400_000,
      environment: env,
      logger,
      metrics,
      telemetry,
      onRefused: (conflict) => onFatal(`The tools are refused: ${conflict}.`),
      clock,
      random,
    }).catch((error: unknown) => {
      throw error instanceof StartError
        ? error
        : new StartError(problemOf(error), { cause: error });
    });
    opened.defer(runner.close);
    const tools = loaded.registry
      .tools()
      .map(({ name, isolation }) => `${name} (${isolation.level})`);
    logger.info({ tools }, "tools");
    const { host, port } = config;
    const ops = await startOpsServer({
      host,
      port,
      metrics,
      logger,
      ready: runner.ready,
      clock,
    }).catch(startError(`Cannot listen on ${host}:${port} (HOST, PORT)`));
    opened.defer(ops.close);
    logger.info({ port: ops.port, runner: config.runner }, "tool-runner ready");
    const { ready, recheck }: ToolRunner = runner;
    return { port: ops.port, log: logger, ready, recheck, closeMs: config.drainMs + settleMs };
  });
}

function problemOf(error: unknown): string {
  if (error instanceof IsolationRefusedError) return `The tools are refused: ${error.message}`;
  if (error instanceof AnnouncementRefusedError) {
    return `The tools are refused: ${error.message}. Stop the other runner, give the tool another name, or say in larkline.config.ts whose it is: runners: { <name>: { tools: [...] } }.`;
  }
  const said = error instanceof Error ? error.message : String(error);
  if (/^(?:WRONGPASS|NOAUTH)\b/.test(said)) {
    return "Redis refuses the user or password in REDIS_URL, or wants one: correct it.";
  }
  return `Cannot start, is Redis at REDIS_URL running? ${said}`;
}

function fail(problem: string): never {
  throw new Error(problem);
}
