import { readdir, readFile } from "node:fs/promises";
import type { RequestListener, ServerResponse } from "node:http";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createEnvReader, type Env } from "@larkline/process/config";
import {
  type Logger,
  type LogLevel,
  logLevels,
  type Metrics,
  registerOpsRoutes,
} from "@larkline/process/telemetry";
import type { ParseResult } from "@larkline/protocol";
import { type Clock, systemClock } from "@larkline/protocol/clock";
import { type ModelServer, startModelServer } from "@larkline/testkit";
import { fastify, type FastifyInstance } from "fastify";
import { type FeishuSimulator, type SimChat, startFeishuSimulator } from "../index.ts";
import { type Kept, readKeptState, StateKeeper } from "./kept-state.ts";
import {
  type ApiCall,
  type ChatView,
  type PlaygroundEvent,
  type PlaygroundState,
  registerPlaygroundRoutes,
  type EventStream,
} from "./routes.ts";
import { registerConsentPage } from "./consent-page.ts";
import { pageScript } from "./page-script.ts";
import { registerWorkPages } from "./work-pages.ts";

interface PlaygroundParts {
  config: PlaygroundConfig;
  logger: Logger;
  metrics: Metrics;
  /** The clock of the platform; default: the machine's. */
  clock?: Clock;
}

export interface Playground {
  /** Address of the page and of the simulated open platform. */
  readonly url: string;
  /** Address of the scripted model, when it was asked for. */
  readonly modelUrl: string | undefined;
  readonly simulator: FeishuSimulator;
  close(): Promise<void>;
}

/** Starts the simulated platform with the page on one port. Rejects when a port is taken. */
export async function startPlayground(parts: PlaygroundParts): Promise<Playground> {
  const { config, logger, metrics } = parts;
  const server = fastify({ bodyLimit: 256 * 1024, forceCloseConnections: true });
  let pageReady = false;
  const kept: Kept =
    config.dataDirectory === undefined ? {} : await readKeptState(config.dataDirectory);
  if (kept.setAside !== undefined) {
    logger.warn({ file: kept.setAside }, "the state was damaged: it is set aside");
  }
  const simulator = await startSimulator(parts, kept, (request, response) => {
    // The simulator listens first: what the page is made of needs it.
    if (pageReady) server.routing(request, response);
    else response.writeHead(503, { "retry-after": "1" }).end();
  });
  countActivity(simulator, metrics);
  if (simulator.users.size === 0) createScene(simulator);
  for (const room of sceneRooms) simulator.work.calendar.addRoom(room);
  if (simulator.work.docs.documents.size === 0) createWork(simulator);
  const keeper =
    config.dataDirectory === undefined
      ? undefined
      : new StateKeeper(simulator, { folder: config.dataDirectory, logger });
  const stream = createEventStream(simulator, kept.setAside);
  guardAccess(server, config.host);
  registerOpsRoutes(server, { metrics, logger, ready: async () => ({ simulator: true }) });
  registerPlaygroundRoutes(server, { simulator, stream, appId: config.appId });
  registerConsentPage(server, simulator);
  registerWorkPages(server, simulator);
  await registerPage(server);
  await server.ready();
  pageReady = true;
  let model: ModelServer | undefined;
  const close = async (): Promise<void> => {
    stream.close();
    await keeper?.close();
    await Promise.all([simulator.close(), server.close(), model?.close()]);
  };
  try {
    if (config.modelPort !== undefined) {
      model = await startModelServer({ port: config.modelPort, host: config.host });
    }
  } catch (error) {
    await close();
    throw error;
  }
  return { url: simulator.url, modelUrl: model?.url, simulator, close };
}

