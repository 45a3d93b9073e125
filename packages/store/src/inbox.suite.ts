import { turnIdOf } from "@larkline/protocol";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { EventLog } from "./event-log.ts";
import type {
  MakeSessionStore,
  SessionStoreDemands,
  SessionStoreHarness,
} from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { Claim } from "./session-types.ts";
import {
  commitOf,
  farFutureMs,
  messageOf,
  mustClaim,
  openCall,
  outboxRecord,
  saveAs,
  suspendOn,
  turnOf,
  userText,
} from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const other = "cli_app.oc_other.main";

/** What people read of a session: places, waiting messages, what runs; and messages that join a turn. */
export function describeInbox(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: inbox`, () => {
    const opened: SessionStoreHarness[] = [];
    let store: SessionStore;
    let events: EventLog;
    let harness: SessionStoreHarness;

    async function open(demands: SessionStoreDemands): Promise<void> {
      harness = await makeHarness(demands);
      opened.push(harness);
      ({ store, events } = harness);
    }

    beforeEach(() => open({}));
    afterEach(async () => {
      for (const each of opened.splice(0)) await each.close();
    });

    /** Appends `om_1`, `om_2`, ... and claims the first. */
    async function startedWith(count: number): Promise<Claim> {
      for (let i = 1; i <= count; i += 1) await store.append(messageOf(session, `om_${i}`));
      return await mustClaim(store, session, 1);
    }

    describe("messages that were taken back", () => {
      it("are refused, whatever their session, for a day", async () => {
        await store.recall("cli_app", "om_1");
        for (const each of [session, other]) {
          expect(await store.append(messageOf(each, "om_1"))).toEqual({
            result: "recalled",
            seq: 0,
            ahead: 0,
          });
          expect(await store.recalled(each, "cli_app", "om_1")).toBe(true);
          expect(await store.summary(each)).toMatchObject({ state: "idle", waiting: 0 });
        }
        await harness.advance(86_400_001);
        expect(await store.append(messageOf(session, "om_1"))).toMatchObject({
          result: "accepted",
          seq: 1,
        });
      });

      it("stay where they are when they were stored before", async () => {
        await store.append(messageOf(session, "om_1"));
        await store.recall("cli_app", "om_1");
        expect(await store.append(messageOf(session, "om_1"))).toMatchObject({
          result: "recalled",
        });
        expect(await store.recalled(session, "cli_app", "om_2")).toBe(false);
        expect(await store.summary(session)).toMatchObject({ waiting: 1 });
      });
    });

    it("AT-29: belong to one person over HTTP, the one who comes first, also when several come at once", async () => {
      const from = (id: string, key: string) => ({
        ...messageOf(session, key),
        chatType: "api" as const,
        sender: { id },
      });
      expect(await store.ownerOf(session)).toBeUndefined();
      const people = ["api:a", "api:b", "api:c"];
      const results = await Promise.all(
        people.map(async (id) => await store.append(from(id, `m-${id}`))),
      );
      expect(results.map(({ result }) => result).toSorted()).toEqual([
        "accepted",
        "foreign",
        "foreign",
      ]);
      const owner = (await store.ownerOf(session)) ?? expect.fail();
      const late = people.find((id) => id !== owner) ?? expect.fail();
      expect(await store.append(from(late, `m-${owner}`))).toEqual({
        result: "foreign",
        seq: 0,
        ahead: 0,
      });
      expect(await store.append(from(owner, "m-2"))).toMatchObject({ result: "accepted", seq: 2 });
      expect(await store.summary(session)).toMatchObject({ waiting: 2 });
    });

    describe("places", () => {
      it("a message to an idle session has nothing ahead", async () => {
        const first = await store.append(messageOf(session, "om_1"));
        expect(first).toMatchObject({ result: "accepted", ahead: 0 });
        expect(first).not.toHaveProperty("head");
      });

      it("a message learns how many come first, and which one is being answered", async () => {
        await startedWith(2);
        const third = await store.append(messageOf(session, "om_3"));
        expect(third).toMatchObject({
          ahead: 2,
          head: { seq: 1, message: messageOf(session, "om_1") },
        });
      });

      it("a claim tells whether its message may have waited behind others", async () => {
        const first = await startedWith(1);
        expect(first).toMatchObject({ head: { seq: 1 }, mayHaveWaited: false });
        await store.append(messageOf(session, "om_2"));
        const ended = await commitOf(store, first);
        if (ended.state !== "requeue") throw new Error(ended.state);
        const second = await mustClaim(store, session, ended.wakeGen);
        expect(second).toMatchObject({ head: { seq: 2 }, mayHaveWaited: true });
        await commitOf(store, second);
        const { wakeGen = 0 } = await store.append(messageOf(session, "om_3"));
        expect(await mustClaim(store, session, wakeGen)).toMatchObject({
          head: { seq: 3 },
          mayHaveWaited: false,
        });
      });

      it("a redelivered message has no place", async () => {
        await startedWith(2);
        const again = await store.append(messageOf(session, "om_2"));
        expect(again).toEqual({ result: "duplicate", seq: 2, ahead: 0 });
      });

      it("a message to a full session learns what is being answered", async () => {
        await open({ maxWaiting: 2 });
        await startedWith(2);
        expect(await store.append(messageOf(session, "om_3"))).toEqual({
          result: "full",
          seq: 0,
          ahead: 0,
          head: { seq: 1, message: messageOf(session, "om_1") },
        });
      });

      it("a caller may allow fewer messages than the store, not more", async () => {
        await open({ maxWaiting: 2 });
        expect(await store.append(messageOf(session, "om_1"), { maxWaiting: 1 })).toMatchObject({
          result: "accepted",
        });
        expect(await store.append(messageOf(session, "om_2"), { maxWaiting: 1 })).toMatchObject({
          result: "full",
        });
        expect(await store.append(messageOf(session, "om_2"), { maxWaiting: 9 })).toMatchObject({
          result: "accepted",
        });
        expect(await store.append(messageOf(session, "om_3"), { maxWaiting: 9 })).toMatchObject({
          result: "full",
        });
        expect(await store.append(messageOf(session, "om_1"), { maxWaiting: 1 })).toMatchObject({
          result: "duplicate",
        });
      });

      it("a message can be found by its id, also after its turn, until it is forgotten", async () => {
        await open({});
        const claim = await startedWith(2);
        await commitOf(store, claim);
        expect(await store.seqOf(session, "cli_app", "om_1")).toBe(1);
        expect(await store.seqOf(session, "cli_app", "om_2")).toBe(2);
        await harness.advance(harness.dedupTtlMs + 1);
        expect(await store.seqOf(session, "cli_app", "om_2")).toBeUndefined();
      });

      it("a message that was never appended has no number", async () => {
        await startedWith(1);
        await store.outbox.push(outboxRecord(session, "r1"), "om_refused");
        expect(await store.seqOf(session, "cli_app", "om_refused")).toBeUndefined();
        expect(await store.seqOf(session, "cli_app", "om_9")).toBeUndefined();
        expect(await store.seqOf(session, "cli_other", "om_1")).toBeUndefined();
        expect(await store.seqOf(other, "cli_app", "om_1")).toBeUndefined();
      });

      it("the waiting messages are those after the one being answered, oldest first", async () => {
        expect(await store.waiting(session, 10)).toEqual([]);
        await startedWith(4);
        const expected = [2, 3, 4].map((seq) => ({
          seq,
          message: messageOf(session, `om_${seq}`),
        }));
        expect(await store.waiting(session, 10)).toEqual(expected);
        expect(await store.waiting(session, 2)).toEqual(expected.slice(0, 2));
        expect(await store.waiting(session, 0)).toEqual([]);
      });
    });

    describe("summary", () => {
      it("tells what is being answered and how far it has come", async () => {
        const claim = await startedWith(2);
        const head = { seq: 1, message: messageOf(session, "om_1") };
        expect(await store.summary(session)).toEqual({
          state: "running",
          gen: 1,
          epoch: claim.epoch,
          waiting: 2,
          messages: 0,
          inContext: 0,
          unsent: 0,
          eventSeq: 0,
          setAside: [],
          head,
          settings: {},
        });
        const turn = turnOf(claim, { steps: 3 });
        await saveAs(store, claim, { mode: "continue", turn, history: [userText("om_1")] });
        expect(await store.summary(session)).toMatchObject({
          waiting: 2,
          messages: 1,
          inContext: 1,
          head,
          turn,
        });
        await commitOf(store, claim, { more: true });
        const next = await store.summary(session);
        expect(next).toMatchObject({ waiting: 1, head: { seq: 2 } });
        expect(next).not.toHaveProperty("turn");
      });

      it("of an unknown session is idle and empty", async () => {
        expect(await store.summary(session)).toEqual({
          state: "idle",
          gen: 0,
          epoch: "0",
          waiting: 0,
          messages: 0,
          inContext: 0,
          unsent: 0,
          eventSeq: 0,
          setAside: [],
          settings: {},
        });
      });
    });

    describe("settings", () => {
      it("that a commit writes are read by claims and summaries, and outlive turns", async () => {
        const claim = await startedWith(1);
        expect(claim.settings).toEqual({});
        await commitOf(store, claim, { settings: { model: "openai/gpt-小" } });
        expect(await store.summary(session)).toMatchObject({
          settings: { model: "openai/gpt-小" },
        });
        await store.append(messageOf(session, "om_2"));
        const second = await mustClaim(store, session, 2);
        expect(second.settings).toEqual({ model: "openai/gpt-小" });
        await commitOf(store, second);
        expect(await store.summary(session)).toMatchObject({
          settings: { model: "openai/gpt-小" },
        });
        expect(await store.summary(other)).toMatchObject({ settings: {} });
      });

      it("are replaced as a whole", async () => {
        await commitOf(store, await startedWith(1), { settings: { model: "openai/a" } });
        await store.append(messageOf(session, "om_2"));
        await commitOf(store, await mustClaim(store, session, 2), { settings: {} });
        expect(await store.summary(session)).toMatchObject({ settings: {} });
        expect((await store.summary(session)).settings).not.toHaveProperty("model");
      });

      it("of a fenced commit are not kept", async () => {
        const old = await startedWith(1);
        await mustClaim(store, session, 1);
        expect(await commitOf(store, old, { settings: { model: "zombie/z" } })).toEqual({
          state: "fenced",
        });
        expect(await store.summary(session)).toMatchObject({ settings: {} });
      });
    });

    describe("messages that join the running turn", () => {
      it("leave the inbox with the write that took them in; the others keep their order", async () => {
        const claim = await startedWith(5);
        const done = {
          type: "done",
          totalInputTokens: 0,
          totalOutputTokens: 0,
          totalCostUsd: 0,
        } as const;
        const joined = { ...done, turnCount: 0, reason: "steered", final: "" } as const;
        const saved = await saveAs(store, claim, {
          mode: "continue",
          absorbed: [4, 2],
          history: [userText("om_2"), userText("om_4")],
          events: [2, 4].map((seq) => ({ runId: turnIdOf(session, seq), event: joined })),
        });
        expect(saved).toEqual({ state: "running", control: [] });
        expect((await store.waiting(session, 10)).map(({ seq }) => seq)).toEqual([3, 5]);
        expect((await events.read(session, 0, 10)).map(({ runId }) => runId)).toEqual([
          turnIdOf(session, 2),
          turnIdOf(session, 4),
        ]);
        expect(await commitOf(store, claim, { more: true })).toMatchObject({
          state: "next",
          head: { seq: 3 },
        });
      });

      it("are still recognised when they are redelivered", async () => {
        const claim = await startedWith(2);
        await saveAs(store, claim, { mode: "continue", absorbed: [2] });
        expect(await store.append(messageOf(session, "om_2"))).toMatchObject({
          result: "duplicate",
          seq: 2,
        });
        expect(await commitOf(store, claim)).toEqual({ state: "idle" });
      });

      it("the message being answered never joins itself, and unknown numbers change nothing", async () => {
        const claim = await startedWith(2);
        await saveAs(store, claim, { mode: "continue", absorbed: [1, 7] });
        await saveAs(store, claim, { mode: "continue", absorbed: [] });
        expect(await store.summary(session)).toMatchObject({ waiting: 2, head: { seq: 1 } });
      });

      it("a cancel of one of them reaches the turn that it joined, until that is over", async () => {
        const claim = await startedWith(14);
        await saveAs(store, claim, { mode: "continue", absorbed: [2] });
        await saveAs(store, claim, { mode: "suspend", absorbed: [13, 14, 99] });
        const turnId = turnIdOf(session, 13);
        expect(await store.cancel(session, { turnId, reason: "recalled" })).toEqual({
          accepted: true,
          wakeGen: 2,
        });
        expect(
          await store.cancel(session, { turnId: turnIdOf(session, 2), reason: "recalled" }),
        ).toEqual({
          accepted: true,
        });
        for (const seq of [99, 23, 0]) {
          const refused = await store.cancel(session, {
            turnId: turnIdOf(session, seq),
            reason: "recalled",
          });
          expect(refused).toEqual({ accepted: false });
        }
        // Message 3 still waits: 13, which the turn absorbed, only contains the digit.
        expect(
          await store.cancel(session, { turnId: turnIdOf(session, 3), reason: "recalled" }),
        ).toEqual({
          accepted: true,
        });
        const successor = await mustClaim(store, session, 2);
        expect(successor.control).toEqual([
          { type: "cancel", turnId, reason: "recalled" },
          { type: "cancel", turnId: turnIdOf(session, 2), reason: "recalled" },
        ]);
        expect(await commitOf(store, successor, { more: true })).toMatchObject({
          state: "next",
          head: { seq: 4 },
        });
        expect(await store.cancel(session, { turnId, reason: "recalled" })).toEqual({
          accepted: false,
        });
        expect(await events.read(session, 0, 10)).toMatchObject([{ runId: turnIdOf(session, 3) }]);
      });

      it("a fenced write takes no message in", async () => {
        const old = await startedWith(2);
        await mustClaim(store, session, 1);
        expect(await saveAs(store, old, { mode: "continue", absorbed: [2] })).toEqual({
          state: "fenced",
        });
        expect(await store.summary(session)).toMatchObject({ waiting: 2 });
      });

      it("a suspended turn is woken when the time has come that it asked for, once", async () => {
        const claim = await startedWith(1);
        expect(await saveAs(store, claim, { mode: "suspend", wakeAtMs: 2_000 })).toEqual({
          state: "suspended",
        });
        expect(await store.dueDeadlines(1_999, 10)).toEqual([]);
        expect(await store.dueDeadlines(2_000, 10)).toEqual([{ session, callId: "" }]);
        const { accepted, wakeGen } = await store.wakeDue(session);
        expect(accepted).toBe(true);
        expect(await store.dueDeadlines(farFutureMs, 10)).toEqual([]);
        expect(await store.wakeDue(session)).toEqual({ accepted: false });
        const again = await mustClaim(store, session, wakeGen ?? 0);
        expect(again).toMatchObject({ failures: {}, control: [], turn: claim.turn ?? {} });
      });

      it("an entry wakes such a turn early, and its end forgets the time", async () => {
        const claim = await startedWith(1);
        await saveAs(store, claim, { mode: "suspend", wakeAtMs: 2_000 });
        const { wakeGen } = await store.cancel(session, { reason: "stopped" });
        const again = await mustClaim(store, session, wakeGen ?? 0);
        expect(again.control).toHaveLength(1);
        await commitOf(store, again);
        expect(await store.dueDeadlines(farFutureMs, 10)).toEqual([]);
      });

      it("a message joins with calls, history and a new context in one write", async () => {
        const claim = await startedWith(3);
        const open1 = [openCall("c1", 1_000), openCall("c2", 2_000)];
        const history = [userText("om_1"), userText("om_2")];
        const context = { keep: 1, summary: userText("so far") };
        await saveAs(store, claim, {
          mode: "suspend",
          open: open1,
          history,
          context,
          absorbed: [2],
        });
        expect(await store.dueDeadlines(5_000, 10)).toEqual([
          { session, callId: "c1" },
          { session, callId: "c2" },
        ]);
        expect((await store.waiting(session, 10)).map(({ seq }) => seq)).toEqual([3]);
        const again = await mustClaim(store, session, 1);
        expect(again.history).toEqual([userText("so far"), userText("om_2")]);
        await suspendOn(store, again, "c1");
        expect(await store.history(session)).toEqual(history);
      });
    });
  });
}
