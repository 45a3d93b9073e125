import {
  archiveProtocols,
  checkNamespace,
  createEnvReader,
  domainProblem as problemOfDomain,
  redisProtocols,
  type Env,
  type EnvReader,
} from "@larkline/process/config";

export interface VendorAccess {
  apiKey: string;
  baseUrl?: string;
}

export const transports = ["websocket", "webhook", "both"] as const;
export type Transport = (typeof transports)[number];

export interface FeishuAccess {
  appId: string;
  appSecret: string;
  /** `feishu`, `lark` or a base URL. */
  domain: string;
  transport: Transport;
  encryptKey?: string;
  verificationToken?: string;
}

/** The environment as the processes of a deployment read it; what is wrong is absent, and a problem. */
export interface Deployment {
  redisUrl?: string;
  namespace: string;
  feishu?: FeishuAccess;
  vendors: { anthropic?: VendorAccess; openai?: VendorAccess };
  /** `MODEL`. */
  models?: string;
  configFile?: string;
  /** The PostgreSQL of the archive. */
  archiveUrl?: string;
  /** The folder of files and images. */
  blobDirectory?: string;
  /** The key with which calls are signed. */
  signingKey?: string;
  /** The key of the runner of that name. */
  runnerKey?: string;
  runner: string;
  /** Where `npm start` listens. */
  host: string;
  ports: { ingress: number; worker: number; runner: number };
  problems: readonly string[];
}

function present<Key extends string, Value>(key: Key, value: Value | undefined): Partial<Record<Key, Value>> {
  // A computed key has the type string; it is Key.
  return value === undefined || value === "" ? {} : ({ [key]: value } as Record<Key, Value>);
}

/** A domain that no process would start with. */
export function domainProblem(domain: string): string | undefined {
  const problem = problemOfDomain(domain);
  return problem === undefined ? undefined : `FEISHU_DOMAIN ${problem}.`;
}

function readFeishu(reader: EnvReader): FeishuAccess | undefined {
  const appId = reader.text("FEISHU_APP_ID");
  const appSecret = reader.secret("FEISHU_APP_SECRET");
  const domain = reader.text("FEISHU_DOMAIN", { default: "feishu" });
  const transport = reader.choice("FEISHU_TRANSPORT", transports, { default: "websocket" });
  const encryptKey = reader.secret("FEISHU_ENCRYPT_KEY");
  const verificationToken = reader.secret("FEISHU_VERIFICATION_TOKEN");
  if (appId === undefined && appSecret === undefined) return undefined;
  if (appId === undefined) reader.problem("FEISHU_APP_ID is not set, but FEISHU_APP_SECRET is.");
  if (appSecret === undefined) reader.problem("FEISHU_APP_SECRET is not set, but FEISHU_APP_ID is.");
  const wrongDomain = domainProblem(domain);
  if (wrongDomain !== undefined) reader.problem(wrongDomain);
  if (transport !== "websocket" && encryptKey === undefined && verificationToken === undefined) {
    reader.problem(`FEISHU_TRANSPORT=${transport} needs FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN or both.`);
  }
  if (appId !== undefined && transport !== "webhook" && !/^cli_[0-9a-fA-F]{16}$/.test(appId)) {
    reader.problem("FEISHU_APP_ID must be cli_ and 16 hexadecimal digits.");
  }
  if (appId === undefined || appSecret === undefined || wrongDomain !== undefined) return undefined;
  return {
    appId,
    appSecret,
    domain,
    transport,
    ...present("encryptKey", encryptKey),
    ...present("verificationToken", verificationToken),
  };
}

function readVendor(reader: EnvReader, vendor: "ANTHROPIC" | "OPENAI"): VendorAccess | undefined {
  const apiKey = reader.secret(`${vendor}_API_KEY`);
  const baseUrl = reader.url(`${vendor}_BASE_URL`);
  return apiKey === undefined ? undefined : { apiKey, ...present("baseUrl", baseUrl) };
}

/** Reads the environment; problems are collected, and everything that is right is still there. */
export function readDeployment(env: Env): Deployment {
  const reader = createEnvReader(env);
  const read = {
    ...present("redisUrl", reader.url("REDIS_URL", { protocols: redisProtocols })),
    namespace: checkNamespace(reader, reader.text("REDIS_NAMESPACE", { default: "larkline" })),
    ...present("feishu", readFeishu(reader)),
    vendors: {
      ...present("anthropic", readVendor(reader, "ANTHROPIC")),
      ...present("openai", readVendor(reader, "OPENAI")),
    },
    ...present("models", reader.text("MODEL")),
    ...present("configFile", reader.text("LARKLINE_CONFIG")),
    ...present("archiveUrl", reader.url("ARCHIVE_URL", { protocols: archiveProtocols })),
    ...present("blobDirectory", reader.text("BLOB_DIR")),
    ...present("signingKey", reader.secret("CALL_SIGNING_KEY")),
    ...present("runnerKey", reader.secret("RUNNER_KEY")),
    runner: reader.text("RUNNER_NAME", { default: "local" }),
    host: reader.text("HOST", { default: "127.0.0.1" }),
    ports: {
      ingress: reader.port("INGRESS_PORT", { default: 8_000 }),
      worker: reader.port("AGENT_WORKER_PORT", { default: 8_001 }),
      runner: reader.port("TOOL_RUNNER_PORT", { default: 8_002 }),
    },
  };
  const finished = reader.finish(read);
  return { ...read, problems: finished.ok ? [] : finished.error.split("\n") };
}

/** Where `npm start` keeps its files. Of the shell alone: the launcher does not look for it in `.env`. */
export function readDataDirectory(env: Env): string {
  return createEnvReader(env).text("LARKLINE_DATA_DIR", { default: ".data" });
}
