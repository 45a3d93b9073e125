import { traceIdOf, traceparentOf, type TraceEntry } from "@larkline/protocol/trace";
import type { TraceLog, TraceWrite } from "@larkline/store/operations";
import { openTestStores } from "@larkline/store/testing";
import { afterEach, expect, it, vi } from "vitest";
import type { SpanName } from "./observations.ts";
import { telemetryFor, type Tags, TraceAdapter, type TraceAdapterOptions } from "./telemetry.ts";

const traceparent = traceparentOf({ app: "cli_1", id: "om_1" });
const traceId = traceIdOf(traceparent);
const adapters: TraceAdapter[] = [];

async function entriesOf(log: TraceLog): Promise<TraceEntry[]> {
  const [entries = []] = await log.read([traceId]);
  return entries;
}

afterEach(async () => {
  for (const adapter of adapters.splice(0)) await adapter.close();
});

function start(options: Partial<TraceAdapterOptions> = {}) {
  const { traces: log } = openTestStores();
  const errors: unknown[] = [];
  const adapter = new TraceAdapter({
    log,
    service: "ingress",
    instance: "a-1",
    flushMs: 1,
    onError: (error) => errors.push(error),
    ...options,
  });
  adapters.push(adapter);
  const names = async () => (await entriesOf(log)).map(({ kind, name }) => `${kind} ${name}`);
  const { tracer } = telemetryFor([adapter]);
  const begin = (name: SpanName, attributes: Tags) => tracer.startSpan(name, { attributes });
  return { log, adapter, begin, errors, names };
}

it("writes what belongs to a message into its trace, and nothing else", async () => {
  const { log, adapter } = start();
  adapter.event("message.refused", { traceparent, reason: "not_mentioned" });
  adapter.event("message.refused", { reason: "elsewhere" });
  adapter.event("turn.ended", { traceparent, session: "s", turn: "s-1", outcome: "answered" });
  adapter.error(Object.assign(new Error("the secret is 42"), { code: "ECONNRESET" }), {
    traceparent,
    api: "im",
  });
  await adapter.close();
  expect(await entriesOf(log)).toEqual([
    expect.objectContaining({
      kind: "event",
      service: "ingress",
      instance: "a-1",
      data: { reason: "not_mentioned" },
    }),
    expect.objectContaining({
      kind: "event",
      name: "turn.ended",
      data: { turn: "s-1", outcome: "answered" },
    }),
    expect.objectContaining({ kind: "error", failed: "ECONNRESET", data: { api: "im" } }),
  ]);
});

it("forgets the oldest of very many spans that never end, and continues with new ones", async () => {
  const { adapter, begin, names } = start({ flushMs: 60_000, batchEntries: 20_000 });
  for (let span = 0; span < 10_000; span += 1) {
    begin("tool.run", { traceparent: traceparentOf({ app: "cli_1", id: `om_lost_${span}` }) });
  }
  begin("turn.run", { traceparent }).setAttributes({ outcome: "answered" }).end();
  await adapter.close();
  expect(await names()).toEqual(["span turn.run"]);
});

it("EE-51: keeps what a vendor said whole, and cuts everything else", async () => {
  const { log, adapter } = start();
  const problem = "p".repeat(500);
  adapter.event("model.retried", { traceparent, problem, reason: problem });
  await adapter.close();
  expect(await entriesOf(log)).toMatchObject([{ data: { problem, reason: "p".repeat(200) } }]);
});

it("makes a trace findable by what its message names", async () => {
  const { log, adapter } = start();
  adapter.event("message.received", { traceparent, message: "om_1", chat: "oc_1", person: "ou_1" });
  await adapter.close();
  for (const [kind, id] of [
    ["message", "om_1"],
    ["chat", "oc_1"],
    ["person", "ou_1"],
  ] as const) {
    expect(await log.find(kind, id, 5)).toEqual([{ traceId, atMs: expect.any(Number) }]);
  }
});

