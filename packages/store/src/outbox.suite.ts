import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type {
  MakeSessionStore,
  SessionStoreDemands,
  SessionStoreHarness,
} from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { OutboxLease } from "./session-types.ts";
import { commitOf, messageOf, mustClaim, outboxRecord } from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const other = "cli_app.oc_other.main";

function mustLease(lease: OutboxLease | undefined): OutboxLease {
  if (!lease) throw new Error("the outbox was not leased");
  return lease;
}

/** The outbox part of a SessionStore. */
export function describeOutbox(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: outbox`, () => {
    const opened: SessionStoreHarness[] = [];
    let store: SessionStore;
    let harness: SessionStoreHarness;

    async function open(demands: SessionStoreDemands): Promise<void> {
      harness = await makeHarness(demands);
      opened.push(harness);
      ({ store } = harness);
    }

    beforeEach(() => open({}));
    afterEach(async () => {
      for (const each of opened.splice(0)) await each.close();
    });

    async function push(id: string): Promise<OutboxLease | undefined> {
      return (await store.outbox.push(outboxRecord(session, id), id)).lease;
    }

    it("a commit with a reply hands the outbox to the committer", async () => {
      const { wakeGen } = await store.append(messageOf(session, "om_1"));
      const claim = await mustClaim(store, session, wakeGen);
      const done = await commitOf(store, claim, { outbox: outboxRecord(session, "r1") });
      expect(done).toMatchObject({
        state: "idle",
        deliver: { record: outboxRecord(session, "r1") },
      });
      expect(await store.outbox.lease(session)).toBeUndefined();
    });

    it("a commit hands over nothing while another process sends, and the reply waits its turn", async () => {
      const first = mustLease(await push("r1"));
      await store.append(messageOf(session, "om_1"));
      const claim = await mustClaim(store, session, 1);
      const done = await commitOf(store, claim, { outbox: outboxRecord(session, "r2") });
      expect(done).toEqual({ state: "idle" });
      const next = mustLease(await store.outbox.ack(session, first.token));
      expect(next.record).toEqual(outboxRecord(session, "r2"));
    });

    it("a commit that continues or requeues hands over the outbox too", async () => {
      for (const id of ["om_1", "om_2", "om_3"]) await store.append(messageOf(session, id));
      const claim = await mustClaim(store, session, 1);
      const next = await commitOf(store, claim, {
        more: true,
        outbox: outboxRecord(session, "r1"),
      });
      expect(next).toMatchObject({
        state: "next",
        head: { seq: 2 },
        deliver: { record: { id: "r1" } },
      });
      await store.outbox.ack(
        session,
        mustLease("deliver" in next ? next.deliver : undefined).token,
      );
      const requeued = await commitOf(store, claim, {
        seq: 2,
        outbox: outboxRecord(session, "r2"),
      });
      expect(requeued).toMatchObject({
        state: "requeue",
        wakeGen: 2,
        deliver: { record: { id: "r2" } },
      });
    });

    it("a commit does not overtake a reply that waits for its retry", async () => {
      const { token, record } = mustLease(await push("r1"));
      await store.outbox.retry({ token, record }, harness.now() + 60_000);
      await store.append(messageOf(session, "om_1"));
      const done = await commitOf(store, await mustClaim(store, session, 1), {
        outbox: outboxRecord(session, "r2"),
      });
      expect(done).toEqual({ state: "idle" });
    });

    it("sends in order, one at a time, and ends with nothing", async () => {
      let lease = await push("r1");
      expect(await push("r2")).toBeUndefined();
      expect(await push("r3")).toBeUndefined();
      const sent: string[] = [];
      while (lease) {
        sent.push(lease.record.id);
        lease = await store.outbox.ack(session, lease.token);
      }
      expect(sent).toEqual(["r1", "r2", "r3"]);
      expect(await store.outbox.lease(session)).toBeUndefined();
      expect(await store.dueOutboxes(harness.now() + 3_600_000, 10)).toEqual([]);
      expect(mustLease(await push("r4")).record.id).toBe("r4");
    });

    it("adds a reply once however often it is pushed", async () => {
      const { token } = mustLease(await push("r1"));
      expect(await push("r1")).toBeUndefined();
      expect(await store.outbox.ack(session, token)).toBeUndefined();
      expect(await push("r1")).toBeUndefined();
      expect(await store.outbox.lease(session)).toBeUndefined();
    });

    it("no process may send a reply that is held before its time, from the step that stores it", async () => {
      const notBeforeMs = harness.now() + 60_000;
      const hold = async (id: string) =>
        await store.outbox.push(outboxRecord(session, id), id, { notBeforeMs });
      expect(await hold("r1")).toEqual({ stored: true });
      expect(await hold("r2")).toEqual({ stored: true });
      expect(await store.dueOutboxes(notBeforeMs - 1, 10)).toEqual([]);
      expect(await store.outbox.lease(session)).toBeUndefined();
      await harness.advance(60_001);
      expect(await store.dueOutboxes(harness.now(), 10)).toEqual([session]);
      const first = mustLease(await store.outbox.lease(session));
      expect(first.record.id).toBe("r1");
      expect(mustLease(await store.outbox.ack(session, first.token)).record.id).toBe("r2");
    });

    it("a sender without the right token changes nothing", async () => {
      const { token, record } = mustLease(await push("r1"));
      await push("r2");
      expect(await store.outbox.ack(session, "wrong")).toBeUndefined();
      await store.outbox.retry({ token: "wrong", record: { ...record, attempts: 9 } }, 0);
      expect(await store.outbox.lease(session)).toBeUndefined();
      expect(mustLease(await store.outbox.ack(session, token)).record.id).toBe("r2");
      expect(await store.outbox.ack(session, `${token}-used`)).toBeUndefined();
    });

    it("an acknowledgement of an empty or unknown outbox changes nothing", async () => {
      expect(await store.outbox.ack(other, "any")).toBeUndefined();
      expect(await store.outbox.lease(other)).toBeUndefined();
      const { token } = mustLease(await push("r1"));
      await store.outbox.ack(session, token);
      expect(await store.outbox.ack(session, token)).toBeUndefined();
    });

    it("a reply that is retried keeps its place, its changes and its time", async () => {
      const { token, record } = mustLease(await push("r1"));
      await push("r2");
      const retryAtMs = harness.now() + 60_000;
      const changed = { ...record, attempts: 1, uncertainSinceMs: 5 };
      await store.outbox.retry({ token, record: changed }, retryAtMs);
      expect(await store.outbox.lease(session)).toBeUndefined();
      expect(await store.dueOutboxes(retryAtMs - 1, 10)).toEqual([]);
      expect(await store.dueOutboxes(retryAtMs, 10)).toEqual([session]);
      expect(await store.outbox.ack(session, token)).toBeUndefined();
    });

    it("a reply whose retry is due is leased as it was changed", async () => {
      const { token, record } = mustLease(await push("r1"));
      await push("r2");
      await store.outbox.retry({ token, record: { ...record, attempts: 1 } }, harness.now() + 20);
      await harness.advance(25);
      const again = mustLease(await store.outbox.lease(session));
      expect(again.record).toEqual({ ...record, attempts: 1 });
      expect(mustLease(await store.outbox.ack(session, again.token)).record.id).toBe("r2");
    });

    it("lists sessions whose head may be sent, not those that a process sends for", async () => {
      const nowMs = harness.now();
      const { token, record } = mustLease(await push("r1"));
      mustLease((await store.outbox.push(outboxRecord(other, "o1"), "o1")).lease);
      expect(await store.dueOutboxes(nowMs + 5, 10)).toEqual([]);
      await store.outbox.retry({ token, record }, nowMs);
      expect(await store.dueOutboxes(nowMs + 5, 10)).toEqual([session]);
    });

    it("a message that was appended gets no answer outside its turn, and one answered so is not run", async () => {
      await store.append(messageOf(session, "om_1"));
      expect(await push("om_1")).toBeUndefined();
      expect(await push("om_2")).toBeDefined();
      expect(await store.append(messageOf(session, "om_2"))).toMatchObject({ result: "duplicate" });
    });

    it("lists no more sessions than asked for", async () => {
      for (const key of [session, other]) {
        const { token, record } = mustLease(
          (await store.outbox.push(outboxRecord(key, "r1"), "r1")).lease,
        );
        await store.outbox.retry({ token, record }, harness.now());
      }
      expect(await store.dueOutboxes(harness.now() + 5, 1)).toHaveLength(1);
      expect((await store.dueOutboxes(harness.now() + 5, 10)).sort()).toEqual(
        [session, other].sort(),
      );
    });

    it("a lease expires, and the reply goes to the next sender", async () => {
      await open({});
      const first = mustLease(await push("r1"));
      await push("r2");
      await harness.advance(harness.leaseMs + 1);
      expect(await store.dueOutboxes(harness.now(), 10)).toEqual([session]);
      const second = mustLease(await store.outbox.lease(session));
      expect(second.record.id).toBe("r1");
      expect(second.token).not.toBe(first.token);
      expect(await store.outbox.ack(session, first.token)).toBeUndefined();
      expect(mustLease(await store.outbox.ack(session, second.token)).record.id).toBe("r2");
    });

    it("a commit takes over an outbox whose sender died", async () => {
      await open({});
      await push("r1");
      await harness.advance(harness.leaseMs + 1);
      await store.append(messageOf(session, "om_1"));
      const done = await commitOf(store, await mustClaim(store, session, 1), {
        outbox: outboxRecord(session, "r2"),
      });
      expect(done).toMatchObject({ state: "idle", deliver: { record: { id: "r1" } } });
    });

    it("a late acknowledgement counts while no other process took over: nothing is sent twice", async () => {
      await open({});
      const { token } = mustLease(await push("r1"));
      await harness.advance(harness.leaseMs + 1);
      expect(await store.outbox.ack(session, token)).toBeUndefined();
      expect(await store.outbox.lease(session)).toBeUndefined();
    });

    it("holds copies of records", async () => {
      const record = outboxRecord(session, "r1");
      const { token, record: leased } = mustLease((await store.outbox.push(record, "r1")).lease);
      record.text = "changed";
      leased.text = "changed";
      await store.outbox.retry({ token, record: outboxRecord(session, "r1") }, harness.now() - 1);
      expect(mustLease(await store.outbox.lease(session)).record).toEqual(
        outboxRecord(session, "r1"),
      );
    });
  });
}
