import { randomUUID } from "node:crypto";
import { sharedNow, systemClock } from "@larkline/protocol/clock";
import { afterEach, describe, expect, inject, it, vi } from "vitest";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { moveScriptClock } from "./lua.ts";
import { RunnerDirectory } from "./runner-directory.ts";
import { ServerClock } from "./server-clock.ts";

const url = inject("redisUrl");
const opened: RedisConnection[] = [];

function connect(): RedisConnection {
  const redis = connectRedis(url);
  opened.push(redis);
  return redis;
}

afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all(opened.splice(0).map((redis) => closeRedis(redis)));
});

async function timeOf(redis: RedisConnection): Promise<number> {
  const [seconds, micros] = await redis.time();
  return Number(seconds) * 1_000 + Number(micros) / 1_000;
}

describe("the shared clock", () => {
  it("shows the time of Redis, whatever this machine's clock shows, and says how far that one is off", async () => {
    const redis = connect();
    const ahead = Date.now;
    vi.spyOn(Date, "now").mockImplementation(() => ahead() + 10_000);
    const problems: (string | undefined)[] = [];
    const clock = new ServerClock(redis, (problem) => void problems.push(problem));
    // The first reading may be inexact, because the process stood still meanwhile; a later one is not.
    const found = "the clock of this machine is 10 s ahead of Redis";
    await vi.waitFor(() => expect(clock.problem).toBe(found), { timeout: 60_000 });
    const beforeMs = sharedNow();
    const redisMs = await timeOf(redis);
    expect(redisMs).toBeGreaterThan(beforeMs - 1_000);
    expect(redisMs).toBeLessThan(sharedNow() + 1_000);
    vi.restoreAllMocks(); // NTP sets it
    await vi.waitFor(() => expect(clock.problem).toBeUndefined(), { timeout: 60_000 });
    expect(problems).toEqual([
      expect.stringMatching(/^the clock of this machine is \d+ s ahead of Redis$/),
      undefined,
    ]);
    clock.close();
  });

  it("is called different only where a reading is exact enough to say so", async () => {
    // As if the process had been stopped between the question and its answer, for far longer than it ever is.
    let pretendedMs = 60_000;
    const monotonic = (): number => {
      const nowMs = systemClock.monotonic() - pretendedMs;
      pretendedMs = 0;
      return nowMs;
    };
    const problems: (string | undefined)[] = [];
    const clock = new ServerClock(connect(), (problem) => void problems.push(problem), {
      ...systemClock,
      monotonic,
    });
    await clock.followed;
    expect(Math.abs(sharedNow() - Date.now())).toBeGreaterThan(2_000); // nothing better is known yet
    await vi.waitFor(() => expect(Math.abs(sharedNow() - Date.now())).toBeLessThan(1_000), {
      timeout: 60_000,
    });
    expect(problems).toEqual([]);
    clock.close();
  });
});

describe("the clock of scripts", () => {
  it("is that of Redis, and a test can move it for one connection", async () => {
    const [here, there] = [connect(), connect()];
    const namespace = `test-${randomUUID()}`;
    const spec = { name: "t", description: "d", inputSchema: { type: "object" } };
    const tool = { spec, effect: "pure", requiresApproval: false, timeoutMs: 1_000 } as const;
    const first = new RunnerDirectory({ redis: here, namespace });
    const second = new RunnerDirectory({ redis: there, namespace });
    await first.announce({ runner: "one", instance: "a", tools: [tool] }, 60_000);
    const later = { runner: "two", instance: "b", tools: [{ ...tool, effect: "once" as const }] };
    expect(await second.announce(later, 60_000)).toMatchObject({ ok: false });
    moveScriptClock(there, 61_000);
    expect(await second.announce(later, 60_000)).toEqual({ ok: true, isCurrent: true });
    const { expiresAtMs = 0 } =
      (await first.runners()).find(({ runner }) => runner === "two") ?? {};
    expect(expiresAtMs - (await timeOf(here))).toBeGreaterThan(100_000);
  });
});
