import { randomBytes } from "node:crypto";
import type { TraceEntry } from "@larkline/protocol";
import { expect, it } from "vitest";
import { cellOf, createKeyspace } from "./keys.ts";
import { openTestStores } from "./testing.ts";
import { TraceLog } from "./trace-log.ts";

function newId(): string {
  return randomBytes(16).toString("hex");
}

function entry(atMs: number): TraceEntry {
  return {
    atMs,
    kind: "event",
    name: "message.received",
    service: "ingress",
    instance: "a-1",
    data: { at: atMs },
  };
}

it("writes what is new of many traces as one record and one line", async () => {
  const { redis, namespace } = openTestStores();
  const log = new TraceLog({ redis, namespace });
  const ids = Array.from({ length: 20 }, newId);
  await log.append(
    ids.map((traceId, at) => ({ traceId, entries: [entry(at)], subject: { chat: "oc_1" } })),
  );
  const [line = "", record = "", ...others] = (
    await redis.keys(`{${namespace}:trace:*`)
  ).toSorted();
  expect(others).toEqual([]);
  expect(await redis.llen(line)).toBe(1);
  for (const key of [line, record]) expect(await redis.pttl(key)).toBeGreaterThan(86_400_000);
  expect(await log.read(ids)).toEqual(ids.map((_id, at) => [entry(at)]));
});

it("keeps traces apart whose ids begin alike, because a client may choose its own", async () => {
  const { redis, namespace } = openTestStores();
  const log = new TraceLog({ redis, namespace });
  const [one, other] = [`${"a".repeat(31)}0`, `${"a".repeat(31)}1`];
  await log.append([{ traceId: one, entries: [entry(1)] }]);
  await log.append([{ traceId: other, entries: [entry(2)] }]);
  expect(await log.read([one, other])).toEqual([[entry(1)], [entry(2)]]);
});

it("looks for nothing older than it is asked for", async () => {
  const { redis, namespace } = openTestStores();
  const log = new TraceLog({ redis, namespace });
  const traceId = newId();
  await log.append([{ traceId, entries: [entry(1)] }]);
  expect(await log.read([traceId], Date.now() - 1_000)).toEqual([[entry(1)]]);
  expect(await log.read([traceId], Date.now() + 3_600_000)).toEqual([[]]);
});

it("reads and finds traces of the version before, and what has been added to them since", async () => {
  const { redis, namespace } = openTestStores();
  const log = new TraceLog({ redis, namespace });
  const keys = createKeyspace(namespace);
  const [traceId, newer] = [newId(), newId()];
  await redis.rpush(
    keys.oldTraceOf(cellOf(traceId), traceId),
    JSON.stringify(entry(1)),
    JSON.stringify(entry(2)),
  );
  await redis.zadd(keys.oldTracesBy(cellOf("oc_1"), "chat", "oc_1"), 1_000, traceId);
  await log.append([
    { traceId, entries: [entry(3)] },
    { traceId: newer, entries: [entry(4)], subject: { chat: "oc_1" } },
  ]);
  expect(await log.read([traceId])).toEqual([[entry(1), entry(2), entry(3)]]);
  const found = await log.find("chat", "oc_1", 10);
  expect(found).toEqual([
    { traceId: newer, atMs: expect.any(Number) },
    { traceId, atMs: 1_000 },
  ]);
});
