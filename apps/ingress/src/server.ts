import cors from "@fastify/cors";
import { fastify, type FastifyError, type FastifyInstance } from "fastify";
import { registerOpsRoutes, type Logger, type OpsRoutes } from "@larkline/process/telemetry";
import { registerApprovalRoutes, type ApprovalRoutesDeps } from "./approval-routes.ts";
import { registerChatRoutes, type ChatRoutesDeps } from "./chat-routes.ts";
import { registerRuleRoutes, type RuleRoutesDeps } from "./rule-routes.ts";
import { registerWebhookRoutes, type WebhookRoutesDeps } from "./webhook-routes.ts";

/** Largest body that is read: events of the platform stay far below. */
const bodyLimit = 1_048_576;

/** How long a client may take to send its request, and how often Node looks for those that take longer. */
const requestTimeoutMs = 10_000;
const slowRequestsEveryMs = 1_000;

export interface ServerDeps {
  ops: OpsRoutes;
  chat: ChatRoutesDeps;
  approvals: ApprovalRoutesDeps;
  rules: RuleRoutesDeps;
  /** One for each bot that takes webhooks. */
  webhooks: readonly WebhookRoutesDeps[];
  logger: Logger;
}

function handleErrors(server: FastifyInstance, logger: Logger): void {
  server.setErrorHandler(async (error: FastifyError, request, reply) => {
    const status = error.statusCode ?? 500;
    if (status < 500) {
      logger.warn({ path: request.routeOptions.url, status, reason: error.code }, "request refused");
      return await reply.code(status).send({ error: status === 413 ? "the body is too large" : error.message });
    }
    logger.error({ error, path: request.routeOptions.url }, "request failed");
    return await reply.code(500).send({ error: "internal error" });
  });
  server.setNotFoundHandler(async (_request, reply) => await reply.code(404).send({ error: "not found" }));
}

/** Signatures cover bytes, and bad JSON gets our own answer: bodies are left alone, whatever their type. */
function leaveBodiesAsBytes(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
}

/** The HTTP server with all routes, not yet listening. Forwarding headers of proxies are not believed. */
export async function createServer({
  ops,
  chat,
  approvals,
  rules,
  webhooks,
  logger,
}: ServerDeps): Promise<FastifyInstance> {
  const server = fastify({
    logger: false,
    bodyLimit,
    requestTimeout: requestTimeoutMs,
    http: { headersTimeout: requestTimeoutMs, connectionsCheckingInterval: slowRequestsEveryMs },
    forceCloseConnections: "idle",
    trustProxy: false,
  });
  handleErrors(server, logger);
  leaveBodiesAsBytes(server);
  await server.register(cors, {
    origin: chat.rules.corsOrigins === "*" ? "*" : [...chat.rules.corsOrigins],
    methods: ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
    exposedHeaders: ["X-Session-Id", "X-Run-Id", "X-Trace-Id"],
    credentials: false,
    maxAge: 600,
  });
  registerOpsRoutes(server, ops);
  await server.register(async (scope) => registerChatRoutes(scope, chat));
  await server.register(async (scope) => registerApprovalRoutes(scope, approvals));
  await server.register(async (scope) => registerRuleRoutes(scope, rules));
  for (const deps of webhooks) {
    await server.register(async (scope) => registerWebhookRoutes(scope, deps));
  }
  // Streams never end by themselves in time: they are ended before the server waits for its requests.
  server.addHook("preClose", async () => await chat.streams.close());
  return server;
}
