import {
  checkNamespace,
  createEnvReader,
  domainProblem,
  type Env,
  type EnvReader,
  readFirstApp,
  redisProtocols,
} from "@larkline/process/config";
import type { ParseResult } from "@larkline/protocol";
import { hasNames, readCallers, type CallerRules } from "./callers.ts";
import { logLevels, type LogLevel } from "@larkline/process/telemetry";

export interface FeishuConfig {
  appId: string;
  appSecret: string;
  encryptKey: string | undefined;
  verificationToken: string | undefined;
  /** `feishu`, `lark` or a base URL. */
  domain: string;
  websocket: boolean;
  webhook: boolean;
}

export interface ApiConfig {
  /** The keys by which callers are known; without any, only clients on loopback are served. */
  callers: CallerRules;
  /** Origins of browsers that may call; `*` is any. */
  corsOrigins: "*" | readonly string[];
  onDisconnect: "cancel" | "continue";
  heartbeatMs: number;
  maxStreams: number;
  /** Most streams of one caller. */
  maxStreamsPerCaller: number;
  /** Requests of one caller; 0: no limit. */
  requestsPerMinute: number;
}

export interface IngressConfig {
  redisUrl: string;
  /** First part of all keys and of the queues' prefix. */
  namespace: string;
  host: string;
  port: number;
  logLevel: LogLevel;
  /** The credentials of the platform; absent: only the HTTP API is served. */
  feishu: FeishuConfig | undefined;
  api: ApiConfig;
  /** Signs what is sent to `events.url`. */
  eventsKey: string | undefined;
  /** Models of the deployment, shown by `/status`; the workers check them. */
  model: string | undefined;
  /** The address that spans are sent to; absent: none is sent. */
  otlpEndpoint: string | undefined;
  /** What is sent with them, as `name=value` pairs with commas between. */
  otlpHeaders: string | undefined;
  /** Path of larkline.config.ts. */
  configFile: string | undefined;
}

function isHttpUrl(text: string): boolean {
  return URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
}

function readFeishu(reader: EnvReader): FeishuConfig | undefined {
  const transport = reader.choice("FEISHU_TRANSPORT", ["websocket", "webhook", "both"], {
    default: "websocket",
  });
  const domain = reader.text("FEISHU_DOMAIN", { default: "feishu" });
  const wrongDomain = domainProblem(domain);
  if (wrongDomain !== undefined) reader.problem(`FEISHU_DOMAIN ${wrongDomain}.`);
  const credentials = readFirstApp(reader);
  const encryptKey = reader.secret("FEISHU_ENCRYPT_KEY");
  const verificationToken = reader.secret("FEISHU_VERIFICATION_TOKEN");
  if (credentials === undefined) return undefined;
  const webhook = transport !== "websocket";
  if (webhook && encryptKey === undefined && verificationToken === undefined) {
    reader.problem(
      `FEISHU_TRANSPORT=${transport} needs FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN or both to tell forged requests.`,
    );
  }
  return {
    ...credentials,
    encryptKey,
    verificationToken,
    domain,
    websocket: transport !== "webhook",
    webhook,
  };
}

function readOrigins(reader: EnvReader): "*" | string[] {
  const origins = reader.list("API_CORS_ORIGINS");
  if (origins.length === 0 || (origins.length === 1 && origins[0] === "*")) return "*";
  for (const origin of origins) {
    if (!isHttpUrl(origin) || new URL(origin).origin !== origin) {
      reader.problem(
        `API_CORS_ORIGINS must be * or origins such as https://example.org, but has "${origin}".`,
      );
    }
  }
  return origins;
}

function readOnDisconnect(reader: EnvReader): ApiConfig["onDisconnect"] {
  const choice = reader.choice("API_ON_DISCONNECT", ["continue", "cancel", "detach"], {
    default: "continue",
  });
  return choice === "cancel" ? "cancel" : "continue"; // "detach" is the former name
}

function readApi(reader: EnvReader): ApiConfig {
  const callers = readCallers(reader);
  const maxStreams = reader.integer("API_MAX_STREAMS", { default: 1_000, min: 1, max: 100_000 });
  // A single caller may use all streams; one of several callers only a share.
  const several = hasNames(callers);
  return {
    callers,
    corsOrigins: readOrigins(reader),
    onDisconnect: readOnDisconnect(reader),
    heartbeatMs: reader.integer("API_HEARTBEAT_MS", { default: 15_000, min: 10, max: 600_000 }),
    maxStreams,
    maxStreamsPerCaller: reader.integer("API_MAX_STREAMS_PER_CALLER", {
      default: several ? Math.ceil(maxStreams / 4) : maxStreams,
      min: 1,
      max: 100_000,
    }),
    requestsPerMinute: reader.integer("API_REQUESTS_PER_MINUTE", {
      default: several ? 6_000 : 0,
      min: 0,
      max: 10_000_000,
    }),
  };
}

/**
 * Reads the environment; every problem is reported at once, one per line, naming the variable.
 * Besides the names that all apps share (design of the deployment, README):
 * - `API_CORS_ORIGINS` (`*`): origins of browsers that may call the HTTP API, comma-separated
 * - `API_ON_DISCONNECT` (`continue`): what a client that leaves does to its run when its request does not
 *   say, `continue` or `cancel`
 * - `API_HEARTBEAT_MS` (15000): pause between heartbeats of a stream
 * - `API_MAX_STREAMS` (1000): streams served at once
 * - `API_MAX_STREAMS_PER_CALLER`, `API_REQUESTS_PER_MINUTE`: what one caller may use of this process; by default all of it
 *   where there is one caller, a quarter of the streams and 6,000 requests where there may be several
 * - `EVENTS_SIGNING_KEY`: signs events and clicks that are sent to `events.url` of the configuration
 * - `REDIS_NAMESPACE` (`larkline`): prefix of all keys, the same in every process of a deployment
 */
export function loadConfig(env: Env): ParseResult<IngressConfig> {
  const reader = createEnvReader(env);
  return reader.finish({
    redisUrl: reader.url("REDIS_URL", {
      default: "redis://127.0.0.1:6379",
      protocols: redisProtocols,
    }),
    namespace: checkNamespace(reader, reader.text("REDIS_NAMESPACE", { default: "larkline" })),
    host: reader.text("HOST", { default: "0.0.0.0" }),
    port: reader.port("PORT", { default: 8_000 }),
    logLevel: reader.choice("LOG_LEVEL", logLevels, { default: "info" }),
    otlpEndpoint: reader.url("OTEL_EXPORTER_OTLP_ENDPOINT"),
    otlpHeaders: reader.secret("OTEL_EXPORTER_OTLP_HEADERS"),
    feishu: readFeishu(reader),
    api: readApi(reader),
    eventsKey: reader.secret("EVENTS_SIGNING_KEY", { minLength: 32 }),
    model: reader.text("MODEL"),
    configFile: reader.text("LARKLINE_CONFIG"),
  });
}
