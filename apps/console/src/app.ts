import {
  accept,
  openApp,
  startError,
  type AppOptions,
  type RunningApp,
} from "@larkline/process/app";
import { loadConfigFile, type Env } from "@larkline/process/config";
import { createLogger, Metrics } from "@larkline/process/telemetry";
import { systemClock, systemRandom } from "@larkline/protocol/clock";
import { loadConfig } from "./config.ts";
import { startConsole } from "./console.ts";

/** Starts the console with this environment. Rejects with a `StartError`. */
export async function startConsoleApp(env: Env, options: AppOptions = {}): Promise<RunningApp> {
  const { clock = systemClock, random = systemRandom, destination } = options;
  const config = accept(loadConfig(env));
  const settings = accept(await loadConfigFile(config.configFile, clock));
  return await openApp(async (opened) => {
    const log = createLogger({ service: "console", level: config.logLevel, destination, clock });
    const metrics = new Metrics({ service: "console" });
    const started = await startConsole({ config, settings, metrics, log, clock, random }).catch(
      startError("console cannot start"),
    );
    opened.defer(started.close);
    const { host, passwords } = config;
    log.info({ host, port: started.port }, "console ready");
    if (passwords === undefined) {
      log.info(
        { host },
        "CONSOLE_PASSWORD is not set: only this machine is served, without sign-in",
      );
    }
    return { port: started.port, log, ready: started.ready, closeMs: 8_000 };
  });
}
