import { createFeishuApi, createOutboxSender, type FeishuApi } from "@larkline/feishu";
import {
  createCancelBus,
  createToolQueues,
  createTurnQueue,
  type CancelBus,
  type QueueOptions,
  type ToolQueues,
  type TurnQueue,
} from "@larkline/queue";
import type { RunnerDirectory, SessionStore } from "@larkline/session";
import {
  closeRedis,
  connectRedis,
  createRedisPresence,
  createRedisRunnerDirectory,
  createRedisSessionStore,
  createRedisTokenCache,
  type Presence,
} from "@larkline/session-redis";
import type { Logger } from "@larkline/telemetry";
import type { WorkerConfig } from "./config.ts";

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
  queue: QueueOptions;
  redisAnswers(): Promise<boolean>;
  close(): Promise<void>;
}

export function openConnections(config: WorkerConfig, logger: Logger): Connections {
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
    apis.set(config.feishu.appId, createFeishuApi({ ...config.feishu, tokenCache, logger }));
  }
  const sender = createOutboxSender({ store, apis, logger });
  return {
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
      await Promise.all([...apis.values()].map(async (api) => await api.close()));
      await Promise.all([turns.close(), tools.close()]);
      await Promise.all([closeRedis(redis), closeRedis(queueRedis)]);
    },
  };
}
