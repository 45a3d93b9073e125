import { systemClock } from "@larkline/protocol/clock";
import { test, expect } from "vitest";
import { createRateLimiter, type LimitRefusal } from "./rate-limiter.ts";
import { PlatformError } from "./open-api.ts";

/** Calls at random times; tells which were admitted. */
function run(calls: number, limit: number): { at: number; admitted: boolean }[] {
  let now = 1_000_000_000;
  const limiter = createRateLimiter({
    clock: { ...systemClock, now: () => now },
    enforced: true,
    onRefusal: () => undefined,
  });
  return Array.from({ length: calls }, () => {
    now += Math.floor(Math.random() ** 3 * 400);
    try {
      limiter.checkBusiness("chat oc_1", limit);
      return { at: now, admitted: true };
    } catch (error) {
      if (!(error instanceof PlatformError)) throw error;
      return { at: now, admitted: false };
    }
  });
}

test("no second, aligned or not, holds more than the limit, and nothing below it is refused", () => {
  const calls = run(5000, 5);
  const admitted = calls.filter((call) => call.admitted).map((call) => call.at);
  const aligned = new Map<number, number>();
  for (const at of admitted) {
    aligned.set(Math.floor(at / 1000), (aligned.get(Math.floor(at / 1000)) ?? 0) + 1);
  }
  expect(Math.max(...aligned.values())).toBeLessThanOrEqual(5);
  for (const [index, at] of admitted.entries()) {
    const sixthBefore = admitted[index - 5] ?? 0;
    expect(at - sixthBefore).toBeGreaterThanOrEqual(1000);
  }
  for (const refused of calls.filter((call) => !call.admitted)) {
    const within = admitted.filter((at) => at <= refused.at && refused.at - at < 1000);
    expect(within.length).toBe(5);
  }
});

test("a minute is counted like a second, with the seconds to wait", () => {
  let now = 1_000_000_000;
  const refusals: LimitRefusal[] = [];
  const limiter = createRateLimiter({
    clock: { ...systemClock, now: () => now },
    enforced: true,
    onRefusal: (refusal) => refusals.push(refusal),
  });
  const call = () => limiter.checkApi({ appId: "cli_1", api: "GET /x" }, { perMinute: 10 });
  for (let index = 0; index < 10; index += 1) {
    now += 3000;
    call();
  }
  now += 10_000;
  expect(call).toThrow(
    expect.objectContaining({
      code: 99991400,
      headers: { "x-ogw-ratelimit-limit": "10", "x-ogw-ratelimit-reset": "23" },
    }),
  );
  expect(refusals).toEqual([{ api: "GET /x", key: "cli_1", code: 99991400, at: now }]);
  now += 23_000;
  expect(call).not.toThrow();
  expect(call).toThrow("frequency limit");
});

test("keys are counted by themselves, also after unused ones were forgotten", () => {
  let now = 1_000_000_000;
  const limiter = createRateLimiter({
    clock: { ...systemClock, now: () => now },
    enforced: true,
    onRefusal: () => undefined,
  });
  for (let chat = 0; chat < 25_000; chat += 1) {
    now += 10;
    limiter.checkBusiness(`chat oc_${chat}`, 1);
  }
  expect(() => limiter.checkBusiness("chat oc_24999", 1)).toThrow("frequency limit");
  expect(() => limiter.checkBusiness("chat oc_1", 1)).not.toThrow();
});
