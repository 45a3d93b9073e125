import { randomUUID } from "node:crypto";
import { closeRedis, connectRedis, createRedisPresence } from "@larkline/session-redis";
import { expect, inject, it, onTestFinished } from "vitest";
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
