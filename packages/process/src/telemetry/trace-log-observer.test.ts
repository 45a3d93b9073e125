import { traceIdOf, traceparentOf, type TraceEntry } from "@larkline/protocol";
import type { TraceLog, TraceWrite } from "@larkline/store";
import { openTestStores } from "@larkline/store/testing";
import { afterEach, expect, it, vi } from "vitest";
import { createTraceLogObserver, type TraceLogObserver, type TraceLogObserverOptions } from "./trace-log-observer.ts";

const traceparent = traceparentOf({ app: "cli_1", id: "om_1" });
const traceId = traceIdOf(traceparent);
const observers: TraceLogObserver[] = [];

async function entriesOf(log: TraceLog): Promise<TraceEntry[]> {
  const [entries = []] = await log.read([traceId]);
  return entries;
}

afterEach(async () => {
  for (const observer of observers.splice(0)) await observer.close();
});

function start(options: Partial<TraceLogObserverOptions> = {}) {
  const { traces: log } = openTestStores();
  const errors: unknown[] = [];
  const observer = createTraceLogObserver({
    log,
    service: "ingress",
    instance: "a-1",
    flushMs: 1,
    onError: (error) => errors.push(error),
    ...options,
  });
  observers.push(observer);
  const names = async () => (await entriesOf(log)).map(({ kind, name }) => `${kind} ${name}`);
  return { log, observer, errors, names };
}

it("writes what belongs to a message into its trace, and nothing else", async () => {
  const { log, observer } = start();
  observer.event("message.refused", { traceparent, reason: "not_mentioned" });
  observer.event("message.refused", { reason: "elsewhere" });
  observer.event("turn.ended", { traceparent, session: "s", turn: "s-1", outcome: "answered" });
  observer.error(Object.assign(new Error("the secret is 42"), { code: "ECONNRESET" }), { traceparent, api: "im" });
  await observer.close();
  expect(await entriesOf(log)).toEqual([
    expect.objectContaining({ kind: "event", service: "ingress", instance: "a-1", data: { reason: "not_mentioned" } }),
    expect.objectContaining({ kind: "event", name: "turn.ended", data: { turn: "s-1", outcome: "answered" } }),
    expect.objectContaining({ kind: "error", failed: "ECONNRESET", data: { api: "im" } }),
  ]);
});

it("forgets the oldest of very many spans that never end, and goes on with new ones", async () => {
  const { observer, names } = start({ flushMs: 60_000, batchEntries: 20_000 });
  for (let span = 0; span < 10_000; span += 1) {
    observer.spanStart("tool.run", { traceparent: traceparentOf({ app: "cli_1", id: `om_lost_${span}` }) });
  }
  observer.spanEnd(observer.spanStart("turn.run", { traceparent }), undefined, { outcome: "answered" });
  await observer.close();
  expect(await names()).toEqual(["span turn.run"]);
});

it("EE-51: keeps what a vendor said whole, and cuts everything else", async () => {
  const { log, observer } = start();
  const problem = "p".repeat(500);
  observer.event("model.retried", { traceparent, problem, reason: problem });
  await observer.close();
  expect(await entriesOf(log)).toMatchObject([{ data: { problem, reason: "p".repeat(200) } }]);
});

it("makes a trace findable by what its message names", async () => {
  const { log, observer } = start();
  observer.event("message.received", { traceparent, message: "om_1", chat: "oc_1", person: "ou_1" });
  await observer.close();
  for (const [kind, id] of [
    ["message", "om_1"],
    ["chat", "oc_1"],
    ["person", "ou_1"],
  ] as const) {
    expect(await log.find(kind, id, 5)).toEqual([{ traceId, atMs: expect.any(Number) }]);
  }
});

it("takes a session of the HTTP API, whose name its client chose, for no chat of the platform", async () => {
  const { log, observer } = start();
  observer.event("message.received", { traceparent, message: "oc_1.x", chat: "oc_1", person: "api", channel: "api" });
  await observer.close();
  expect(await log.find("chat", "oc_1", 5)).toEqual([]);
  expect(await log.find("chat", "api.oc_1", 5)).toMatchObject([{ traceId }]);
});

it("writes the beginning of a span that lasts, so that a death in the middle shows", async () => {
  const { log, observer, names } = start();
  const span = observer.spanStart("model.step", { traceparent, model: "m" });
  await vi.waitFor(async () => expect(await names()).toEqual(["begin model.step"]));
  observer.spanEnd(span, { kind: "rate_limit", code: 99991400 }, { tokens: 7 });
  observer.spanEnd(span);
  await observer.close();
  const [begin, end, ...others] = await entriesOf(log);
  expect(others).toEqual([]);
  expect(end).toMatchObject({ kind: "end", span: begin?.span, failed: "rate_limit 99991400", data: { tokens: 7 } });
});

it("writes one entry for a span that is over within a moment", async () => {
  const { log, observer } = start({ flushMs: 10_000 });
  observer.event("message.received", { traceparent });
  const span = observer.spanStart("card.write", { traceparent, operation: "create" });
  observer.event("message.appended", { traceparent });
  observer.spanEnd(span, undefined, { result: "ok" });
  await observer.close();
  const entries = await entriesOf(log);
  expect(entries.map(({ kind, name }) => `${kind} ${name}`)).toEqual([
    "event message.received",
    "span card.write",
    "event message.appended",
  ]);
  expect(entries[1]).toMatchObject({ ms: expect.any(Number), data: { operation: "create", result: "ok" } });
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
  const { observer } = start({ log, batchEntries: 2, flushMs: 10_000 });
  const event = (name: string) => observer.event(name, { traceparent });
  for (const name of ["a", "b", "c", "d", "e"]) event(name);
  expect(writes).toHaveLength(1);
  gate.resolve();
  await observer.close();
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
  const { observer, errors } = start({ log: { append }, onDropped, maxBuffered: 3 });
  for (let at = 0; at < 5; at += 1) observer.event("a", { traceparent });
  expect(dropped).toBe(2);
  await vi.waitFor(() => expect(dropped).toBe(5));
  observer.event("b", { traceparent });
  await vi.waitFor(() => expect(dropped).toBe(6));
  expect(errors).toHaveLength(1);
  away = false;
  observer.event("c", { traceparent });
  await observer.close();
  expect((await entriesOf(kept)).map(({ name }) => name)).toEqual(["c"]);
});

it("does not wait long for a log that hangs when it is closed", async () => {
  const { observer } = start({ log: { append: async () => await new Promise(() => {}) }, closeMs: 50 });
  observer.event("a", { traceparent });
  const startedMs = performance.now();
  await observer.close();
  expect(performance.now() - startedMs).toBeLessThan(10_000);
});
