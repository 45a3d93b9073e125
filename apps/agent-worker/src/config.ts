import {
  archiveProtocols,
  checkNamespace,
  createEnvReader,
  type Env,
  type EnvReader,
  readFirstApp,
  redisProtocols,
} from "@larkline/process/config";
import type { ParseResult } from "@larkline/protocol";
import { logLevels, type LogLevel } from "@larkline/process/telemetry";

export interface WorkerConfig {
  redisUrl: string;
  /** First part of all keys and of the queues' prefix. */
  namespace: string;
  host: string;
  port: number;
  logLevel: LogLevel;
  /** Model steps this process runs at once. */
  concurrency: number;
  /** How long a turn keeps its slot while its calls run and slots are free, ms; 0: it is suspended at once. */
  holdMs: number;
  /** `MODEL`: the model, then its fallbacks. Absent: one of the vendor that has a key. */
  model?: string;
  /** The credentials of the platform; absent: answers go to the HTTP API only. */
  feishu?: { appId: string; appSecret: string; domain: string };
  /** The address that spans are sent to; absent: none is sent. */
  otlpEndpoint?: string | undefined;
  /** What is sent with them, as `name=value` pairs with commas between. */
  otlpHeaders?: string | undefined;
  /** Path of larkline.config.ts. */
  configFile?: string;
  /** Folder for files and images, shared by all workers and runners; absent: Redis keeps them. */
  blobDirectory?: string;
  /** The PostgreSQL that keeps history and audit; absent: they are in Redis only. */
  archiveUrl?: string;
  /** Proves to runners that a call comes from this deployment. */
  callSigningKey: string;
  /** Keys that the grants of people are sealed with, the first; the others still open them. Absent: tools that act as people are not offered. */
  grantKeys?: readonly [string, ...string[]];
}

function readFeishu(reader: EnvReader): WorkerConfig["feishu"] {
  const domain = reader.text("FEISHU_DOMAIN", { default: "feishu" });
  const app = readFirstApp(reader);
  return app === undefined ? undefined : { ...app, domain };
}

const shortestKey = 32;

function readSigningKey(reader: EnvReader): string {
  const key = reader.secret("CALL_SIGNING_KEY");
  if (key !== undefined && key.length >= shortestKey) return key;
  const problem = key === undefined ? "is not set" : `must have at least ${shortestKey} characters`;
  reader.problem(
    `CALL_SIGNING_KEY ${problem}. npm start makes one; elsewhere give all workers the same random text ` +
      "(openssl rand -hex 32) and each runner its own RUNNER_KEY made from it (npm run runner-key).",
  );
  return "";
}

function readGrantKeys(reader: EnvReader): WorkerConfig["grantKeys"] {
  const [first, ...older] = (reader.secret("GRANT_KEY") ?? "").split(",").map((key) => key.trim());
  if (first === undefined || first === "") return undefined;
  if (![first, ...older].every((key) => /^[0-9a-f]{64}$/i.test(key))) {
    reader.problem(
      "GRANT_KEY must be 64 hexadecimal digits (openssl rand -hex 32); to change it, put the new key before the old " +
        "one, with a comma between.",
    );
  }
  return [first, ...older];
}

/** Reads the environment; every problem is reported at once, one per line, naming the variable. */
export function loadConfig(env: Env): ParseResult<WorkerConfig> {
  const reader = createEnvReader(env);
  const feishu = readFeishu(reader);
  const model = reader.text("MODEL");
  const configFile = reader.text("LARKLINE_CONFIG");
  const blobDirectory = reader.text("BLOB_DIR");
  const grantKeys = readGrantKeys(reader);
  const archiveUrl = reader.url("ARCHIVE_URL", { protocols: archiveProtocols });
  return reader.finish({
    redisUrl: reader.url("REDIS_URL", {
      default: "redis://127.0.0.1:6379",
      protocols: redisProtocols,
    }),
    namespace: checkNamespace(reader, reader.text("REDIS_NAMESPACE", { default: "larkline" })),
    host: reader.text("HOST", { default: "0.0.0.0" }),
    port: reader.port("PORT", { default: 8_001 }),
    logLevel: reader.choice("LOG_LEVEL", logLevels, { default: "info" }),
    otlpEndpoint: reader.url("OTEL_EXPORTER_OTLP_ENDPOINT"),
    otlpHeaders: reader.secret("OTEL_EXPORTER_OTLP_HEADERS"),
    concurrency: reader.integer("WORKER_CONCURRENCY", { default: 50, min: 1, max: 10_000 }),
    holdMs: reader.integer("WORKER_HOLD_MS", { default: 250, min: 0, max: 60_000 }),
    callSigningKey: readSigningKey(reader),
    ...(model === undefined ? {} : { model }),
    ...(feishu === undefined ? {} : { feishu }),
    ...(configFile === undefined ? {} : { configFile }),
    ...(blobDirectory === undefined ? {} : { blobDirectory }),
    ...(archiveUrl === undefined ? {} : { archiveUrl }),
    ...(grantKeys === undefined ? {} : { grantKeys }),
  });
}
