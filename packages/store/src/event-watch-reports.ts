import type { EventWatchReport, EventWatchReports } from "./event-watch-report.ts";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace } from "./keys.ts";

export interface RedisEventWatchReportsOptions {
  redis: RedisConnection;
  namespace?: string;
}

const keptMs = 86_400_000;

/** The reports on Redis: a string for each app. */
export function createRedisEventWatchReports(options: RedisEventWatchReportsOptions): EventWatchReports {
  const { redis } = options;
  const keys = createKeyspace(options.namespace ?? defaultNamespace);
  const keyOf = (app: string): string => keys.global(`event-watch:${app}`);
  return {
    save: async (report) => {
      await redis.set(keyOf(report.app), JSON.stringify(report), "PX", keptMs);
    },
    of: async (app) => {
      const text = await redis.get(keyOf(app));
      return text === null ? undefined : (JSON.parse(text) as EventWatchReport); // written by save
    },
  };
}
