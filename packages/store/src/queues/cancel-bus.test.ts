import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterEach, beforeEach, expect, inject, it, vi } from "vitest";
import { createCancelBus } from "./cancel-bus.ts";

const patience = { timeout: 60_000, interval: 10 };
let redis: Redis;

beforeEach(() => {
  redis = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
});

afterEach(() => redis.disconnect());

it("a cancel bus reaches every subscriber until it leaves", async () => {
  const bus = createCancelBus({ connection: redis, channel: `cancel-${randomUUID()}` });
  const stay = new AbortController();
  const leave = new AbortController();
  const heard: string[] = [];
  await bus.subscribe(({ session }) => heard.push(`a ${session}`), stay.signal);
  await bus.subscribe(({ session }) => heard.push(`b ${session}`), leave.signal);
  await bus.publish({ session: "app.oc_1", turnId: "app.oc_1-1" });
  await vi.waitFor(() => expect(heard.toSorted()).toEqual(["a app.oc_1", "b app.oc_1"]), patience);
  leave.abort();
  await bus.publish({ session: "app.oc_2" });
  await vi.waitFor(() => expect(heard).toContain("a app.oc_2"), patience);
  expect(heard).not.toContain("b app.oc_2");
  stay.abort();
});
