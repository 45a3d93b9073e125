import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  startFeishuSimulator,
  type FeishuSimulator,
  type SimulatorOptions,
} from "@larkline/simulator";
import { runnerKeyOf } from "@larkline/protocol/runner";
import {
  freePort,
  patientClock,
  startModelServer,
  startRedis,
  type ModelScript,
  type ModelServer,
  type TestRedis,
  startTcpLine,
  type TcpLine,
} from "@larkline/testkit";
import { waitForAnswer } from "./answer.ts";
import { startAppHere } from "./app-here.ts";
import { startApp, type App, type AppName, type AppProcess, type Program } from "./app-process.ts";
import { obedientModel } from "./model-script.ts";
import type { RedisUsers } from "./redis-users.ts";
import { noteEmitted } from "./seen.ts";
import { toolModules, type ToolSet } from "./tool-modules.ts";

/** Apps that a system has several of. */
export type AppKind = Exclude<AppName, "console">;

export interface SystemOptions {
  /** Default: a random one. */
  appId?: string;
  ingresses?: number;
  workers?: number;
  runners?: number;
  transport?: "websocket" | "webhook" | "both";
  script?: ModelScript;
  simulator?: Partial<SimulatorOptions>;
  /** Addresses of a model and a platform that stay their caller's; default: the system has both of its own. */
  vendors?: { model: string; feishu: string };
  /** Apps of the simulated platform besides the one of `FEISHU_APP_ID`. */
  otherApps?: SimulatorOptions["apps"];
  workerConcurrency?: number;
  /** What `larkline.config.ts` exports; nothing but JSON. */
  config?: Readonly<Record<string, unknown>>;
  /** Further bots, by name: what the configuration says of each besides its app. See {@link System.botNamed}. */
  bots?: Readonly<Record<string, object>>;
  /** What the first runners offer. Default: the recording tools. */
  tools?: readonly ToolSet[];
  /** Added to every app. */
  env?: Record<string, string>;
  /** Where a Redis is that stays its caller's; default: the system has one of its own. */
  redisUrl?: string;
  /** Redis has a user for each app and no other; default: every client may do everything. */
  redisUsers?: RedisUsers;
  /** Each app has lines of its own to Redis, the model and Feishu's API, which tests can break: see `linesOf`. */
  lines?: boolean;
  /** Where Redis keeps its files; default: below the system's own folder. */
  redisDirectory?: string;
}

export interface ProcessOptions extends SystemOptions {
  /** Where what the processes say is kept, one file for each; default: nowhere. */
  logDirectory?: string;
  /** Other programs in place of the apps, to compare with. */
  programs?: Partial<Record<AppKind, Program>>;
}

