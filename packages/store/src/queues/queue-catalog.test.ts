import { randomUUID } from "node:crypto";
import { toolJobId, type ToolJob } from "@larkline/protocol/runner";
import { UnrecoverableError, Worker } from "bullmq";
import { Redis } from "ioredis";
import { afterEach, beforeEach, expect, inject, it } from "vitest";
import { createQueueCatalog, type QueueCatalog } from "./queue-catalog.ts";
import { ToolQueues, TurnQueue } from "./queues.ts";

let redis: Redis;
let prefix: string;
let turns: TurnQueue;
let tools: ToolQueues;
let catalog: QueueCatalog;

beforeEach(() => {
  redis = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  prefix = `{test-${randomUUID()}}`;
  const options = { connection: redis, prefix };
  turns = new TurnQueue(options);
  tools = new ToolQueues(options);
  catalog = createQueueCatalog(options);
});

afterEach(async () => {
  await Promise.all([turns.close(), tools.close(), catalog.close()]);
  redis.disconnect();
});

function callOf(callId: string): ToolJob {
  return {
    v: 1,
    session: "app.oc_1",
    turnId: "app.oc_1-1",
    callId,
    name: "echo",
    arguments: '{"text":"你好"}',
    effect: "pure",
    attempt: 1,
    actor: { app: "app", userId: "ou_1", chatId: "oc_1" },
    envelope: "",
    queuedAtMs: Date.now(),
    deadlineMs: Date.now() + 10_000,
  };
}

it("finds every queue that was used, of runners that are gone and of limited tools too", async () => {
  await turns.wake("app.oc_1", 1);
  await tools.dispatch("gone", [callOf("c1")]);
  await tools.dispatch("limits", [callOf("c2")], { limitedTools: new Set(["echo"]) });
  const { signal } = new AbortController();
  expect(await catalog.find(signal)).toEqual(["tools-gone", "tools-limits.echo", "turns"]);
});

it("tells how many jobs wait, those of background turns included, and since when", async () => {
  const beforeMs = Date.now();
  await tools.dispatch("local", [callOf("c1")], { background: true });
  await tools.dispatch("local", [callOf("c2"), callOf("c3")]);
  const depth = await catalog.depth("tools-local");
  expect(depth).toMatchObject({ waiting: 3, active: 0, delayed: 0, failed: 0, isPaused: false });
  const { timestamp } =
    (await catalog.open("tools-local").getJob(toolJobId("app.oc_1-1", "c1"))) ?? {};
  expect(depth.oldestAtMs).toBe(timestamp);
  expect(timestamp).toBeGreaterThanOrEqual(beforeMs);
});

it("looking at a queue that does not exist does not make one", async () => {
  const depth = await catalog.depth("tools-none");
  expect(depth).toEqual({ waiting: 0, active: 0, delayed: 0, failed: 0, isPaused: false });
  expect(await redis.keys(`${prefix}:tools-none*`)).toEqual([]);
});

it("shows one job with its data", async () => {
  const call = callOf("c1");
  await tools.dispatch("local", [call]);
  const jobId = toolJobId(call.turnId, call.callId);
  expect(await catalog.job("tools-local", jobId)).toMatchObject({
    name: "echo",
    state: "waiting",
    tries: 0,
    data: call,
  });
  expect(await catalog.job("tools-local", "unknown")).toBeUndefined();
});

it("lists jobs that failed for good, and each is retried or discarded once", async () => {
  await tools.dispatch("local", [callOf("c1"), callOf("c2")]);
  const worker = new Worker(
    "tools-local",
    () => Promise.reject(new UnrecoverableError("no such tool")),
    {
      connection: redis,
      prefix,
    },
  );
  await expect
    .poll(async () => (await catalog.depth("tools-local")).failed, { timeout: 60_000 })
    .toBe(2);
  await worker.close();
  const [first, second] = await catalog.failed("tools-local", 10);
  if (first === undefined || second === undefined) throw new Error("two jobs have failed");
  expect([first, second]).toMatchObject([{ reason: "no such tool" }, { reason: "no such tool" }]);
  expect(await catalog.failed("tools-local", 1)).toHaveLength(1);
  const retried = await Promise.all(
    [1, 2].map(async () => await catalog.retryFailed("tools-local", first.id)),
  );
  expect(retried.filter(Boolean)).toHaveLength(1);
  expect(await catalog.discardFailed("tools-local", first.id)).toBe(false);
  expect(await catalog.discardFailed("tools-local", second.id)).toBe(true);
  expect(await catalog.discardFailed("tools-local", second.id)).toBe(false);
  expect(await catalog.depth("tools-local")).toMatchObject({ waiting: 1, failed: 0 });
});
