import { randomUUID } from "node:crypto";
import { afterEach, describe, expect, inject, it } from "vitest";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { Presence } from "./presence.ts";
import { readServerFacts } from "./server-facts.ts";

const connections: RedisConnection[] = [];

afterEach(async () => {
  await Promise.all(connections.splice(0).map(closeRedis));
});

function open(): RedisConnection {
  const redis = connectRedis(inject("redisUrl"));
  connections.push(redis);
  return redis;
}

describe("presence", () => {
  it("names the living: not those that left, not those whose beat has run out", async () => {
    const presence = new Presence({ redis: open(), namespace: `test-${randomUUID()}` });
    expect(await presence.members()).toEqual([]);
    await presence.beat("one", 60_000);
    await presence.beat("two", 60_000);
    await presence.beat("silent", 1);
    await expect.poll(async () => (await presence.members()).sort()).toEqual(["one", "two"]);
    await presence.leave("one");
    expect(await presence.members()).toEqual(["two"]);
    // "silent" has died: it has not said that it ends.
    expect(await Promise.all(["one", "two", "silent"].map(async (id) => await presence.hasLeft(id)))).toEqual([
      true,
      false,
      false,
    ]);
  });
});

describe("readServerFacts", () => {
  it("tells version, settings, latency and clock of the server", async () => {
    const facts = await readServerFacts(open());
    expect(facts).toMatchObject({ product: "redis", evictionPolicy: "noeviction", appendOnly: true });
    expect(facts.appendFsync).toBe("everysec");
    expect(Number.parseInt(facts.version, 10)).toBeGreaterThanOrEqual(7);
    expect(facts.pingMs).toBeGreaterThan(0);
    expect(Math.abs(facts.clockOffsetMs)).toBeLessThan(5_000); // one machine, one clock
  });
});
