import {
  accept,
  openApp,
  startError,
  StartError,
  type AppOptions,
  type RunningApp,
} from "@larkline/process/app";
import {
  loadConfigFile,
  loadModelModules,
  readBots,
  readProviders,
  readTranscription,
  type Env,
} from "@larkline/process/config";
import { openInstruments, startOpsServer } from "@larkline/process/telemetry";
import { systemClock, systemRandom } from "@larkline/protocol/clock";
import { formatErrorForDisplay } from "@larkline/protocol/error";
import { createAgentModels } from "./agent.ts";
import { loadConfig } from "./config.ts";
import { connect } from "./connections.ts";
import { createCounters } from "./services.ts";
import { startWorker } from "./worker.ts";

/** Starts a worker with this environment. Rejects with a {@link StartError}. */
export async function startWorkerApp(env: Env, options: AppOptions = {}): Promise<RunningApp> {
  const { clock = systemClock, random = systemRandom, destination } = options;
  const config = accept(loadConfig(env));
  const settings = accept(await loadConfigFile(config.configFile, clock));
  const bots = accept(readBots(env, settings.bots, config.feishu));
  const providers = accept(readProviders(env, settings.providers));
  const transcription = accept(readTranscription(settings.transcription, providers));
  const modules = accept(await loadModelModules(providers));
  const models = accept(
    createAgentModels(config, settings, { providers, modules }, { clock, random }),
  );
  return await openApp(async (opened) => {
    const { log, metrics, telemetry, close } = accept(
      await openInstruments({
        service: "agent-worker",
        config,
        settings,
        destination,
        clock,
        random,
      }),
    );
    opened.defer(close);
    const owner = `worker-${random.uuid()}`;
    const counters = createCounters(metrics);
    const parts = {
      config,
      settings,
      owner,
      models,
      transcription,
      counters,
      log,
      telemetry,
      clock,
      random,
    };
    const connections = await connect(parts, bots).catch(
      startError("Redis (REDIS_URL) does not answer"),
    );
    opened.defer(connections.close);
    const worker = await startWorker(connections).catch((error: unknown) => {
      throw new StartError(`agent-worker cannot start: ${formatErrorForDisplay(error)}`, {
        cause: error,
      });
    });
    opened.defer(worker.close);
    const { host, port, redisUrl, namespace } = config;
    const atWork = (): string[] => connections.services.runningTurns.names();
    const ops = await startOpsServer({
      host,
      port,
      metrics,
      logger: log,
      ready: worker.ready,
      clock,
    }).catch(startError(`Cannot listen on ${host}:${port} (HOST, PORT)`));
    opened.defer(ops.close);
    log.info(
      {
        port: ops.port,
        worker: owner,
        model: models.defaultName,
        bots: bots.map(({ name }) => name),
        concurrency: config.concurrency,
      },
      "agent-worker ready",
    );
    return {
      port: ops.port,
      log,
      ready: worker.ready,
      closeMs: 9_000,
      note: { redisUrl, namespace, id: owner },
      atWork,
    };
  });
}
