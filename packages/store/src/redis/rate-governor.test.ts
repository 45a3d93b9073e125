import { randomUUID } from "node:crypto";
import { expect, inject, it, onTestFinished } from "vitest";
import { closeRedis, connectRedis } from "./connection.ts";
import { createRedisRateGovernor } from "./rate-governor.ts";

it("every key of the governor expires by itself", async () => {
  const redis = connectRedis(inject("redisUrl"));
  onTestFinished(() => closeRedis(redis));
  const namespace = `test-${randomUUID()}`;
  const governor = createRedisRateGovernor({ redis, namespace });
  await governor.take([{ key: "app:chat:1", perSecond: 5 }], "final");
  await governor.take([{ key: "app:api:1", perSecond: 50, perMinute: 1_000 }], "frame");
  await governor.take([{ key: "app:unlimited" }], "frame");
  await governor.pause("app:chat:1", 30_000);
  await governor.take([{ key: "app:chat:1", perSecond: 5 }], "final");
  await governor.pause("app:chat:2", 30_000, { perSecond: 2 });
  await governor.countCall("app", "2026-11");
  const keys = await redis.keys(`{${namespace}:*`);
  expect(keys.length).toBeGreaterThanOrEqual(3);
  // -1: lives for ever; -2: gone already.
  for (const key of keys) expect(await redis.pttl(key)).not.toBe(-1);
  expect(await redis.pttl(`{${namespace}:rate:app}:bucket:chat:1`)).toBeGreaterThan(20_000);
});
