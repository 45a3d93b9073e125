import { afterAll, describe, expect, inject, it } from "vitest";
import { closeRedis, connectRedis } from "./connection.ts";
import { readServerStates } from "./server-facts.ts";

const redis = connectRedis(inject("redisUrl"));
afterAll(() => closeRedis(redis));

describe("the state of a server", () => {
  it("is how much memory it takes of how much, and whether it keeps what it has", async () => {
    const [state, ...others] = await readServerStates(redis);
    expect(others).toEqual([]);
    expect(state?.node).toBe(new URL(inject("redisUrl")).host);
    expect(state?.memoryBytes).toBeGreaterThan(100_000);
    // The Redis of the tests has no `maxmemory`, so its limit is the memory of the machine.
    expect(state?.memoryLimitBytes).toBeGreaterThan(state?.memoryBytes ?? 0);
    const [, writesFile] = (await redis.config("GET", "appendonly")) as [string, string];
    expect(state?.persists).toBe(writesFile === "yes");
  });
});
