import { randomUUID } from "node:crypto";
import { createFileBlobStore } from "@larkline/blob-files";
import type { Env, McpServerConfig } from "@larkline/config";
import {
  createCancelBus,
  createToolQueues,
  createToolWorker,
  createTurnQueue,
  type JobWorker,
  type TurnQueue,
} from "@larkline/queue";
import { defaultBlobTtlMs, type BlobStore } from "@larkline/session";
import {
  closeRedis,
  connectRedis,
  createRedisBlobStore,
  createRedisLookupCache,
  createRedisRunnerDirectory,
  createRedisSessionStore,
  type RedisConnection,
} from "@larkline/session-redis";
import type { ToolAnnouncement } from "@larkline/protocol";
import type { Logger, Metrics, Observation } from "@larkline/telemetry";
import { announcementOf, type Tool } from "@larkline/tool";
import { AnnouncementRefusedError, startAnnouncement, type Announcement } from "./announcement.ts";
import { createCallHandler, type CallHandler } from "./call-handler.ts";
import { createFileStore } from "./file-store.ts";
import { IsolationRefusedError, openLevels, type Levels } from "./levels.ts";
import { openMcpMounts, type McpMounts } from "./mcp-mounts.ts";
import { createOutcomeDelivery } from "./outcome-delivery.ts";
import type { RunnerConfig } from "./runner-config.ts";
import { createRunnerMetrics, type RunnerMetrics } from "./runner-metrics.ts";
import { createRunningCalls, type RunningCalls } from "./running-calls.ts";
import type { LoadedTools } from "./tool-modules.ts";

export type RunnerSettings = Omit<RunnerConfig, "drainMs" | "configFile" | "host" | "port" | "logLevel">;

