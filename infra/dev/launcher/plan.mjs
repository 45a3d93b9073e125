import { randomBytes } from "node:crypto";
import { Failure } from "./failure.mjs";
import { text } from "./texts.mjs";

const standardPorts = {
  playground: ["PLAYGROUND_PORT", 8004],
  ingress: ["INGRESS_PORT", 8000],
  "agent-worker": ["AGENT_WORKER_PORT", 8001],
  "tool-runner": ["TOOL_RUNNER_PORT", 8002],
  console: ["CONSOLE_PORT", 8003],
};

const standardModels = { anthropic: "anthropic/claude-sonnet-5-5", openai: "openai/gpt-6.1-sol" };

const loopback = "127.0.0.1";

/** Without a password the console is for this machine only, wherever the others listen. */
function hostOf(env, service) {
  return service === "console" && (env.CONSOLE_PASSWORD ?? "") === ""
    ? loopback
    : env.HOST || loopback;
}

function placeOf(env, service) {
  const [variable, standard] = standardPorts[service];
  const host = hostOf(env, service);
  const value = env[variable];
  if (value === undefined || value === "") return { service, variable, host, port: standard };
  const port = Number(value);
  if (!/^\d+$/.test(value) || port < 1 || port > 65_535) {
    throw new Failure(text("badPort", variable, value));
  }
  return { service, variable, host, port };
}

/** How this machine itself reaches a service. */
export function addressOf({ host, port }) {
  const name = ["0.0.0.0", "::"].includes(host) ? loopback : host;
  return `http://${name.includes(":") ? `[${name}]` : name}:${port}`;
}

function feishuOf(env) {
  const { FEISHU_APP_ID: appId = "", FEISHU_APP_SECRET: appSecret = "" } = env;
  if (appId !== "" && appSecret !== "") {
    return { kind: "real", appId, appSecret, domain: env.FEISHU_DOMAIN || "feishu" };
  }
  if (appId !== appSecret) {
    const [present, missing] =
      appId === ""
        ? ["FEISHU_APP_SECRET", "FEISHU_APP_ID"]
        : ["FEISHU_APP_ID", "FEISHU_APP_SECRET"];
    throw new Failure(text("halfPair", present, missing));
  }
  return {
    kind: "simulator",
    appId: "cli_1a2b3c4d5e6f7081",
    appSecret: randomBytes(16).toString("hex"),
  };
}

const vendors = { anthropic: "anthropic", openai: "openai", "openai-responses": "openai" };

/** Those with keys that are known here; providers of larkline.config.ts are looked at by the workers. */
function vendorsOf(models) {
  const named = models.split(",").map((entry) => vendors[entry.trim().split("/")[0]]);
  return new Set(named.filter((vendor) => vendor !== undefined));
}

const keys = { anthropic: "ANTHROPIC_API_KEY", openai: "OPENAI_API_KEY" };

function modelOf(env) {
  const available = Object.keys(keys).filter((vendor) => (env[keys[vendor]] ?? "") !== "");
  if (available.length === 0 && (env.MODEL ?? "") === "") {
    return { kind: "scripted", models: "anthropic/demo" };
  }
  const models = env.MODEL || standardModels[available[0]];
  for (const vendor of vendorsOf(models)) {
    if (!available.includes(vendor)) throw new Failure(text("keyMissing", models, keys[vendor]));
  }
  return { kind: "vendor", models, vendors: [...vendorsOf(models)] };
}

/**
 * What is to be started, decided from the environment alone. The playground runs when something
 * in it is needed: the Feishu simulator or the scripted model.
 */
export function planFrom(env) {
  const feishu = feishuOf(env);
  const model = modelOf(env);
  const services = ["ingress", "agent-worker", "tool-runner", "console"];
  if (feishu.kind === "simulator" || model.kind === "scripted") services.unshift("playground");
  const ports = services.map((service) => placeOf(env, service));
  const used = new Map();
  for (const { port, variable } of ports) {
    if (used.has(port)) throw new Failure(text("samePort", used.get(port), variable, port));
    used.set(port, variable);
  }
  return { feishu, model, ports, redisUrl: env.REDIS_URL || undefined };
}
