import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import {
  describeSessionStore,
  type SessionStoreDemands,
  type SessionStoreHarness,
} from "@larkline/session/session-store.suite";
import { inject } from "vitest";
import { closeRedis, connectRedis } from "./connection.ts";
import { createRedisEventLog } from "./event-log.ts";
import { createRedisSessionStore } from "./session-store.ts";

async function makeHarness({ maxWaiting, shortLived }: SessionStoreDemands): Promise<SessionStoreHarness> {
  const redis = connectRedis(inject("redisUrl"));
  const namespace = `test-${randomUUID()}`;
  const outboxLeaseMs = shortLived === true ? 300 : 30_000;
  const dedupTtlMs = shortLived === true ? 300 : 86_400_000;
  const events = createRedisEventLog({ redis, namespace });
  return {
    store: createRedisSessionStore({
      redis,
      namespace,
      outboxLeaseMs,
      dedupTtlMs,
      ...(maxWaiting === undefined ? {} : { maxWaiting }),
    }),
    events,
    leaseMs: outboxLeaseMs,
    dedupTtlMs,
    now: Date.now,
    advance: async (ms) => {
      await delay(ms + 1);
    },
    close: async () => {
      events.close();
      await closeRedis(redis);
    },
  };
}

describeSessionStore("Redis", makeHarness);