export interface RunnerSetup {
  config: RunnerSettings;
  loaded: LoadedTools;
  /** MCP servers whose tools this runner offers. Default: none. */
  mcpServers?: readonly McpServerConfig[];
  /** The variables of which tools get those that they name. Default: none. */
  environment?: Env;
  logger: Logger;
  metrics: Metrics;
  observation: Observation;
  /** This runner was taken for dead and another one offers its tools in another way: it must stop. */
  onRefused: (conflict: string) => void;
  /** How long files are kept after they were last stored, ms. Default 7 days. */
  blobTtlMs?: number;
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
/** While the sandbox does not hold: on a busy machine that may have been the attack's own haste. */
const repairMs = 60_000;

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
function blobsOf({ config, blobTtlMs = defaultBlobTtlMs }: RunnerSetup, redis: RedisConnection): BlobStore {
  const { blobDirectory: directory, namespace } = config;
  const ttlMs = blobTtlMs;
  return directory === undefined
    ? createRedisBlobStore({ redis, namespace, ttlMs })
    : createFileBlobStore({ directory, ttlMs });
}

/** Everything that calls are handled with; it is there before the first one is taken. */
interface Parts {
  setup: RunnerSetup;
  connections: Connections;
  levels: Levels;
  mounts: McpMounts;
  metrics: RunnerMetrics;
  calls: RunningCalls;
}

interface Workers {
  isRunning(): boolean;
  close(deadlineMs: number): Promise<void>;
}

function handlerOf(parts: Parts, turns: TurnQueue): CallHandler {
  const { setup, connections, levels, metrics, calls } = parts;
  const { config, loaded, observation, logger } = setup;
  const { namespace, runner, runnerKey } = config;
  const { redis, onError } = connections;
  const store = createRedisSessionStore({ redis, namespace });
  const blobs = blobsOf(setup, redis);
  return createCallHandler({
    registry: { get: (name) => mountedTool(name, parts) ?? loaded.registry.get(name) },
    levels,
    envelope: { runner, runnerKey },
    store,
    storeFile: createFileStore({ blobs, onError }),
    desk: { blobs, lookups: createRedisLookupCache({ redis, namespace }) },
    deliver: createOutcomeDelivery({ store, turns, runner, onRetry: onError }),
    calls,
    metrics,
    observation,
    logger,
  });
}

/** The runner's own tools come first: no server gets at their calls by a tool of the same name. */
function mountedTool(name: string, { setup, mounts }: Pick<Parts, "setup" | "mounts">): Tool | undefined {
  const isOwn = setup.loaded.registry.tools().some((tool) => tool.name === name);
  return isOwn ? undefined : mounts.find(name);
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
  for (const tool of setup.loaded.registry.tools()) {
    if (tool.limits === undefined) continue;
    await queues.limit(runner, tool.name, tool.limits);
    workers.push(worker({ limitedTool: tool.name, concurrency: limitedConcurrency(tool, concurrency) }));
  }
  return {
    isRunning: () => workers.every((each) => each.isRunning()),
    close: async (deadlineMs) => {
      await Promise.all(workers.map(async (each) => await each.close({ deadlineMs, abort: false })));
      await Promise.all([turns.close(), queues.close()]);
    },
  };
}

/** Attacks the sandbox every now and then, and when asked to. */
function watchSandbox(levels: Levels, onError: (error: unknown) => void): { recheck(): Promise<void>; stop(): void } {
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  const schedule = (): void => {
    clearTimeout(timer);
    if (stopped) return;
    const holds = levels.sandbox()?.holds !== false;
    timer = setTimeout(() => void recheck(), holds ? recheckMs : repairMs).unref();
  };
  const recheck = async (): Promise<void> => {
    await levels.recheck().catch(onError);
    schedule();
  };
  schedule();
  return {
    recheck,
    stop: () => {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

/** Works the runner's queues. Closing ends all of it, the connections too. */
async function work(parts: Parts, announcement: Announcement): Promise<ToolRunner> {
  const { setup, connections, levels, mounts, calls } = parts;
  const { config, graceMs = 8_000 } = setup;
  const { redis, queueRedis, closing, onError } = connections;
  const turns = createTurnQueue({ connection: queueRedis, prefix: `{${config.namespace}}`, onError });
  const bus = createCancelBus({ connection: redis, channel: `{${config.namespace}}:cancel` });
  await bus.subscribe(({ session, turnId }) => calls.cancel(session, turnId), closing);
  const workers = await startWorkers(parts, turns, handlerOf(parts, turns));
  const sandboxWatch = watchSandbox(levels, onError);

  const close = async (): Promise<void> => {
    sandboxWatch.stop();
    await withdrawQuietly(announcement, onError);
    const timer = setTimeout(() => {
      calls.stop();
      void levels.close().catch(onError);
    }, graceMs);
    await workers.close(graceMs + settleMs);
    clearTimeout(timer);
    await mounts.close();
    await levels.close();
    await connections.close();
  };
  let closed: Promise<void> | undefined;
  return {
    ready: async () => ({ redis: await pings(redis), worker: workers.isRunning(), ...sandboxCheck(levels) }),
    recheck: sandboxWatch.recheck,
    close: async () => await (closed ??= close()),
  };
}

function sandboxCheck(levels: Levels): Record<string, boolean> {
  const sandbox = levels.sandbox();
  return sandbox === undefined ? {} : { [`sandbox (${sandbox.tier})`]: sandbox.holds };
}

/** Of a tool with limits, as many calls as its own worker takes. */
function limitedConcurrency({ limits }: Tool, most: number): number {
  return Math.min(most, limits?.concurrency ?? most);
}

/** Over all workers of this process. */
function callsAtOnce({ config: { concurrency }, loaded }: RunnerSetup): number {
  const limited = loaded.registry.tools().filter(({ limits }) => limits !== undefined);
  return limited.reduce((sum, tool) => sum + limitedConcurrency(tool, concurrency), concurrency);
}

async function openRunnerLevels(setup: RunnerSetup, metrics: RunnerMetrics): Promise<Levels> {
  const { config, loaded, logger, environment = {} } = setup;
  return await openLevels({
    loaded,
    environment,
    concurrency: callsAtOnce(setup),
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

function openMounts({ mcpServers = [], environment = {}, logger }: RunnerSetup, levels: Levels): OpenedMounts {
  let announce: (() => void) | undefined;
  const mounts = openMcpMounts({
    servers: mcpServers,
    environment,
    openSession: async (command) => await levels.start(command),
    onChange: () => announce?.(),
    onEvent: ({ type, ...facts }) => {
      if (type === "connected") logger.info(facts, "MCP server connected");
      else logger.warn(facts, type === "disconnected" ? "MCP server is away" : "MCP tool is not mounted");
    },
  });
  return { mounts, follow: (listener) => (announce = listener) };
}

interface OpenedMounts {
  mounts: McpMounts;
  /** Who is to know when the list changes. */
  follow(listener: () => void): void;
}

/** What a runner offers: its own tools, and those of mounted servers whose names are not taken. */
function offered({ loaded }: RunnerSetup, mounts: McpMounts): ToolAnnouncement[] {
  const own = loaded.registry.tools();
  const names = new Set(own.map(({ name }) => name));
  return [...own, ...mounts.tools().filter(({ name }) => !names.has(name))].map(announcementOf);
}

/** A mounted tool that cannot be offered is left out for a while; without its own tools a runner must stop. */
async function announceTools(
  setup: RunnerSetup,
  { redis, onError }: Connections,
  { mounts, follow }: OpenedMounts,
): Promise<Announcement> {
  const { config, logger, onRefused } = setup;
  const announcement = await startAnnouncement({
    directory: createRedisRunnerDirectory({ redis, namespace: config.namespace }),
    instance: { runner: config.runner, instance: randomUUID() },
    tools: () => offered(setup, mounts),
    onError,
    onRefused: (conflict, tool) => {
      if (!mounts.exclude(tool)) return onRefused(conflict);
      logger.warn({ tool, conflict }, "MCP tool is not offered for now");
      announcement.changed();
    },
  });
  follow(announcement.changed);
  return announcement;
}

/**
 * Opens the levels of isolation that the tools ask for, announces the tools and starts to work. Throws an
 * IsolationRefusedError, an AnnouncementRefusedError, or why Redis cannot be reached.
 */
export async function startRunner(setup: RunnerSetup): Promise<ToolRunner> {
  const { config, logger } = setup;
  const calls = createRunningCalls();
  const metrics = createRunnerMetrics(setup.metrics, calls.count);
  let started = false;
  let problem: unknown;
  const connections = openConnections(config.redisUrl, (error) => {
    problem = error; // while starting it is told by the caller, in one line
    if (started) logger.warn({ error }, "background error");
  });
  let levels: Levels | undefined;
  let opened: OpenedMounts | undefined;
  try {
    await connections.redis.ping();
    levels = await openRunnerLevels(setup, metrics);
    opened = openMounts(setup, levels);
    const announcement = await announceTools(setup, connections, opened);
    const working = await work({ setup, connections, levels, mounts: opened.mounts, metrics, calls }, announcement);
    started = true;
    return working;
  } catch (error) {
    await opened?.mounts.close();
    await Promise.all([connections.close(), levels?.close()]);
    const isRefused = error instanceof AnnouncementRefusedError || error instanceof IsolationRefusedError;
    throw isRefused ? error : (problem ?? error);
  }
}
