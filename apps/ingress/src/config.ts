import { logLevels, type LogLevel } from "@larkline/telemetry";

export interface FeishuConfig {
  appId: string;
  appSecret: string;
  encryptKey: string;
  verificationToken: string;
  /** `feishu`, `lark` or a base URL. */
  domain: string;
  websocket: boolean;
  webhook: boolean;
}

export interface ApiConfig {
  /** Bearer token; undefined: only clients on loopback are served. */
  token: string | undefined;
  /** Origins of browsers that may call; `*` is any. */
  corsOrigins: "*" | readonly string[];
  onDisconnect: "cancel" | "detach";
  heartbeatMs: number;
  maxStreams: number;
}

export interface IngressConfig {
  redisUrl: string;
  namespace: string | undefined;
  host: string;
  port: number;
  logLevel: LogLevel;
  /** Absent without credentials: then only the HTTP API is served. */
  feishu: FeishuConfig | undefined;
  api: ApiConfig;
  /** Messages that arrive later than this after they were written are not run. */
  maxMessageAgeMs: number;
}

export type ConfigResult = { ok: true; config: IngressConfig } | { ok: false; problems: string[] };

export type Environment = Readonly<Record<string, string | undefined>>;

/** Reads single variables and remembers what is wrong with them. An empty variable counts as absent. */
function createReader(env: Environment) {
  const problems: string[] = [];
  const text = (name: string): string | undefined => {
    const value = env[name]?.trim();
    return value === "" ? undefined : value;
  };
  return {
    problems,
    text,
    integer(name: string, { fallback, min, max }: { fallback: number; min: number; max: number }): number {
      const value = text(name);
      if (value === undefined) return fallback;
      const number = /^\d+$/.test(value) ? Number(value) : Number.NaN;
      if (number >= min && number <= max) return number;
      problems.push(`${name} must be a whole number from ${min} to ${max}, not "${value}".`);
      return fallback;
    },
    choice<T extends string>(name: string, choices: readonly T[], fallback: T): T {
      const value = text(name);
      if (value === undefined) return fallback;
      const found = choices.find((choice) => choice === value);
      if (found === undefined) problems.push(`${name} must be one of ${choices.join(", ")}, not "${value}".`);
      return found ?? fallback;
    },
  };
}

type Reader = ReturnType<typeof createReader>;

function isHttpUrl(text: string): boolean {
  return URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
}

function readDomain(reader: Reader): string {
  const domain = reader.text("FEISHU_DOMAIN") ?? "feishu";
  if (domain !== "feishu" && domain !== "lark" && !isHttpUrl(domain)) {
    reader.problems.push(`FEISHU_DOMAIN must be feishu, lark or an http(s) address, not "${domain}".`);
  }
  return domain;
}

function readCredentials(reader: Reader): { appId: string; appSecret: string } | undefined {
  const appId = reader.text("FEISHU_APP_ID");
  const appSecret = reader.text("FEISHU_APP_SECRET");
  if (appId === undefined && appSecret === undefined) return undefined;
  if (appId === undefined) reader.problems.push("FEISHU_APP_ID is missing: FEISHU_APP_SECRET is set without it.");
  if (appSecret === undefined) reader.problems.push("FEISHU_APP_SECRET is missing: FEISHU_APP_ID is set without it.");
  if (appId !== undefined && !/^[A-Za-z0-9_-]{1,64}$/.test(appId)) {
    reader.problems.push("FEISHU_APP_ID must be an app id like cli_0123456789abcdef.");
  }
  return { appId: appId ?? "", appSecret: appSecret ?? "" };
}

function readFeishu(reader: Reader): FeishuConfig | undefined {
  const transport = reader.choice("FEISHU_TRANSPORT", ["websocket", "webhook", "both"], "websocket");
  const domain = readDomain(reader);
  const credentials = readCredentials(reader);
  if (credentials === undefined) return undefined;
  const webhook = transport !== "websocket";
  const encryptKey = reader.text("FEISHU_ENCRYPT_KEY") ?? "";
  const verificationToken = reader.text("FEISHU_VERIFICATION_TOKEN") ?? "";
  if (webhook && encryptKey === "" && verificationToken === "") {
    reader.problems.push(
      `FEISHU_TRANSPORT=${transport} needs FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN or both to tell forged requests.`,
    );
  }
  return { ...credentials, encryptKey, verificationToken, domain, websocket: transport !== "webhook", webhook };
}

function readOrigins(reader: Reader): "*" | string[] {
  const value = reader.text("API_CORS_ORIGINS") ?? "*";
  if (value === "*") return "*";
  const origins = value.split(",").map((origin) => origin.trim());
  for (const origin of origins) {
    if (!isHttpUrl(origin) || new URL(origin).origin !== origin) {
      reader.problems.push(`API_CORS_ORIGINS must be * or origins like https://example.org, not "${origin}".`);
    }
  }
  return origins;
}

function readApi(reader: Reader): ApiConfig {
  return {
    token: reader.text("API_TOKEN"),
    corsOrigins: readOrigins(reader),
    onDisconnect: reader.choice("API_ON_DISCONNECT", ["cancel", "detach"], "cancel"),
    heartbeatMs: reader.integer("API_HEARTBEAT_MS", { fallback: 15_000, min: 10, max: 600_000 }),
    maxStreams: reader.integer("API_MAX_STREAMS", { fallback: 1_000, min: 1, max: 100_000 }),
  };
}

function readNamespace(reader: Reader): string | undefined {
  const namespace = reader.text("REDIS_NAMESPACE");
  if (namespace !== undefined && !/^[A-Za-z0-9_-]{1,64}$/.test(namespace)) {
    reader.problems.push("REDIS_NAMESPACE must be 1 to 64 letters, digits, '_' or '-'.");
  }
  return namespace;
}

/**
 * The configuration of the process. Besides the names that all apps share:
 * - `API_CORS_ORIGINS` (`*`): origins of browsers, comma-separated
 * - `API_ON_DISCONNECT` (`cancel`): what a client that leaves does to its run, `cancel` or `detach`
 * - `API_HEARTBEAT_MS` (15000): pause between heartbeats of a stream
 * - `API_MAX_STREAMS` (1000): streams served at once
 * - `MESSAGE_MAX_AGE_MS` (600000): older messages get a polite reply instead of a run
 * - `REDIS_NAMESPACE`: prefix of all keys, for several deployments on one Redis
 *
 * Every problem is reported at once, naming the variable, never a secret's value.
 */
export function loadConfig(env: Environment): ConfigResult {
  const reader = createReader(env);
  const redisUrl = reader.text("REDIS_URL") ?? "redis://127.0.0.1:6379";
  if (!/^rediss?(\+\w+)?:\/\/./.test(redisUrl)) reader.problems.push("REDIS_URL must look like redis://host:port.");
  const config: IngressConfig = {
    redisUrl,
    namespace: readNamespace(reader),
    host: reader.text("HOST") ?? "0.0.0.0",
    port: reader.integer("PORT", { fallback: 8000, min: 0, max: 65_535 }),
    logLevel: reader.choice("LOG_LEVEL", logLevels, "info"),
    feishu: readFeishu(reader),
    api: readApi(reader),
    maxMessageAgeMs: reader.integer("MESSAGE_MAX_AGE_MS", { fallback: 600_000, min: 1_000, max: 604_800_000 }),
  };
  return reader.problems.length === 0 ? { ok: true, config } : { ok: false, problems: reader.problems };
}