function startSimulator(
  { config, clock = systemClock }: PlaygroundParts,
  { snapshot, bytes }: Kept,
  serve: RequestListener,
): Promise<FeishuSimulator> {
  const { appId, appSecret, encryptKey, verificationToken, webhookUrl } = config;
  return startFeishuSimulator({
    host: config.host,
    port: config.port,
    clock,
    apps: [
      {
        appId,
        appSecret,
        name: "Larkline",
        ...(encryptKey === undefined ? {} : { encryptKey }),
        ...(verificationToken === undefined ? {} : { verificationToken }),
        ...(webhookUrl === undefined ? {} : { webhookUrl }),
      },
    ],
    connection: { reconnectIntervalSeconds: 2, reconnectNonceSeconds: 1 },
    serve,
    ...(snapshot === undefined
      ? {}
      : { restore: snapshot, restoredBytes: (key) => bytes?.get(key) }),
  });
}

async function registerPage(server: FastifyInstance): Promise<void> {
  for (const [name, file] of await loadPageFiles()) {
    const path = name === "index.html" ? "/" : `/page/${name}`;
    server.get(path, (_request, reply) => reply.type(file.contentType).send(file.body));
  }
}

function countActivity(simulator: FeishuSimulator, metrics: Metrics): void {
  const calls = metrics.createCounter("larkline_simulator_api_calls_total", {
    description: "Calls of the simulated open platform by HTTP status (0: no answer) and code",
    labels: ["status", "code"],
  });
  const deliveries = metrics.createCounter("larkline_simulator_deliveries_total", {
    description: "Attempts to deliver an event by transport and result",
    labels: ["transport", "acknowledged"],
  });
  simulator.on("apiCall", ({ status, code }) => calls.add(1, { status, code }));
  simulator.on("delivery", ({ transport, acknowledged }) =>
    deliveries.add(1, { transport, acknowledged: String(acknowledged) }),
  );
}

const loopbackNames = new Set(["localhost", "127.0.0.1", "[::1]"]);

/**
 * Guards the page and its API. Another web page must not steer the playground: a request that
 * names an origin must come from our own. Bound to loopback, only loopback names are served, so
 * that a foreign name that resolves to this machine does not count as our own.
 */
function guardAccess(server: FastifyInstance, host: string): void {
  const loopbackOnly = loopbackNames.has(host) || host === "::1";
  server.addHook("onRequest", async (request, reply) => {
    const { host: name = "", origin, "sec-fetch-site": from } = request.headers;
    if (loopbackOnly && !loopbackNames.has(name.replace(/:\d+$/, ""))) {
      return reply.code(403).send({ error: "this playground is served to this machine only" });
    }
    // Our pages send no referrer, and so a form of theirs has no origin; only a browser can say that it is ours.
    const isOwnForm = origin === "null" && from === "same-origin";
    const foreign = origin !== undefined && origin !== `http://${name}` && !isOwnForm;
    if (foreign || from === "cross-site") {
      return reply.code(403).send({ error: "requests of other sites are refused" });
    }
    return undefined;
  });
  server.addHook("onSend", async (_request, reply) => {
    reply.headers({
      "content-security-policy":
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cache-control": "no-store",
    });
  });
}

const shownMessages = 300;
const shownEntries = 200;

/** The same in every playground, so that roles of a configuration can name them (infra/dev/playground.config.ts). */
const scenePeople = [
  { name: "张伟 Wei", openId: "ou_00000000000000000000000000000001" },
  { name: "Alice", openId: "ou_00000000000000000000000000000002" },
];

/** Rooms that people of the scene can book. */
const sceneRooms = [
  { roomId: "omm_azalea", name: "杜鹃厅 Azalea", capacity: 8 },
  { roomId: "omm_bamboo", name: "竹林厅 Bamboo", capacity: 4 },
];

