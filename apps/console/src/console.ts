import { readFile } from "node:fs/promises";
import { StartError } from "@larkline/process/app";
import { botOfApp } from "@larkline/process/config";
import { registerOpsRoutes, type Logger } from "@larkline/process/telemetry";
import {
  fastify,
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from "fastify";
import { guard, type Refusal } from "./access.ts";
import { registerAgent } from "./agent.ts";
import { registerAgents } from "./agents.ts";
import { registerApprovals } from "./approvals.ts";
import { registerBudgets } from "./budgets.ts";
import { registerDeadLetters } from "./dead-letters.ts";
import { registerErrors } from "./errors.ts";
import { registerFeedback } from "./feedback.ts";
import { registerGrants } from "./grants.ts";
import { registerFeishu } from "./feishu.ts";
import { registerJob } from "./job.ts";
import { showRedis, showState } from "./metrics.ts";
import { registerModels } from "./models.ts";
import { registerOverview } from "./overview.ts";
import { languageSwitch, problemPage, sendPage, strangersView } from "./page.ts";
import { boardPath, registerQueueBoard } from "./queue-board.ts";
import { registerRules } from "./rules.ts";
import { registerRunners } from "./runners.ts";
import { registerRuns } from "./runs.ts";
import { openServices, type ServiceOptions, type Services } from "./services.ts";
import { registerSchedules } from "./schedules.ts";
import { registerSession } from "./session.ts";
import { registerSessions } from "./sessions.ts";
import { registerSignIn } from "./sign-in.ts";
import { registerWhy } from "./why.ts";
import { registerTrends } from "./trends.ts";
import type { Word } from "./words.ts";

export interface Console {
  /** The port in use. */
  port: number;
  /** What `/ready` reports. */
  ready(): Promise<Record<string, boolean | string>>;
  /** Ends open requests, then the connection to Redis. Idempotent. */
  close(): Promise<void>;
}

/** Starts the console. Rejects when the port is taken. */
export async function startConsole(options: ServiceOptions): Promise<Console> {
  const services = openServices(options);
  const problem = await services.rightsProblem();
  if (problem !== undefined) {
    services.queues.close();
    await services.close();
    throw new StartError(problem);
  }
  const { bots, config, log, metrics, queues, settings } = services;
  const quotaOf = (app: string): number | null => botOfApp(settings, app).feishu.monthlyCalls;
  showState({ ...services, apps: bots, quotaOf, logger: log });
  showRedis(metrics, services.clock, services.servers);
  let isClosing = false;
  const ready = async () => ({
    redis: await services.ping(),
    writes: await services.takesWrites(),
    clock: services.serverClock.problem ?? true,
    accepting: !isClosing,
  });
  const server = await createServer(services, ready);
  const shutDown = async (): Promise<void> => {
    isClosing = true;
    queues.close();
    await server.close();
    await services.close();
  };
  let closed: Promise<void> | undefined;
  const close = async (): Promise<void> => await (closed ??= shutDown());
  try {
    await server.listen({ host: config.host, port: config.port });
  } catch (error) {
    await close();
    throw error;
  }
  const address = server.server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : config.port,
    ready,
    close,
  };
}

/** Forms and what Bull Board sends stay far below. */
const bodyLimit = 65_536;
const requestTimeoutMs = 10_000;
/** How often Node looks for requests that take longer. */
const slowRequestsEveryMs = 1_000;

type ReadyChecks = Parameters<typeof registerOpsRoutes>[1]["ready"];

/** The HTTP server with all routes, not yet listening. */
async function createServer(services: Services, ready: ReadyChecks): Promise<FastifyInstance> {
  const { config, log, metrics, signIns } = services;
  const sheets = [
    new URL(import.meta.resolve("@larkline/process/theme.css")),
    new URL("style.css", import.meta.url),
  ];
  const style = (
    await Promise.all(sheets.map(async (sheet) => await readFile(sheet, "utf8")))
  ).join("\n");
  const server = fastify({
    logger: false,
    bodyLimit,
    requestTimeout: requestTimeoutMs,
    http: { headersTimeout: requestTimeoutMs, connectionsCheckingInterval: slowRequestsEveryMs },
    forceCloseConnections: true,
    trustProxy: config.proxies.length > 0 && [...config.proxies],
    routerOptions: { maxParamLength: 500 },
  });
  handleErrors(server, log);
  readForms(server);
  await guard(server, services, refuse);
  switchLanguages(server);
  registerOpsRoutes(server, { metrics, ready, logger: log, clock: services.clock });
  server.get("/style.css", async (_request, reply) =>
    reply.header("cache-control", "max-age=300").type("text/css; charset=utf-8").send(style),
  );
  if (signIns !== undefined) registerSignIn(server, services, signIns);
  registerOverview(server, services);
  registerRuns(server, services);
  registerErrors(server, services);
  registerTrends(server, services);
  registerFeedback(server, services);
  registerWhy(server, services);
  registerSessions(server, services);
  registerSession(server, services);
  registerJob(server, services);
  registerRunners(server, services);
  registerAgents(server, services);
  registerAgent(server, services);
  registerModels(server, services);
  registerApprovals(server, services);
  registerRules(server, services);
  registerSchedules(server, services);
  registerGrants(server, services);
  registerDeadLetters(server, services);
  registerBudgets(server, services);
  registerFeishu(server, services);
  await registerQueueBoard(server, services);
  return server;
}

function handleErrors(server: FastifyInstance, log: Logger): void {
  server.setErrorHandler(async (error: FastifyError, request, reply) => {
    if (error.code?.startsWith("FST_CSRF_")) {
      return await refuse(request, reply, { status: 403, reason: "foreign" });
    }
    const status = error.statusCode ?? 503;
    const facts = { error, path: request.routeOptions.url, status };
    if (status < 500) log.warn(facts, "request refused");
    else log.error(facts, "request failed");
    return await sendProblem(reply, status, status < 500 ? "badRequest" : "away");
  });
  server.setNotFoundHandler(async (_request, reply) => await sendProblem(reply, 404, "notFound"));
}

async function sendProblem(
  reply: FastifyReply,
  status: number,
  problem: Word,
): Promise<FastifyReply> {
  const view = strangersView(reply.request, false);
  return await sendPage(reply.code(status), view, problemPage(view, problem));
}

const refusals: Readonly<Record<Exclude<Refusal["reason"], "sign_in">, Word>> = {
  not_local: "notLocal",
  foreign: "foreign",
  viewer: "viewersLook",
};

/** Pages send people to the sign-in; Bull Board's scripts get an answer that they can tell. */
async function refuse(
  request: FastifyRequest,
  reply: FastifyReply,
  { status, reason }: Refusal,
): Promise<unknown> {
  if (request.url.startsWith(`${boardPath}/api/`)) {
    return await reply.code(status).send({ error: { key: "ERRORS.FORBIDDEN", reason } });
  }
  if (reason !== "sign_in") return await sendProblem(reply, status, refusals[reason]);
  const next = request.method === "GET" ? `?next=${encodeURIComponent(request.url)}` : "";
  return await reply.redirect(`/sign-in${next}`, 303);
}

function readForms(server: FastifyInstance): void {
  server.addContentTypeParser(
    "application/x-www-form-urlencoded",
    { parseAs: "string" },
    (_request, body, done) => done(null, new URLSearchParams(String(body))),
  );
}

function switchLanguages(server: FastifyInstance): void {
  server.addHook("onRequest", async (request, reply) => {
    const next = languageSwitch(request, reply);
    return next === undefined ? undefined : await reply.redirect(next, 303);
  });
}
