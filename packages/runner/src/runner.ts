import { randomUUID } from "node:crypto";
import { createFileBlobStore } from "@larkline/blob-files";
import { createCancelBus, createToolQueues, createToolWorker, createTurnQueue, type ToolQueues } from "@larkline/queue";
import type { BlobStore } from "@larkline/session";
import {
  closeRedis,
  connectRedis,
  createRedisBlobStore,
  createRedisRunnerDirectory,
  createRedisSessionStore,
  type RedisConnection,
} from "@larkline/session-redis";
import type { Logger, Metrics } from "@larkline/telemetry";
import { announcementOf, type ToolRegistry } from "@larkline/tool";
import { AnnouncementRefusedError, startAnnouncement, type Announcement } from "./announcement.ts";
import { createCallHandler } from "./call-handler.ts";
import { createFileStore } from "./file-store.ts";
import { createOutcomeDelivery, type DeliverOutcome } from "./outcome-delivery.ts";
import { createRunnerMetrics } from "./runner-metrics.ts";
import { createRunningCalls } from "./running-calls.ts";

export interface RunnerSettings {
  redisUrl: string;
  /** First part of all keys and of the queues' prefix. */
  namespace: string;
  /** Instances of the same name share one queue and must offer the same tools. */
  runner: string;
  /** Calls this process runs at once. */
  concurrency: number;
  /** Folder for the files that tools save, shared with all workers; absent: Redis keeps them. */
  blobDirectory?: string;
}

export interface RunnerSetup {
  config: RunnerSettings;
  registry: ToolRegistry;
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
   * grace period, then gives repeatable ones back to the queue and answers `once` ones as unknown;
   * answers what is left in the queue when this was the runner's last instance. Idempotent.
   */
  close(): Promise<void>;
}

// A killed runner's calls go on elsewhere after 2 to 4.5 s; renewals every 1.75 s are cheap.
const lockDurationMs = 3_500;
const stalledIntervalMs = 700;
/** Room for answering or giving back calls after the grace period. */
const settleMs = 1_000;

async function withdrawQuietly(announcement: Announcement, onError: (error: unknown) => void): Promise<boolean> {
  try {
    return (await announcement.withdraw()).last;
  } catch (error) {
    onError(error); // the announcement expires by itself
    return false;
  }
}

async function drain(
  queues: ToolQueues,
  { runner, deliver }: { runner: string; deliver: DeliverOutcome },
): Promise<void> {
  const error = `the runner '${runner}' was stopped; the call was not run`;
  await queues.drain(runner, async (job) => await deliver(job, { ok: false, error }));
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

/** Works the runner's queue. Closing ends all of it, the connections too. */
async function work(setup: RunnerSetup, connections: Connections, announcement: Announcement): Promise<ToolRunner> {
  const { config, registry, logger, graceMs = 8_000 } = setup;
  const { namespace, runner } = config;
  const { redis, queueRedis, closing, onError } = connections;
  const queueOptions = { connection: queueRedis, prefix: `{${namespace}}`, onError };
  const store = createRedisSessionStore({ redis, namespace });
  const turns = createTurnQueue(queueOptions);
  const queues = createToolQueues(queueOptions);
  const deliver = createOutcomeDelivery({ store, turns, onRetry: onError });
  const calls = createRunningCalls();
  const metrics = createRunnerMetrics(setup.metrics, calls.count);
  const bus = createCancelBus({ connection: redis, channel: `{${namespace}}:cancel` });
  await bus.subscribe(({ session, turnId }) => calls.cancel(session, turnId), closing);
  const storeFile = createFileStore({ blobs: blobsOf(config, redis), onError });
  const handler = createCallHandler({ registry, store, storeFile, deliver, calls, metrics, logger });
  const worker = createToolWorker({
    ...queueOptions,
    runner,
    concurrency: config.concurrency,
    lockDurationMs,
    stalledIntervalMs,
    handle: async (job, signal) => await handler.handle(job, signal),
    onFailed: async (job, error) => await handler.fail(job, error),
  });

  const close = async (): Promise<void> => {
    const last = await withdrawQuietly(announcement, onError);
    const timer = setTimeout(calls.stop, graceMs);
    await worker.close({ deadlineMs: graceMs + settleMs, abort: false });
    clearTimeout(timer);
    if (last) await drain(queues, { runner, deliver }).catch(onError);
    await Promise.all([turns.close(), queues.close()]);
    await connections.close();
  };
  let closed: Promise<void> | undefined;
  return {
    ready: async () => ({ redis: await pings(redis), worker: worker.isRunning() }),
    close: async () => await (closed ??= close()),
  };
}

/** Announces the tools and starts to work. Throws AnnouncementRefusedError, or why Redis cannot be reached. */
export async function startRunner(setup: RunnerSetup): Promise<ToolRunner> {
  const { config, registry, logger, onRefused } = setup;
  const { namespace, runner } = config;
  let started = false;
  let problem: unknown;
  const connections = openConnections(config.redisUrl, (error) => {
    problem = error; // while starting it is told by the caller, in one line
    if (started) logger.warn({ error }, "background error");
  });
  const { redis, onError } = connections;
  try {
    const directory = createRedisRunnerDirectory({ redis, namespace });
    const instance = { runner, instance: randomUUID(), tools: registry.tools().map(announcementOf) };
    const announcement = await startAnnouncement({ directory, instance, onError, onRefused });
    const working = await work(setup, connections, announcement);
    started = true;
    return working;
  } catch (error) {
    await connections.close();
    throw error instanceof AnnouncementRefusedError ? error : (problem ?? error);
  }
}
