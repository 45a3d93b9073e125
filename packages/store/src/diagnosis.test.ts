import { afterEach, describe, expect, inject, it } from "vitest";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { readServerFacts } from "./server-facts.ts";

const connections: RedisConnection[] = [];

afterEach(async () => {
  await Promise.all(connections.splice(0).map((redis) => closeRedis(redis)));
});

function open(): RedisConnection {
  const redis = connectRedis(inject("redisUrl"));
  connections.push(redis);
  return redis;
}

describe("readServerFacts", () => {
  it("tells version, settings, latency and clock of the server", async () => {
    const facts = await readServerFacts(open());
    expect(facts).toMatchObject({
      product: "redis",
      evictionPolicy: "noeviction",
      appendOnly: true,
    });
    expect(facts.appendFsync).toBe("everysec");
    expect(Number.parseInt(facts.version, 10)).toBeGreaterThanOrEqual(7);
    expect(facts.pingMs).toBeGreaterThan(0);
    expect(Math.abs(facts.clockOffsetMs)).toBeLessThan(5_000); // one machine, one clock
  });
});
