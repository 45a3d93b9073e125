import { randomUUID } from "node:crypto";
import { closeRedis, connectRedis, createRedisPresence } from "@larkline/store/redis";
import { startRedis } from "@larkline/testkit";
import { expect, inject, it, onTestFinished, vi } from "vitest";
import { startHeartbeat } from "./heartbeat.ts";

it("a worker that has ended in an orderly way has not died; one that only beats no more has", async () => {
  const redis = connectRedis(inject("redisUrl"));
  onTestFinished(() => closeRedis(redis));
  const presence = createRedisPresence({ redis, namespace: `test-${randomUUID()}` });
  const onError = (error: unknown): void => expect.unreachable(String(error));
  const [one, other] = await Promise.all(
    ["one", "other"].map(async (owner) => await startHeartbeat({ presence, owner, onError })),
  );
  onTestFinished(() => one?.close());
  await presence.beat("killed", 1);
  expect(await one?.hasDied("other")).toBe(false);
  await other?.close();
  expect(await presence.alive(["other"])).toEqual(new Set());
  expect(await one?.hasDied("other")).toBe(false);
  await expect.poll(async () => await one?.hasDied("killed")).toBe(true);
});

it("no worker counts as dead because a full Redis takes no beats", { timeout: 60_000 }, async () => {
  const server = await startRedis();
  onTestFinished(async () => await server.stop());
  const redis = connectRedis(server.url);
  onTestFinished(async () => await closeRedis(redis));
  const presence = createRedisPresence({ redis });
  const onError = (): void => undefined;
  const one = await startHeartbeat({ presence, owner: "one", onError });
  const other = await startHeartbeat({ presence, owner: "other", onError });
  onTestFinished(async () => {
    await Promise.all([one.close(), other.close()]);
  });
  const wait = { timeout: 30_000, interval: 20 };
  await vi.waitUntil(() => one.isSteady(), wait);
  expect(await one.hasDied("other")).toBe(false);

  await redis.call("CONFIG", "SET", "maxmemory", "1mb");
  await vi.waitUntil(async () => (await presence.alive(["one", "other"])).size === 0, wait);
  await vi.waitUntil(() => !one.isSteady(), wait);
  await expect(one.hasDied("other")).rejects.toThrow("takes no heartbeats");

  await redis.call("CONFIG", "SET", "maxmemory", "0");
  await vi.waitUntil(() => one.isSteady(), wait);
  expect(await one.hasDied("other")).toBe(false);
  expect(await one.hasDied("a dead one")).toBe(true);
});
