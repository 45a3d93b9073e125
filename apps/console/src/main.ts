import { loadConfigFile, takeEnvironment } from "@larkline/process/config";
import { createLogger, Metrics, runUntilSignal } from "@larkline/process/telemetry";
import { loadConfig } from "./config.ts";
import { startConsole } from "./console.ts";

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

const logger = createLogger({ service: "console", level: config.logLevel });
if (unclean !== undefined) logger.warn({ reason: unclean }, "other processes of this user can read the environment");
const metrics = new Metrics({ service: "console" });
const started = await startConsole({ config, settings: settings.value, metrics, log: logger }).catch((error: unknown) =>
  refuse(`console cannot start: ${error instanceof Error ? error.message : String(error)}`),
);
const { host, passwords } = config;
logger.info({ host, port: started.port }, "console ready");
if (passwords === undefined) {
  logger.info({ host }, "CONSOLE_PASSWORD is not set: only this machine is served, without sign-in");
}

runUntilSignal({
  logger,
  givesWay: true,
  close: async () => await started.close(),
});
