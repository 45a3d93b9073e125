import { createLogger, Metrics, runUntilSignal } from "@larkline/process/telemetry";
import { loadConfig, startPlayground } from "./playground.ts";

function refuse(problem: string): never {
  console.error(problem);
  process.exit(1);
}

const loaded = loadConfig(process.env);
if (!loaded.ok) refuse(loaded.error);
const config = loaded.value;
const logger = createLogger({ service: "playground", level: config.logLevel });
const metrics = new Metrics({ service: "playground" });
const playground = await startPlayground({ config, logger, metrics }).catch((error: unknown) =>
  refuse(
    `Cannot start on ${config.host}:${config.port} (HOST, PORT) or MODEL_PORT: ${error instanceof Error ? error.message : String(error)}`,
  ),
);
logger.info(
  { url: playground.url, modelUrl: playground.modelUrl, appId: config.appId },
  "playground ready",
);

runUntilSignal({ logger, close: playground.close });
