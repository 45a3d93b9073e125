import { readFile } from "node:fs/promises";
import type { BudgetBook } from "@larkline/agent/budgets";
import { registerOpsRoutes, type Logger, type Metrics } from "@larkline/process/telemetry";
import { fastify, type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { Backend } from "./backend.ts";
import type { Canary } from "./canary.ts";
import { registerBudgetRoutes } from "./budget-routes.ts";
import type { ConsoleMetrics } from "./console-metrics.ts";
import { guard, type Refusal } from "./guard.ts";
import { registerDeadLetterRoutes } from "./dead-letter-routes.ts";
import { registerJobRoutes } from "./job-routes.ts";
import { registerOverviewRoutes } from "./overview-routes.ts";
import { sendPage, type PagesDeps } from "./pages.ts";
import { registerPlatformRoutes, type PlatformDeps } from "./platform-routes.ts";
import { problemPage } from "./problem-page.ts";
import { boardPath, registerQueueBoard } from "./queue-board.ts";
import type { QueueList } from "./queue-list.ts";
import { registerRuleRoutes } from "./rule-routes.ts";
import { sendSecurityHeaders } from "./security-headers.ts";
import { registerSessionListRoutes } from "./session-list-routes.ts";
import { registerSessionRoutes } from "./session-routes.ts";
import { registerSignInRoutes } from "./sign-in-routes.ts";
import type { SignIns } from "./sign-ins.ts";
import { languageSwitch, viewOf } from "./view.ts";
import { registerWhyRoutes } from "./why-routes.ts";
import type { Word } from "./words.ts";

/** Forms and what Bull Board sends stay far below. */
const bodyLimit = 65_536;
const requestTimeoutMs = 10_000;
/** How often Node looks for requests that take longer. */
const slowRequestsEveryMs = 1_000;
/** Finding out who somebody is. */
const signInDeadlineMs = 3_000;
/** Reading everything that one page shows. */
const pageDeadlineMs = 8_000;

export interface ServerDeps {
  backend: Backend;
  queues: QueueList;
  /** Absent: whoever is on this machine is an operator. */
  signIns: SignIns | undefined;
  /** Addresses and networks of proxies that are believed what they say about a client's address. */
  proxies: readonly string[];
  /** Apps whose rules are shown. */
  apps: readonly string[];
  /** What the pages about Feishu need to know of the configuration. */
  platform: Pick<PlatformDeps, "settings" | "bots" | "domain">;
  /** Who may spend what. */
  budgets: BudgetBook;
  metrics: Metrics;
  counters: ConsoleMetrics;
  /** Absent: nobody asks whether messages are answered. */
  canary: Pick<Canary, "isAlive"> | undefined;
  isClosing: () => boolean;
  logger: Logger;
}

async function sendProblem(reply: FastifyReply, status: number, problem: Word): Promise<FastifyReply> {
  const view = viewOf(reply.request, undefined, false);
  return await sendPage(reply.code(status), view, problemPage(view, problem));
}

const refusals: Readonly<Record<Exclude<Refusal["reason"], "sign_in">, Word>> = {
  not_local: "notLocal",
  foreign: "foreign",
  viewer: "viewersLook",
};

/** Pages send people to the sign-in; Bull Board's scripts get an answer that they can tell. */
async function refuse(request: FastifyRequest, reply: FastifyReply, { status, reason }: Refusal): Promise<unknown> {
  if (request.url.startsWith(`${boardPath}/api/`)) {
    return await reply.code(status).send({ error: { key: "ERRORS.FORBIDDEN", reason } });
  }
  if (reason !== "sign_in") return await sendProblem(reply, status, refusals[reason]);
  const next = request.method === "GET" ? `?next=${encodeURIComponent(request.url)}` : "";
  return await reply.redirect(`/sign-in${next}`, 303);
}

function handleErrors(server: FastifyInstance, logger: Logger): void {
  server.setErrorHandler(async (error: FastifyError, request, reply) => {
    const status = error.statusCode ?? 503;
    const facts = { error, path: request.routeOptions.url, status };
    if (status < 500) logger.warn(facts, "request refused");
    else logger.error(facts, "request failed");
    return await sendProblem(reply, status, status < 500 ? "badRequest" : "away");
  });
  server.setNotFoundHandler(async (_request, reply) => await sendProblem(reply, 404, "notFound"));
}

function readForms(server: FastifyInstance): void {
  server.addContentTypeParser("application/x-www-form-urlencoded", { parseAs: "string" }, (_request, body, done) =>
    done(null, new URLSearchParams(String(body))),
  );
}

function switchLanguages(server: FastifyInstance): void {
  server.addHook("onRequest", async (request, reply) => {
    const next = languageSwitch(request, reply);
    return next === undefined ? undefined : await reply.redirect(next, 303);
  });
}

async function registerPages(server: FastifyInstance, deps: ServerDeps, pages: PagesDeps): Promise<void> {
  const { apps, backend, budgets, queues, logger } = deps;
  registerOverviewRoutes(server, { ...pages, queues });
  registerRuleRoutes(server, { ...pages, apps });
  registerBudgetRoutes(server, { ...pages, book: budgets });
  registerSessionListRoutes(server, { ...pages, apps });
  registerSessionRoutes(server, pages);
  registerDeadLetterRoutes(server, { ...pages, queues });
  registerPlatformRoutes(server, { ...pages, ...deps.platform });
  registerWhyRoutes(server, pages);
  registerJobRoutes(server, { ...pages, queues });
  const { visitorOf, onAction } = pages;
  const { catalog } = backend;
  await registerQueueBoard(server, { catalog, queues, visitorOf, onAction, deadlineMs: pageDeadlineMs, logger });
}

/** The HTTP server with all routes, not yet listening. */
export async function createServer(deps: ServerDeps): Promise<FastifyInstance> {
  const { backend, signIns, proxies, metrics, counters, canary, isClosing, logger } = deps;
  const style = await readFile(new URL("style.css", import.meta.url), "utf8");
  const server = fastify({
    logger: false,
    bodyLimit,
    requestTimeout: requestTimeoutMs,
    http: { headersTimeout: requestTimeoutMs, connectionsCheckingInterval: slowRequestsEveryMs },
    forceCloseConnections: true,
    trustProxy: proxies.length > 0 && [...proxies],
    routerOptions: { maxParamLength: 500 },
  });
  handleErrors(server, logger);
  readForms(server);
  sendSecurityHeaders(server, boardPath);
  const visitorOf = guard(server, { signIns, deadlineMs: signInDeadlineMs, refuse });
  switchLanguages(server);
  const ready = async () => ({
    redis: await backend.ping(),
    writes: await backend.takesWrites(),
    clock: backend.clockProblem() ?? true,
    accepting: !isClosing(),
    ...(canary === undefined ? {} : { canary: await canary.isAlive() }),
  });
  registerOpsRoutes(server, { metrics, ready, logger });
  server.get("/style.css", async (_request, reply) =>
    reply.header("cache-control", "max-age=300").type("text/css; charset=utf-8").send(style),
  );
  if (signIns !== undefined) {
    const onTry = (outcome: string) => counters.signIns.add({ outcome });
    registerSignInRoutes(server, {
      signIns,
      onTry,
      knowsAddresses: proxies.length > 0,
      deadlineMs: signInDeadlineMs,
    });
  }
  const onAction = (action: string, path: string) => {
    counters.actions.add({ action });
    logger.info({ action, path }, "an operator acted");
  };
  const pages = { backend, visitorOf, hasSignIn: signIns !== undefined, deadlineMs: pageDeadlineMs, onAction };
  await registerPages(server, deps, pages);
  return server;
}
