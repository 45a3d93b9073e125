import { checkNamespace, createEnvReader, type Env } from "@larkline/config";
import { parserOf, RunnerName, type ParseResult } from "@larkline/protocol";
import type { RunnerSettings } from "@larkline/runner";
import { redisUrlProblem } from "@larkline/session-redis";
import { logLevels, type LogLevel } from "@larkline/telemetry";

export interface RunnerConfig extends RunnerSettings {
  host: string;
  port: number;
  logLevel: LogLevel;
  /** Module paths or package names. */
  toolModules: string[];
}

const parseRunnerName = parserOf(RunnerName);
const defaultTools = "@larkline/example-tools";

/** Reads the environment; every problem is reported at once, one per line, naming the variable. */
export function loadConfig(env: Env): ParseResult<RunnerConfig> {
  const reader = createEnvReader(env);
  const redisUrl = reader.secret("REDIS_URL", { default: "redis://127.0.0.1:6379" });
  const problem = redisUrlProblem(redisUrl);
  if (problem !== undefined) reader.problem(`REDIS_URL cannot be used: ${problem}.`);
  const runner = reader.text("RUNNER_NAME", { default: "default" });
  if (!parseRunnerName(runner).ok) {
    reader.problem("RUNNER_NAME must be 1 to 64 letters, digits, '_' or '-'.");
  }
  const modules = reader.list("RUNNER_TOOLS");
  const blobDirectory = reader.text("BLOB_DIR");
  return reader.finish({
    redisUrl,
    namespace: checkNamespace(reader, reader.text("REDIS_NAMESPACE", { default: "larkline" })),
    host: reader.text("HOST", { default: "0.0.0.0" }),
    port: reader.port("PORT", { default: 8_002 }),
    logLevel: reader.choice("LOG_LEVEL", logLevels, { default: "info" }),
    runner,
    toolModules: modules.length > 0 ? modules : [defaultTools],
    concurrency: reader.integer("RUNNER_CONCURRENCY", { default: 32, min: 1, max: 1_000 }),
    ...(blobDirectory === undefined ? {} : { blobDirectory }),
  });
}
