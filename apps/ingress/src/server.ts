import type { IncomingMessage, Server } from "node:http";
import type { Socket } from "node:net";
import cors from "@fastify/cors";
import { registerOpsRoutes } from "@larkline/process/telemetry";
import { type Clock, pause } from "@larkline/protocol/clock";
import { Announcer } from "@larkline/store/operations";
import { fastify, type FastifyError, type FastifyInstance } from "fastify";
import manifest from "../package.json" with { type: "json" };
import { guardApi } from "./api-access.ts";
import { registerChatRoutes } from "./api.ts";
import { callerDoors, signedDoors, subscribe } from "./doors/index.ts";
import { registerApprovalRoutes } from "./approvals.ts";
import { registerMemoryRoutes } from "./memories.ts";
import { registerConsentRoute } from "./consent-callback.ts";
import { drainMs, feedsOf, type Bot } from "./bot.ts";
import { ConnectionChecks, EventWatch, openLongConnection } from "./long-connection.ts";
import { registerDescription } from "./openapi.ts";
import { refusalLog } from "./refusal-log.ts";
import { registerRunRoutes } from "./run-requests.ts";
import type { Services } from "./services.ts";
import { registerScheduleRoutes } from "./schedule-api.ts";
import { registerSessionRoutes } from "./session-api.ts";
import { registerWebhookRoutes } from "./webhook.ts";

/** A running ingress. */
export interface Ingress {
  /** The port in use. */
  port: number;
  /** What `/ready` reports. */
  ready(): Promise<Record<string, boolean | string>>;
  /** Accepts nothing new, finishes running requests, ends streams so that clients resume elsewhere. Idempotent. */
  close(): Promise<void>;
}

/**
 * Starts everything that takes messages. Until `warm` resolves `/ready` is not 200 and no long connection is opened;
 * requests are taken. Rejects when the port is taken or the app id cannot be one.
 */
export async function startIngress(
  services: Services,
  bots: readonly Bot[],
  warm?: Promise<void>,
): Promise<Ingress> {
  const { config, clock, instances, log, otherEvents, random, redis } = services;
  const connected = bots.filter(({ access }) => access.websocket);
  for (const bot of connected) bot.connection = openLongConnection(services, bot);
  const watches = connected.map((bot) => new EventWatch(services, bot));
  const connections = new ConnectionChecks(clock, bots);
  let closing = false;
  let isWarm = warm === undefined;
  const ready = async () => ({
    redis: await redis.ping(),
    writes: await redis.takesWrites(),
    clock: redis.serverClock.problem ?? true,
    accepting: isWarm && !closing,
    ...connections.states(),
  });
  const server = await createServer(services, bots, ready);
  await server.listen({ host: config.host, port: config.port });
  // Last of all: the platform would send events to a process that then fails to start.
  const takeEvents = (): void => {
    isWarm = true;
    if (closing) return;
    for (const bot of bots) {
      bot.connection?.start();
      subscribe(services, bot);
    }
  };
  if (warm === undefined) takeEvents();
  else void warm.then(takeEvents); // it never rejects
  const announcer = new Announcer({
    directory: instances,
    id: `ingress-${random.uuid()}`,
    service: "ingress",
    version: manifest.version,
    apps: bots.map(({ app }) => app),
    serverClock: redis.serverClock,
    feeds: () => bots.flatMap(feedsOf),
    clock,
    onError: (error) => log.warn({ error }, "this process could not be announced to the others"),
  });

  const shutDown = async () => {
    closing = true;
    const patient = clock.after(drainMs, () => server.server.closeAllConnections());
    await Promise.all([
      ...bots.map(async ({ connection }) => await connection?.close()),
      server.close(),
    ]);
    patient();
    otherEvents.close();
    await announcer.close();
    await Promise.all([...watches, ...bots].map(async (one) => await one.close()));
  };
  let closed: Promise<void> | undefined;
  const address = server.server.address();
  const port = typeof address === "object" && address !== null ? address.port : config.port;
  return { port, ready, close: async () => await (closed ??= shutDown()) };
}

/** Largest body that is read: events of the platform stay far below. */
const bodyLimit = 1_048_576;

/** How long a client may take to send its request, and how often Node looks for those that take longer. */
const requestTimeoutMs = 10_000;
const slowRequestsEveryMs = 1_000;

