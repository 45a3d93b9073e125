const secrets = [
  "FEISHU_APP_SECRET",
  "FEISHU_ENCRYPT_KEY",
  "FEISHU_VERIFICATION_TOKEN",
  "ANTHROPIC_API_KEY",
  "OPENAI_API_KEY",
  "API_TOKEN",
  "CONSOLE_PASSWORD",
];

/** Secrets that a process has no use for stay out of its environment; tools run in `tool-runner`. */
const withheld = {
  playground: secrets.filter((name) => name !== "FEISHU_APP_SECRET" && name !== "API_TOKEN"),
  ingress: ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CONSOLE_PASSWORD"],
  "agent-worker": ["FEISHU_ENCRYPT_KEY", "FEISHU_VERIFICATION_TOKEN", "API_TOKEN", "CONSOLE_PASSWORD"],
  "tool-runner": secrets,
};

function without(env, names) {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !names.includes(name) && !name.startsWith("npm_")));
}

function local(port) {
  return `http://127.0.0.1:${port}`;
}

/** Addresses of the parts that this start brings up itself, under the names that services read. */
function addressesOf({ plan, redisUrl, modelPort }) {
  const portOf = (service) => plan.ports.find((entry) => entry.service === service)?.port;
  return {
    HOST: plan.host,
    REDIS_URL: redisUrl,
    MODEL: plan.model.models,
    RUNNER_NAME: "local",
    RUNNER_TOOLS: "packages/example-tools/src/index.ts",
    ...(plan.feishu.kind === "simulator" && {
      FEISHU_APP_ID: plan.feishu.appId,
      FEISHU_APP_SECRET: plan.feishu.appSecret,
      FEISHU_DOMAIN: local(portOf("playground")),
      FEISHU_TRANSPORT: "websocket",
    }),
    ...(plan.feishu.kind === "real" && { FEISHU_DOMAIN: plan.feishu.domain }),
    ...(plan.model.kind === "scripted" && { ANTHROPIC_BASE_URL: local(modelPort), ANTHROPIC_API_KEY: "scripted" }),
    INGRESS_URL: local(portOf("ingress")),
    MODEL_PORT: String(modelPort),
  };
}

/** The environment of one service: that of the launcher, what this start decided, and its port. */
export function serviceEnv(service, { env, plan, redisUrl, modelPort }) {
  const addresses = addressesOf({ plan, redisUrl, modelPort });
  const given = Object.fromEntries(
    ["RUNNER_NAME", "RUNNER_TOOLS"].flatMap((name) => (env[name] ? [[name, env[name]]] : [])),
  );
  const { port } = plan.ports.find((entry) => entry.service === service);
  return without({ ...env, ...addresses, ...given, PORT: String(port) }, withheld[service]);
}
