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
  const start = async (): Promise<Renewals> => {
    errors.length = 0;
    return await Renewals.start({ redisUrl, namespace, owner: "one", onError });
  };
  // It fails where this process stands still for longer than the thread bears a silence of Redis.
  const renewals = await vi.waitFor(start, wait);
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

/**
 * Measures for how long a thread of this process gets no answer from Redis, since either of the two stands still. The
 * returned function gives the longest pause since its last call, ms.
 */
async function startStallMeter({ redis }: World): Promise<() => Promise<number>> {
  const { host, port } = (redis as Redis).options; // the tests have one server
  /** The longest pause, the number of answers. */
  const seen = new Int32Array(new SharedArrayBuffer(8));
  const program = `
    const { workerData: seen } = require("node:worker_threads");
    const socket = require("node:net").connect(${port}, "${host}", () => socket.write("PING\\r\\n"));
    let beforeMs = performance.now();
    socket.on("data", () => {
      const nowMs = performance.now();
      Atomics.store(seen, 0, Math.max(Atomics.load(seen, 0), Math.round(nowMs - beforeMs)));
      Atomics.add(seen, 1, 1);
      beforeMs = nowMs;
      setTimeout(() => socket.write("PING\\r\\n"), 10);
    });`;
  const thread = new Worker(program, { eval: true, workerData: seen });
  onTestFinished(async () => void (await thread.terminate()));
  const read = async (): Promise<number> => {
    const answers = Atomics.load(seen, 1);
    // A pause counts when the answers behind it have come.
    await vi.waitUntil(() => Atomics.load(seen, 1) > answers + 1, wait);
    return Atomics.exchange(seen, 0, 0);
  };
  await read();
  return read;
}

/** What was said about failures, without connections that were given up because this process or Redis stood still. */
function unexcused({ errors }: World): string[] {
  return errors.map(({ message }) => message).filter((message) => !message.includes("the connection to Redis broke"));
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
  const longestStallMs = await startStallMeter(world);
  for (let round = 1; ; round += 1) {
    const id = `job-${round}`;
    await longestStallMs();
    const release = await takeJob(world, id, "token");
    block(3_000);
    const [alive, lock, stalled] = await Promise.all([
      presence.alive(["one"]),
      redis.get(`${queue}${id}:lock`),
      redis.smembers(`${queue}stalled`),
    ]);
    const found = { alive: [...alive], lock, stalled };
    const kept = { alive: ["one"], lock: "token", stalled: [] };
    // Where no thread ran or Redis stood still for a while, both may be lost with right: then it is blocked once more.
    if ((await longestStallMs()) > 300 && !isDeepStrictEqual(found, kept)) {
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
  // A renewal that was on its way when Redis or this process stood still may have come late: it was the last one.
  const keys = [`${world.queue}a:lock`, world.queue.replace("turns:", "alive:one")];
  let existing = existingNow(world, ...keys);
  for (let tries = 0; existing !== ":0" && tries < 100; tries += 1) {
    block(100);
    existing = existingNow(world, ...keys);
  }
  expect(existing).toBe(":0");
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
  for (let round = 1; ; round += 1) {
    told = 0;
    const startedMs = performance.now();
    await presence.beat(`left-${round}`, 60_000);
    await presence.leave(`left-${round}`);
    const tookMs = performance.now() - startedMs;
    await delay(1_500);
    // One that was silent for a while before it left is rightly reported: then another one leaves.
    if (told > 0 && tookMs > 500) continue;
    expect(told).toBe(0);
    break;
  }
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
  await world.redis.call("CONFIG", "SET", "maxmemory", "1"); // byte: it is full
  await vi.waitUntil(() => !world.renewals.isTaken(), wait);
  await world.redis.call("CONFIG", "SET", "maxmemory", "0");
  await vi.waitUntil(() => world.renewals.isTaken(), wait);
  expect(world.renewals.isSteady()).toBe(false);
  await world.renewals.settled();
  await vi.waitUntil(() => world.renewals.isSteady(), wait);
  expect(unexcused(world)).toEqual([expect.stringContaining("not renewed: OOM")]);
});

it("ends with its process's connections, and renews nothing then", async () => {
  const world = await newWorld();
  await world.renewals.close();
  await world.renewals.close();
  await vi.waitUntil(async () => (await world.presence.alive(["one"])).size === 0, wait);
  expect(unexcused(world)).toEqual([]);
});

it("does not start where Redis takes no renewal", async () => {
  const start = Renewals.start({ redisUrl: "redis://127.0.0.1:1", namespace: "n", onError: () => undefined });
  await expect(start).rejects.toThrow();
});