it("takes a session of the HTTP API, whose name its client chose, for no chat of the platform", async () => {
  const { log, adapter } = start();
  adapter.event("message.received", {
    traceparent,
    message: "oc_1.x",
    chat: "oc_1",
    person: "api",
    channel: "api",
  });
  await adapter.close();
  expect(await log.find("chat", "oc_1", 5)).toEqual([]);
  expect(await log.find("chat", "api.oc_1", 5)).toMatchObject([{ traceId }]);
});

it("writes the beginning of a span that lasts, so that a death in the middle shows", async () => {
  const { log, adapter, begin, names } = start();
  const span = begin("model.step", { traceparent, model: "m" });
  await vi.waitFor(async () => expect(await names()).toEqual(["begin model.step"]), {
    timeout: 60_000,
  });
  span.recordException({ kind: "rate_limit", code: 99991400 });
  span.setAttributes({ tokens: 7 }).end();
  span.end();
  await adapter.close();
  const [first, end, ...others] = await entriesOf(log);
  expect(others).toEqual([]);
  expect(end).toMatchObject({
    kind: "end",
    span: first?.span,
    failed: "rate_limit 99991400",
    data: { tokens: 7 },
  });
});

it("writes one entry for a span that is over within a moment", async () => {
  const { log, adapter, begin } = start({ flushMs: 10_000 });
  adapter.event("message.received", { traceparent });
  const span = begin("card.write", { traceparent, operation: "create" });
  adapter.event("message.appended", { traceparent });
  span.setAttributes({ result: "ok" }).end();
  await adapter.close();
  const entries = await entriesOf(log);
  expect(entries.map(({ kind, name }) => `${kind} ${name}`)).toEqual([
    "event message.received",
    "span card.write",
    "event message.appended",
  ]);
  expect(entries[1]).toMatchObject({
    ms: expect.any(Number),
    data: { operation: "create", result: "ok" },
  });
});

it("collects while a write lasts, and writes batches without waiting for more", async () => {
  const writes: (readonly TraceWrite[])[] = [];
  const gate = Promise.withResolvers<void>();
  const log = {
    append: async (batch: readonly TraceWrite[]) => {
      writes.push(batch);
      await gate.promise;
    },
  };
  const { adapter } = start({ log, batchEntries: 2, flushMs: 10_000 });
  const event = (name: string) => adapter.event(name, { traceparent });
  for (const name of ["a", "b", "c", "d", "e"]) event(name);
  expect(writes).toHaveLength(1);
  gate.resolve();
  await adapter.close();
  const namesIn = (batch: readonly TraceWrite[] = []) =>
    batch.flatMap(({ entries }) => entries.map(({ name }: TraceEntry) => name));
  expect(writes.map(namesIn)).toEqual([
    ["a", "b"],
    ["c", "d", "e"],
  ]);
});

it("loses entries, counts them and says so once, when the log is away", async () => {
  let away = true;
  let dropped = 0;
  const { traces: kept } = openTestStores();
  const append = async (batch: readonly TraceWrite[]) => {
    if (away) throw new Error("no connection");
    await kept.append(batch);
  };
  const onDropped = (count: number) => void (dropped += count);
  const { adapter, errors } = start({ log: { append }, onDropped, maxBuffered: 3 });
  for (let at = 0; at < 5; at += 1) adapter.event("a", { traceparent });
  expect(dropped).toBe(2);
  await vi.waitFor(() => expect(dropped).toBe(5), { timeout: 60_000 });
  adapter.event("b", { traceparent });
  await vi.waitFor(() => expect(dropped).toBe(6), { timeout: 60_000 });
  expect(errors).toHaveLength(1);
  away = false;
  adapter.event("c", { traceparent });
  await adapter.close();
  expect((await entriesOf(kept)).map(({ name }) => name)).toEqual(["c"]);
});

it("does not wait long for a log that hangs when it is closed", async () => {
  const { adapter } = start({
    log: { append: async () => await new Promise(() => {}) },
    closeMs: 50,
  });
  adapter.event("a", { traceparent });
  const startedMs = performance.now();
  await adapter.close();
  expect(performance.now() - startedMs).toBeLessThan(10_000);
});
