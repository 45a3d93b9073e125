import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startFeishuSimulator, type FeishuSimulator, type SimulatorOptions } from "@larkline/simulator";
import { runnerKeyOf } from "@larkline/protocol";
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
import { startApp, type AppProcess, type Program } from "./app-process.ts";
import { obedientModel } from "./model-script.ts";
import type { RedisUsers } from "./redis-users.ts";
import { noteEmitted } from "./seen.ts";

export type AppKind = "ingress" | "agent-worker" | "tool-runner";

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
  /** Added to every process. */
  env?: Record<string, string>;
  /** Where a Redis is that stays its caller's; default: the system has one of its own. */
  redisUrl?: string;
  /** Redis has a user for each app and no other; default: every client may do everything. */
  redisUsers?: RedisUsers;
  /** Each process has lines of its own to Redis, the model and Feishu's API, which tests can break: see `linesOf`. */
  lines?: boolean;
  /** Where Redis keeps its files; default: below the system's own folder. */
  redisDirectory?: string;
  /** Where what the processes say is kept, one file for each; default: nowhere. */
  logDirectory?: string;
  /** Other programs in place of the apps, to compare with. */
  programs?: Partial<Record<AppKind, Program>>;
}

/** Larkline as real processes, with a simulated Feishu, a scripted model and a Redis of its own. */
export interface System {
  readonly appId: string;
  /** Its own server; throws where the Redis is the caller's. */
  readonly redis: TestRedis;
  /** Its own platform and model; both throw where the vendors are the caller's. */
  readonly feishu: FeishuSimulator;
  readonly model: ModelServer;
  readonly ingresses: AppProcess[];
  readonly workers: AppProcess[];
  readonly runners: AppProcess[];
  /** The environment of every process; {@link keysFor} adds what only some get. */
  readonly env: Readonly<Record<string, string>>;
  start(kind: AppKind, env?: Record<string, string>): Promise<AppProcess>;
  /** The lines of a process to its servers; none without the option `lines`. */
  linesOf(app: AppProcess): readonly TcpLine[];
  /** A person with a chat of their own. */
  person(name: string): { openId: string; chatId: string };
  /** The same deployment, in which people write to another of its `bots`. */
  botNamed(name: string): System;
  /** Writes and waits for the text of the finished answer. */
  ask(person: { openId: string; chatId: string }, text: string, timeoutMs?: number): Promise<string>;
  /** What the recording tools noted: one `effect key` line per run. */
  recorded(): Promise<string[]>;
  /** Lets the holding tools' calls with this key end. */
  release(key: string): Promise<void>;
  /** Stops Redis, and starts it with the same data on the same port when `during` has ended. */
  withoutRedis(during: () => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

const tools = fileURLToPath(new URL("../fixtures/recording-tools.ts", import.meta.url));

const signingKey = randomBytes(32).toString("hex");

/** As in a deployment: a worker signs calls, and a runner can check those that are for it. */
export function keysFor(app: AppKind, runner: string): Record<string, string> {
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

async function logFileFor(app: AppKind, { logDirectory }: SystemOptions): Promise<{ logFile?: string }> {
  if (logDirectory === undefined) return {};
  await mkdir(logDirectory, { recursive: true });
  return { logFile: join(logDirectory, `${Date.now()}-${app}`) };
}

export async function startSystem(given: SystemOptions = {}): Promise<System> {
  const options = { ...defaults, ...given };
  const bot = newApp(options.appId);
  const { appId, appSecret, encryptKey = "", verificationToken = "" } = bot;
  const otherBots = Object.entries(options.bots ?? {}).map(([name, settings]) => ({ name, settings, app: newApp() }));
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
  const configFile = join(folder, "larkline.config.ts");
  const bots = otherBots.map(({ name, settings, app }) => {
    return [name, { appId: app.appId, domain: vendors.feishu, ...settings }] as const;
  });
  const config = bots.length === 0 ? options.config : { ...options.config, bots: Object.fromEntries(bots) };
  if (config !== undefined) await writeFile(configFile, `export default ${JSON.stringify(config)};\n`);
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
    RUNNER_TOOLS: tools,
    RECORDING_FILE: recordingFile,
    ...(config === undefined ? {} : { LARKLINE_CONFIG: configFile }),
    ...Object.assign({}, ...otherBots.map(({ name, app }) => secretsOf(name, app))),
    ...options.env,
  };
  const running = new Set<AppProcess>();
  const linesOf = new Map<AppProcess, TcpLine[]>();
  /** Addresses by which one process reaches its servers. */
  const openLines = async (addresses: Record<string, string>) => {
    const lines: TcpLine[] = [];
    const through: Record<string, string> = {};
    for (const [name, address] of Object.entries(addresses)) {
      const url = new URL(address);
      const line = await startTcpLine(Number(url.port));
      lines.push(line);
      url.port = String(line.port);
      through[name] = url.href.replace(/\/$/, "");
    }
    return { lines, through };
  };
  const start: System["start"] = async (app, extra = {}) => {
    const program = options.programs?.[app] ?? { file: `apps/${app}/src/main.ts` };
    const all = { ...env, ...extra };
    const keys = keysFor(app, all.RUNNER_NAME);
    const address = redisUsers && { REDIS_URL: redisUsers.urlFor(env.REDIS_URL, app, all.RUNNER_NAME) };
    const { REDIS_URL, ANTHROPIC_BASE_URL, FEISHU_DOMAIN } = env;
    const { lines, through } =
      options.lines === true
        ? await openLines({ REDIS_URL, ANTHROPIC_BASE_URL, FEISHU_DOMAIN })
        : { lines: [], through: {} };
    const ownEnv = { ...keys, ...all, ...through, ...address, ...extra };
    const kept = await logFileFor(app, options);
    const started = await startApp({ program, port: await freePort(), env: ownEnv, ...kept });
    running.add(started);
    linesOf.set(started, lines);
    void started.exited.finally(() => {
      for (const line of lines) line.close();
    });
    return started;
  };
  const close = async (): Promise<void> => {
    await Promise.all([...running].map(async (app) => await app.kill()));
    // Not where a test has stopped it, or has users of its own.
    if (redis !== undefined && redisUsers === undefined) await noteEmitted(redis.url).catch(() => undefined);
    await servers?.feishu.close();
    await servers?.model.close();
    await redis?.stop();
    await rm(folder, { recursive: true, force: true });
  };
  /** When one does not start, nothing stays behind. */
  const several = async (kind: AppKind, count: number): Promise<AppProcess[]> => {
    const starts = await Promise.allSettled(Array.from({ length: count }, async () => await start(kind)));
    const failed = starts.find((each) => each.status === "rejected");
    if (failed === undefined) return starts.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
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
  const system: System = {
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
    linesOf: (app) => linesOf.get(app) ?? [],
    ...peopleOf(appId),
    botNamed: (name) => {
      const other = otherBots.find((each) => each.name === name);
      if (other === undefined) throw new Error(`no bot ${name}`);
      const { appId: id } = other.app;
      return Object.assign(Object.create(system) as System, { appId: id, ...peopleOf(id) }); // all else is inherited
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
