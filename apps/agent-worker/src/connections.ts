import { createFileBlobStore } from "@larkline/blob-files";
import { createTextExtractor, type TextExtractor } from "@larkline/attachments";
import {
  createFeishuApi,
  createLiveReplies,
  createOutboxSender,
  type FeishuApi,
  type LiveReplies,
} from "@larkline/feishu";
import {
  createCancelBus,
  createToolQueues,
  createTurnQueue,
  type CancelBus,
  type QueueOptions,
  type ToolQueues,
  type TurnQueue,
} from "@larkline/queue";
import type { BlobStore, CardLedger, LookupCache, RunnerDirectory, SessionStore } from "@larkline/session";
import {
  closeRedis,
  connectRedis,
  createRedisBlobStore,
  createRedisCardLedger,
  createRedisLookupCache,
  createRedisPresence,
  createRedisRateGovernor,
  createRedisRunnerDirectory,
  createRedisSessionStore,
  createRedisTokenCache,
  type Presence,
} from "@larkline/session-redis";
import type { Logger } from "@larkline/telemetry";
import type { LarklineConfig } from "@larkline/config";
import type { WorkerConfig } from "./config.ts";
import { createImageResolver } from "./image-resolver.ts";

/** Sends replies that were committed. */
export type ReplySender = ReturnType<typeof createOutboxSender>;

/** Everything of a worker that talks to something outside. */
export interface Connections {
  store: SessionStore;
  presence: Presence;
  directory: RunnerDirectory;
  turns: TurnQueue;
  tools: ToolQueues;
  bus: CancelBus;
  sender: ReplySender;
  replies: LiveReplies;
  /** The bots, by app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  ledger: CardLedger;
  blobs: BlobStore;
  lookups: LookupCache;
  extractor: TextExtractor;
  queue: QueueOptions;
  redisAnswers(): Promise<boolean>;
  close(): Promise<void>;
}

export interface ConnectionOptions {
  config: WorkerConfig;
  settings: LarklineConfig;
  logger: Logger;
  /** Told when a frame of a card has reached the platform. */
  onFrame: (sinceStartMs: number, isFirst: boolean) => void;
}

export function openConnections({ config, settings, logger, onFrame }: ConnectionOptions): Connections {
  const { namespace } = config;
  const onError = (error: unknown): void => logger.warn({ error }, "Redis connection");
  const redis = connectRedis(config.redisUrl, { onError });
  const queueRedis = connectRedis(config.redisUrl, { role: "worker", onError });
  const queue: QueueOptions = { connection: queueRedis, prefix: `{${namespace}}`, onError };
  const store = createRedisSessionStore({ redis, namespace });
  const turns = createTurnQueue(queue);
  const tools = createToolQueues(queue);
  const apis = new Map<string, FeishuApi>();
  if (config.feishu !== undefined) {
    const tokenCache = createRedisTokenCache({ redis, namespace });
    const { monthlyCalls, rateLimits } = settings.feishu;
    const limiter = rateLimits ? { governor: createRedisRateGovernor({ redis, namespace }) } : {};
    apis.set(config.feishu.appId, createFeishuApi({ ...config.feishu, ...limiter, tokenCache, monthlyCalls, logger }));
  }
  const ledger = createRedisCardLedger({ redis, namespace });
  const blobs =
    config.blobDirectory === undefined
      ? createRedisBlobStore({ redis, namespace })
      : createFileBlobStore({ directory: config.blobDirectory });
  const lookups = createRedisLookupCache({ redis, namespace });
  const extractor = createTextExtractor({ maxBytes: settings.limits.attachmentBytes });
  const imageOf = createImageResolver({ blobs, lookups });
  const sender = createOutboxSender({ store, ledger, apis, imageOf, logger });
  return {
    apis,
    ledger,
    blobs,
    lookups,
    extractor,
    replies: createLiveReplies({
      apis,
      ledger,
      imageOf,
      mayAppear: (session) => ledger.mayAppear(session),
      logger,
      onFrame,
    }),
    store,
    presence: createRedisPresence({ redis, namespace }),
    directory: createRedisRunnerDirectory({ redis, namespace }),
    turns,
    tools,
    bus: createCancelBus({ connection: redis, channel: `{${namespace}}:cancel` }),
    sender,
    queue,
    redisAnswers: async () => (await redis.ping()) === "PONG",
    close: async () => {
      await sender.close();
      await extractor.close();
      await Promise.all([...apis.values()].map(async (api) => await api.close()));
      await Promise.all([turns.close(), tools.close()]);
      await Promise.all([closeRedis(redis), closeRedis(queueRedis)]);
    },
  };
}
