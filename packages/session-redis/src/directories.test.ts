import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { describeRunnerDirectory } from "@larkline/session/runner-directory.suite";
import { describeTokenCache } from "@larkline/session/token-cache.suite";
import { inject } from "vitest";
import { closeRedis, connectRedis } from "./connection.ts";
import { createRedisRunnerDirectory } from "./runner-directory.ts";
import { createRedisTokenCache } from "./token-cache.ts";

const ttlMs = 200;

/** Two connections, as two processes have them, and what both tests need. */
function connect() {
  const namespace = `test-${randomUUID()}`;
  const redis = connectRedis(inject("redisUrl"));
  const other = connectRedis(inject("redisUrl"));
  return {
    here: { redis, namespace },
    there: { redis: other, namespace },
    ttlMs,
    expire: async () => await delay(ttlMs + 20),
    close: async () => {
      await Promise.all([closeRedis(redis), closeRedis(other)]);
    },
  };
}

describeRunnerDirectory("Redis", async () => {
  const { here, there, ...harness } = connect();
  return { ...harness, directory: createRedisRunnerDirectory(here), elsewhere: createRedisRunnerDirectory(there) };
});

describeTokenCache("Redis", async () => {
  const { here, there, ...harness } = connect();
  return { ...harness, cache: createRedisTokenCache(here), elsewhere: createRedisTokenCache(there) };
});
