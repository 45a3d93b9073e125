import type { RunnerAnnouncement } from "@larkline/protocol/runner";
import { readResultName } from "@larkline/protocol/tool";
import {
  addedModelNames,
  addedProviderProblem,
  agentBounds,
  agentHash,
  coveredFields,
  type LarklineConfig,
  nearestName,
} from "@larkline/process/config";
import type { AgentVersion, ListedProvider, RedisServerFacts } from "@larkline/store/operations";
import type { ToolClash } from "@larkline/store/runners";
import type { Bilingual, VendorAccess } from "./config.ts";
import { type Finding, ok, problem, skipped, warning } from "./finding.ts";
import type { Vendor } from "./local-checks.ts";

const oldestVersion = 7;
const slowPingMs = 10;

/** `host:port` of an address, without user and password, which may also be parameters. */
export function shownRedis(url: string): string {
  return url
    .replace(/^[^/]*\/\//, "")
    .replace(/^.*@/, "")
    .replace(/[?#].*$/, "");
}

export function unreachableRedis(url: string, reason: string): Finding {
  const shown = shownRedis(url);
  return problem(
    "redis.reach",
    {
      zh: `${shown} 上的 Redis 没有应答（${reason}）`,
      en: `Redis at ${shown} does not answer (${reason})`,
    },
    {
      zh: "启动 Redis，或更正 REDIS_URL（地址、端口、密码）；本机试用可取消 REDIS_URL，由 npm start 自己运行。",
      en: "Start it, or correct REDIS_URL (address, port, password); on one machine, unset it and npm start runs its own.",
    },
  );
}

function versionFinding({ product, version }: RedisServerFacts): Finding {
  const name = product === "redis" ? "Redis" : "Valkey";
  const text = { zh: `${name} ${version}`, en: `${name} ${version}` };
  if (Number.parseInt(version, 10) >= oldestVersion) return ok("redis.version", text);
  return problem("redis.version", text, {
    zh: `需要 Redis ${oldestVersion} 或更新版本，或 Valkey 8。`,
    en: `Redis ${oldestVersion} or newer, or Valkey 8, is needed.`,
  });
}

function evictionFinding({ evictionPolicy }: RedisServerFacts): Finding {
  const text = {
    zh: `maxmemory-policy 为 ${evictionPolicy}`,
    en: `maxmemory-policy is ${evictionPolicy}`,
  };
  if (evictionPolicy === "noeviction") return ok("redis.eviction", text);
  return problem("redis.eviction", text, {
    zh: "内存不足时 Redis 会丢弃消息和会话：运行 CONFIG SET maxmemory-policy noeviction 并写入配置文件。",
    en: "Short of memory, Redis would drop messages and sessions: CONFIG SET maxmemory-policy noeviction, and in its file.",
  });
}

function persistenceFinding({ appendOnly, appendFsync }: RedisServerFacts): Finding {
  const fsync = appendFsync === undefined ? "" : `, appendfsync ${appendFsync}`;
  const state = `appendonly ${appendOnly ? "yes" : "no"}${fsync}`;
  const text = { zh: state, en: state };
  if (appendOnly && appendFsync !== "no") return ok("redis.persistence", text);
  return warning("redis.persistence", text, {
    zh: "Redis 重启会丢失已确认的消息：设置 appendonly yes 和 appendfsync everysec。",
    en: "A restart of Redis would lose acknowledged messages: set appendonly yes and appendfsync everysec.",
  });
}

/** A server without replicas has no failover that could lose anything. */
function replicaFindings({ replicas, needsReplica }: RedisServerFacts): Finding[] {
  if (replicas === 0) return [];
  const text = { zh: `${replicas} 个副本`, en: `${replicas} replica(s)` };
  if (needsReplica) return [ok("redis.replicas", text)];
  const advice = {
    zh: "故障切换会丢失副本尚未收到的写入，包括已确认的消息：设置 min-replicas-to-write 1（见 docs/reliability.md）。",
    en: "A failover loses what no replica has got, acknowledged messages too: set min-replicas-to-write 1 (docs/reliability.md).",
  };
  return [warning("redis.replicas", text, advice)];
}

function latencyFinding({ pingMs }: RedisServerFacts): Finding {
  const shown = pingMs.toFixed(1);
  const text = {
    zh: `Redis 往返 ${shown} ms（中位数）`,
    en: `Redis answers in ${shown} ms (median)`,
  };
  if (pingMs <= slowPingMs) return ok("redis.latency", text);
  return warning("redis.latency", text, {
    zh: "每条消息需要数十次往返：把进程放到 Redis 附近。",
    en: "Each message takes dozens of round trips: run the processes closer to Redis.",
  });
}

/** What the facts of a server mean for a deployment. */
export function redisFindings(facts: RedisServerFacts): Finding[] {
  const kept = [evictionFinding(facts), persistenceFinding(facts), ...replicaFindings(facts)];
  return [versionFinding(facts), ...kept, latencyFinding(facts)];
}

/** A runner and the tools that its processes offer. */
export interface AnnouncedRunner {
  runner: string;
  instances: number;
  /** Absent: only known to be ready. */
  tools?: readonly string[];
  /** Where its programs of models run. */
  sandbox?: RunnerAnnouncement["sandbox"];
}

/** A tool whose schema no vendor of models takes. */
export interface NotOffered {
  tool: string;
  why: string;
}

/** What runs. Absent: it could not be found out. */
export interface Running {
  /** Whether the ingress of this machine is ready; absent: no answer. */
  ingress?: boolean;
  workers?: number;
  runners?: readonly AnnouncedRunner[];
  /** Names of the tools that are offered, those of runners that are away for a moment too. */
  tools?: readonly string[];
  /** Names that runners offer although they belong to others. */
  clashes?: readonly ToolClash[];
  notOffered?: readonly NotOffered[];
}

/** Asks a process of this machine whether it is ready; undefined without an answer. */
export async function readyOf(url: string, signal: AbortSignal): Promise<boolean | undefined> {
  try {
    const response = await fetch(url, { signal, redirect: "error" });
    await response.body?.cancel();
    return response.status === 200;
  } catch {
    return undefined;
  }
}

function ingressFinding(ready: boolean | undefined): Finding {
  if (ready === true) {
    return ok("running.ingress", { zh: "ingress 已就绪", en: "The ingress is ready" });
  }
  if (ready === undefined) {
    return skipped("running.ingress", {
      zh: "本机没有 ingress，未检查",
      en: "No ingress on this machine, not checked",
    });
  }
  return problem(
    "running.ingress",
    { zh: "ingress 未就绪", en: "The ingress is not ready" },
    {
      zh: "查看它的日志；通常是 Redis 没有应答。",
      en: "See its log; usually Redis does not answer.",
    },
  );
}

function workerFinding(workers: number | undefined): Finding {
  if (workers === undefined) {
    return skipped("running.workers", {
      zh: "agent-worker 未检查",
      en: "The agent-workers were not checked",
    });
  }
  if (workers > 0) {
    return ok("running.workers", {
      zh: `${workers} 个 agent-worker 在运行`,
      en: `${workers} agent-worker(s) alive`,
    });
  }
  return problem(
    "running.workers",
    {
      zh: "没有运行中的 agent-worker，消息不会得到回答",
      en: "No agent-worker is alive: messages are not answered",
    },
    {
      zh: "启动一个 agent-worker，并核对它的 REDIS_URL 和 REDIS_NAMESPACE。",
      en: "Start an agent-worker, with this REDIS_URL and REDIS_NAMESPACE.",
    },
  );
}

function runnerFindings(runners: readonly AnnouncedRunner[] | undefined): Finding[] {
  if (runners === undefined) {
    return [
      skipped("running.runners", {
        zh: "tool-runner 未检查",
        en: "The tool-runners were not checked",
      }),
    ];
  }
  if (runners.length === 0) {
    return [
      warning(
        "running.runners",
        {
          zh: "没有 tool-runner，机器人无法使用工具",
          en: "No tool-runner is announced: the bot has no tools",
        },
        {
          zh: "启动一个 tool-runner，并核对它的 REDIS_URL 和 REDIS_NAMESPACE。",
          en: "Start a tool-runner, with this REDIS_URL and REDIS_NAMESPACE.",
        },
      ),
    ];
  }
  return runners.flatMap(({ runner, instances, tools, sandbox }) => {
    const list =
      tools === undefined
        ? { zh: "", en: "" }
        : { zh: `：${tools.join("、")}`, en: `: ${tools.join(", ")}` };
    const found = ok("running.runners", {
      zh: `tool-runner ${runner}（${instances} 个进程）${list.zh}`,
      en: `tool-runner ${runner} (${instances} process(es))${list.en}`,
    });
    return sandbox === undefined ? [found] : [found, sandboxFinding(runner, sandbox)];
  });
}

/** In a cluster a kernel of their own is better for programs of models than a sandbox alone. */
function sandboxFinding(
  runner: string,
  { tier, runtimeClass }: NonNullable<AnnouncedRunner["sandbox"]>,
): Finding {
  if (runtimeClass === "none") {
    return warning(
      "running.runners",
      {
        zh: `tool-runner ${runner} 在沙箱（${tier}）里运行模型写的程序，但它的容器与其他容器共用内核`,
        en: `tool-runner ${runner} runs programs of models in a sandbox (${tier}), in a pod that shares its kernel with others`,
      },
      {
        zh: "如果集群有自带内核的 runtime class（如 Kata），用 npm run k8s-files -- --runtime-class <名称> 指定它。",
        en: "If the cluster has a runtime class with a kernel of its own (Kata), name it: npm run k8s-files -- --runtime-class <name>.",
      },
    );
  }
  const inside = runtimeClass === undefined ? "" : ` (${runtimeClass})`;
  return ok("running.runners", {
    zh: `tool-runner ${runner} 在沙箱（${tier}）里运行模型写的程序${inside}`,
    en: `tool-runner ${runner} runs programs of models in a sandbox (${tier})${inside}`,
  });
}

/** Tools that agents name and no runner offers: a warning, since runners come and go. */
function toolFindings(
  tools: readonly string[] | undefined,
  config: LarklineConfig | undefined,
): Finding[] {
  if (config === undefined || tools === undefined) return [];
  const offered = [...tools, readResultName];
  const wanted = new Set(Object.values(config.agents).flatMap(({ tools: names }) => names ?? []));
  const missing = [...wanted].filter((tool) => !offered.includes(tool));
  if (missing.length === 0) return [];
  const zh = missing
    .map((tool) => `${tool}${near(tool, offered, (name) => `（是否指 ${name}？）`)}`)
    .join("、");
  const en = missing
    .map((tool) => `${tool}${near(tool, offered, (name) => ` (did you mean ${name}?)`)}`)
    .join(", ");
  return [
    warning(
      "running.tools",
      {
        zh: `配置的工具没有 tool-runner 提供：${zh}`,
        en: `No tool-runner offers the configured tools: ${en}`,
      },
      {
        zh: "更正 larkline.config.ts 中的名称，或启动提供它们的 tool-runner（RUNNER_TOOLS）。",
        en: "Correct the names in larkline.config.ts, or start a tool-runner that offers them (RUNNER_TOOLS).",
      },
    ),
  ];
}

/** `why`: in English, as the log has it. */
function notOfferedFinding({ tool, why }: NotOffered): Finding {
  const text = {
    zh: `工具 ${tool} 无法提供给模型：${why}`,
    en: `No model is offered the tool ${tool}: ${why}`,
  };
  const advice = {
    zh: "工具的参数必须是 JSON 对象：更正它的 schema。",
    en: "The arguments of a tool are a JSON object: correct its schema.",
  };
  return warning("running.schemas", text, advice);
}

function near(tool: string, offered: readonly string[], words: (name: string) => string): string {
  const name = nearestName(tool, offered);
  return name === undefined ? "" : words(name);
}

/** Whose names runners use: a mistake of the deployment, or a stolen runner. */
function clashFindings(clashes: readonly ToolClash[]): Finding[] {
  return clashes.map(({ tool, owner, runner }) =>
    warning(
      "running.owners",
      {
        zh: `tool-runner ${runner} 声明了工具 ${tool}，但这个名称属于 ${owner}，因此不使用`,
        en: `tool-runner ${runner} offers ${tool}, a name that belongs to ${owner}; it is not used`,
      },
      {
        zh: `如果它应属于 ${runner}：在 larkline.config.ts 的 runners.${runner}.tools 中写明，或停止 ${owner} 后运行 npm run runner -- remove ${owner}。否则请检查 ${runner} 是否被盗用。`,
        en: `If it should be ${runner}'s, say so in larkline.config.ts (runners.${runner}.tools), or stop ${owner} and run npm run runner -- remove ${owner}. Otherwise find out whether ${runner} was stolen.`,
      },
    ),
  );
}

/** Nothing at all is no problem of the deployment: it was not started. */
export function runningFindings(running: Running, config: LarklineConfig | undefined): Finding[] {
  const { ingress, workers = 0, runners = [] } = running;
  if (ingress === undefined && workers === 0 && runners.length === 0) {
    return [
      warning(
        "running",
        { zh: "Larkline 没有在运行", en: "Larkline is not running" },
        { zh: "运行 npm start。", en: "Run npm start." },
      ),
    ];
  }
  return [
    ingressFinding(ingress),
    workerFinding(running.workers),
    ...runnerFindings(running.runners),
    ...toolFindings(running.tools, config),
    ...clashFindings(running.clashes ?? []),
    ...(running.notOffered ?? []).map(notOfferedFinding),
  ];
}

const maxDifferenceMs = 5_000;

interface ClockOffsets {
  /** Another clock minus that of this machine, in ms; absent when it could not be read. */
  redisMs?: number;
  feishuMs?: number;
}

interface Difference {
  between: Bilingual;
  ms: number;
}

function differencesOf({ redisMs, feishuMs }: ClockOffsets): Difference[] {
  const differences: Difference[] = [];
  if (redisMs !== undefined) {
    differences.push({
      between: { zh: "本机与 Redis", en: "this machine and Redis" },
      ms: redisMs,
    });
  }
  if (feishuMs !== undefined) {
    differences.push({
      between: { zh: "本机与飞书", en: "this machine and Feishu" },
      ms: feishuMs,
    });
  }
  if (redisMs !== undefined && feishuMs !== undefined) {
    differences.push({
      between: { zh: "Redis 与飞书", en: "Redis and Feishu" },
      ms: redisMs - feishuMs,
    });
  }
  return differences;
}

/** Clocks that differ make leases, deadlines and signatures wrong. */
export function clockFindings(offsets: ClockOffsets): Finding[] {
  const differences = differencesOf(offsets);
  const wrong = differences.filter(({ ms }) => Math.abs(ms) > maxDifferenceMs);
  if (differences.length > 0 && wrong.length === 0) {
    return [ok("clock", { zh: "时钟一致（相差不到 5 秒）", en: "The clocks agree to 5 s" })];
  }
  return wrong.map(({ between, ms }) => {
    const seconds = (Math.abs(ms) / 1_000).toFixed(0);
    return problem(
      "clock",
      {
        zh: `${between.zh}的时钟相差 ${seconds} 秒`,
        en: `The clocks of ${between.en} differ by ${seconds} s`,
      },
      { zh: "用 NTP 校准时钟。", en: "Set the clocks by NTP." },
    );
  });
}

interface Probe {
  key: string;
  baseVariable: string;
  base: string;
  headers: Record<string, string>;
  /** Lists models; costs nothing. */
  listUrl: string;
  /** Where an empty body is refused, but only after the key was looked at. */
  callUrl: string;
}

function probeOf(vendor: Vendor, { apiKey, baseUrl }: VendorAccess): Probe {
  if (vendor === "anthropic") {
    const base = (baseUrl ?? "https://api.anthropic.com").replace(/\/+$/, "");
    return {
      key: "ANTHROPIC_API_KEY",
      baseVariable: "ANTHROPIC_BASE_URL",
      base,
      headers: { "x-api-key": apiKey, "anthropic-version": "2023-06-01" },
      listUrl: `${base}/v1/models?limit=1`,
      callUrl: `${base}/v1/messages`,
    };
  }
  const base = (baseUrl ?? "https://api.openai.com/v1").replace(/\/+$/, "");
  return {
    key: "OPENAI_API_KEY",
    baseVariable: "OPENAI_BASE_URL",
    base,
    headers: { authorization: `Bearer ${apiKey}` },
    listUrl: `${base}/models`,
    callUrl: `${base}/chat/completions`,
  };
}

async function statusOf(url: string, init: RequestInit): Promise<number> {
  const response = await fetch(url, { ...init, redirect: "error" });
  await response.body?.cancel();
  return response.status;
}

/** Compatible servers often list no models: those are sent a request that they must refuse. */
async function askVendor(
  { listUrl, callUrl, headers }: Probe,
  signal: AbortSignal,
): Promise<number> {
  const listed = await statusOf(listUrl, { headers, signal });
  if (listed !== 404 && listed !== 405) return listed;
  const type = { "content-type": "application/json" };
  return await statusOf(callUrl, {
    method: "POST",
    headers: { ...headers, ...type },
    body: "{}",
    signal,
  });
}

function unreachable({ base, baseVariable }: Probe): Finding {
  const { host } = new URL(base);
  return problem(
    "model.reach",
    { zh: `无法连接 ${host}`, en: `${host} cannot be reached` },
    {
      zh: `检查网络、代理和 ${baseVariable}。`,
      en: `Check the network, the proxy and ${baseVariable}.`,
    },
  );
}

function refused({ key, base }: Probe, status: number): Finding {
  const { host } = new URL(base);
  return problem(
    "model.key",
    { zh: `${host} 拒绝了 ${key}（${status}）`, en: `${host} refuses ${key} (${status})` },
    {
      zh: `在供应商控制台重新复制密钥，并更正 ${key}。`,
      en: `Copy the key again from the vendor's console and correct ${key}.`,
    },
  );
}

/** Whether the vendor takes the key, found out without a model call. */
export async function checkModelKey(
  vendor: Vendor,
  access: VendorAccess,
  signal: AbortSignal,
): Promise<Finding> {
  const probe = probeOf(vendor, access);
  const { host } = new URL(probe.base);
  const status = await askVendor(probe, signal).catch(() => undefined);
  if (status === undefined) return unreachable(probe);
  if (status === 401 || status === 403) return refused(probe, status);
  if (status === 404 || status === 405) {
    return problem(
      "model.reach",
      {
        zh: `${host} 不提供所需的接口（${status}）`,
        en: `${host} does not have the interface (${status})`,
      },
      { zh: `检查 ${probe.baseVariable} 的路径。`, en: `Check the path of ${probe.baseVariable}.` },
    );
  }
  if (status === 429 || status >= 500) {
    return warning(
      "model.key",
      {
        zh: `${host} 暂时无法确认 ${probe.key}（${status}）`,
        en: `${host} cannot confirm ${probe.key} now (${status})`,
      },
      {
        zh: "稍后再试；若持续出现，检查额度。",
        en: "Try again later; if it stays, check the quota.",
      },
    );
  }
  return ok("model.key", { zh: `${host} 接受 ${probe.key}`, en: `${host} accepts ${probe.key}` });
}

/** What operators have changed at the console. */
export interface ConsoleChanges {
  /** In force, by agent. */
  versions: ReadonlyMap<string, AgentVersion>;
  providers: readonly ListedProvider[];
}

/** Whether the file or the console wins, where both say something. */
export function consoleFindings(
  config: LarklineConfig | undefined,
  changes: ConsoleChanges | undefined,
): Finding[] {
  if (config === undefined || changes === undefined || !config.changesAgents) return [];
  return [...versionFindings(config, changes), ...providerFindings(config, changes)];
}

function versionFindings(config: LarklineConfig, { versions, providers }: ConsoleChanges) {
  const added = addedModelNames(
    config,
    providers.map(({ provider }) => provider),
  );
  return [...versions].flatMap(([name, { number, by, file, change }]): Finding[] => {
    const agent = Object.hasOwn(config.agents, name) ? config.agents[name] : undefined;
    if (agent === undefined || agent.team !== null) return [];
    const bounds = agentBounds(config, agent, added);
    const covered = coveredFields(bounds, change).join(", ");
    if (covered === "") return [];
    const who = by.slice(by.indexOf(":") + 1);
    const text = {
      zh: `智能体 ${name}：控制台的版本 ${number}（${who}）覆盖配置文件的 ${covered}`,
      en: `agent ${name}: version ${number} of the console (${who}) covers ${covered} of the file`,
    };
    if (file === agentHash(bounds)) return [ok("console.versions", text)];
    const advice = {
      zh: "这个版本之后，配置文件里的这个智能体改过：改动的这些字段不生效。要让配置文件生效，请在它的控制台页面上恢复到配置文件。",
      en: "The agent was edited in the file since: edits of these fields have no effect. To let the file count, go back to it on the agent's page of the console.",
    };
    return [warning("console.versions", text, advice)];
  });
}

function providerFindings(config: LarklineConfig, { providers }: ConsoleChanges): Finding[] {
  return providers.map(({ provider, isRefused }) => {
    const { name } = provider;
    const problemThere = addedProviderProblem(config, provider);
    const text = {
      zh: `模型服务 ${name} 是在控制台添加的`,
      en: `the server of models ${name} was added at the console`,
    };
    if (problemThere === "in_file") {
      const advice = {
        zh: "配置文件里有同名的服务，以配置文件为准。请在控制台删除它，或换一个名称。",
        en: "The file has a server of this name, which wins: remove the other one at the console, or give it another name.",
      };
      return warning("console.models", text, advice);
    }
    if (problemThere !== undefined) {
      const advice = {
        zh: "配置文件（console.models）不允许它，所以不使用。",
        en: "The file (console.models) does not allow it: it is not used.",
      };
      return warning("console.models", text, advice);
    }
    if (!isRefused) return ok("console.models", text);
    const advice = {
      zh: "worker 打不开它的密钥，或数据已损坏：请在控制台重新保存。",
      en: "Workers do not open its key, or it is damaged: save it again at the console.",
    };
    return problem("console.models", text, advice);
  });
}
