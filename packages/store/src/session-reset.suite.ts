import { turnIdOf, type InboundMessage } from "@larkline/protocol";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import {
  approvalOf,
  assistantText,
  commitOf,
  messageOf,
  mustClaim,
  openCalls,
  outboxRecord,
  saveAs,
  suspendOn,
  userText,
} from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const turnId = turnIdOf(session, 1);

/** Ending a turn from outside, in whatever state it is. */
export function describeSessionReset(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: reset`, () => {
    let harness: SessionStoreHarness;
    let store: SessionStore;

    beforeEach(async () => {
      harness = await makeHarness({});
      ({ store } = harness);
    });
    afterEach(() => harness.close());

    const reset = async () =>
      await store.reset(session, {
        by: "console",
        replyOf: async (id) => outboxRecord(session, id),
      });

    const kindsOfAudit = async () => {
      const records = [];
      for await (const record of harness.audit.export(0, harness.now() + 60_000)) {
        records.push(record);
      }
      return records.map(({ kind, result }) => (result === undefined ? kind : `${kind} ${result}`));
    };

    it("ends a running turn: its worker is fenced, its run is done, its person gets a reply", async () => {
      const { wakeGen } = await store.append(messageOf(session, "om_1"));
      const claim = await mustClaim(store, session, wakeGen);
      expect(await reset()).toEqual({ turnId });
      expect(await commitOf(store, claim)).toEqual({ state: "fenced" });
      expect(await saveAs(store, claim, { mode: "continue" })).toEqual({ state: "fenced" });
      expect(await store.summary(session)).toMatchObject({ state: "idle", waiting: 0, unsent: 1 });
      const [event] = await harness.events.read(session, 0, 10);
      expect(event).toMatchObject({ runId: turnId, event: { type: "done", reason: "cancelled" } });
      expect((await store.outbox.lease(session))?.record.id).toBe(turnId);
      expect(await kindsOfAudit()).toEqual(["session_reset"]);
    });

    it("names the runners that have calls of the turn", async () => {
      const { wakeGen } = await store.append(messageOf(session, "om_1"));
      const claim = await mustClaim(store, session, wakeGen);
      const open = [...openCalls("c1", "c2", "c3", "c4")].map((call, index) => ({
        ...call,
        facts: { ...call.facts, runner: ["one", "two", "one", "answered"][index] ?? "" },
      }));
      await saveAs(store, claim, { mode: "suspend", open });
      await store.begin(session, "c1", "once");
      await store.deliver(session, "c4", { ok: true, result: 1 });
      const { runners, ...ended } = await reset();
      expect(ended).toEqual({ turnId });
      expect(runners?.toSorted()).toEqual(["one", "two"]);
    });

    it("closes the calls and questions that a turn waits for", async () => {
      const { wakeGen } = await store.append(messageOf(session, "om_1"));
      const claim = await mustClaim(store, session, wakeGen);
      await saveAs(store, claim, {
        mode: "suspend",
        open: openCalls("c1", "c2"),
        approvals: [approvalOf(session, 1)],
      });
      await store.begin(session, "c1", "once");
      expect(await reset()).toEqual({ turnId });
      expect(await store.begin(session, "c2", "once")).toBe("closed");
      expect(await store.deliver(session, "c1", { ok: true, result: 1 })).toEqual({
        accepted: false,
      });
      expect(await harness.approvals.pending(session)).toEqual([]);
      expect(await store.dueDeadlines(Number.MAX_SAFE_INTEGER, 10)).toEqual([]);
      const kinds = await kindsOfAudit();
      expect(kinds).toContain("call_ended unknown");
      expect(kinds).toContain("call_ended cancelled");
      expect(kinds).toContain("approval_settled cancelled");
    });

    it("begins a new conversation, and keeps what was said", async () => {
      const { wakeGen } = await store.append(messageOf(session, "om_1"));
      const claim = await mustClaim(store, session, wakeGen);
      await commitOf(store, claim, { history: [userText("1"), assistantText("2")] });
      expect(await reset()).toEqual({});
      expect(await store.summary(session)).toMatchObject({ messages: 2, inContext: 0, unsent: 0 });
      const next = await store.append(messageOf(session, "om_2"));
      expect((await mustClaim(store, session, next.wakeGen)).history).toEqual([]);
      expect(await store.history(session)).toEqual([userText("1"), assistantText("2")]);
    });

    it("leaves messages that wait to the new conversation, under a wake-up of their own", async () => {
      const { wakeGen } = await store.append(messageOf(session, "om_1"));
      await mustClaim(store, session, wakeGen);
      await store.append(messageOf(session, "om_2"));
      const { wakeGen: next } = await reset();
      const claim = await mustClaim(store, session, next);
      expect(claim.head?.message.id).toBe("om_2");
      expect(claim.turn).toBeUndefined();
      expect(claim.failures).toEqual({});
    });

    it("does not take a message that no worker has begun", async () => {
      await store.append(messageOf(session, "om_1"));
      const { turnId: ended, wakeGen } = await reset();
      expect(ended).toBeUndefined();
      expect((await mustClaim(store, session, wakeGen)).head?.message.id).toBe("om_1");
    });

    it("ends a turn that crashes again and again before it saves anything", async () => {
      const { wakeGen = 0 } = await store.append(messageOf(session, "om_1"));
      await mustClaim(store, session, wakeGen);
      const healed = await store.heal(session, wakeGen);
      expect((await store.summary(session)).state).toBe("queued");
      expect(await reset()).toEqual({ turnId });
      expect(await store.claim(session, healed ?? 0, "late")).toBeUndefined();
    });

    it("knows whether the turn has a card, also one that comes in the last moment: it is what people see end", async () => {
      const { wakeGen } = await store.append(messageOf(session, "om_1"));
      const { epoch } = await mustClaim(store, session, wakeGen);
      const told: boolean[] = [];
      const card = {
        v: 1,
        app: "cli_app",
        chatId: "oc_chat",
        mode: "typewriter",
        createdAtMs: 1,
      } as const;
      const replyOf = async (replyId: string, _message: InboundMessage, hasCards: boolean) => {
        told.push(hasCards);
        await harness.cards.save({ ...card, cards: [], session, replyId }, { epoch });
        return outboxRecord(session, replyId);
      };
      expect(await store.reset(session, { by: "console", replyOf })).toEqual({ turnId });
      expect(told).toEqual([false, true]);
      expect(await store.summary(session)).toMatchObject({ state: "idle", unsent: 1 });
    });

    it("a second reset finds nothing to end", async () => {
      const { wakeGen } = await store.append(messageOf(session, "om_1"));
      await suspendOn(store, await mustClaim(store, session, wakeGen), "c1");
      await reset();
      expect(await reset()).toEqual({});
      expect((await store.summary(session)).unsent).toBe(1);
    });
  });
}
