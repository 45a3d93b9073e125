import { existsSync } from "node:fs";
import {
  loadConfigFile,
  readModelNames,
  readProviders,
  type Env,
  type KnownModels,
  type LarklineConfig,
} from "@larkline/process/config";
import { redisUrlProblem } from "@larkline/store";
import type { Deployment } from "./config.ts";
import { within } from "./deadline.ts";
import type { EnvFile } from "./env-file.ts";
import { ok, problem, warning, type Finding } from "./finding.ts";

const oldestNode = 24;
const configDeadlineMs = 5_000;

export function checkNode(version: string): Finding {
  const text = { zh: `Node ${version}`, en: `Node ${version}` };
  if (Number.parseInt(version, 10) >= oldestNode) return ok("node", text);
  return problem("node", text, {
    zh: `需要 Node ${oldestNode} 或更新版本；用 npm run doctor 启动会使用锁定的版本。`,
    en: `Node ${oldestNode} or newer is needed; npm run doctor uses the pinned one.`,
  });
}

function fileFindings(file: EnvFile): Finding[] {
  const findings: Finding[] = [];
  const { path, unreadable, repeated } = file;
  if (unreadable.length > 0) {
    const lines = unreadable.join(", ");
    findings.push(
      problem(
        "env.lines",
        { zh: `${path} 中有无法识别的行：第 ${lines} 行`, en: `${path} has lines that mean nothing: ${lines}` },
        { zh: "每行写作 NAME=value，或以 # 开头。", en: "Write NAME=value on each line, or begin it with #." },
      ),
    );
  }
  if (repeated.length > 0) {
    const names = repeated.join(", ");
    findings.push(
      warning(
        "env.repeated",
        { zh: `${path} 中重复设置：${names}`, en: `${path} sets more than once: ${names}` },
        { zh: "只有最后一个有效，请删除其余的。", en: "Only the last one counts: remove the others." },
      ),
    );
  }
  if (file.open) {
    findings.push(
      warning(
        "env.mode",
        { zh: `本机其他用户可以读取 ${path}`, en: `Others on this machine may read ${path}` },
        { zh: `运行 chmod 600 ${path}`, en: `Run chmod 600 ${path}` },
      ),
    );
  }
  return findings;
}

/** What is wrong with the variables, wherever they come from. */
export function checkEnvironment(file: EnvFile, deployment: Deployment): Finding[] {
  const findings = file.exists ? fileFindings(file) : [];
  const redis = deployment.redisUrl === undefined ? undefined : redisUrlProblem(deployment.redisUrl);
  const problems = redis === undefined ? deployment.problems : [...deployment.problems, redis];
  for (const text of problems) {
    findings.push(
      problem(
        "env.value",
        { zh: text, en: text },
        { zh: `在 ${file.path} 或环境变量中更正。`, en: `Correct it in ${file.path} or in the environment.` },
      ),
    );
  }
  if (findings.some(({ status }) => status === "problem")) return findings;
  const count = Object.keys(file.values).length;
  const text = file.exists
    ? { zh: `${file.path}：${count} 个变量，全部有效`, en: `${file.path}: ${count} variables, all valid` }
    : { zh: "没有 .env，只使用环境变量", en: "No .env: only the environment counts" };
  return [ok("env", text), ...findings];
}

export interface ConfigCheck {
  findings: Finding[];
  config?: LarklineConfig;
}

/** Loads `larkline.config.ts` as the processes do. */
export async function checkConfigFile(path: string | undefined): Promise<ConfigCheck> {
  const name = path ?? "larkline.config.ts";
  const loaded = await within(configDeadlineMs, async () => await loadConfigFile(path)).catch((error: unknown) => ({
    ok: false as const,
    error: error instanceof Error ? error.message : String(error),
  }));
  if (loaded.ok) {
    const text = existsSync(name)
      ? { zh: `${name} 有效`, en: `${name} is valid` }
      : { zh: `没有 ${name}，使用默认值`, en: `No ${name}: the defaults count` };
    return { config: loaded.value, findings: [ok("config", text)] };
  }
  const finding = problem(
    "config",
    { zh: `${name} 无效：${loaded.error}`, en: `${name} is not valid: ${loaded.error}` },
    { zh: "按提示更正该文件。", en: "Correct the file as described." },
  );
  return { findings: [finding] };
}

/** The vendors that the configured models need. */
export type Vendor = "anthropic" | "openai";

/** The models of `MODEL` and of the agents: whether all are known, and have their keys. */
export function checkModelChoice(deployment: Deployment, config: LarklineConfig | undefined, env: Env): Finding[] {
  const agents = Object.values(config?.agents ?? {}).flatMap(({ model, models }) => [
    ...(model === null ? [] : [model]),
    ...models,
  ]);
  const lists = [...(deployment.models === undefined ? [] : [deployment.models]), ...agents];
  const providers = readProviders(env, config?.providers ?? {});
  if (!providers.ok) return []; // the environment's findings have named it
  if (Object.values(providers.value).every(({ keyEnv, apiKey }) => keyEnv !== undefined && apiKey === undefined)) {
    const text =
      lists.length === 0
        ? {
            zh: "没有设置模型密钥：npm start 会使用脚本模型",
            en: "No model key is set: npm start uses the scripted model",
          }
        : {
            zh: `配置了模型 ${lists.join(", ")}，但没有密钥`,
            en: `${lists.join(", ")} is configured, but no key is set`,
          };
    const advice = { zh: "设置 ANTHROPIC_API_KEY 或 OPENAI_API_KEY。", en: "Set ANTHROPIC_API_KEY or OPENAI_API_KEY." };
    return [lists.length === 0 ? warning("model.key", text, advice) : problem("model.key", text, advice)];
  }
  return lists.flatMap((list) => choiceFindings(list, { providers: providers.value, models: config?.models ?? [] }));
}

function choiceFindings(list: string, known: KnownModels): Finding[] {
  const read = readModelNames(list, known);
  if (read.ok) return [];
  const isKey = / needs [A-Z]/.test(read.error);
  const text = { zh: `模型配置有误：${read.error}`, en: `The models are named wrongly: ${read.error}` };
  const advice = {
    zh: "设置该密钥，或更正模型名称：<provider>/<model id>。",
    en: "Set that key, or correct the name: <provider>/<model id>.",
  };
  return [problem(isKey ? "model.key" : "model.name", text, advice)];
}
