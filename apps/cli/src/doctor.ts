import { deadline, withDeadline, type Clock } from "@larkline/protocol/clock";
import {
  openDoors,
  subscriptionsOf,
  toolProblem,
  type Env,
  type LarklineConfig,
} from "@larkline/process/config";
import { AppInspector } from "@larkline/feishu";
import {
  closeRedis,
  connectRedis,
  type RedisConnection,
  redisUrlProblem,
} from "@larkline/store/redis";
import { SubscriptionStore } from "@larkline/store";
import {
  AddedProviders,
  AgentVersions,
  Presence,
  readServerFacts,
} from "@larkline/store/operations";
import { RunnerDirectory, type ToolClash } from "@larkline/store/runners";
import {
  checkConfigFile,
  type CheckedBot,
  panelOf,
  checkEnvironment,
  checkModelAdditions,
  checkModelChoice,
  checkNode,
  doorFindings,
  subscriptionFindings,
  grantKeyFindings,
  keyFindings,
  namedBots,
  ofBot,
  readStoredKey,
  type Vendor,
} from "./local-checks.ts";
import {
  type AnnouncedRunner,
  type NotOffered,
  checkModelKey,
  clockFindings,
  consoleFindings,
  type ConsoleChanges,
  readyOf,
  redisFindings,
  type Running,
  runningFindings,
  unreachableRedis,
} from "./service-checks.ts";
import type { Deployment, EnvFile } from "./config.ts";
import {
  botFinding,
  checkCommandPanel,
  checkLongConnection,
  checkOwnSubscriptions,
  checkSubscriptions,
  checkWebhook,
  credentialFinding,
  hiddenScopes,
  scopeFindings,
} from "./feishu-check.ts";
import {
  checkPeopleScopes,
  peopleScopesOf,
  withDoors,
  type PeopleScopes,
} from "./people-scopes.ts";
import { problem, skipped, type Finding } from "./finding.ts";

const checkMs = 5_000;
const readyMs = 2_000;

export interface DoctorInput {
  clock: Clock;
  file: EnvFile;
  deployment: Deployment;
  /** All variables, for the secrets of bots that the configuration names. */
  env: Env;
  nodeVersion: string;
  /** Public address of the ingress. */
  webhookUrl?: string;
  /** Where `npm start` keeps its files. */
  dataDirectory: string;
}

