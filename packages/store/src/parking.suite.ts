import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type {
  MakeSessionStore,
  SessionStoreDemands,
  SessionStoreHarness,
} from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { PushResult } from "./session-types.ts";
import { commitOf, farFutureMs, messageOf, mustClaim, outboxRecord } from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const other = "cli_app.oc_other.main";

/** Messages that wait for their sender's decision, behind a question in the outbox. */
export function describeParking(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: parked messages`, () => {
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

    const message = messageOf(session, "om_1", {
      parts: [{ type: "text", text: "晚到的 \u0000 😀" }],
    });

    async function park(): Promise<PushResult> {
      return await store.outbox.push(outboxRecord(session, "question"), "om_1", {
        parked: message,
      });
    }

    it("is kept as it is, for its session, without being run", async () => {
      expect(await park()).toMatchObject({ stored: true, lease: { record: { id: "question" } } });
      expect(await store.outbox.parked(session, "om_1")).toEqual(message);
      expect(await store.outbox.parked(other, "om_1")).toBeUndefined();
      expect(await store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
    });

    it("counts as seen, as every message does that was appended or answered", async () => {
      expect(await store.seen(session, "cli_app", "om_1")).toBe(false);
      await park();
      await store.append(messageOf(session, "om_2"));
      expect(await store.seen(session, "cli_app", "om_1")).toBe(true);
      expect(await store.seen(session, "cli_app", "om_2")).toBe(true);
      expect(await store.seen(other, "cli_app", "om_2")).toBe(false);
      expect(await store.seen(session, "cli_other", "om_2")).toBe(false);
    });

    it("is asked about once, however often it is delivered", async () => {
      await park();
      expect(await store.append(message)).toEqual({ result: "duplicate", seq: 0, ahead: 0 });
      const changed = messageOf(session, "om_1");
      expect(
        await store.outbox.push(outboxRecord(session, "again"), "om_1", { parked: changed }),
      ).toEqual({
        stored: false,
      });
      expect(await store.outbox.parked(session, "om_1")).toEqual(message);
    });

    it("a message that was appended before is not parked", async () => {
      await store.append(message);
      expect(await park()).toEqual({ stored: false });
      expect(await store.outbox.parked(session, "om_1")).toBeUndefined();
    });

    it("an answer without a message parks nothing", async () => {
      await store.outbox.push(outboxRecord(session, "r1"), "om_1");
      expect(await store.outbox.parked(session, "om_1")).toBeUndefined();
      expect(await store.outbox.release(session, "om_1", "append")).toBeUndefined();
    });

    it("is appended and wakes when it is released, although its id is remembered", async () => {
      await park();
      expect(await store.outbox.release(session, "om_1", "append")).toMatchObject({
        result: "accepted",
        seq: 1,
        ahead: 0,
        wakeGen: 1,
      });
      expect(await store.outbox.parked(session, "om_1")).toBeUndefined();
      expect(await store.seqOf(session, "cli_app", "om_1")).toBe(1);
      expect(await store.append(message)).toMatchObject({
        result: "duplicate",
        seq: 1,
        wakeGen: 1,
      });
      expect((await mustClaim(store, session, 1)).head).toEqual({ seq: 1, message });
    });

    it("is released behind the messages that came meanwhile", async () => {
      await park();
      await store.append(messageOf(session, "om_2"));
      const released = await store.outbox.release(session, "om_1", "append");
      expect(released).toMatchObject({
        seq: 2,
        ahead: 1,
        head: { seq: 1, message: { id: "om_2" } },
      });
      expect(released).not.toHaveProperty("wakeGen");
    });

    it("is released once", async () => {
      await park();
      const released = await Promise.all(
        Array.from({ length: 10 }, (_, i) =>
          store.outbox.release(session, "om_1", i % 2 === 0 ? "append" : "drop"),
        ),
      );
      expect(released.filter((each) => each !== undefined)).toHaveLength(1);
      expect(await store.outbox.release(session, "om_1", "append")).toBeUndefined();
      const { waiting } = await store.summary(session);
      expect(waiting).toBe(released.some((each) => each !== undefined && each.seq > 0) ? 1 : 0);
    });

    it("is gone without a trace when it is dropped, and stays recognised", async () => {
      await park();
      expect(await store.outbox.release(session, "om_1", "drop")).toEqual({
        result: "accepted",
        seq: 0,
        ahead: 0,
      });
      expect(await store.outbox.release(session, "om_1", "append")).toBeUndefined();
      expect(await store.outbox.parked(session, "om_1")).toBeUndefined();
      expect(await store.append(message)).toMatchObject({ result: "duplicate", seq: 0 });
      expect(await store.summary(session)).toMatchObject({ state: "idle", gen: 0, waiting: 0 });
    });

    it("stays parked while the session is full, and can be released later", async () => {
      await open({ maxWaiting: 1 });
      await store.append(messageOf(session, "om_2"));
      await park();
      expect(await store.outbox.release(session, "om_1", "append")).toMatchObject({
        result: "full",
        head: { seq: 1 },
      });
      expect(await store.outbox.parked(session, "om_1")).toEqual(message);
      await commitOf(store, await mustClaim(store, session, 1));
      expect(await store.outbox.release(session, "om_1", "append")).toMatchObject({
        result: "accepted",
        seq: 2,
      });
    });

    it("AL-47: is not forgotten when the process that released it dies before the wake-up", async () => {
      await park();
      await store.outbox.release(session, "om_1", "append");
      expect(await store.stale(farFutureMs, 10)).toMatchObject([
        { session, state: "queued", gen: 1 },
      ]);
      expect(await store.heal(session, 1)).toBe(1);
    });

    it("is forgotten together with its id", async () => {
      await open({});
      await park();
      await harness.advance(harness.dedupTtlMs + 1);
      expect(await store.outbox.parked(session, "om_1")).toBeUndefined();
      expect(await store.outbox.release(session, "om_1", "append")).toBeUndefined();
      expect(await store.append(message)).toMatchObject({ result: "accepted", seq: 1 });
    });

    it("holds a copy", async () => {
      const changing = structuredClone(message);
      await store.outbox.push(outboxRecord(session, "question"), "om_1", { parked: changing });
      changing.parts.pop();
      (await store.outbox.parked(session, "om_1"))?.parts.pop();
      expect(await store.outbox.parked(session, "om_1")).toEqual(message);
    });
  });
}
