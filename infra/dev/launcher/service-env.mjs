import { existsSync } from "node:fs";
import { join } from "node:path";
import { runnerKeyOf } from "./call-keys.mjs";
import { dataDirectory, dataFolder, home, root } from "./paths.mjs";
import { addressOf } from "./plan.mjs";

/** See `ownOf`. */
const callKeys = ["CALL_SIGNING_KEY", "GRANT_KEY", "RUNNER_KEY"];

const secrets = [
  "FEISHU_APP_SECRET",
  "FEISHU_ENCRYPT_KEY",
  "FEISHU_VERIFICATION_TOKEN",
  "ANTHROPIC_API_KEY",
  "OPENAI_API_KEY",
  "API_TOKEN",
  "API_KEYS",
  "API_JWT_SECRET",
  "EVENTS_SIGNING_KEY",
  "CONSOLE_PASSWORD",
  "CONSOLE_VIEWER_PASSWORD",
  "ARCHIVE_URL",
  ...callKeys,
];

const consolePasswords = ["CONSOLE_PASSWORD", "CONSOLE_VIEWER_PASSWORD"];
/** May hold the key of a collector of traces. */
const ofCollectors = ["OTEL_EXPORTER_OTLP_HEADERS"];

/** Secrets that a process has no use for stay out of its environment; tools run in `tool-runner`. */
const withheld = {
  // With the real Feishu it only serves the scripted model, so the real app is none of its business.
  playground: [...secrets, "FEISHU_APP_ID", ...ofCollectors],
  ingress: ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ARCHIVE_URL", ...consolePasswords, ...callKeys],
  "agent-worker": [
    "FEISHU_ENCRYPT_KEY",
    "FEISHU_VERIFICATION_TOKEN",
    "API_TOKEN",
    "API_KEYS",
    "API_JWT_SECRET",
    "EVENTS_SIGNING_KEY",
    ...consolePasswords,
    ...callKeys,
  ],
  "tool-runner": secrets,
  console: [...secrets.filter((name) => !consolePasswords.includes(name)), ...ofCollectors],
};

/** Of these, every bot with a name has its own, with that name behind. */
const secretsOfBots = ["FEISHU_APP_SECRET", "FEISHU_ENCRYPT_KEY", "FEISHU_VERIFICATION_TOKEN"];

/** Keys of models, those of providers in larkline.config.ts too where they are named so: workers alone need them. */
const modelKeys = "_API_KEY";

function without(env, names) {
  const isModelKey = (name) => names.includes("OPENAI_API_KEY") && name.endsWith(modelKeys);
  const bots = secretsOfBots.filter((name) => names.includes(name)).map((name) => `${name}_`);
  const isOut = (name) =>
    names.includes(name) ||
    isModelKey(name) ||
    name.startsWith("npm_") ||
    bots.some((start) => name.startsWith(start));
  return Object.fromEntries(Object.entries(env).filter(([name]) => !isOut(name)));
}

function local(port) {
  return `http://127.0.0.1:${port}`;
}

function simulatedApp({ feishu }) {
  return { FEISHU_APP_ID: feishu.appId, FEISHU_APP_SECRET: feishu.appSecret };
}

/** In one process: each runner of its own would take another 100 MB. */
const tools = [
  "@larkline/example-tools",
  "@larkline/example-tools/notes",
  "@larkline/example-tools/wait",
  "@larkline/feishu-tools",
];

/** Addresses of the parts that this start brings up itself, under the names that services read. */
function addressesOf({ plan, redisUrl, modelPort }) {
  const portOf = (service) => plan.ports.find((entry) => entry.service === service)?.port;
  return {
    REDIS_URL: redisUrl,
    MODEL: plan.model.models,
    RUNNER_NAME: "local",
    RUNNER_TOOLS: tools.join(","),
    ...(plan.feishu.kind === "simulator" && {
      ...simulatedApp(plan),
      FEISHU_DOMAIN: local(portOf("playground")),
      FEISHU_TRANSPORT: "websocket",
    }),
    ...(plan.feishu.kind === "real" && { FEISHU_DOMAIN: plan.feishu.domain }),
    ...(plan.model.kind === "scripted" && {
      ANTHROPIC_BASE_URL: local(modelPort),
      ANTHROPIC_API_KEY: "scripted",
      MODEL_PORT: String(modelPort),
    }),
  };
}

/** Whether this start has no bot, no model and no configuration of its own. */
export function isPlayground(env, { feishu, model }) {
  const isOwn = feishu.kind === "simulator" && model.kind === "scripted";
  return isOwn && !env.LARKLINE_CONFIG && !existsSync(join(home, "larkline.config.ts"));
}

/** Shows what has to be switched on, where no configuration says what is. */
function playgroundConfig(env, plan) {
  if (!isPlayground(env, plan)) return {};
  const urlOf = (name) => addressOf(plan.ports.find(({ service }) => service === name));
  return {
    LARKLINE_CONFIG: join(root, "infra/dev/playground.config.ts"),
    PLAYGROUND_CONSOLE_URL: urlOf("console"),
    PLAYGROUND_INGRESS_URL: urlOf("ingress"),
  };
}

/** What a service gets although others do not: a runner can check the calls for it, and no others. */
function ownOf(service, { plan, signingKey, grantKey, runner }) {
  if (service === "playground" && plan.feishu.kind === "simulator") {
    return { ...simulatedApp(plan), LARKLINE_DATA_DIR: dataDirectory };
  }
  if (service === "agent-worker") return { CALL_SIGNING_KEY: signingKey, GRANT_KEY: grantKey };
  return service === "tool-runner" ? { RUNNER_KEY: runnerKeyOf(signingKey, runner) } : {};
}

/** The environment of one service: that of the launcher, what this start decided, and its port. */
export function serviceEnv(service, { env, plan, redisUrl, modelPort, signingKey, grantKey }) {
  const addresses = addressesOf({ plan, redisUrl, modelPort });
  const given = Object.fromEntries(
    ["RUNNER_NAME", "RUNNER_TOOLS"].flatMap((name) => (env[name] ? [[name, env[name]]] : [])),
  );
  const all = { ...env, ...playgroundConfig(env, plan), ...addresses, ...given };
  const { host, port } = plan.ports.find((entry) => entry.service === service);
  const own = ownOf(service, { plan, signingKey, grantKey, runner: all.RUNNER_NAME });
  // Compiled code is kept between starts: each takes half the CPU. More arenas of malloc are mostly empty.
  const kept = { NODE_COMPILE_CACHE: dataFolder("compile-cache"), MALLOC_ARENA_MAX: "2" };
  return { ...kept, ...without(all, withheld[service]), ...own, HOST: host, PORT: String(port) };
}