/** A plan and a table that all people share, and a document that only the first one may see. */
function createWork({ users, work }: FeishuSimulator): void {
  const [first, ...others] = [...users.keys()];
  if (first === undefined) return;
  const base = work.tables.addBase({ owner: first, name: "项目 Project" });
  const plan = work.docs.addDocument({
    owner: first,
    title: "项目计划 Project plan",
    markdown:
      "# 目标 Goals\n\n- 十二月上线 Ship in December\n\n# 下一步 Next steps\n\n- [ ] 试运行 Trial run" +
      `\n\n表格 Table: https://feishu.cn/base/${base.appToken}`,
  });
  work.docs.addDocument({
    owner: first,
    title: "私人笔记 Private notes",
    markdown: "只有我能看到 Only I can see this",
  });
  const { tableId } = work.tables.addTable(base.appToken, {
    name: "任务 Tasks",
    fields: [
      { name: "任务 Task", type: 1 },
      { name: "天数 Days", type: 2 },
      {
        name: "状态 State",
        type: 3,
        property: { options: [{ name: "待办 open" }, { name: "完成 done" }] },
      },
    ],
  });
  work.tables.addRecord(base.appToken, tableId, {
    "任务 Task": "试运行 Trial run",
    "状态 State": "待办 open",
  });
  for (const other of others) {
    for (const id of [plan.documentId, base.appToken]) work.share(id, other, "edit");
  }
}

/** Two people with a chat of their own each, and a group of both with the bot. */
function createScene(simulator: FeishuSimulator): void {
  const people = scenePeople.map((person) => simulator.addUser(person));
  for (const { openId, name } of people) {
    simulator.addChat({ type: "p2p", name, members: [openId] });
  }
  simulator.addChat({
    type: "group",
    name: "项目组 Project",
    members: people.map((person) => person.openId),
  });
}

function chatView(chat: SimChat): ChatView {
  const { chatId, type, topic, name } = chat;
  return { chatId, type, topic, name, members: [...chat.members], bots: [...chat.bots] };
}

/** The latest of everything, bounded. */
function stateOf(
  simulator: FeishuSimulator,
  monthCalls: number,
  setAside: string | undefined,
): PlaygroundState {
  const chats = [...simulator.chats.values()];
  return {
    apps: simulator.apps,
    people: [...simulator.users.values()].map(({ openId, name }) => ({ openId, name })),
    chats: chats.map(chatView),
    messages: chats.flatMap((chat) => simulator.messages(chat.chatId).slice(-shownMessages)),
    calls: simulator.apiCalls.slice(-shownEntries),
    deliveries: simulator.deliveries.slice(-shownEntries),
    refusals: simulator.refusals.slice(-shownEntries),
    monthCalls,
    faults: simulator.faults.size,
    ...(setAside === undefined ? {} : { setAside }),
  };
}

/** Counts calls as the tenant's quota does. */
interface MonthCounter {
  readonly calls: number;
  count(call: ApiCall): void;
}

/** Calls that cost nothing: auth, event and contact (notice on API call volume). */
const exempt = /^\/(open-apis\/(auth|authen|event|contact)|callback|oauth)\//;
/** Months begin by the platform's clock, UTC+8. */
const zoneMs = 8 * 3_600_000;

function createMonthCounter(): MonthCounter {
  let month = "";
  let calls = 0;
  return {
    get calls() {
      return calls;
    },
    count({ path, at }) {
      if (exempt.test(path)) return;
      const current = new Date(at + zoneMs).toISOString().slice(0, 7);
      if (current !== month) [month, calls] = [current, 0];
      calls += 1;
    },
  };
}

interface PageFile {
  contentType: string;
  body: string;
}

const contentTypes: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

const pageDirectory = fileURLToPath(new URL("page/", import.meta.url));

/** The page's files by name, made once: what lies in its folder, and all of its scripts as `app.js`. */
async function loadPageFiles(): Promise<ReadonlyMap<string, PageFile>> {
  const files = (await readdir(pageDirectory)).flatMap((name) => {
    const contentType = contentTypes[extname(name)];
    return contentType === undefined ? [] : [{ name, contentType }];
  });
  const entries = files.map(async ({ name, contentType }): Promise<[string, PageFile]> => {
    const body = await readFile(join(pageDirectory, name), "utf8");
    return [name, { contentType, body: name === "style.css" ? `${await theme()}\n${body}` : body }];
  });
  const script = { contentType: "text/javascript; charset=utf-8", body: await pageScript() };
  return new Map([...(await Promise.all(entries)), ["app.js", script]]);
}

