import { randomBytes } from "node:crypto";
import type { TraceEntry } from "@larkline/protocol/trace";
import { expect, it } from "vitest";
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
