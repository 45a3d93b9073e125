import { AppInspector, FeishuApi, GrantsApi } from "@larkline/feishu";
import { StartError } from "@larkline/process/app";
import { botOfApp, type BotAccess } from "@larkline/process/config";
import { createClockLog, watchPlatform } from "@larkline/process/telemetry";
import { type QueueOptions } from "@larkline/store/queues";
import {
  closeRedis,
  connectRedis,
  isAnswered,
  OwnPresence,
  ServerClock,
  takesWrites,
  workersGroup,
} from "@larkline/store/redis";
import { rightsProblem } from "@larkline/store/rights";
import { createTextExtractor } from "./attachments/text-extractor.ts";
import { Bot } from "./bot.ts";
import { createServices, type ServiceParts } from "./create-services.ts";
import type { Services } from "./services.ts";
import { openQueues, openStores } from "./stores.ts";

// Opens the connections of a worker, and closes them.

/** The connections of the process, and what only starting and closing it needs. */
export interface Connections {
  services: Services;
  /** The queue worker waits for jobs on this connection. */
  queue: QueueOptions;
  /** It knows which clocks differ. */
  serverClock: ServerClock;
  /** Whether Redis answers, and takes what is written. */
  checkRedis(): Promise<{ redis: boolean; writes: boolean | string }>;
  /** Whether the connection that waits for jobs is answered. */
  isQueueAnswering(): boolean;
  /** Idempotent. */
  close(): Promise<void>;
}

/** Opens all connections. Rejects when Redis does not answer. */
export async function connect(
  parts: ServiceParts,
  accesses: readonly BotAccess[],
): Promise<Connections> {
  const { config, settings, owner, log, telemetry, clock, random } = parts;
  const onError = (error: unknown): void => log.warn({ error }, "Redis connection");
  const redis = connectRedis(config.redisUrl, { onError, clock });
  const queueRedis = connectRedis(config.redisUrl, { role: "worker", onError, clock });
  const serverClock = new ServerClock(redis, createClockLog(log), clock);
  const stores = openStores(parts, redis);
  const queue: QueueOptions = {
    connection: queueRedis,
    prefix: `{${config.namespace}}`,
    onError,
    clock,
  };
  const queues = openQueues(config, redis, queue);
  const { governor, tokenCache, lookups } = stores;
  const { calls } = watchPlatform(telemetry, clock);
  const watch: typeof calls = {
    ...calls,
    waited: (call, ms, left) => {
      calls.waited(call, ms, left);
      services.runs.waited(ms);
    },
  };
  const bots = accesses.map(({ appId, appSecret, domain }) => {
    const { monthlyCalls, rateLimits } = botOfApp(settings, appId).feishu;
    const limiter = rateLimits ? { governor } : {};
    const shared = { ...limiter, tokenCache, monthlyCalls, watch, logger: log, clock, random };
    const api = new FeishuApi({ appId, appSecret, domain, ...shared });
    const grantsApi = new GrantsApi({ appId, appSecret, domain, clock });
    const openInspector = () => new AppInspector({ appId, appSecret, domain, clock, random });
    return new Bot(settings, api, { lookups, clock, grantsApi, openInspector }, log);
  });
  await serverClock.followed;
  const { redisUrl, namespace } = config;
  const problem = await rightsProblem(redis, "agent-worker", { namespace });
  if (problem !== undefined) {
    serverClock.close();
    await Promise.all([
      queues.turns.close(),
      queues.tools.close(),
      closeRedis(redis),
      closeRedis(queueRedis),
    ]);
    throw new StartError(problem);
  }
  const presence = await OwnPresence.start({
    redisUrl,
    namespace,
    id: owner,
    group: workersGroup,
    onError,
    clock,
  });
  const extractor = createTextExtractor({
    maxBytes: settings.limits.attachmentBytes,
    cpuMs: settings.limits.attachmentCpuMs,
    deadlineMs: Math.max(20_000, 4 * settings.limits.attachmentCpuMs),
    clock,
  });
  const services = createServices({ ...parts, stores, queues, redis, bots, presence, extractor });
  const close = async (): Promise<void> => {
    serverClock.close();
    services.liveReplies.close();
    await Promise.all([
      services.outboxSender.close(),
      services.approvalCards.close(),
      services.runs.close(),
    ]);
    await Promise.all([extractor.close(), services.schemas.close(), presence.close()]);
    for (const { api } of bots) api.close();
    await Promise.all([queues.turns.close(), queues.tools.close(), stores.archive?.close()]);
    await Promise.all([closeRedis(redis, clock), closeRedis(queueRedis, clock)]);
  };
  let closed: Promise<void> | undefined;
  return {
    services,
    queue,
    serverClock,
    checkRedis: async () => ({
      redis: (await redis.ping()) === "PONG",
      writes: await takesWrites(redis, queueRedis),
    }),
    isQueueAnswering: () => isAnswered(queueRedis),
    close: async () => await (closed ??= close()),
  };
}
