/** Services of the composition that get an environment file of their own. */
export const services = [
  "ingress",
  "agent-worker",
  "tool-runner",
  "feishu-runner",
  "python-runner",
  "console",
] as const;
export type Service = (typeof services)[number];

const everywhere = ["LOG_LEVEL"];
const everyUserOfRedis = ["REDIS_NAMESPACE"];
/** Variables of every runner. */
export const ofRunners: readonly string[] = [
  ...everywhere,
  ...everyUserOfRedis,
  "RUNNER_CONCURRENCY",
  "RUNNER_CHILD_MB",
];

const spans = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"];

/**
 * What of the operator's `.env` each service gets, by name; nothing else reaches it. Addresses and
 * names are in compose.yaml, and the secrets between the services are made here.
 */
export const settingsOf: Readonly<Record<Service, readonly string[]>> = {
  ingress: [
    ...everywhere,
    ...everyUserOfRedis,
    "FEISHU_APP_ID",
    "FEISHU_APP_SECRET",
    "FEISHU_DOMAIN",
    "FEISHU_TRANSPORT",
    "FEISHU_ENCRYPT_KEY",
    "FEISHU_VERIFICATION_TOKEN",
    "MODEL",
    "API_CORS_ORIGINS",
    "API_ON_DISCONNECT",
    "API_HEARTBEAT_MS",
    "API_MAX_STREAMS",
    "API_MAX_STREAMS_PER_CALLER",
    "API_REQUESTS_PER_MINUTE",
    "API_KEYS",
    "API_JWT_SECRET",
    "API_JWKS",
    "EVENTS_SIGNING_KEY",
    ...spans,
  ],
  "agent-worker": [
    ...everywhere,
    ...everyUserOfRedis,
    "FEISHU_APP_ID",
    "FEISHU_APP_SECRET",
    "FEISHU_DOMAIN",
    "MODEL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "WORKER_CONCURRENCY",
    "WORKER_HOLD_MS",
    "ARCHIVE_URL",
    ...spans,
  ],
  "tool-runner": [...ofRunners, "RUNNER_TOOLS", "SANDBOX_TIERS", ...spans],
  "feishu-runner": [...ofRunners, ...spans],
  "python-runner": ofRunners,
  console: [
    ...everywhere,
    ...everyUserOfRedis,
    "FEISHU_APP_ID",
    "FEISHU_DOMAIN",
    "CONSOLE_VIEWER_PASSWORD",
    "CONSOLE_TRUST_PROXY",
  ],
};

/** Of these, every bot with a name has its own: `FEISHU_APP_SECRET_<NAME>`. A service that gets one gets all of its kind. */
export const secretsOfBots: readonly string[] = [
  "FEISHU_APP_SECRET",
  "FEISHU_ENCRYPT_KEY",
  "FEISHU_VERIFICATION_TOKEN",
];

/** Variables of people with a shell. */
export const ofAdmin: readonly string[] = [...everyUserOfRedis, "FEISHU_APP_ID", "ARCHIVE_URL"];

/** Names of the runners of the composition, by service. */
export const runnerNames = {
  "tool-runner": "default",
  "feishu-runner": "feishu",
  "python-runner": "python",
} as const;