/** What the page has in common with the console. */
async function theme(): Promise<string> {
  return await readFile(new URL(import.meta.resolve("@larkline/process/theme.css")), "utf8");
}

const heartbeatMs = 15_000;
const maximumPages = 32;
const backlogLimitBytes = 4 * 1024 * 1024;

function createEventStream(simulator: FeishuSimulator, setAside: string | undefined): EventStream {
  const pages = new Set<ServerResponse>();
  const month = createMonthCounter();
  const send = (event: PlaygroundEvent): void => {
    if (pages.size === 0) return;
    const text = frame(event);
    for (const page of pages) write(page, text);
  };
  const listeners = [
    simulator.on("message", (message) => send({ type: "message", message })),
    simulator.on("apiCall", (call) => {
      month.count(call);
      send({ type: "call", call, faults: simulator.faults.size, monthCalls: month.calls });
    }),
    simulator.on("refusal", (refusal) => send({ type: "refusal", refusal })),
    simulator.on("delivery", (delivery) => send({ type: "delivery", delivery })),
    simulator.on("connection", () => send({ type: "apps", apps: simulator.apps })),
    simulator.on("chat", (chat) => send({ type: "chat", chat: chatView(chat) })),
    simulator.on("user", ({ openId, name }) => send({ type: "person", person: { openId, name } })),
  ];
  const stopHeartbeat = systemClock.every(heartbeatMs, () => {
    for (const page of pages) write(page, ": alive\n\n");
  });
  return {
    open(response) {
      if (pages.size >= maximumPages) return false;
      response.writeHead(200, {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-store",
      });
      response.write(frame({ type: "state", state: stateOf(simulator, month.calls, setAside) }));
      pages.add(response);
      response.on("close", () => pages.delete(response));
      return true;
    },
    send,
    close() {
      stopHeartbeat();
      for (const stop of listeners) stop();
      for (const page of pages) page.end();
    },
  };
}

function frame(event: PlaygroundEvent): string {
  return `data: ${JSON.stringify(event)}\n\n`;
}

/** A page that does not read falls behind and is cut off; it connects again and gets the state. */
function write(page: ServerResponse, text: string): void {
  if (page.writableLength > backlogLimitBytes) page.destroy();
  else page.write(text);
}

export interface PlaygroundConfig {
  host: string;
  port: number;
  logLevel: LogLevel;
  appId: string;
  appSecret: string;
  encryptKey: string | undefined;
  verificationToken: string | undefined;
  /** Where events go while the bot has no long connection. */
  webhookUrl: string | undefined;
  /** Port of the scripted model server; without it none is started. */
  modelPort: number | undefined;
  /** Where people, chats and messages are kept for the next start; without it they are not. */
  dataDirectory: string | undefined;
}

const defaultAppId = "cli_1a2b3c4d5e6f7081";

/** Reads the environment; every problem is reported at once, one per line, naming the variable. */
export function loadConfig(env: Env): ParseResult<PlaygroundConfig> {
  const reader = createEnvReader(env);
  const appId = reader.text("FEISHU_APP_ID", { default: defaultAppId });
  if (!/^cli_[0-9a-fA-F]{16}$/.test(appId)) {
    reader.problem("FEISHU_APP_ID must be cli_ and 16 hex digits.");
  }
  return reader.finish({
    host: reader.text("HOST", { default: "127.0.0.1" }),
    port: reader.port("PORT", { default: 8004 }),
    logLevel: reader.choice("LOG_LEVEL", logLevels, { default: "info" }),
    appId,
    appSecret: reader.secret("FEISHU_APP_SECRET", { default: "playground" }),
    encryptKey: reader.secret("FEISHU_ENCRYPT_KEY"),
    verificationToken: reader.secret("FEISHU_VERIFICATION_TOKEN"),
    webhookUrl: reader.url("FEISHU_WEBHOOK_URL"),
    modelPort: reader.port("MODEL_PORT"),
    dataDirectory: reader.text("LARKLINE_DATA_DIR"),
  });
}
