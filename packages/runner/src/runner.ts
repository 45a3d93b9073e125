import { randomUUID } from "node:crypto";
import { createFileBlobStore } from "@larkline/blob-files";
import type { Env } from "@larkline/config";
import {
  createCancelBus,
  createToolQueues,
  createToolWorker,
  createTurnQueue,
  type JobWorker,
  type TurnQueue,
} from "@larkline/queue";
import type { BlobStore } from "@larkline/session";
import {
  closeRedis,
  connectRedis,
  createRedisBlobStore,
  createRedisLookupCache,
  createRedisRunnerDirectory,
  createRedisSessionStore,
  type RedisConnection,
} from "@larkline/session-redis";
import type { Logger, Metrics } from "@larkline/telemetry";
import { announcementOf } from "@larkline/tool";
import { AnnouncementRefusedError, startAnnouncement, type Announcement } from "./announcement.ts";
import { createCallHandler, type CallHandler } from "./call-handler.ts";
import { createFileStore } from "./file-store.ts";
import { IsolationRefusedError, openLevels, type Levels } from "./levels.ts";
import { createOutcomeDelivery } from "./outcome-delivery.ts";
import type { RunnerConfig } from "./runner-config.ts";
import { createRunnerMetrics, type RunnerMetrics } from "./runner-metrics.ts";
import { createRunningCalls, type RunningCalls } from "./running-calls.ts";
import type { LoadedTools } from "./tool-modules.ts";

export type RunnerSettings = Omit<RunnerConfig, "host" | "port" | "logLevel">;

export interface RunnerSetup {
  config: RunnerSettings;
  loaded: LoadedTools;
  /** The variables of which tools get those that they name. Default: none. */
  environment?: Env;
  logger: Logger;
  metrics: Metrics;
  /** This runner was taken for dead and another one offers its tools in another way: it must stop. */
  onRefused: (conflict: string) => void;
  /** How long running calls may go on after `close`, in ms. Default 8 s. */
  graceMs?: number;
}

export interface ToolRunner {
  ready(): Promise<Record<string, boolean>>;
  /**
   * Withdraws first, so that workers stop choosing this runner; lets running calls finish for the
   * grace period, then gives repeatable ones back to the queue and answers `once` ones as unknown.
   * What is left in the queue waits for another instance, up to its deadline. Idempotent.
   */
  close(): Promise<void>;
  /** Attacks the sandbox again, where there is one; also done every hour. */
  recheck(): Promise<void>;
}

// A killed runner's calls go on elsewhere after 2 to 4.5 s; renewals every 1.75 s are cheap.
const lockDurationMs = 3_500;
const stalledIntervalMs = 700;
/** Room for answering or giving back calls after the grace period. */
const settleMs = 1_000;
const recheckMs = 3_600_000;

async function withdrawQuietly(announcement: Announcement, onError: (error: unknown) => void): Promise<void> {
  await announcement.withdraw().catch(onError); // it expires by itself
}

async function pings(redis: RedisConnection): Promise<boolean> {
  return (await redis.ping()) === "PONG";
}

interface Connections {
  /** Fails fast: for what somebody waits for. */
  redis: RedisConnection;
  /** Waits for Redis without limit, as queue workers must. */
  queueRedis: RedisConnection;
  /** Aborts when the connections close. */
  closing: AbortSignal;
  onError: (error: unknown) => void;
  close(): Promise<void>;
}

function openConnections(redisUrl: string, onError: (error: unknown) => void): Connections {
  const redis = connectRedis(redisUrl, { onError });
  const queueRedis = connectRedis(redisUrl, { role: "worker", onError });
  const closing = new AbortController();
  return {
    redis,
    queueRedis,
    closing: closing.signal,
    onError,
    close: async () => {
      closing.abort();
      await Promise.all([closeRedis(redis), closeRedis(queueRedis)]);
    },
  };
}

/** Where workers look for what tools save. */
function blobsOf({ blobDirectory, namespace }: RunnerSetup["config"], redis: RedisConnection): BlobStore {
  return blobDirectory === undefined
    ? createRedisBlobStore({ redis, namespace })
    : createFileBlobStore({ directory: blobDirectory });
}

/** Everything that calls are handled with; it is there before the first one is taken. */
interface Parts {
  setup: RunnerSetup;
  connections: Connections;
  levels: Levels;
  metrics: RunnerMetrics;
  calls: RunningCalls;
}

interface Workers {
  isRunning(): boolean;
  close(deadlineMs: number): Promise<void>;
}

function handlerOf({ setup, connections, levels, metrics, calls }: Parts, turns: TurnQueue): CallHandler {
  const { config, loaded, logger } = setup;
  const { namespace, runner, runnerKey } = config;
  const { redis, onError } = connections;
  const store = createRedisSessionStore({ redis, namespace });
  const blobs = blobsOf(config, redis);
  return createCallHandler({
    registry: loaded.registry,
    levels,
    envelope: { runner, runnerKey },
    store,
    storeFile: createFileStore({ blobs, onError }),
    desk: { blobs, lookups: createRedisLookupCache({ redis, namespace }) },
    deliver: createOutcomeDelivery({ store, turns, runner, onRetry: onError }),
    calls,
    metrics,
    logger,
  });
}

