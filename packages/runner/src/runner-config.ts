import { checkNamespace, createEnvReader, type Env } from "@larkline/process/config";
import { parserOf, type ParseResult } from "@larkline/protocol";
import { RunnerName } from "@larkline/protocol/runner";
import { sandboxTiers, type SandboxTier } from "@larkline/sandbox";
import { redisUrlProblem } from "@larkline/store/redis";
import { logLevels, type LogLevel } from "@larkline/process/telemetry";

/** Settings of one runner process. */
export interface RunnerConfig {
  redisUrl: string;
  /** First part of all keys and of the queues' prefix. */
  namespace: string;
  /** Instances of the same name share their queues and must offer the same tools. */
  runner: string;
  /** `runnerKeyOf` the deployment's key and `runner`: calls that are not signed with it are refused. */
  runnerKey: string;
  /** Calls this process runs at once; of each tool with limits, which have queues of their own, once more as many. */
  concurrency: number;
  /** Memory that a child process is expected to take, in MB: bounds how many are started. Default 80. */
  childMb?: number;
  /** How long running calls may take to end when the process stops. */
  drainMs: number;
  /** Folder for the files that tools save, shared with all workers; absent: Redis keeps them. */
  blobDirectory?: string | undefined;
  /** Tiers of isolation `sandbox` that the operator accepts; absent: all. */
  sandboxTiers?: SandboxTier[] | undefined;
  /** In a cluster the runtime class of this pod, `none` being that of all pods. */
  runtimeClass?: string | undefined;
  /** Where spans are sent to; absent: nowhere. */
  otlpEndpoint?: string | undefined;
  /** What is sent with them, as `name=value` pairs with commas between. */
  otlpHeaders?: string | undefined;
  /** Where the MCP servers are named; absent: `larkline.config.ts` of the working directory, if it is there. */
  configFile?: string | undefined;
  host: string;
  port: number;
  logLevel: LogLevel;
}

/** What holds where the environment says nothing. */
export interface RunnerDefaults {
  runner?: string;
  concurrency?: number;
}

const parseRunnerName = parserOf(RunnerName);
type Reader = ReturnType<typeof createEnvReader>;

function redisUrlFrom(reader: Reader): string {
  const redisUrl = reader.secret("REDIS_URL", { default: "redis://127.0.0.1:6379" });
  const problem = redisUrlProblem(redisUrl);
  if (problem !== undefined) reader.problem(`REDIS_URL cannot be used: ${problem}.`);
  return redisUrl;
}

function runnerKeyFrom(reader: Reader): string {
  const key = reader.secret("RUNNER_KEY", { required: true });
  if (key !== "" && !/^[0-9a-f]{64}$/.test(key)) {
    reader.problem(
      "RUNNER_KEY must be the 64 hex digits that are made of CALL_SIGNING_KEY and RUNNER_NAME.",
    );
  }
  return key;
}

function runnerNameFrom(reader: Reader, fallback: string): string {
  const runner = reader.text("RUNNER_NAME", { default: fallback });
  if (!parseRunnerName(runner).ok) {
    reader.problem("RUNNER_NAME must be 1 to 64 letters, digits, '_' or '-'.");
  }
  return runner;
}

function tiersFrom(reader: Reader): SandboxTier[] | undefined {
  const names = reader.list("SANDBOX_TIERS");
  if (names.length === 0) return undefined;
  const tiers = sandboxTiers.filter((tier) => names.includes(tier));
  if (tiers.length !== names.length) {
    reader.problem(`SANDBOX_TIERS may name ${sandboxTiers.join(", ")}.`);
  }
  return tiers;
}

/** Reads the environment of a runner; every problem is reported at once, one per line, naming the variable. */
export function loadRunnerConfig(
  env: Env,
  defaults: RunnerDefaults = {},
): ParseResult<RunnerConfig> {
  const reader = createEnvReader(env);
  return reader.finish({
    redisUrl: redisUrlFrom(reader),
    namespace: checkNamespace(reader, reader.text("REDIS_NAMESPACE", { default: "larkline" })),
    runner: runnerNameFrom(reader, defaults.runner ?? "default"),
    runnerKey: runnerKeyFrom(reader),
    concurrency: reader.integer("RUNNER_CONCURRENCY", {
      default: defaults.concurrency ?? 32,
      min: 1,
      max: 1_000,
    }),
    childMb: reader.integer("RUNNER_CHILD_MB", { default: 80, min: 16, max: 65_536 }),
    drainMs: reader.integer("RUNNER_DRAIN_MS", { default: 8_000, min: 0, max: 3_600_000 }),
    blobDirectory: reader.text("BLOB_DIR"),
    sandboxTiers: tiersFrom(reader),
    runtimeClass: reader.text("RUNTIME_CLASS"),
    configFile: reader.text("LARKLINE_CONFIG"),
    host: reader.text("HOST", { default: "0.0.0.0" }),
    port: reader.port("PORT", { default: 8_002 }),
    logLevel: reader.choice("LOG_LEVEL", logLevels, { default: "info" }),
    otlpEndpoint: reader.url("OTEL_EXPORTER_OTLP_ENDPOINT"),
    otlpHeaders: reader.secret("OTEL_EXPORTER_OTLP_HEADERS"),
  });
}
