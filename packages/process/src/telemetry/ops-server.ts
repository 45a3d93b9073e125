import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { systemClock, withDeadline, type Clock } from "@larkline/protocol/clock";
import type { FastifyInstance } from "fastify";
import type { Logger } from "./logger.ts";
import type { Metrics } from "./metrics.ts";

export interface OpsServer {
  /** The port in use, also when 0 was asked for. */
  port: number;
  /** Stops listening and ends open connections. Idempotent. */
  close(): Promise<void>;
}

export interface OpsServerOptions extends OpsRoutes {
  host: string;
  /** 0 takes any free port. */
  port: number;
}

/**
 * Serves health, readiness and metrics for a process that has no HTTP server of its own. Three fixed paths need no
 * framework, which takes a tenth of the CPU that such a process takes to start.
 * Rejects when the port is taken (`EADDRINUSE`).
 */
export async function startOpsServer({
  host,
  port,
  ...routes
}: OpsServerOptions): Promise<OpsServer> {
  const server = createServer((request, response) => void respond(request, response, routes));
  server.listen({ host, port });
  await once(server, "listening");
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : port,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  routes: OpsRoutes,
): Promise<void> {
  const { method = "", url = "" } = request;
  const [path = ""] = url.split("?");
  const answer = method === "GET" || method === "HEAD" ? opsAnswers.get(path) : undefined;
  try {
    const { code, type, text } = (await answer?.(routes)) ?? jsonOf(404, { error: "not found" });
    response.writeHead(code, { "content-type": type }).end(text);
  } catch (error) {
    routes.logger.error({ error, path }, "a request failed");
    response.writeHead(500).end();
  }
}

/**
 * Whether each dependency answers, by name. A text says what is wrong where that is no reason to take the process away
 * from those who need the rest: `lost`, when one of several of a kind does not answer. May reject; then the process
 * counts as not ready.
 */
export type ReadyCheck = () => Promise<Readonly<Record<string, boolean | string>>>;

export interface OpsRoutes {
  metrics: Metrics;
  ready: ReadyCheck;
  logger: Logger;
  /** Default 2000. */
  readyDeadlineMs?: number;
  /** The machine's if absent. */
  clock?: Clock;
}

/**
 * Adds `GET /health` (the process is alive), `GET /ready` (200 when every dependency answers within
 * the deadline, else 503, naming each) and `GET /metrics` to a server that an app already has.
 */
export function registerOpsRoutes(server: FastifyInstance, routes: OpsRoutes): void {
  for (const [path, answer] of opsAnswers) {
    server.get(path, { exposeHeadRoute: true }, async (_request, reply) => {
      const { code, type, text } = await answer(routes);
      return reply.code(code).type(type).send(text);
    });
  }
}

interface OpsAnswer {
  code: number;
  type: string;
  text: string;
}

function jsonOf(code: number, body: object): OpsAnswer {
  return { code, type: "application/json; charset=utf-8", text: JSON.stringify(body) };
}

const opsAnswers = new Map<string, (routes: OpsRoutes) => Promise<OpsAnswer>>([
  ["/health", async () => jsonOf(200, { status: "ok" })],
  [
    "/ready",
    async (routes) => {
      const readiness = await readinessOf(routes);
      return jsonOf(readiness.status === "ready" ? 200 : 503, readiness);
    },
  ],
  [
    "/metrics",
    async ({ metrics }) => ({ code: 200, type: metrics.contentType, text: await metrics.text() }),
  ],
]);

interface Readiness {
  status: "ready" | "not ready";
  checks: Awaited<ReturnType<ReadyCheck>>;
}

async function readinessOf({
  ready,
  logger,
  readyDeadlineMs = 2_000,
  clock = systemClock,
}: OpsRoutes): Promise<Readiness> {
  try {
    const checks = await withDeadline(clock, ready(), readyDeadlineMs);
    const status = Object.values(checks).every(Boolean) ? "ready" : "not ready";
    return { status, checks };
  } catch (error) {
    logger.warn({ error }, "readiness check failed");
    return { status: "not ready", checks: { answered: false } };
  }
}