/** One worker for the runner's queue, and one for each tool that has limits. */
async function startWorkers({ setup, connections }: Parts, turns: TurnQueue, handler: CallHandler): Promise<Workers> {
  const { runner, concurrency, namespace } = setup.config;
  const { queueRedis: connection, onError } = connections;
  const queueOptions = { connection, prefix: `{${namespace}}`, onError };
  const queues = createToolQueues(queueOptions);
  const worker = (limited: { limitedTool?: string; concurrency: number }): JobWorker =>
    createToolWorker({
      ...queueOptions,
      ...limited,
      runner,
      lockDurationMs,
      stalledIntervalMs,
      handle: async (job, signal) => await handler.handle(job, signal),
      onFailed: async (job, error) => await handler.fail(job, error),
    });
  const workers = [worker({ concurrency })];
  for (const { name, limits } of setup.loaded.registry.tools()) {
    if (limits === undefined) continue;
    await queues.limit(runner, name, limits);
    workers.push(worker({ limitedTool: name, concurrency: Math.min(concurrency, limits.concurrency ?? concurrency) }));
  }
  return {
    isRunning: () => workers.every((each) => each.isRunning()),
    close: async (deadlineMs) => {
      await Promise.all(workers.map(async (each) => await each.close({ deadlineMs, abort: false })));
      await Promise.all([turns.close(), queues.close()]);
    },
  };
}

/** Works the runner's queues. Closing ends all of it, the connections too. */
async function work(parts: Parts, announcement: Announcement): Promise<ToolRunner> {
  const { setup, connections, levels, calls } = parts;
  const { config, graceMs = 8_000 } = setup;
  const { redis, queueRedis, closing, onError } = connections;
  const turns = createTurnQueue({ connection: queueRedis, prefix: `{${config.namespace}}`, onError });
  const bus = createCancelBus({ connection: redis, channel: `{${config.namespace}}:cancel` });
  await bus.subscribe(({ session, turnId }) => calls.cancel(session, turnId), closing);
  const workers = await startWorkers(parts, turns, handlerOf(parts, turns));
  const recheck = async (): Promise<void> => await levels.recheck().catch(onError);
  const hourly = setInterval(() => void recheck(), recheckMs).unref();

  const close = async (): Promise<void> => {
    clearInterval(hourly);
    await withdrawQuietly(announcement, onError);
    const timer = setTimeout(() => {
      calls.stop();
      void levels.close().catch(onError);
    }, graceMs);
    await workers.close(graceMs + settleMs);
    clearTimeout(timer);
    await levels.close();
    await connections.close();
  };
  let closed: Promise<void> | undefined;
  return {
    ready: async () => ({ redis: await pings(redis), worker: workers.isRunning(), ...sandboxCheck(levels) }),
    recheck,
    close: async () => await (closed ??= close()),
  };
}

function sandboxCheck(levels: Levels): Record<string, boolean> {
  const sandbox = levels.sandbox();
  return sandbox === undefined ? {} : { [`sandbox (${sandbox.tier})`]: sandbox.holds };
}

async function openRunnerLevels(setup: RunnerSetup, metrics: RunnerMetrics): Promise<Levels> {
  const { config, loaded, logger, environment = {} } = setup;
  return await openLevels({
    loaded,
    environment,
    concurrency: config.concurrency,
    tiers: config.sandboxTiers,
    remote: config.remoteSandbox,
    onLine: (line, stream) => logger.info({ stream }, line),
    onDropped: (tool, reason) => {
      metrics.dropped.add({ tool });
      logger.warn({ tool, reason }, "a message of a tool's process is dropped");
    },
    onSandboxEvent: ({ event, detail }) => logger.warn({ event, detail }, "sandbox"),
    onFinding: ({ tier, holds, reason }) => {
      metrics.sandbox.set({ tier }, holds ? 1 : 0);
      if (holds) logger.info({ tier }, "the sandbox holds");
      else logger.error({ tier, reason }, "the sandbox does not hold");
    },
  });
}

/**
 * Opens the levels of isolation that the tools ask for, announces the tools and starts to work. Throws an
 * IsolationRefusedError, an AnnouncementRefusedError, or why Redis cannot be reached.
 */
export async function startRunner(setup: RunnerSetup): Promise<ToolRunner> {
  const { config, loaded, logger, onRefused } = setup;
  const calls = createRunningCalls();
  const metrics = createRunnerMetrics(setup.metrics, calls.count);
  let started = false;
  let problem: unknown;
  const connections = openConnections(config.redisUrl, (error) => {
    problem = error; // while starting it is told by the caller, in one line
    if (started) logger.warn({ error }, "background error");
  });
  const { redis, onError } = connections;
  let levels: Levels | undefined;
  try {
    await redis.ping();
    levels = await openRunnerLevels(setup, metrics);
    const directory = createRedisRunnerDirectory({ redis, namespace: config.namespace });
    const tools = loaded.registry.tools().map(announcementOf);
    const instance = { runner: config.runner, instance: randomUUID(), tools };
    const announcement = await startAnnouncement({ directory, instance, onError, onRefused });
    const working = await work({ setup, connections, levels, metrics, calls }, announcement);
    started = true;
    return working;
  } catch (error) {
    await Promise.all([connections.close(), levels?.close()]);
    const isRefused = error instanceof AnnouncementRefusedError || error instanceof IsolationRefusedError;
    throw isRefused ? error : (problem ?? error);
  }
}
