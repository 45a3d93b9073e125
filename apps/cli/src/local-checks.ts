import { existsSync } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { panelCommands } from "@larkline/agent/commands";
import type { PanelEntry } from "@larkline/feishu";
import {
  botVariable,
  type Env,
  type KnownModels,
  type LarklineConfig,
  loadConfigFile,
  loadModelModules,
  openDoors,
  profileOfModel,
  readIngressBots,
  readModelNames,
  readProviders,
  readTriggerSecrets,
} from "@larkline/process/config";
import { withDeadline, type Clock } from "@larkline/protocol/clock";
import { runnerKeyOf } from "@larkline/protocol/runner";
import { redisUrlProblem } from "@larkline/store/redis";
import type { Bilingual, Deployment, EnvFile, FeishuAccess } from "./config.ts";
import { type Finding, ok, problem, skipped, warning } from "./finding.ts";

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
        {
          zh: `${path} 中有无法识别的行：第 ${lines} 行`,
          en: `${path} has lines that mean nothing: ${lines}`,
        },
        {
          zh: "每行写作 NAME=value，或以 # 开头。",
          en: "Write NAME=value on each line, or begin it with #.",
        },
      ),
    );
  }
  if (repeated.length > 0) {
    const names = repeated.join(", ");
    findings.push(
      warning(
        "env.repeated",
        { zh: `${path} 中重复设置：${names}`, en: `${path} sets more than once: ${names}` },
        {
          zh: "只有最后一个有效，请删除其余的。",
          en: "Only the last one counts: remove the others.",
        },
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
  const redis =
    deployment.redisUrl === undefined ? undefined : redisUrlProblem(deployment.redisUrl);
  const problems = redis === undefined ? deployment.problems : [...deployment.problems, redis];
  for (const text of problems) {
    findings.push(
      problem(
        "env.value",
        { zh: text, en: text },
        {
          zh: `在 ${file.path} 或环境变量中更正。`,
          en: `Correct it in ${file.path} or in the environment.`,
        },
      ),
    );
  }
  if (findings.some(({ status }) => status === "problem")) return findings;
  const count = Object.keys(file.values).length;
  const text = file.exists
    ? {
        zh: `${file.path}：${count} 个变量，全部有效`,
        en: `${file.path}: ${count} variables, all valid`,
      }
    : { zh: "没有 .env，只使用环境变量", en: "No .env: only the environment counts" };
  return [ok("env", text), ...findings];
}

interface ConfigCheck {
  findings: Finding[];
  config?: LarklineConfig;
}

/** Loads `larkline.config.ts` as the processes do. */
export async function checkConfigFile(
  clock: Clock,
  path: string | undefined,
): Promise<ConfigCheck> {
  const name = path ?? "larkline.config.ts";
  const loaded = await withDeadline(clock, loadConfigFile(path), configDeadlineMs).catch(
    (error: unknown) => ({
      ok: false as const,
      error: error instanceof Error ? error.message : String(error),
    }),
  );
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
export function checkModelChoice(
  deployment: Deployment,
  config: LarklineConfig | undefined,
  env: Env,
): Finding[] {
  const agents = Object.values(config?.agents ?? {}).flatMap(({ model, models }) => [
    ...(model === null ? [] : [model]),
    ...models,
  ]);
  const lists = [...(deployment.models === undefined ? [] : [deployment.models]), ...agents];
  const providers = readProviders(env, config?.providers ?? {});
  if (!providers.ok) return []; // the environment's findings have named it
  if (
    Object.values(providers.value).every(
      ({ keyEnv, apiKey }) => keyEnv !== undefined && apiKey === undefined,
    )
  ) {
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
    const advice = {
      zh: "设置 ANTHROPIC_API_KEY 或 OPENAI_API_KEY。",
      en: "Set ANTHROPIC_API_KEY or OPENAI_API_KEY.",
    };
    return [
      lists.length === 0 ? warning("model.key", text, advice) : problem("model.key", text, advice),
    ];
  }
  return lists.flatMap((list) =>
    choiceFindings(list, { providers: providers.value, models: config?.models ?? [] }),
  );
}

/** Modules that answer as models, which are loaded as the workers do, and what is added to requests: names, no values. */
export async function checkModelAdditions(
  config: LarklineConfig | undefined,
  env: Env,
): Promise<Finding[]> {
  const providers = readProviders(env, config?.providers ?? {});
  if (config === undefined || !providers.ok) return [];
  const loaded = await loadModelModules(providers.value);
  const names = loaded.ok ? [...loaded.value.keys()] : [];
  const modules = names.map((name) =>
    ok("model.module", {
      zh: `供应商 ${name} 的模块可以加载`,
      en: `The module of the provider ${name} can be loaded`,
    }),
  );
  const broken = loaded.ok
    ? []
    : [
        problem(
          "model.module",
          { zh: loaded.error, en: loaded.error },
          { zh: "更正该模块或其路径。", en: "Correct the module or its path." },
        ),
      ];
  const added = [
    ...Object.entries(config.providers).map(
      ([name, { extra = {} }]) => [`providers.${name}`, extra] as const,
    ),
    ...Object.values(config.agents).flatMap(({ name, extra }) =>
      Object.entries(extra).map(([provider, of]) => [`agents.${name} (${provider})`, of] as const),
    ),
  ].flatMap(([where, { body = {}, headers = {} }]) => {
    const fields = [...Object.keys(body), ...Object.keys(headers)].join(", ");
    const text = {
      zh: `${where} 的请求另带 ${fields}`,
      en: `Requests of ${where} also carry ${fields}`,
    };
    return fields === "" ? [] : [ok("model.extra", text)];
  });
  const hosted = Object.values(config.agents).flatMap(({ name, hostedTools }) =>
    Object.entries(hostedTools).map(([provider, tools]) => {
      const types = tools.map(({ type }) => String(type)).join(", ");
      const text = {
        zh: `${name} 可用 ${provider} 的工具 ${types}`,
        en: `${name} may use ${types} of ${provider}`,
      };
      return ok("model.hosted", text);
    }),
  );
  return [...modules, ...broken, ...added, ...hosted];
}

function choiceFindings(list: string, known: KnownModels): Finding[] {
  const read = readModelNames(list, known);
  if (read.ok) return read.value.flatMap((choice) => profileFindings(choice, known));
  const isKey = / needs [A-Z]/.test(read.error);
  const text = {
    zh: `模型配置有误：${read.error}`,
    en: `The models are named wrongly: ${read.error}`,
  };
  const advice = {
    zh: "设置该密钥，或更正模型名称：<provider>/<model id>。",
    en: "Set that key, or correct the name: <provider>/<model id>.",
  };
  return [problem(isKey ? "model.key" : "model.name", text, advice)];
}

/** The dialect that a model of a server of one's own is asked in: a wrong one would show as odd answers. */
function profileFindings(
  { provider, id }: { provider: string; id: string },
  { providers }: KnownModels,
): Finding[] {
  const access = providers[provider];
  if (access?.baseUrl === undefined) return [];
  const { name } = profileOfModel(access, id) ?? {};
  if (name === undefined) return [];
  const text = {
    zh: `模型 ${provider}/${id} 按 ${name} 的方言访问`,
    en: `${provider}/${id} is asked by the profile ${name}`,
  };
  return [ok("model.profile", text)];
}

/** A bot whose app can be looked at. */
export interface CheckedBot {
  /** `default` is the bot of `FEISHU_APP_ID`. */
  name: string;
  access: FeishuAccess;
}

/** The commands of a bot's panel: the built-in ones, and those of its own agent. */
export function panelOf(name: string, config: LarklineConfig): PanelEntry[] {
  const agent = config.agents[config.bots[name]?.agent ?? "default"];
  return panelCommands(agent?.commands);
}

/** The bots that have a name in the configuration; without their secrets there are none to look at. */
export function namedBots(
  env: Env,
  config: LarklineConfig | undefined,
  first: FeishuAccess | undefined,
): { bots: CheckedBot[]; findings: Finding[] } {
  if (config === undefined) return { bots: [], findings: [] };
  const bots = Object.values(config.bots);
  const shared = bots.filter(({ app }) => app !== undefined && app.id === first?.appId);
  const read = readIngressBots(env, config.bots);
  const problems = [
    ...shared.map(
      ({ name }) => `FEISHU_APP_ID is also the appId of bots.${name}: each bot is named once.`,
    ),
    ...(read.ok ? [] : read.error.split("\n")),
  ];
  const findings = problems.map((text) =>
    problem(
      "bots",
      { zh: text, en: text },
      { zh: "在 .env 或环境变量中更正。", en: "Correct it in .env." },
    ),
  );
  const accesses = read.ok ? read.value : [];
  return {
    findings,
    bots: accesses.map(
      ({ name, websocket, webhook, encryptKey, verificationToken, ...access }) => ({
        name,
        access: {
          ...access,
          transport: websocket ? (webhook ? "both" : "websocket") : "webhook",
          ...(encryptKey === undefined ? {} : { encryptKey }),
          ...(verificationToken === undefined ? {} : { verificationToken }),
        },
      }),
    ),
  };
}

const keyOf: Readonly<Record<string, string>> = {
  FEISHU_APP_ID: "appId",
  FEISHU_DOMAIN: "domain",
  FEISHU_TRANSPORT: "transport",
};

/** Findings speak of the variables of the first bot; another one has its own, and keys of the configuration. */
function renamed({ zh, en }: Bilingual, bot: string): Bilingual {
  const rename = (text: string): string =>
    text.replaceAll(/FEISHU_[A-Z_]+/g, (variable) => {
      const key = keyOf[variable];
      return key === undefined ? botVariable(variable, bot) : `bots.${bot}.${key}`;
    });
  return { zh: rename(zh), en: rename(en) };
}

/** What was found about one bot, saying which. */
export function ofBot(bot: string, findings: readonly Finding[]): Finding[] {
  if (bot === "default") return [...findings];
  return findings.map(({ text, advice, ...finding }) => ({
    ...finding,
    text: renamed({ zh: `机器人 ${bot}：${text.zh}`, en: `Bot ${bot}: ${text.en}` }, bot),
    ...(advice === undefined ? {} : { advice: renamed(advice, bot) }),
  }));
}

/** Shorter ones could be guessed; workers refuse them. */
export const shortestKey = 32;

/** What to do where there is none. */
export const noSigningKey: Bilingual = {
  zh: "没有密钥：请设置 CALL_SIGNING_KEY（与 agent-worker 相同），或先运行一次 npm start。",
  en: "There is no key: set CALL_SIGNING_KEY, as the workers have it, or run npm start once.",
};

/** The key that `npm start` has made. */
interface StoredKey {
  path: string;
  key: string;
  /** Other users of this machine may read it. */
  open: boolean;
}

/** Undefined when there is none. Rejects when it cannot be read. */
export async function readStoredKey(dataDirectory: string): Promise<StoredKey | undefined> {
  const path = join(dataDirectory, "signing-key");
  try {
    const [key, { mode }] = [(await readFile(path, "utf8")).trim(), await stat(path)];
    return { path, key, open: (mode & 0o077) !== 0 };
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

function storedFinding(stored: StoredKey | undefined): Finding {
  if (stored === undefined) {
    return skipped("keys", {
      zh: "没有设置 CALL_SIGNING_KEY：npm start 会自己生成",
      en: "CALL_SIGNING_KEY is not set: npm start makes one",
    });
  }
  if (stored.open) {
    return warning(
      "keys",
      {
        zh: `本机其他用户可以读取 ${stored.path}`,
        en: `Others on this machine may read ${stored.path}`,
      },
      { zh: `运行 chmod 600 ${stored.path}`, en: `Run chmod 600 ${stored.path}` },
    );
  }
  return ok("keys", {
    zh: `调用使用 ${stored.path} 签名`,
    en: `Calls are signed with ${stored.path}`,
  });
}

/** Whether workers and runners of this deployment trust each other. Without a key of their own only those of `npm start` do. */
export function keyFindings(
  { signingKey, runnerKey, runner }: Pick<Deployment, "signingKey" | "runnerKey" | "runner">,
  stored: StoredKey | undefined,
): Finding[] {
  if (signingKey !== undefined && signingKey.length < shortestKey) {
    return [
      problem(
        "keys",
        {
          zh: `CALL_SIGNING_KEY 少于 ${shortestKey} 个字符`,
          en: `CALL_SIGNING_KEY has fewer than ${shortestKey} characters`,
        },
        { zh: "使用 openssl rand -hex 32 生成一个。", en: "Make one with openssl rand -hex 32." },
      ),
    ];
  }
  const key = signingKey ?? stored?.key;
  if (runnerKey !== undefined && key !== undefined && runnerKey !== runnerKeyOf(key, runner)) {
    return [
      problem(
        "keys",
        {
          zh: `RUNNER_KEY 不是 ${runner} 的密钥，它的调用都会被拒绝`,
          en: `RUNNER_KEY is not that of ${runner}: it would refuse every call`,
        },
        {
          zh: `设为 npm run runner-key -- ${runner} 的输出，或更正 RUNNER_NAME。`,
          en: `Set it to what npm run runner-key -- ${runner} prints, or correct RUNNER_NAME.`,
        },
      ),
    ];
  }
  if (signingKey === undefined) return [storedFinding(stored)];
  return [
    ok("keys", {
      zh: "调用使用 CALL_SIGNING_KEY 签名",
      en: "Calls are signed with CALL_SIGNING_KEY",
    }),
  ];
}

const grantKeyForm = /^[0-9a-f]{64}$/i;

/** Whether workers can keep what people grant; `npm start` makes a key of its own, so only one that is set can be wrong. */
export function grantKeyFindings({
  grantKey,
  signingKey,
}: Pick<Deployment, "grantKey" | "signingKey">): Finding[] {
  if (grantKey === undefined) {
    if (signingKey === undefined) return [];
    const words = {
      zh: "没有设置 GRANT_KEY：不提供以人的身份操作的工具",
      en: "GRANT_KEY is not set: tools that act as people are not offered",
    };
    return [skipped("grants", words)];
  }
  if (grantKey.split(",").every((key) => grantKeyForm.test(key.trim()))) {
    return [ok("grants", { zh: "GRANT_KEY 的格式正确", en: "GRANT_KEY has the right form" })];
  }
  return [
    problem(
      "grants",
      { zh: "GRANT_KEY 不是 64 个十六进制数字", en: "GRANT_KEY is not 64 hexadecimal digits" },
      {
        zh: "使用 openssl rand -hex 32 生成；更换时把新的写在旧的前面，用逗号隔开。",
        en: "Make one with openssl rand -hex 32; to change it, put the new key before the old one, with a comma between.",
      },
    ),
  ];
}

/** The ways in besides messages that the configuration opens, and whether their secrets are there. */
export function doorFindings(env: Env, { doors }: LarklineConfig): Finding[] {
  const open = openDoors(doors);
  if (open.length === 0) return [];
  const secrets = readTriggerSecrets(env, doors);
  if (!secrets.ok) {
    const text = { zh: secrets.error, en: secrets.error };
    const advice = {
      zh: "用 openssl rand -hex 32 生成，并告诉发送方。",
      en: "Make one with openssl rand -hex 32, and give it to the sender.",
    };
    return [problem("doors", text, advice)];
  }
  const names = open.map(({ name, what }) => `${name} (${what})`).join("; ");
  return [ok("doors", { zh: `已打开的入口：${names}`, en: `Open doors: ${names}` })];
}

/** Whether people who wait for events of theirs are subscribed to them. Nothing where none is missing. */
export function subscriptionFindings(
  lacking: { count: number; events: readonly string[] } | undefined,
): Finding[] {
  if (lacking === undefined || lacking.count === 0) return [];
  const { count } = lacking;
  const events = lacking.events.join(", ");
  const text = {
    zh: `${count} 个人的事件订阅缺失（${events}），他们的定时任务收不到这些事件`,
    en: `${count} subscriptions of people are missing (${events}): their schedules get no such events`,
  };
  const advice = {
    zh: "缺少授权的人已收到消息；其余会重试，原因见 agent-worker 的日志。",
    en: "People whose permission is missing have read so; the others are tried again, the worker's log says why.",
  };
  return [warning("doors.personal", text, advice)];
}
