import { fastify } from "fastify";
import { registerOpsRoutes, type OpsRoutes } from "./ops-routes.ts";

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