/** The HTTP server with all routes, not yet listening. Forwarding headers of proxies are not believed. */
export async function createServer(
  services: Services,
  bots: readonly Bot[],
  ready: () => Promise<Record<string, boolean | string>>,
): Promise<FastifyInstance> {
  const { clock, config, log, metrics, schemas, streams } = services;
  const { corsOrigins } = config.api;
  const server = fastify({
    logger: false,
    bodyLimit,
    requestTimeout: requestTimeoutMs,
    http: { headersTimeout: requestTimeoutMs, connectionsCheckingInterval: slowRequestsEveryMs },
    forceCloseConnections: "idle",
    trustProxy: false,
    exposeHeadRoutes: false, // a request for its head would use up the state of a consent
  });
  handleErrors(server, services);
  // Signatures cover bytes, and bad JSON gets our own answer: bodies are left alone, whatever their type.
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) =>
    done(null, body),
  );
  for (const bot of bots) {
    if (bot.access.webhook) {
      await server.register(async (scope) => registerWebhookRoutes(scope, services, bot));
    }
    if (bot.settings.feishu.consentUrl !== null) registerConsentRoute(server, services, bot);
  }
  // In a scope of their own: hooks of the server itself would run for webhooks, too.
  await server.register(async (scope) => {
    await scope.register(cors, {
      origin: corsOrigins === "*" ? "*" : [...corsOrigins],
      methods: ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
      exposedHeaders: ["X-Session-Id", "X-Run-Id", "X-Trace-Id"],
      credentials: false,
      maxAge: 600,
    });
    scope.setNotFoundHandler(
      async (_request, reply) => await reply.code(404).send({ error: "not found" }),
    );
    registerOpsRoutes(scope, { metrics, ready, logger: log, clock });
    registerDescription(scope);
    const logRefused = refusalLog(clock, log, "API request refused");
    for (const register of [
      registerChatRoutes,
      registerRunRoutes,
      registerSessionRoutes,
      registerMemoryRoutes,
      registerScheduleRoutes,
      registerApprovalRoutes,
    ]) {
      await scope.register(async (api) => {
        guardApi(api, services, logRefused);
        register(api, services);
      });
    }
    await scope.register(async (api) => {
      guardApi(api, services, logRefused);
      for (const register of callerDoors) register(api, services, bots);
    });
    await scope.register(async (api) => {
      for (const register of signedDoors) register(api, services, bots);
    });
  });
  const closeUnused = noteUnused(server.server);
  // Streams would not end in time by themselves, so they are ended before the server waits for its requests.
  server.addHook("preClose", async () => {
    await Promise.all([streams.close(), schemas.close()]);
    closeUnused();
  });
  return server;
}

/** Node waits at its close for the first request of every connection; clients open some ahead, and use them later or never. */
function noteUnused(server: Server): () => void {
  const open = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
  });
  return () => {
    for (const socket of open) if (socket.bytesRead === 0) socket.destroy();
  };
}

/** How much is read of a body that is too large, and for how long. */
const discardedBytes = 16 * bodyLimit;
const discardedMs = 5_000;

/**
 * Reads on, and keeps nothing: a connection that is closed while its client still sends is reset, and the client loses
 * the answer.
 */
async function discardBody(body: IncomingMessage, clock: Clock): Promise<void> {
  if (body.readableEnded) return;
  const ended = new AbortController();
  const end = (): void => ended.abort();
  let bytes = 0;
  body.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > discardedBytes) end();
  });
  for (const event of ["end", "error", "close"]) body.once(event, end);
  body.resume();
  await pause(clock, discardedMs, ended.signal);
}

function handleErrors(
  server: FastifyInstance,
  { log, clock }: Pick<Services, "log" | "clock">,
): void {
  server.setErrorHandler(async (error: FastifyError, request, reply) => {
    const status = error.statusCode ?? 500;
    if (status === 413) await discardBody(request.raw, clock);
    if (status < 500) {
      log.warn({ path: request.routeOptions.url, status, reason: error.code }, "request refused");
      return await reply
        .code(status)
        .send({ error: status === 413 ? "the body is too large" : error.message });
    }
    log.error({ error, path: request.routeOptions.url }, "request failed");
    return await reply.code(500).send({ error: "internal error" });
  });
}
