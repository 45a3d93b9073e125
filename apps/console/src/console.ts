import { createBudgetBook } from "@larkline/agent/budgets";
import { appIdsOf, botOfApp, type LarklineConfig } from "@larkline/process/config";
import type { Logger, Metrics } from "@larkline/process/telemetry";
import type { Backend } from "./backend.ts";
import type { ConsoleConfig } from "./config.ts";
import { startCanary } from "./canary.ts";
import { createConsoleMetrics } from "./console-metrics.ts";
import { createQueueList } from "./queue-list.ts";
import { showRedis } from "./redis-metrics.ts";
import { createServer } from "./server.ts";
import { createSignIns } from "./sign-ins.ts";
import { showState } from "./state-metrics.ts";

export interface ConsoleParts {
  config: Pick<ConsoleConfig, "host" | "port" | "passwords" | "proxies" | "appId" | "canary" | "domain">;
  settings: Pick<LarklineConfig, "bots" | "budgets">;
  backend: Backend;
  metrics: Metrics;
  logger: Logger;
}

export interface Console {
  /** The port in use. */
  port: number;
  /** Ends open requests. Idempotent. The backend stays its owner's to close. */
  close(): Promise<void>;
}

/** Name that stands for the HTTP API where a bot's app id would stand. */
const apiApp = "api";

/** Starts the console. Rejects when the port is taken. */
export async function startConsole({ config, settings, backend, metrics, logger }: ConsoleParts): Promise<Console> {
  const { passwords, appId } = config;
  const bots = appIdsOf(settings, appId);
  const queues = createQueueList({ ...backend, logger });
  const quotaOf = (app: string): number | null => botOfApp(settings, app).feishu.monthlyCalls;
  showState({ ...backend, metrics, queues, apps: bots, quotaOf, logger });
  showRedis(metrics, backend.servers);
  const canary = config.canary && startCanary({ ...config.canary, ...backend, metrics, logger });
  let isClosing = false;
  const server = await createServer({
    backend,
    queues,
    signIns: passwords === undefined ? undefined : createSignIns({ passwords, ...backend }),
    proxies: config.proxies,
    apps: [...bots, apiApp],
    platform: { settings, bots, domain: config.domain },
    budgets: createBudgetBook(settings.budgets),
    metrics,
    counters: createConsoleMetrics(metrics),
    canary,
    isClosing: () => isClosing,
    logger,
  });
  await server.listen({ host: config.host, port: config.port });
  const shutDown = async () => {
    isClosing = true;
    queues.close();
    await Promise.all([canary?.close(), server.close()]);
  };
  let closed: Promise<void> | undefined;
  const address = server.server.address();
  const port = typeof address === "object" && address !== null ? address.port : config.port;
  return { port, close: async () => await (closed ??= shutDown()) };
}
