import { sharedNow } from "@larkline/protocol/clock";
import { isTerminal, type EventRecord } from "@larkline/protocol/event";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { EventLog } from "./event-log.ts";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { Claim, FencedWrite } from "./session-types.ts";
import { commitOf, delta, messageOf, mustClaim, saveAs, suspendOn } from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const other = "cli_app.oc_other.main";
const patienceMs = 60_000;

function numbered(first: number, last: number): FencedWrite["events"] {
  const events: FencedWrite["events"] = [];
  for (let n = first; n <= last; n += 1) events.push({ runId: `run-${n}`, event: delta(`${n}`) });
  return events;
}

function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

function seqs(records: (EventRecord | undefined)[]): (number | undefined)[] {
  return records.map((record) => record?.seq);
}

/** The EventLog that belongs to a SessionStore. */
export function describeEventLog(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: event log`, () => {
    let store: SessionStore;
    let events: EventLog;
    let harness: SessionStoreHarness;
    let claim: Claim;
    const stops: AbortController[] = [];

    beforeEach(async () => {
      harness = await makeHarness({});
      ({ store, events } = harness);
      await store.append(messageOf(session, "om_1"));
      claim = await mustClaim(store, session, 1);
    });
    afterEach(async () => {
      for (const stop of stops.splice(0)) stop.abort();
      await harness.close();
    });

    async function emit(first: number, last: number): Promise<void> {
      expect(await store.emit({ ...claim, events: numbered(first, last) })).toBe(true);
    }

    /** Follows until `count` elements came; `undefined` elements count. */
    async function follow(afterSeq: number, count: number): Promise<(EventRecord | undefined)[]> {
      const stop = new AbortController();
      stops.push(stop);
      const got: (EventRecord | undefined)[] = [];
      const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(patienceMs)]);
      for await (const record of events.follow(session, afterSeq, signal)) {
        got.push(record);
        if (got.length === count) break;
      }
      return got;
    }

    it("takes events of a call from its runner while the call is open, and none afterwards", async () => {
      await suspendOn(store, claim, "c1");
      const happened = {
        runId: "run",
        event: { type: "tool_progress", id: "c1", toolName: "t", progress: 0.5, detail: "half" },
      } as const;
      expect(await store.report(session, "c1", happened)).toBe(true);
      expect(await store.begin(session, "c1", "once")).toBe("run");
      expect(await store.report(session, "c1", happened)).toBe(true);
      await store.deliver(session, "c1", { ok: true, result: 1 });
      expect(await store.report(session, "c1", happened)).toBe(false);
      expect(await store.report(session, "c2", happened)).toBe(false);
      expect(await events.read(session, 0, 10)).toEqual([
        { seq: 1, atMs: expect.any(Number) as number, ...happened },
        { seq: 2, atMs: expect.any(Number) as number, ...happened },
      ]);
    });

    it("numbers the events of a session from 1 over saves, commits, emits, turns and epochs", async () => {
      await emit(1, 2);
      await saveAs(store, claim, { mode: "continue", events: numbered(3, 3) });
      claim = await mustClaim(store, session, 1);
      await emit(4, 4);
      await store.append(messageOf(session, "om_2"));
      await commitOf(store, claim, { more: true, events: numbered(5, 6) });
      await emit(7, 7);
      expect(await events.read(session, 0, 100)).toEqual(
        numbered(1, 7).map((event, i) => ({
          seq: i + 1,
          atMs: expect.any(Number) as number,
          ...event,
        })),
      );
    });

    it("keeps who spoke and when, and gives the time of the write to events that come without one", async () => {
      const before = sharedNow();
      const said = { runId: "run-1", agent: "front-desk", atMs: 12_345, event: delta("a") };
      await store.emit({ ...claim, events: [said, { runId: "run-1", event: delta("b") }] });
      const [first, second] = await events.read(session, 0, 10);
      expect(first).toEqual({ seq: 1, ...said });
      expect(second).toEqual({
        seq: 2,
        runId: "run-1",
        atMs: expect.any(Number) as number,
        event: delta("b"),
      });
      // The clock of this process is rounded to the nearest ms, that of Redis to the one before.
      expect(second?.atMs).toBeGreaterThanOrEqual(before - 1);
    });

    it("keeps sessions apart", async () => {
      await emit(1, 2);
      await store.append(messageOf(other, "om_9"));
      const theirs = await mustClaim(store, other, 1);
      await store.emit({ ...theirs, events: numbered(1, 1) });
      expect(seqs(await events.read(other, 0, 10))).toEqual([1]);
      expect(seqs(await events.read(session, 0, 10))).toEqual([1, 2]);
    });

    it("reads from any place, in pages of any size", async () => {
      await emit(1, 3);
      await emit(4, 4);
      await emit(5, 9);
      for (let after = 0; after <= 9; after += 1) {
        for (const limit of [1, 2, 4, 100]) {
          const expected = range(after + 1, Math.min(9, after + limit));
          expect(seqs(await events.read(session, after, limit))).toEqual(expected);
        }
      }
      expect(await events.read(session, 50, 10)).toEqual([]);
      expect(await events.read(other, 0, 10)).toEqual([]);
    });

    it("a write without events numbers nothing", async () => {
      await emit(1, 0);
      await saveAs(store, claim, { mode: "continue" });
      await emit(1, 1);
      expect(seqs(await events.read(session, 0, 10))).toEqual([1]);
    });

    it("the summary of a session tells the number of its newest event", async () => {
      expect(await store.summary(session)).toMatchObject({ eventSeq: 0 });
      await emit(1, 3);
      expect(await store.summary(session)).toMatchObject({ eventSeq: 3 });
      expect(await store.summary("cli_app.unknown")).toMatchObject({ eventSeq: 0 });
    });

    it("follows from stored to live events without gap or repetition", async () => {
      await emit(1, 50);
      const followed = [follow(0, 400), follow(20, 380), follow(50, 350), follow(120, 280)];
      for (let n = 51; n <= 400; n += 7) await emit(n, Math.min(n + 6, 400));
      const [all, some, fresh, future] = await Promise.all(followed);
      expect(seqs(all ?? [])).toEqual(range(1, 400));
      expect(seqs(some ?? [])).toEqual(range(21, 400));
      expect(seqs(fresh ?? [])).toEqual(range(51, 400));
      expect(seqs(future ?? [])).toEqual(range(121, 400));
    });

    it("followers that join at any moment of a busy run miss nothing", async () => {
      const followed: Promise<(EventRecord | undefined)[]>[] = [];
      for (let n = 1; n <= 40; n += 1) {
        followed.push(follow(0, 40));
        await emit(n, n);
      }
      for (const records of await Promise.all(followed)) {
        expect(seqs(records)).toEqual(range(1, 40));
      }
    });

    it("follows a session before its first event", async () => {
      const first = follow(0, 1);
      await emit(1, 1);
      expect(await first).toMatchObject([{ seq: 1, runId: "run-1" }]);
    });

    it("sees what saves and commits log, and the end of a cancelled waiting run", async () => {
      const followed = follow(0, 3);
      await store.append(messageOf(session, "om_2"));
      await saveAs(store, claim, { mode: "continue", events: numbered(1, 1) });
      await store.cancel(session, { turnId: `${session}-2`, reason: "user" });
      await commitOf(store, claim, { events: numbered(3, 3) });
      const records = await followed;
      expect(records.map((record) => record?.runId)).toEqual(["run-1", `${session}-2`, "run-3"]);
      expect(records.map((record) => record !== undefined && isTerminal(record.event))).toEqual([
        false,
        true,
        false,
      ]);
    });

    it("ends when the signal aborts, before and while waiting", async () => {
      const stop = new AbortController();
      const waiting = events.follow(session, 0, stop.signal)[Symbol.asyncIterator]();
      const next = waiting.next();
      stop.abort();
      expect(await next).toMatchObject({ done: true });
      await emit(1, 1);
      const ended = events.follow(session, 0, AbortSignal.abort())[Symbol.asyncIterator]();
      expect(await ended.next()).toMatchObject({ done: true });
    });

    it("keeps at least the last 1,000 events, and says when older ones are gone", async () => {
      const total = 4_000;
      for (let n = 1; n <= total; n += 100) await emit(n, n + 99);
      const [oldest] = await events.read(session, 0, 1);
      const first = oldest?.seq ?? total;
      expect(first).toBeLessThanOrEqual(total - 999);
      const expected = first > 1 ? [undefined, first, first + 1] : [1, 2, 3];
      expect(seqs(await follow(0, 3))).toEqual(expected);
      const tail = await follow(total - 1_000, 1_000);
      expect(seqs(tail)).toEqual(range(total - 999, total));
    });

    it("says so when a follower slower than the retention lost events", async () => {
      await emit(1, 1);
      const stop = new AbortController();
      stops.push(stop);
      const slow = events.follow(session, 0, stop.signal)[Symbol.asyncIterator]();
      await slow.next();
      const total = 4_001;
      for (let n = 2; n <= total; n += 100) await emit(n, n + 99);
      let last = 1;
      while (last < total) {
        const { value } = await slow.next();
        const seq = value === undefined ? (await slow.next()).value?.seq : value.seq;
        expect(seq).toBeGreaterThan(last);
        if (value !== undefined) expect(seq).toBe(last + 1);
        last = seq ?? total;
      }
    });

    it("holds copies of events", async () => {
      const said = numbered(1, 1);
      await store.emit({ ...claim, events: said });
      Object.assign(said[0]?.event ?? {}, { text: "changed" });
      Object.assign((await events.read(session, 0, 1))[0]?.event ?? {}, { text: "changed" });
      expect(await events.read(session, 0, 1)).toMatchObject([{ event: delta("1") }]);
    });
  });
}
