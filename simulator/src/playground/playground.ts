import type { RequestListener } from "node:http";
import { startFeishuSimulator, type FeishuSimulator } from "../index.ts";
import { registerOpsRoutes, type Logger, type Metrics } from "@larkline/process/telemetry";
import { startModelServer, type ModelServer } from "@larkline/testkit";
import { fastify, type FastifyInstance } from "fastify";
import { guardAccess } from "./access.ts";
import type { PlaygroundConfig } from "./config.ts";
import { createEventStream } from "./event-stream.ts";
import { loadPageFiles } from "./page-files.ts";
import { registerPlaygroundRoutes } from "./playground-routes.ts";
import { createScene } from "./scene.ts";

export type { PlaygroundConfig };

export interface PlaygroundParts {
  config: PlaygroundConfig;
  logger: Logger;
  metrics: Metrics;
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
export async function startPlayground({ config, logger, metrics }: PlaygroundParts): Promise<Playground> {
  const server = fastify({ bodyLimit: 256 * 1024, forceCloseConnections: true });
  let pageReady = false;
  const simulator = await startSimulator(config, (request, response) => {
    // The simulator listens first: what the page is made of needs it.
    if (pageReady) server.routing(request, response);
    else response.writeHead(503, { "retry-after": "1" }).end();
  });
  countActivity(simulator, metrics);
  createScene(simulator);
  const stream = createEventStream(simulator);
  guardAccess(server, config.host);
  registerOpsRoutes(server, { metrics, logger, ready: async () => ({ simulator: true }) });
  registerPlaygroundRoutes(server, { simulator, stream, appId: config.appId });
  await registerPage(server);
  await server.ready();
  pageReady = true;
  let model: ModelServer | undefined;
  const close = async (): Promise<void> => {
    stream.close();
    await Promise.all([simulator.close(), server.close(), model?.close()]);
  };
  try {
    if (config.modelPort !== undefined) model = await startModelServer({ port: config.modelPort, host: config.host });
  } catch (error) {
    await close();
    throw error;
  }
  return { url: simulator.url, modelUrl: model?.url, simulator, close };
}

function startSimulator(config: PlaygroundConfig, serve: RequestListener): Promise<FeishuSimulator> {
  const { appId, appSecret, encryptKey, verificationToken, webhookUrl } = config;
  return startFeishuSimulator({
    host: config.host,
    port: config.port,
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