interface RedisResult {
  findings: Finding[];
  offsetMs?: number;
  workers?: number;
  runners?: AnnouncedRunner[];
  tools?: string[];
  clashes?: ToolClash[];
  notOffered?: NotOffered[];
  peopleScopes?: PeopleScopes;
  changes?: ConsoleChanges;
  subscriptions?: Awaited<ReturnType<SubscriptionStore["lacking"]>>;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function announced(redis: RedisConnection, namespace: string) {
  const directory = new RunnerDirectory({ redis, namespace });
  const { living, tools: offered, clashes } = await directory.view();
  const byName = new Map<string, AnnouncedRunner>();
  for (const { runner, tools, sandbox } of living) {
    const names = tools.map(({ spec }) => spec.name);
    const before = byName.get(runner);
    const all = [...new Set([...(before?.tools ?? []), ...names])];
    const instances = (before?.instances ?? 0) + 1;
    byName.set(runner, { ...before, runner, instances, tools: all, ...(sandbox && { sandbox }) });
  }
  const notOffered = [...offered].flatMap(([name, { announcement }]) => {
    const why = toolProblem(announcement.spec);
    return why === undefined ? [] : [{ tool: name, why }];
  });
  const peopleScopes = peopleScopesOf(offered);
  const tools = [...offered.keys()];
  return { runners: [...byName.values()], tools, clashes, notOffered, peopleScopes };
}

async function readRedis(
  clock: Clock,
  redis: RedisConnection,
  namespace: string,
): Promise<RedisResult> {
  const facts = await readServerFacts(redis, clock);
  const [workers, running, { inForce }, { providers }, subscriptions] = await Promise.all([
    new Presence({ redis, namespace, clock }).members(),
    announced(redis, namespace),
    new AgentVersions({ redis, namespace }).list(),
    new AddedProviders({ redis, namespace }).list(),
    new SubscriptionStore({ redis, namespace }).lacking(),
  ]);
  return {
    findings: redisFindings(facts),
    offsetMs: facts.clockOffsetMs,
    workers: workers.length,
    changes: { versions: inForce, providers },
    subscriptions,
    ...running,
  };
}

async function inspectRedis(clock: Clock, url: string, namespace: string): Promise<RedisResult> {
  let lastError = "";
  const redis = connectRedis(url, { onError: (error) => (lastError = error.message), clock });
  try {
    return await withDeadline(clock, readRedis(clock, redis, namespace), checkMs);
  } catch (error) {
    return { findings: [unreachableRedis(url, lastError || messageOf(error))] };
  } finally {
    await closeRedis(redis, clock);
  }
}

async function checkRedis({
  clock,
  deployment: { redisUrl, namespace },
}: DoctorInput): Promise<RedisResult> {
  if (redisUrl === undefined) {
    const text = {
      zh: "没有设置 REDIS_URL：npm start 自己运行设置正确的 Redis",
      en: "REDIS_URL is not set: npm start runs a Redis of its own, with the right settings",
    };
    return { findings: [skipped("redis", text)] };
  }
  if (redisUrlProblem(redisUrl) !== undefined) return { findings: [] };
  return await inspectRedis(clock, redisUrl, namespace);
}

interface FeishuResult {
  findings: Finding[];
  offsetMs?: number;
}

/** The header has whole seconds: on average half a second has passed since. */
const halfSecondMs = 500;

async function clockOffset(clock: Clock, inspector: AppInspector): Promise<{ offsetMs?: number }> {
  const askedMs = clock.now();
  const time = await inspector.serverTimeMs().catch(() => undefined);
  return time === undefined ? {} : { offsetMs: time + halfSecondMs - (askedMs + clock.now()) / 2 };
}

/** Optional scopes without which something of the configuration would not work. */
function neededScopes(name: string, config: LarklineConfig | undefined): string[] {
  const bot = config?.bots[name];
  const agents = bot === undefined ? [] : [bot.agent, ...bot.chats.values()];
  const configs = agents.flatMap((agent) => config?.agents[agent] ?? []);
  const readsAll = configs.some(({ groups, groupContext }) => groups === "all" || groupContext > 0);
  const asksGroups = Object.values(config?.permissions.roles ?? {}).some(
    ({ groups }) => groups.length > 0,
  );
  return [
    ...(readsAll ? ["im:message.group_msg"] : []),
    ...(asksGroups ? ["contact:group:readonly"] : []),
    ...(config === undefined ? [] : openDoors(config.doors).flatMap(({ scopes: own }) => own)),
  ];
}

/** Optional events without which something of the configuration would not work. */
function neededEvents(config: LarklineConfig | undefined): string[] {
  if (config === undefined) return [];
  const agents = Object.values(config.agents);
  const waits = agents.some(({ abilities }) => abilities["schedules"] === true);
  return [
    ...openDoors(config.doors).flatMap(({ events }) => events),
    ...(waits ? ["im.chat.member.bot.deleted_v1", "contact.user.deleted_v3"] : []),
  ];
}

async function scopes(
  inspector: AppInspector,
  { name, access: feishu }: CheckedBot,
  config: LarklineConfig | undefined,
) {
  try {
    return scopeFindings(await inspector.grantedScopes(), feishu, neededScopes(name, config));
  } catch (error) {
    return [hiddenScopes(error, feishu)];
  }
}

/** What is known of a deployment besides its apps at the platform. */
interface Known {
  config: LarklineConfig | undefined;
  redis: Promise<RedisResult>;
}

async function inspectFeishu(
  { clock, inspector }: { clock: Clock; inspector: AppInspector },
  checked: CheckedBot,
  { config, redis }: Known,
) {
  const { access: feishu } = checked;
  const offset = clockOffset(clock, inspector);
  let bot: Finding;
  try {
    bot = botFinding(await inspector.bot(), feishu);
  } catch (error) {
    return { findings: [credentialFinding(error, feishu)], ...(await offset) };
  }
  const rest = await Promise.all([
    scopes(inspector, checked, config),
    redis.then(
      async ({ peopleScopes = new Map() }) =>
        await checkPeopleScopes(
          inspector,
          feishu,
          withDoors(peopleScopes, config === undefined ? [] : openDoors(config.doors)),
        ),
    ),
    ...(config === undefined
      ? []
      : [checkCommandPanel(inspector, feishu, panelOf(checked.name, config))]),
    checkSubscriptions(inspector, feishu, neededEvents(config)),
    checkOwnSubscriptions(
      inspector,
      config === undefined ? [] : subscriptionsOf(config.doors, checked.name),
    ),
    feishu.transport === "webhook"
      ? []
      : checkLongConnection(inspector).then((finding) => [finding]),
  ]);
  return { findings: [bot, ...rest.flat()], ...(await offset) };
}

async function checkBot(clock: Clock, bot: CheckedBot, known: Known): Promise<FeishuResult> {
  const inspector = new AppInspector({ ...bot.access, timeoutMs: checkMs - 1_000, clock });
  try {
    return await inspectFeishu({ clock, inspector }, bot, known);
  } finally {
    inspector.close();
  }
}

async function checkFeishu(
  { clock, deployment: { feishu } }: DoctorInput,
  known: Known,
): Promise<FeishuResult> {
  if (feishu === undefined) {
    const text = {
      zh: "没有设置 FEISHU_APP_ID：npm start 使用模拟器。运行 npm run setup 连接真实飞书",
      en: "FEISHU_APP_ID is not set: npm start uses the simulator. Connect the real Feishu with npm run setup",
    };
    return { findings: [skipped("feishu", text)] };
  }
  return await checkBot(clock, { name: "default", access: feishu }, known);
}

async function checkWebhooks(
  { clock, deployment, webhookUrl }: DoctorInput,
  { name: bot, access: feishu }: CheckedBot,
): Promise<Finding[]> {
  if (feishu.transport === "websocket") return [];
  const guessed = webhookUrl === undefined;
  const base = webhookUrl ?? `http://127.0.0.1:${deployment.ports.ingress}`;
  return await checkWebhook({ base, guessed, bot, feishu }, clock);
}

/** All that is found about one bot besides the first one's app. */
async function checkNamedBot(input: DoctorInput, bot: CheckedBot, known: Known) {
  const found = [
    checkBot(input.clock, bot, known).then(({ findings }) => findings),
    checkWebhooks(input, bot),
  ];
  return ofBot(bot.name, (await Promise.all(found)).flat());
}

async function checkModels({ clock, deployment: { vendors } }: DoctorInput): Promise<Finding[]> {
  const names: readonly Vendor[] = ["anthropic", "openai"];
  const checks = names.flatMap((vendor) => {
    const access = vendors[vendor];
    return access === undefined ? [] : [checkModelKey(vendor, access, deadline(clock, checkMs))];
  });
  return await Promise.all(checks);
}

/** The Redis that `npm start` runs is its own secret; then its processes say whether they are there. */
async function runningParts(
  { clock, deployment }: DoctorInput,
  redis: RedisResult,
): Promise<Running> {
  const { host: bound, ports, redisUrl } = deployment;
  const name = ["0.0.0.0", "::"].includes(bound) ? "127.0.0.1" : bound;
  const host = name.includes(":") ? `[${name}]` : name;
  const ask = async (port: number) =>
    await readyOf(`http://${host}:${port}/ready`, deadline(clock, readyMs));
  const [ingress, worker, runner] = await Promise.all([
    ask(ports.ingress),
    redisUrl === undefined ? ask(ports.worker) : undefined,
    redisUrl === undefined ? ask(ports.runner) : undefined,
  ]);
  const parts: Running = ingress === undefined ? {} : { ingress };
  if (worker !== undefined) parts.workers = worker ? 1 : 0;
  if (redis.workers !== undefined) parts.workers = redis.workers;
  if (redis.tools !== undefined) parts.tools = redis.tools;
  if (redis.clashes !== undefined) parts.clashes = redis.clashes;
  if (redis.notOffered !== undefined) parts.notOffered = redis.notOffered;
  if (redis.runners !== undefined) parts.runners = redis.runners;
  else if (runner === true) parts.runners = [{ runner: "local", instances: 1 }];
  return parts;
}

async function guarded(check: string, work: Promise<Finding[]>): Promise<Finding[]> {
  try {
    return await work;
  } catch (error) {
    const reason = messageOf(error);
    return [
      problem(
        check,
        { zh: `检查失败：${reason}`, en: `The check itself failed: ${reason}` },
        { zh: "请报告此问题。", en: "Please report this." },
      ),
    ];
  }
}

/** Runs every check. Never rejects; takes about ten seconds when nothing answers. */
export async function examine(input: DoctorInput): Promise<Finding[]> {
  const { file, deployment } = input;
  const configured = await checkConfigFile(input.clock, deployment.configFile);
  const named = namedBots(input.env, configured.config, deployment.feishu);
  const first =
    deployment.feishu === undefined ? [] : [{ name: "default", access: deployment.feishu }];
  const local = [
    checkNode(input.nodeVersion),
    ...checkEnvironment(file, deployment),
    ...configured.findings,
    ...named.findings,
    ...checkModelChoice(deployment, configured.config, input.env),
  ];
  const redis = checkRedis(input);
  const known: Known = { config: configured.config, redis };
  const feishu = checkFeishu(input, known);
  const clocks = async (): Promise<Finding[]> => {
    const [redisMs, feishuMs] = [(await redis).offsetMs, (await feishu).offsetMs];
    return clockFindings({
      ...(redisMs === undefined ? {} : { redisMs }),
      ...(feishuMs === undefined ? {} : { feishuMs }),
    });
  };
  const running = async () =>
    runningFindings(await runningParts(input, await redis), configured.config);
  const keys = async () => [
    ...keyFindings(deployment, await readStoredKey(input.dataDirectory)),
    ...grantKeyFindings(deployment),
    ...(configured.config === undefined ? [] : doorFindings(input.env, configured.config)),
    ...subscriptionFindings((await redis).subscriptions),
  ];
  const remote = await Promise.all([
    guarded(
      "redis",
      redis.then(({ findings }) => findings),
    ),
    guarded("clock", clocks()),
    guarded(
      "feishu",
      feishu.then(({ findings }) => findings),
    ),
    ...first.map(async (bot) => await guarded("feishu.webhook", checkWebhooks(input, bot))),
    ...named.bots.map(async (bot) => await guarded("feishu", checkNamedBot(input, bot, known))),
    guarded("model", checkModels(input)),
    guarded("model", checkModelAdditions(configured.config, input.env)),
    guarded("running", running()),
    guarded(
      "console",
      redis.then(({ changes }) => consoleFindings(configured.config, changes)),
    ),
    guarded("keys", keys()),
  ]);
  return [...local, ...remote.flat()];
}
