import { randomUUID } from "node:crypto";
import { turnLimits, type TurnEnvironment } from "@larkline/agent";
import type { LarklineConfig } from "@larkline/config";
import type { ModelChain } from "@larkline/model";
import { createTurnWorker, type JobWorker } from "@larkline/queue";
import type { AvailableTool } from "@larkline/session";
import type { Logger } from "@larkline/telemetry";
import type { WorkerConfig } from "./config.ts";
import { openConnections, type Connections } from "./connections.ts";
import { startHeartbeat } from "./heartbeat.ts";
import { turnModelOf } from "./models.ts";
import { RunningTurns } from "./running-turns.ts";
import { createSessionRunner } from "./session-runner.ts";
import { startSweeper, wakeAfter } from "./sweeper.ts";
import { createToolCatalog, type ToolCatalog } from "./tool-catalog.ts";
import { dispatchCalls } from "./tool-dispatch.ts";
import type { WorkerMetrics } from "./worker-metrics.ts";

export interface WorkerSetup {
  config: WorkerConfig;
  settings: LarklineConfig;
  chain: ModelChain;
  metrics: WorkerMetrics;
  logger: Logger;
}

export interface AgentWorker {
  /** What `/ready` reports. */
  ready(): Promise<Record<string, boolean>>;
  /** Hands running turns over and closes everything. Idempotent. */
  close(): Promise<void>;
}

/** Crashes of one message after which it is given up. */
const maxTries = 5;
// Shorter than BullMQ's defaults: a wake-up whose worker died before it claimed, or between saving and
// handing out calls, has no other way back. A job that is taken away too early is fenced.
const lockDurationMs = 5_000;
const stalledIntervalMs = 1_500;
/** Messages of one session taken in a row before others get their turn. */
const maxInRow = 8;

interface WorkerParts extends WorkerSetup {
  owner: string;
  connections: Connections;
  catalog: ToolCatalog;
  running: RunningTurns;
}

/** Opens every connection and starts to work. */
export async function startWorker(setup: WorkerSetup): Promise<AgentWorker> {
  const { config, logger } = setup;
  const owner = `worker-${randomUUID()}`;
  const onError = (error: unknown): void => logger.warn({ error }, "background error");
  const stopping = new AbortController();
  const connections = openConnections(config, logger);
  const { directory, presence, bus } = connections;
  const catalog = await createToolCatalog({ directory, signal: stopping.signal, onError });
  const running = new RunningTurns();
  await bus.subscribe(({ session, turnId }) => running.cancel(session, turnId), stopping.signal);
  const heartbeat = await startHeartbeat({ presence, owner, onError });
  const parts: WorkerParts = { ...setup, owner, connections, catalog, running };
  const worker = startTurns(parts);
  const sweeper = startSweeping(parts);
  const close = async (): Promise<void> => {
    await worker.close({ deadlineMs: 5_000 });
    await sweeper.close();
    stopping.abort();
    await heartbeat.close();
    await connections.close();
  };
  let closed: Promise<void> | undefined;
  return {
    ready: async () => ({ redis: await connections.redisAnswers(), queue: worker.isRunning() }),
    close: async () => await (closed ??= close()),
  };
}

function startTurns({ config, settings, chain, metrics, logger, ...parts }: WorkerParts): JobWorker {
  const { owner, catalog, running } = parts;
  const { store, turns, tools, sender, queue } = parts.connections;
  const wake = wakeAfter.bind(undefined, turns);
  return createTurnWorker({
    ...queue,
    concurrency: config.concurrency,
    lockDurationMs,
    stalledIntervalMs,
    handle: createSessionRunner({
      store,
      turns,
      chain,
      instructions: settings.agents.default.instructions,
      environment: environmentOf(settings, chain, catalog),
      dispatch: async (turn, calls, again) =>
        await dispatchCalls({ queues: tools, store, wake }, turn, { calls, again, tools: catalog.tools() }),
      running,
      deliver: (lease) => void sender.deliver(lease),
      owner,
      maxTries,
      maxInRow,
      onTurn: ({ turnId, outcome, seconds }) => {
        metrics.turn(outcome, seconds);
        logger.debug({ turnId, outcome, seconds }, "turn");
      },
    }),
    onFailed: async ({ session, gen }, error) => {
      logger.error({ session, error }, "a wake-up failed; the session is woken again");
      const healed = await store.heal(session, gen);
      if (healed !== undefined) await turns.ensure(session, healed);
    },
  });
}

function startSweeping({ owner, connections, metrics, logger }: WorkerParts): { close(): Promise<void> } {
  const { store, sender } = connections;
  return startSweeper({
    ...connections,
    owner,
    intervalMs: 1_000,
    staleMs: 3_000,
    deliverOutbox: async (session) => {
      const lease = await store.leaseOutbox(session);
      if (lease !== undefined) void sender.deliver(lease);
    },
    onHealed: (what, count) => {
      metrics.healed(what, count);
      logger.info({ what, count }, "healed");
    },
    onError: (error) => logger.warn({ error }, "sweep"),
  });
}

/** What decisions depend on; the tools are filtered once per change of the catalog. */
function environmentOf(settings: LarklineConfig, chain: ModelChain, catalog: ToolCatalog): () => TurnEnvironment {
  const { default: agent } = settings.agents;
  const { maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars } = settings.limits;
  const { maxIterations } = agent;
  const limits = turnLimits({ maxIterations, maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars });
  const model = turnModelOf(chain);
  let source: ReadonlyMap<string, AvailableTool> | undefined;
  let allowed: ReadonlyMap<string, AvailableTool> = new Map();
  return () => {
    const all = catalog.tools();
    if (all !== source) {
      source = all;
      const { tools } = agent;
      allowed = tools === null ? all : new Map([...all].filter(([name]) => tools.includes(name)));
    }
    return { nowMs: Date.now(), limits, tools: allowed, model };
  };
}
