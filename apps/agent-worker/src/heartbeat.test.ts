import { randomUUID } from "node:crypto";
import { closeRedis, connectRedis, Renewals } from "@larkline/store/redis";
import { Presence } from "@larkline/store/operations";
import { startRedis } from "@larkline/testkit";
import { expect, inject, it, onTestFinished, vi } from "vitest";
import { hasDied, silentAmong } from "./background-jobs.ts";

async function renewing(redisUrl: string, namespace: string, owner: string): Promise<Renewals> {
  // Renewals may fail for a while: on a busy machine, and where a test fills Redis.
  const renewals = await Renewals.start({ redisUrl, namespace, owner, onError: () => undefined });
  onTestFinished(async () => await renewals.close());
  return renewals;
}

const wait = { timeout: 60_000, interval: 20 };

/** The first verdict: there is none while a busy machine is late with the renewals of this process. */
async function verdictOn(owner: string, heartbeats: Parameters<typeof hasDied>[0]): Promise<"dead" | "not dead"> {
  return await vi.waitFor(async () => ((await hasDied(heartbeats, owner)) ? "dead" : "not dead"), wait);
}

it("a worker that has ended in an orderly way has not died; one that only beats no more has", async () => {
  const redisUrl = inject("redisUrl");
  const redis = connectRedis(redisUrl);
  onTestFinished(() => closeRedis(redis));
  const namespace = `test-${randomUUID()}`;
  const presence = new Presence({ redis, namespace });
  const one = { presence, renewals: await renewing(redisUrl, namespace, "one") };
  const other = await renewing(redisUrl, namespace, "other");
  await presence.beat("killed", 1);
  expect(await verdictOn("other", one)).toBe("not dead");
  await other.close();
  await presence.leave("other");
  expect(await presence.alive(["other"])).toEqual(new Set());
  expect(await hasDied(one, "other")).toBe(false);
  await expect.poll(async () => await hasDied(one, "killed")).toBe(true);
});

it("no worker counts as dead because a full Redis takes no beats", async () => {
  const server = await startRedis();
  onTestFinished(async () => await server.stop());
  const redis = connectRedis(server.url);
  onTestFinished(async () => await closeRedis(redis));
  const namespace = "larkline";
  const presence = new Presence({ redis, namespace });
  const renewals = await renewing(server.url, namespace, "one");
  await renewing(server.url, namespace, "other");
  const one = { presence, renewals };
  await vi.waitUntil(() => renewals.isSteady(), wait);
  expect(await verdictOn("other", one)).toBe("not dead");

  await redis.call("CONFIG", "SET", "maxmemory", "1mb");
  await vi.waitUntil(async () => (await presence.alive(["one", "other"])).size === 0, wait);
  await vi.waitUntil(() => !renewals.isSteady(), wait);
  await expect(hasDied(one, "other")).rejects.toThrow("takes no heartbeats");

  await redis.call("CONFIG", "SET", "maxmemory", "0");
  await vi.waitUntil(() => renewals.isSteady(), wait);
  expect(await verdictOn("other", one)).toBe("not dead");
  await expect.poll(async () => await hasDied(one, "a dead one")).toBe(true);
});

it("a dead worker is found also where renewals are late again and again, and a living one is not taken for dead", async () => {
  const redis = connectRedis(inject("redisUrl"));
  onTestFinished(() => closeRedis(redis));
  const presence = new Presence({ redis, namespace: `test-${randomUUID()}` });
  let settling = 0;
  const renewals: Renewals = Object.assign(Object.create(Renewals.prototype) as Renewals, {
    isTaken: () => true,
    isSteady: () => false,
    // The heartbeat of `late` comes while the others are waited for.
    settled: async () => {
      settling += 1;
      await presence.beat("late", 60_000);
    },
  });
  await presence.beat("alive", 60_000);
  expect(await silentAmong({ presence, renewals }, ["alive", "late", "dead"])).toEqual(new Set(["dead"]));
  expect(await silentAmong({ presence, renewals }, ["alive", "late"])).toEqual(new Set());
  expect(settling).toBe(1); // all live: nothing to wait for
});