/** Larkline with a simulated Feishu, a scripted model and a Redis of its own. */
export interface System<Running extends App = App> {
  readonly appId: string;
  /** Its own server; throws where the Redis is the caller's. */
  readonly redis: TestRedis;
  /** Its own platform and model; both throw where the vendors are the caller's. */
  readonly feishu: FeishuSimulator;
  readonly model: ModelServer;
  readonly ingresses: Running[];
  readonly workers: Running[];
  readonly runners: Running[];
  /** The environment of every app; {@link keysFor} adds what only some get. */
  readonly env: Readonly<Record<string, string>>;
  start(kind: AppName, env?: Record<string, string>): Promise<Running>;
  /** What `RUNNER_TOOLS` of a further runner is, for these tools. */
  toolsOf(sets: readonly ToolSet[]): Promise<string>;
  /** One that can be killed or stopped by a signal, whatever the others are. */
  startProcess(kind: AppName, env?: Record<string, string>): Promise<AppProcess>;
  /** The lines of an app to its servers; none without the option `lines`. */
  linesOf(app: App): readonly TcpLine[];
  /** A person with a chat of their own. */
  person(name: string): { openId: string; chatId: string };
  /** The same deployment, in which people write to another of its `bots`. */
  botNamed(name: string): System<Running>;
  /** Writes and waits for the text of the finished answer. */
  ask(
    person: { openId: string; chatId: string },
    text: string,
    timeoutMs?: number,
  ): Promise<string>;
  /** What the recording tools noted: one `effect key` line per run. */
  recorded(): Promise<string[]>;
  /** Lets the holding tools' calls with this key end. */
  release(key: string): Promise<void>;
  /** Stops Redis, and starts it with the same data on the same port when `during` has ended. */
  withoutRedis(during: () => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

export type ProcessSystem = System<AppProcess>;

const signingKey = randomBytes(32).toString("hex");

/** As in a deployment: a worker signs calls, and a runner can check those that are for it. */
export function keysFor(app: AppName, runner: string): Record<string, string> {
  if (app === "agent-worker") return { CALL_SIGNING_KEY: signingKey };
  return app === "tool-runner" ? { RUNNER_KEY: runnerKeyOf(signingKey, runner) } : {};
}

function own<Server>(server: Server | undefined): Server {
  if (server === undefined) throw new Error("this server of the system is its caller's");
  return server;
}

interface Vendors {
  model: ModelServer;
  feishu: FeishuSimulator;
}

/** The system's own model and platform. */
async function startVendors(
  { script = obedientModel, otherApps = [], simulator }: SystemOptions,
  bots: SimulatorOptions["apps"],
): Promise<Vendors> {
  const model = await startModelServer({ script });
  const feishu = await startFeishuSimulator({
    apps: [...bots, ...otherApps],
    limits: "off",
    clock: patientClock, // a stall of this process is no fault of the bot
    retryDelaysMs: [300, 600, 1_000, 2_000, 4_000, 8_000],
    ...simulator,
  });
  return { model, feishu };
}

function addressesOf({ model, feishu }: Vendors): { model: string; feishu: string } {
  return { model: model.url, feishu: feishu.url };
}

const defaults = {
  transport: "websocket",
  workerConcurrency: 50,
  runners: 1,
  workers: 1,
  ingresses: 1,
  tools: ["recording"],
} satisfies SystemOptions;

function newApp(appId?: string): SimulatorOptions["apps"][number] {
  return {
    appId: appId ?? `cli_${randomBytes(8).toString("hex")}`,
    appSecret: randomBytes(16).toString("hex"),
    encryptKey: "test key",
    verificationToken: "vtoken",
    name: "Larkline",
  };
}

/** The variables with the secrets of a bot that has a name. */
function secretsOf(name: string, app: SimulatorOptions["apps"][number]): Record<string, string> {
  const { appSecret, encryptKey = "", verificationToken = "" } = app;
  const bot = name.toUpperCase().replaceAll("-", "_");
  return {
    [`FEISHU_APP_SECRET_${bot}`]: appSecret,
    [`FEISHU_ENCRYPT_KEY_${bot}`]: encryptKey,
    [`FEISHU_VERIFICATION_TOKEN_${bot}`]: verificationToken,
  };
}

async function logFileFor(
  app: AppName,
  { logDirectory }: ProcessOptions,
): Promise<{ logFile?: string }> {
  if (logDirectory === undefined) return {};
  await mkdir(logDirectory, { recursive: true });
  return { logFile: join(logDirectory, `${Date.now()}-${app}`) };
}

/** Lines to these addresses, one for each server, and the addresses through them. */
async function openLines<Addresses extends Record<string, string>>(
  addresses: Addresses,
): Promise<{ lines: TcpLine[]; through: Addresses }> {
  const lines = new Map<string, TcpLine>();
  const through: Record<string, string> = { ...addresses };
  for (const [name, address] of Object.entries(addresses)) {
    const url = new URL(address);
    const line = lines.get(url.port) ?? (await startTcpLine(Number(url.port)));
    lines.set(url.port, line);
    url.port = String(line.port);
    through[name] = url.href.replace(/\/$/, "");
  }
  return { lines: [...lines.values()], through: through as Addresses }; // the same names
}

/** Starts an app with its whole environment; `lines` are those to its servers, if it has any of its own. */
type Launch<Running extends App> = (
  kind: AppName,
  env: Record<string, string>,
  lines: readonly TcpLine[],
) => Promise<Running>;

/** All apps run in the process of the test, each with connections of its own. */
export async function startSystem(options: SystemOptions = {}): Promise<System> {
  return await openSystem(options, startAppHere, "inline");
}

/** Each app is a process, for tests of how they die, of their environment and their isolation. */
export async function startProcesses(options: ProcessOptions = {}): Promise<ProcessSystem> {
  return await openSystem(options, processLauncher(options), "process");
}

function processLauncher(options: ProcessOptions): Launch<AppProcess> {
  return async (kind, env) => {
    const program = (kind !== "console" && options.programs?.[kind]) || {
      file: `apps/${kind}/src/main.ts`,
    };
    const port = Number(env["PORT"] ?? (await freePort()));
    return await startApp({ program, port, env, ...(await logFileFor(kind, options)) });
  };
}

async function openSystem<Running extends App>(
  given: SystemOptions,
  launch: Launch<Running>,
  toolLevel: "inline" | "process",
): Promise<System<Running>> {
  const options = { ...defaults, ...given };
  const bot = newApp(options.appId);
  const { appId, appSecret, encryptKey = "", verificationToken = "" } = bot;
  const otherBots = Object.entries(options.bots ?? {}).map(([name, settings]) => ({
    name,
    settings,
    app: newApp(),
  }));
  const folder = await mkdtemp(join(tmpdir(), "larkline-system-"));
  const recordingFile = join(folder, "recorded");
  const redisDirectory = options.redisDirectory ?? join(folder, "redis");
  await mkdir(redisDirectory, { recursive: true });
  const { redisUsers } = options;
  const redisOptions = {
    directory: redisDirectory,
    ...(redisUsers === undefined ? {} : { users: redisUsers }),
  };
  let redis = options.redisUrl === undefined ? await startRedis(redisOptions) : undefined;
  const apps = [bot, ...otherBots.map(({ app }) => app)];
  const servers = options.vendors === undefined ? await startVendors(options, apps) : undefined;
  const vendors = options.vendors ?? addressesOf(own(servers));
  /** The configuration of all apps, or of one that has an address of its own for the platform. */
  const writeConfig = async (domain: string): Promise<{ LARKLINE_CONFIG?: string }> => {
    const bots = otherBots.map(({ name, settings, app: { appId: id } }) => [
      name,
      { appId: id, domain, ...settings },
    ]);
    const config =
      bots.length === 0 ? options.config : { ...options.config, bots: Object.fromEntries(bots) };
    if (config === undefined) return {};
    const LARKLINE_CONFIG = join(folder, `${new URL(domain).port}.config.ts`);
    await writeFile(LARKLINE_CONFIG, `export default ${JSON.stringify(config)};\n`);
    return { LARKLINE_CONFIG };
  };
  const toolsOf: System["toolsOf"] = async (sets) =>
    await toolModules(sets, { folder, recordingFile, level: toolLevel });
  const { transport } = options;
  const env = {
    REDIS_URL: options.redisUrl ?? own(redis).url,
    FEISHU_APP_ID: appId,
    FEISHU_APP_SECRET: appSecret,
    FEISHU_ENCRYPT_KEY: encryptKey,
    FEISHU_VERIFICATION_TOKEN: verificationToken,
    FEISHU_DOMAIN: vendors.feishu,
    FEISHU_TRANSPORT: transport,
    MODEL: "anthropic/claude-sonnet-4-6",
    ANTHROPIC_BASE_URL: vendors.model,
    ANTHROPIC_API_KEY: "scripted",
    OPENAI_BASE_URL: `${vendors.model}/v1`,
    OPENAI_API_KEY: "scripted",
    WORKER_CONCURRENCY: String(options.workerConcurrency),
    RUNNER_NAME: "recording",
    RUNNER_TOOLS: await toolsOf(options.tools),
    RECORDING_FILE: recordingFile,
    ...(await writeConfig(vendors.feishu)),
    ...Object.assign({}, ...otherBots.map(({ name, app }) => secretsOf(name, app))),
    ...options.env,
  };
  const running = new Set<App>();
  const linesOf = new Map<App, TcpLine[]>();
  /** An app with addresses of its own by which it reaches its servers, where there are lines. */
  const launched = async <Launched extends App>(
    by: Launch<Launched>,
    app: AppName,
    extra: Record<string, string>,
  ): Promise<Launched> => {
    const all = { ...env, ...extra };
    const keys = keysFor(app, all.RUNNER_NAME);
    const REDIS_URL = redisUsers?.urlFor(env.REDIS_URL, app, all.RUNNER_NAME) ?? env.REDIS_URL;
    const { ANTHROPIC_BASE_URL, OPENAI_BASE_URL, FEISHU_DOMAIN } = env;
    const addresses = { REDIS_URL, ANTHROPIC_BASE_URL, OPENAI_BASE_URL, FEISHU_DOMAIN };
    const { lines, through } =
      options.lines === true ? await openLines(addresses) : { lines: [], through: addresses };
    const ownConfig =
      lines.length > 0 && otherBots.length > 0 ? await writeConfig(through.FEISHU_DOMAIN) : {};
    const started = await by(app, { ...keys, ...all, ...through, ...ownConfig, ...extra }, lines);
    running.add(started);
    linesOf.set(started, lines);
    return started;
  };
  const start: System<Running>["start"] = async (kind, extra = {}) =>
    await launched(launch, kind, extra);
  const close = async (): Promise<void> => {
    await Promise.all(
      [...running].map(async (app) => await ("pid" in app ? app.kill() : app.stop())),
    );
    for (const line of [...linesOf.values()].flat()) line.close();
    // Not where a test has stopped it, or has users of its own.
    if (redis !== undefined && redisUsers === undefined) {
      await noteEmitted(redis.url).catch(() => undefined);
    }
    await servers?.feishu.close();
    await servers?.model.close();
    await redis?.stop();
    await rm(folder, { recursive: true, force: true });
  };
  /** When one does not start, nothing stays behind. */
  const several = async (kind: AppName, count: number): Promise<Running[]> => {
    const starts = await Promise.allSettled(
      Array.from({ length: count }, async () => await start(kind)),
    );
    const failed = starts.find((each) => each.status === "rejected");
    if (failed === undefined) {
      return starts.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    }
    await close();
    throw failed.reason;
  };

  const runners = await several("tool-runner", options.runners);
  const workers = await several("agent-worker", options.workers);
  const ingresses = await several("ingress", options.ingresses);
  if (servers !== undefined && transport !== "websocket") {
    servers.feishu.setWebhookUrl(appId, `${ingresses[0]?.url ?? ""}/feishu/events`);
    if (transport === "webhook") servers.feishu.setTransport(appId, "webhook");
  }

  /** Those who write to one of the bots. */
  const peopleOf = (id: string): Pick<System, "person" | "ask"> => ({
    person: (name) => {
      const { feishu } = own(servers);
      const { openId } = feishu.addUser({ name });
      return { openId, chatId: feishu.addChat({ type: "p2p", members: [openId, id] }).chatId };
    },
    ask: async ({ openId, chatId }, text, timeoutMs = 80_000) => {
      const { feishu } = own(servers);
      const { messageId } = await feishu.sendMessage({ appId: id, chatId, from: openId, text });
      return (await waitForAnswer(feishu, messageId, { timeoutMs })).text;
    },
  });
  const system: System<Running> = {
    appId,
    get redis() {
      return own(redis);
    },
    get feishu() {
      return own(servers).feishu;
    },
    get model() {
      return own(servers).model;
    },
    ingresses,
    workers,
    runners,
    env,
    start,
    toolsOf,
    startProcess: async (kind, extra = {}) => await launched(processLauncher({}), kind, extra),
    linesOf: (app) => linesOf.get(app) ?? [],
    ...peopleOf(appId),
    botNamed: (name) => {
      const other = otherBots.find((each) => each.name === name);
      if (other === undefined) throw new Error(`no bot ${name}`);
      const { appId: id } = other.app;
      return Object.assign(Object.create(system) as System<Running>, {
        appId: id,
        ...peopleOf(id),
      }); // all else is inherited
    },
    recorded: async () => {
      const text = await readFile(recordingFile, "utf8").catch(() => "");
      return text.split("\n").filter((line) => line !== "");
    },
    release: async (key) => await writeFile(`${recordingFile}.${key}`, ""),
    withoutRedis: async (during) => {
      const { port, stop } = own(redis);
      await stop();
      try {
        await during();
      } finally {
        redis = await startRedis({ ...redisOptions, port });
      }
    },
    close,
  };
  return system;
}
