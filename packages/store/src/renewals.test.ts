import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { Worker } from "node:worker_threads";
import { startRedis } from "@larkline/testkit";
import type { Redis } from "ioredis";
import { expect, inject, it, onTestFinished, vi } from "vitest";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { Presence } from "./presence.ts";
import { Renewals } from "./renewals.ts";

const wait = { timeout: 60_000, interval: 10 };

interface World {
  redis: RedisConnection;
  presence: Presence;
  renewals: Renewals;
  /** What the keys of the queue begin with. */
  queue: string;
  errors: Error[];
}

async function newWorld(redisUrl = inject("redisUrl")): Promise<World> {
  const namespace = `test-${randomUUID()}`;
  const redis = connectRedis(redisUrl);
  onTestFinished(async () => await closeRedis(redis));
  const errors: Error[] = [];
  const onError = (error: Error): void => void errors.push(error);
  const renewals = await Renewals.start({ redisUrl, namespace, owner: "one", onError });
  onTestFinished(async () => await renewals.close());
  return {
    redis,
    presence: new Presence({ redis, namespace }),
    renewals,
    queue: `{${namespace}}:turns:`,
    errors,
  };
}

/** A job as a worker has taken it. */
async function takeJob({ redis, queue, renewals }: World, id: string, token: string): Promise<() => void> {
  await redis.lpush(`${queue}active`, id);
  await redis.sadd(`${queue}stalled`, id);
  await redis.set(`${queue}${id}:lock`, token, "PX", renewals.lockMs);
  return renewals.hold({ queue, id, token });
}

/** Nothing else happens in this thread meanwhile. */
function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** Measures for how long no thread of this process runs. The returned function gives the longest pause since its last call, ms. */
function startStallMeter(): () => number {
  const longest = new Int32Array(new SharedArrayBuffer(4));
  const program = `
    const { workerData: longest } = require("node:worker_threads");
    for (let beforeMs = performance.now(); ;) {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
      const nowMs = performance.now();
      Atomics.store(longest, 0, Math.max(Atomics.load(longest, 0), Math.round(nowMs - beforeMs)));
      beforeMs = nowMs;
    }`;
  const thread = new Worker(program, { eval: true, workerData: longest });
  onTestFinished(async () => void (await thread.terminate()));
  return () => Atomics.exchange(longest, 0, 0);
}

/** How many of the keys exist, asked by another process while this event loop stands still. */
function existingNow({ redis }: World, ...keys: string[]): string {
  const { host, port } = (redis as Redis).options; // the tests have one server
  const ask = `
    const socket = require("node:net").connect(${port}, "${host}", () => socket.write("EXISTS ${keys.join(" ")}\\r\\n"));
    socket.once("data", (answer) => { console.log(String(answer)); socket.destroy(); });`;
  return execFileSync(process.execPath, ["-e", ask], { encoding: "utf8" }).trim();
}

it("an event loop that is blocked for 3 s loses neither its heartbeat nor the lock of a job that it has just taken", async () => {
  const world = await newWorld();
  const { redis, presence, queue } = world;
  const longestStallMs = startStallMeter();
  for (let round = 1; ; round += 1) {
    const id = `job-${round}`;
    const release = await takeJob(world, id, "token");
    longestStallMs();
    block(3_000);
    const [alive, lock, stalled] = await Promise.all([
      presence.alive(["one"]),
      redis.get(`${queue}${id}:lock`),
      redis.smembers(`${queue}stalled`),
    ]);
    const found = { alive: [...alive], lock, stalled };
    const kept = { alive: ["one"], lock: "token", stalled: [] };
    // Where no thread ran at all for a while, both may be lost with right: then it is blocked once more.
    if (longestStallMs() > 300 && !isDeepStrictEqual(found, kept)) {
      release();
      await redis.srem(`${queue}stalled`, id);
      continue;
    }
    expect(found).toEqual(kept);
    break;
  }
});

it("an event loop that is blocked for longer loses both, and has its heartbeat back when it continues", async () => {
  const world = await newWorld();
  await takeJob(world, "a", "token");
  block(6_000);
  expect(existingNow(world, `${world.queue}a:lock`, world.queue.replace("turns:", "alive:one"))).toBe(":0");
  await vi.waitUntil(() => world.renewals.isTaken(), wait);
  expect(world.renewals.isSteady()).toBe(false);
  await vi.waitUntil(async () => (await world.presence.alive(["one"])).size === 1, wait);
});

it("renews no lock that was released, nor one that another process has", async () => {
  const world = await newWorld();
  const { redis, queue } = world;
  const release = await takeJob(world, "a", "token");
  await takeJob(world, "b", "token");
  release();
  await takeJob(world, "c", "token"); // tells of the release
  await redis.set(`${queue}b:lock`, "another", "PX", 60_000);
  // By then the others have been renewed several times.
  await vi.waitUntil(async () => (await redis.get(`${queue}a:lock`)) === null, wait);
  expect(await redis.get(`${queue}b:lock`)).toBe("another");
  expect(await redis.pttl(`${queue}b:lock`)).toBeGreaterThan(world.renewals.lockMs);
  await vi.waitUntil(async () => (await redis.get(`${queue}c:lock`)) === "token", wait);
});

it("takes a lock again that has expired, if its job is still active, and not if it has been given to others", async () => {
  const world = await newWorld();
  const { redis, queue } = world;
  await takeJob(world, "a", "token");
  await takeJob(world, "b", "token");
  await redis.multi().del(`${queue}a:lock`, `${queue}b:lock`).lrem(`${queue}active`, 1, "b").exec();
  await vi.waitUntil(async () => (await redis.get(`${queue}a:lock`)) === "token", wait);
  await delay(500);
  expect(await redis.get(`${queue}b:lock`)).toBeNull();
});

it("tells of a worker that falls silent once, and of none that has left", async () => {
  const { presence, renewals } = await newWorld();
  let told = 0;
  renewals.onSilence(() => (told += 1));
  await presence.beat("left", 60_000);
  await presence.leave("left");
  await delay(1_500);
  expect(told).toBe(0);
  await presence.beat("killed", 1);
  await vi.waitUntil(() => told > 0, wait);
  await delay(600);
  expect(told).toBe(1);
});

it("renews again after Redis was away, is not steady then for a while, and tells of the failure once", async () => {
  const server = await startRedis();
  onTestFinished(async () => await server.stop());
  const world = await newWorld(server.url);
  await vi.waitUntil(() => world.renewals.isSteady(), wait);
  await world.redis.call("CONFIG", "SET", "maxmemory", "1mb");
  await vi.waitUntil(() => !world.renewals.isTaken(), wait);
  await world.redis.call("CONFIG", "SET", "maxmemory", "0");
  await vi.waitUntil(() => world.renewals.isTaken(), wait);
  expect(world.renewals.isSteady()).toBe(false);
  await world.renewals.settled();
  await vi.waitUntil(() => world.renewals.isSteady(), wait);
  expect(world.errors.map(({ message }) => message)).toEqual([expect.stringContaining("not renewed: OOM")]);
});

it("ends with its process's connections, and renews nothing then", async () => {
  const world = await newWorld();
  await world.renewals.close();
  await world.renewals.close();
  await vi.waitUntil(async () => (await world.presence.alive(["one"])).size === 0, wait);
  expect(world.errors).toEqual([]);
});

it("does not start where Redis takes no renewal", async () => {
  const start = Renewals.start({ redisUrl: "redis://127.0.0.1:1", namespace: "n", onError: () => undefined });
  await expect(start).rejects.toThrow();
});
