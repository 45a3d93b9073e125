import { systemClock, withDeadline } from "@larkline/protocol";
import { fastify, type FastifyInstance } from "fastify";
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
 * Serves health, readiness and metrics for a process that has no HTTP server of its own.
 * Rejects when the port is taken (`EADDRINUSE`).
 */
export async function startOpsServer(options: OpsServerOptions): Promise<OpsServer> {
  const server = fastify({ logger: false, forceCloseConnections: true });
  registerOpsRoutes(server, options);
  await server.listen({ host: options.host, port: options.port });
  const address = server.server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : options.port,
    close: async () => {
      await server.close();
    },
  };
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
}

/**
 * Adds `GET /health` (the process is alive), `GET /ready` (200 when every dependency answers within
 * the deadline, else 503, naming each) and `GET /metrics` to a server that an app already has.
 */
export function registerOpsRoutes(server: FastifyInstance, routes: OpsRoutes): void {
  server.get("/health", () => ({ status: "ok" }));
  server.get("/ready", async (_request, reply) => {
    const readiness = await readinessOf(routes);
    return reply.code(readiness.status === "ready" ? 200 : 503).send(readiness);
  });
  server.get("/metrics", async (_request, reply) =>
    reply.type(routes.metrics.contentType).send(await routes.metrics.text()),
  );
}

interface Readiness {
  status: "ready" | "not ready";
  checks: Awaited<ReturnType<ReadyCheck>>;
}

async function readinessOf({ ready, logger, readyDeadlineMs = 2_000 }: OpsRoutes): Promise<Readiness> {
  try {
    const checks = await withDeadline(systemClock, ready(), readyDeadlineMs);
    const status = Object.values(checks).every(Boolean) ? "ready" : "not ready";
    return { status, checks };
  } catch (error) {
    logger.warn({ error }, "readiness check failed");
    return { status: "not ready", checks: { answered: false } };
  }
}
