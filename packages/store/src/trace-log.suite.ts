import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { TraceEntry } from "@larkline/protocol/trace";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { maxTraceEntries, maxTracesOfSubject, type TraceLog } from "./trace-log.ts";

/** A trace log under test with storage of its own. */
export interface TraceLogHarness {
  log: TraceLog;
  /** The same log as another process sees it. */
  elsewhere: TraceLog;
  /** Resolves when `ttlMs` have passed since the last write. */
  expire(): Promise<void>;
  close(): Promise<void>;
}

function newId(): string {
  return randomBytes(16).toString("hex");
}

function entry(atMs: number, data: TraceEntry["data"] = {}): TraceEntry {
  return {
    atMs,
    kind: "event",
    name: "message.received",
    service: "ingress",
    instance: "a-1",
    data,
  };
}

async function entriesOf(log: TraceLog, traceId: string): Promise<TraceEntry[]> {
  const [entries = []] = await log.read([traceId]);
  return entries;
}

/** What every TraceLog promises. Call it at the top level of a test file. */
export function describeTraceLog(
  name: string,
  makeHarness: (ttlMs: number) => Promise<TraceLogHarness>,
): void {
  describe(`${name}: trace log`, () => {
    let harness: TraceLogHarness;
    let log: TraceLog;
    let elsewhere: TraceLog;

    beforeEach(async () => {
      harness = await makeHarness(3_600_000);
      ({ log, elsewhere } = harness);
    });
    afterEach(async () => await harness.close());

    it("reads what any process has added, in order, and nothing of unknown traces", async () => {
      const [one, other] = [newId(), newId()];
      const full: TraceEntry = { ...entry(3), kind: "end", span: "7", ms: 12, failed: "timeout" };
      await log.append([
        { traceId: one, entries: [entry(1, { text: "群", number: 1.5, flag: true }), entry(2)] },
        { traceId: other, entries: [entry(9)] },
      ]);
      await elsewhere.append([{ traceId: one, entries: [full] }]);
      expect(await entriesOf(elsewhere, one)).toEqual([
        entry(1, { text: "群", number: 1.5, flag: true }),
        entry(2),
        full,
      ]);
      expect(await entriesOf(log, other)).toEqual([entry(9)]);
      expect(await entriesOf(log, newId())).toEqual([]);
    });

    it("finds traces by message, chat and person, newest first and once each", async () => {
      const [first, second] = [newId(), newId()];
      const about = (message: string) => ({ message, chat: "oc_群", person: "ou_1" });
      await log.append([{ traceId: first, entries: [entry(1)], subject: about("om_1") }]);
      await log.append([]);
      await delay(3);
      await log.append([{ traceId: second, entries: [entry(2)], subject: about("om_2") }]);
      const idsOf = async (...by: Parameters<TraceLog["find"]>) =>
        (await elsewhere.find(...by)).map(({ traceId }) => traceId);
      expect(await idsOf("message", "om_1", 10)).toEqual([first]);
      expect(await idsOf("chat", "oc_群", 10)).toEqual([second, first]);
      expect(await idsOf("person", "ou_1", 1)).toEqual([second]);
      expect(await idsOf("person", "oc_群", 10)).toEqual([]);
      const startingWith = async (text: string, limit = 10) =>
        (await elsewhere.startingWith(text, limit)).map(({ traceId }) => traceId);
      expect(await startingWith(first.slice(0, 8))).toEqual([first]);
      expect(await startingWith(first)).toEqual([first]);
      expect(await startingWith(first.slice(1, 12))).toEqual([]);
      expect(await startingWith("", 1)).toEqual([second]);
      await delay(3);
      await log.append([{ traceId: first, entries: [entry(3)], subject: about("om_1") }]);
      expect(await idsOf("chat", "oc_群", 10)).toEqual([first, second]);
    });

    it("keeps the beginning and the newest entries of a trace that gets too long", async () => {
      const traceId = newId();
      const entries = Array.from({ length: 400 }, (_, at) => entry(at));
      for (let round = 0; round < 4; round += 1) {
        const shifted = entries.map((one) => ({ ...one, atMs: one.atMs + round * 400 }));
        await log.append([{ traceId, entries: shifted }]);
      }
      const kept = (await entriesOf(elsewhere, traceId)).map(({ atMs }) => atMs);
      expect(kept.length).toBeLessThanOrEqual(maxTraceEntries);
      expect(kept.slice(0, 20)).toEqual(entries.slice(0, 20).map(({ atMs }) => atMs));
      expect(kept.slice(-400)).toEqual(entries.map(({ atMs }) => atMs + 1_200));
      expect(kept).toEqual([...kept].sort((one, other) => one - other));
    });

    it("finds a bounded number of traces by one chat, the newest", async () => {
      const ids = Array.from({ length: maxTracesOfSubject + 20 }, newId);
      const writes = ids.map((traceId) => ({ traceId, entries: [], subject: { chat: "oc_1" } }));
      await log.append(writes.slice(0, 30));
      await delay(3);
      await log.append(writes.slice(30));
      const found = (await elsewhere.find("chat", "oc_1", 1_000)).map(({ traceId }) => traceId);
      expect(found).toHaveLength(maxTracesOfSubject);
      expect(found).toEqual(expect.arrayContaining(ids.slice(30)));
    });

    it("forgets traces and what they are found by in time", async () => {
      const traceId = newId();
      const brief = await makeHarness(100);
      await brief.log.append([{ traceId, entries: [entry(1)], subject: { message: "om_1" } }]);
      await brief.expire();
      expect(await entriesOf(brief.elsewhere, traceId)).toEqual([]);
      expect(await brief.elsewhere.find("message", "om_1", 10)).toEqual([]);
      await brief.close();
    });
  });
}
