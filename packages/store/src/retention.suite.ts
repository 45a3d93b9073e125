import { turnIdOf, type SessionKey } from "@larkline/protocol";
import type { Message } from "@larkline/protocol/content";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { AuditPlace } from "./audit-log.ts";
import type { SessionRetention } from "./retention.ts";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { Claim } from "./session-types.ts";
import {
  approvalIdOf,
  approvalOf,
  assistantText,
  callFacts,
  commitOf,
  decisionOf,
  delta,
  farFutureMs,
  messageOf,
  mustClaim,
  openCalls,
  outboxRecord,
  saveAs,
  userText,
} from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const other = "cli_app.oc_other.main";
const marker = userText("[deleted]");

function said(text: string, sender: string): Message {
  return { role: "user", content: [{ type: "text", text }], sender };
}

/** What every SessionRetention and SessionRetention promise of the sessions beside them. */
export function describeRetention(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: retention`, () => {
    let harness: SessionStoreHarness;
    let store: SessionStore;
    let retention: SessionRetention;
    let messages = 0;

    beforeEach(async () => {
      harness = await makeHarness({});
      ({ store, retention } = harness);
      messages = 0;
    });
    afterEach(() => harness.close());

    async function claimed(key: SessionKey = session, sender = "ou_user"): Promise<Claim> {
      messages += 1;
      const message = messageOf(key, `om_${messages}`, {
        sender: { id: sender },
        chatType: "group",
      });
      const { wakeGen } = await store.append(message);
      return await mustClaim(store, key, wakeGen);
    }

    /** A whole turn: one message and its answer. */
    async function answered(key: SessionKey = session, sender = "ou_user"): Promise<Claim> {
      const claim = await claimed(key, sender);
      const history = [said(`question ${messages}`, sender), assistantText(`answer ${messages}`)];
      await commitOf(store, claim, { history, events: [{ runId: "r", event: delta("x") }] });
      return claim;
    }

    /** Everything that ended by now counts as too old. */
    function soon(): number {
      return harness.now() + 60_000;
    }

    async function expire(key: SessionKey = session, archived?: number): Promise<string> {
      return await retention.expire(key, {
        beforeMs: soon(),
        ...(archived !== undefined && { archived }),
      });
    }

    describe("expiry", () => {
      it("finds sessions by the end of their last turn, longest ago first, each once", async () => {
        await answered(other);
        await harness.advance(5);
        await answered();
        await answered();
        expect(await retention.dormant(soon(), 10)).toEqual([other, session]);
        expect(await retention.dormant(soon(), 1)).toEqual([other]);
        expect(await retention.dormant(harness.now() - 60_000, 10)).toEqual([]);
      });

      it("leaves nothing of a session but the ids of its messages", async () => {
        await answered();
        expect(await expire()).toBe("removed");
        expect(await store.summary(session)).toMatchObject({
          state: "idle",
          gen: 0,
          messages: 0,
          unsent: 0,
        });
        expect(await store.history(session)).toEqual([]);
        expect(await harness.events.read(session, 0, 10)).toEqual([]);
        expect(await retention.dormant(soon(), 10)).toEqual([]);
        expect(await retention.unarchived(10)).toEqual([]);
        expect(await retention.sessionsOf("cli_app", "ou_user")).toEqual([]);
        const again = messageOf(session, "om_1");
        expect(await store.append(again)).toEqual({ result: "duplicate", seq: 1, ahead: 0 });
      });

      it("leaves a session to its owner, and finds it again, until it is expired once more", async () => {
        await answered();
        const owner = await store.ownerOf(session);
        const expired = { beforeMs: soon(), stays: "owner" } as const;
        expect(await retention.expire(session, expired)).toBe("removed");
        expect(await retention.expire(session, expired)).toBe("removed");
        expect(await store.history(session)).toEqual([]);
        expect(owner).toBeDefined();
        expect(await store.ownerOf(session)).toBe(owner);
        expect(await retention.dormant(soon(), 10)).toEqual([session]);
        expect(await expire()).toBe("removed");
        expect(await store.ownerOf(session)).toBeUndefined();
        expect(await retention.dormant(soon(), 10)).toEqual([]);
        expect(await expire()).toBe("changed");
      });

      it("takes settled approvals along", async () => {
        const claim = await claimed();
        const approval = approvalOf(session, 1);
        await saveAs(store, claim, { mode: "continue", approvals: [approval] });
        await harness.approvals.decide(session, approval.id, decisionOf("approve"));
        await commitOf(store, claim);
        expect(await expire()).toBe("removed");
        expect(await harness.approvals.find("cli_app", approval.id)).toBeUndefined();
        expect(await harness.approvals.dueCards(farFutureMs, 10)).toEqual([]);
        expect(await harness.approvals.decide(session, approval.id, decisionOf("approve"))).toEqual(
          {
            result: "unknown",
          },
        );
      });

      it("leaves a session alone that is queued, running or suspended, and looks at others first then", async () => {
        await answered();
        await answered(other);
        const { wakeGen } = await store.append(messageOf(session, "om_next"));
        expect(await expire()).toBe("in_use");
        const claim = await mustClaim(store, session, wakeGen);
        expect(await expire()).not.toBe("removed");
        await saveAs(store, claim, { mode: "suspend", open: openCalls("c1") });
        expect(await expire()).not.toBe("removed");
        expect(await retention.dormant(soon(), 10)).toContain(other);
        await store.deliver(session, "c1", { ok: true, result: 1 });
        expect(await store.summary(session)).toMatchObject({ state: "queued", messages: 2 });
      });

      it("leaves a session alone while a reply is unsent", async () => {
        const claim = await claimed();
        await commitOf(store, claim, { outbox: outboxRecord(session, "r1") });
        expect(await expire()).toBe("in_use");
        expect(await store.summary(session)).toMatchObject({ unsent: 1 });
      });

      it("leaves a session alone while a person is asked", async () => {
        await answered();
        await harness.approvals.add(approvalOf(session, 1, { kind: "rule" }));
        expect(await expire()).toBe("in_use");
        expect(await harness.approvals.pending(session)).toHaveLength(1);
      });

      it("does nothing when a turn has ended since, or when not all is archived", async () => {
        await answered();
        expect(await retention.expire(session, { beforeMs: harness.now() - 60_000 })).toBe(
          "changed",
        );
        expect(await expire(session, 1)).toBe("changed");
        expect(await expire("cli_app.oc_unknown")).toBe("changed");
        expect(await store.history(session)).toHaveLength(2);
        expect(await expire(session, 2)).toBe("removed");
      });
    });

    describe("a session that comes back", () => {
      it("has higher numbers than ever before: of messages, wake-ups, claims, events and history", async () => {
        await answered();
        const before = await answered();
        const { gen } = await store.summary(session);
        const [lastEvent] = (await harness.events.read(session, 0, 10)).slice(-1);
        await expire();
        const claim = await claimed();
        expect(claim.head?.seq).toBe(3);
        expect(claim.gen).toBeGreaterThan(gen);
        expect(Number(claim.epoch)).toBeGreaterThan(Number(before.epoch));
        expect(claim.history).toEqual([]);
        await commitOf(store, claim, {
          history: [userText("new")],
          events: [{ runId: "r", event: delta("y") }],
        });
        const [event] = await harness.events.read(session, 0, 10);
        expect(event?.seq).toBeGreaterThan(lastEvent?.seq ?? 0);
        expect(await retention.read(session, 0, 10)).toMatchObject({
          first: 4,
          messages: [userText("new")],
        });
      });

      it("refuses what belongs to its earlier life", async () => {
        const old = await claimed();
        await saveAs(store, old, {
          mode: "continue",
          open: openCalls("c1"),
          approvals: [approvalOf(session, 1)],
        });
        await commitOf(store, old);
        await expire();
        const claim = await claimed();
        await saveAs(store, claim, { mode: "continue", open: openCalls("c1") });
        expect(await store.claim(session, old.gen, "late worker")).toBeUndefined();
        expect(await store.heal(session, old.gen)).toBeUndefined();
        expect(await saveAs(store, old, { mode: "continue", history: [userText("late")] })).toEqual(
          {
            state: "fenced",
          },
        );
        expect(await commitOf(store, old)).toEqual({ state: "fenced" });
        expect(await store.emit({ ...old, events: [{ runId: "r", event: delta("late") }] })).toBe(
          false,
        );
        expect(
          await store.cancel(session, { turnId: turnIdOf(session, 1), reason: "stopped" }),
        ).toMatchObject({
          accepted: false,
        });
        const decided = await harness.approvals.decide(
          session,
          approvalIdOf(1),
          decisionOf("approve"),
        );
        expect(decided).toEqual({ result: "unknown" });
        const card = {
          v: 1,
          session,
          app: "cli_app",
          chatId: "oc_chat",
          mode: "text",
          cards: [],
          createdAtMs: 1,
        } as const;
        const oldCard = { ...card, cards: [], replyId: turnIdOf(session, 1) };
        expect(await harness.cards.save(oldCard, { epoch: claim.epoch })).toBe(false);
        expect(await store.summary(session)).toMatchObject({ state: "running", messages: 0 });
      });

      it("does not let a worker continue with what it has read of the earlier life", async () => {
        // The same number of messages with the same last one: only the version tells the lives apart.
        const first = await claimed();
        await commitOf(store, first, { history: [userText("old"), assistantText("same")] });
        const second = await claimed();
        expect(second.history).toHaveLength(2);
        await commitOf(store, second);
        await expire();
        const reborn = await claimed();
        await commitOf(store, reborn, { history: [userText("new"), assistantText("same")] });
        expect((await claimed()).history).toEqual([userText("new"), assistantText("same")]);
      });

      it("stays above all others that were removed, and others begin above it", async () => {
        for (let round = 1; round <= 3; round += 1) {
          const claim = await answered();
          expect(claim.head?.seq).toBe(round);
          expect(await expire()).toBe("removed");
        }
        expect((await answered()).head?.seq).toBe(4);
      });

      it("is a live one for everybody: appends wake it, duplicates are found, it can go again", async () => {
        await answered();
        await expire();
        const appended = await store.append(messageOf(session, "om_new"));
        expect(appended).toMatchObject({ result: "accepted", seq: 2, ahead: 0 });
        expect(appended.wakeGen).toBeGreaterThan(1);
        expect(await store.append(messageOf(session, "om_new"))).toMatchObject({
          result: "duplicate",
          seq: 2,
          wakeGen: appended.wakeGen,
        });
        await commitOf(store, await mustClaim(store, session, appended.wakeGen));
        expect(await expire()).toBe("removed");
      });
    });

    describe("bounds within a session", () => {
      it("drops only what no claim hands out any more, oldest first", async () => {
        for (let turn = 0; turn < 4; turn += 1) await answered();
        expect(await retention.trim(session, { keep: 0 })).toBe(0);
        const claim = await claimed();
        const summary = userText("summary");
        await commitOf(store, claim, {
          history: [userText("last")],
          context: { keep: 3, summary },
        });
        const whole = await store.history(session);
        expect(await retention.trim(session, { keep: 4 })).toBe(2);
        expect(await store.history(session)).toEqual(whole.slice(2));
        expect(await retention.read(session, 0, 100)).toMatchObject({
          first: 2,
          messages: whole.slice(2),
        });
        expect(await retention.read(session, 7, 1)).toMatchObject({
          first: 7,
          messages: [whole[7]],
        });
        expect(await retention.trim(session, { keep: 4 })).toBe(0);
        expect((await claimed()).history).toEqual([summary, ...whole.slice(-3)]);
        expect(await store.summary(session)).toMatchObject({ messages: 7, inContext: 3 });
      });

      it("continues as before after a trim, also for a worker that has read it", async () => {
        const claim = await claimed();
        await commitOf(store, claim, {
          history: [userText("a"), assistantText("b")],
          context: { keep: 1 },
        });
        expect((await answered()).history).toEqual([assistantText("b")]);
        expect(await retention.trim(session, { keep: 0 })).toBe(1);
        const next = await claimed();
        expect(next.history).toHaveLength(3);
        await commitOf(store, next, { history: [userText("c")], context: { keep: 2 } });
        expect((await claimed()).history).toEqual((await store.history(session)).slice(-2));
      });

      it("drops nothing that is not archived", async () => {
        await answered();
        await answered();
        await commitOf(store, await claimed(), { context: { keep: 0 } });
        expect(await retention.trim(session, { keep: 0, archived: 0 })).toBe(0);
        expect(await retention.trim(session, { keep: 0, archived: 3 })).toBe(3);
        expect(await retention.trim(session, { keep: 0, archived: 3 })).toBe(0);
        expect(await store.history(session)).toEqual([assistantText("answer 2")]);
      });

      it("counts messages from higher up when it is asked to, never from lower down", async () => {
        await answered();
        await retention.renumber(session, 7);
        await retention.renumber(session, 3);
        await retention.renumber("cli_app.oc_unknown", 3);
        expect(await retention.read(session, 0, 10)).toMatchObject({
          first: 7,
          messages: [{}, {}],
        });
        expect((await answered()).history).toHaveLength(2);
        expect(await retention.read(session, 10, 10)).toMatchObject({ first: 10, messages: [{}] });
        expect(await retention.read("cli_app.oc_unknown", 0, 10)).toMatchObject({
          first: 0,
          messages: [],
        });
        expect(await store.summary(session)).toMatchObject({ messages: 4, inContext: 4 });
      });

      it("lists sessions until they are looked after as they were", async () => {
        await answered();
        await harness.advance(2);
        await answered(other);
        const [first, second] = await retention.unarchived(10);
        expect([first?.session, second?.session]).toEqual([session, other]);
        expect(await retention.unarchivedCount()).toBe(2);
        await harness.advance(2);
        await answered();
        for (const ended of [first, second]) {
          if (ended) await retention.trim(ended.session, { keep: 100, endedAtMs: ended.endedAtMs });
        }
        const rest = await retention.unarchived(10);
        expect(rest.map((each) => each.session)).toEqual([session]);
        for (const ended of rest) {
          await retention.trim(ended.session, { keep: 100, endedAtMs: ended.endedAtMs });
        }
        expect(await retention.unarchivedCount()).toBe(0);
      });
    });

    describe("one person's data", () => {
      it("knows in which sessions of an app a person has written", async () => {
        await answered(session, "ou_ann");
        await answered(other, "ou_ann");
        await answered(other, "ou_ben");
        await answered("cli_second.oc_x", "ou_ann");
        await answered(other, "ou_ann|x");
        expect((await retention.sessionsOf("cli_app", "ou_ann")).toSorted()).toEqual(
          [session, other].toSorted(),
        );
        expect(await retention.sessionsOf("cli_app", "ou_ben")).toEqual([other]);
        expect(await retention.sessionsOf("cli", "ou_ben")).toEqual([]);
        expect(await retention.read(other, 0, 0)).toMatchObject({
          people: { ou_ann: "group", ou_ben: "group", "ou_ann|x": "group" },
        });
        expect(await retention.forget(other, "ou_ann", 5)).toBe(false);
        const { wakeGen } = await store.append(
          messageOf(other, "om_waiting", { sender: { id: "ou_ann" } }),
        );
        expect(await retention.forget(other, "ou_ann", 6)).toBe(false);
        expect(await retention.forget(other, "ou_ben", 6)).toBe(true);
        await commitOf(store, await mustClaim(store, other, wakeGen));
        expect(await retention.forget(other, "ou_ann", 6)).toBe(true);
        expect(await retention.sessionsOf("cli_app", "ou_ann")).toEqual([session]);
        await answered(other, "ou_ann");
        expect(await retention.sessionsOf("cli_app", "ou_ann")).toHaveLength(2);
      });

      it("knows who wrote a message that was parked", async () => {
        const parked = messageOf(session, "om_late", { sender: { id: "ou_ann" } });
        await store.outbox.push(outboxRecord(session, "q"), "om_late", { parked });
        expect(await retention.sessionsOf("cli_app", "ou_ann")).toEqual([]);
        await store.outbox.release(session, "om_late", "append");
        expect(await retention.sessionsOf("cli_app", "ou_ann")).toEqual([session]);
      });

      it("finds the sessions of a chat", async () => {
        await answered("cli_app.oc_chat");
        await answered("cli_app.oc_chat.om_thread");
        await answered("cli_app.oc_chatter");
        const found = await retention.sessionsOfChat("cli_app", "oc_chat");
        expect(found.toSorted()).toEqual(["cli_app.oc_chat", "cli_app.oc_chat.om_thread"]);
      });

      it("erases a session whatever its age, with what is still to be sent", async () => {
        const claim = await claimed();
        await commitOf(store, claim, {
          history: [userText("secret")],
          outbox: outboxRecord(session, "r1"),
        });
        await harness.approvals.add(approvalOf(session, 1, { kind: "rule" }));
        expect(await retention.erase(session, 0)).toBe("changed");
        expect(await retention.erase(session, 1)).toBe("removed");
        expect(await store.summary(session)).toMatchObject({ unsent: 0, messages: 0 });
        expect(await store.dueOutboxes(farFutureMs, 10)).toEqual([]);
        expect(await harness.approvals.pending(session)).toEqual([]);
        expect(await harness.approvals.dueExpiries(farFutureMs + 1, 10)).toEqual([]);
        expect(await retention.sessionsOf("cli_app", "ou_user")).toEqual([]);
      });

      it("erases no session that is being answered, and one that is gone again and again", async () => {
        const claim = await claimed();
        expect(await retention.erase(session, 0)).toBe("in_use");
        await commitOf(store, claim);
        expect(await retention.erase(session, 0)).toBe("removed");
        expect(await retention.erase(session, 0)).toBe("removed");
      });

      it("puts a marker in place of messages, and no worker continues with what was there", async () => {
        await answered(session, "ou_ann");
        await answered(session, "ou_ben");
        const summary = userText("summary of what ann said");
        await commitOf(store, await claimed(session, "ou_ann"), { context: { keep: 2, summary } });
        expect((await claimed()).history[0]).toEqual(summary);
        const whole = await store.history(session);
        const what = { person: "ou_ann", numbers: [0, 99], marker };
        expect(await retention.redact(session, what)).toBe(1);
        expect(await retention.redact(session, what)).toBe(1);
        expect(await store.history(session)).toEqual([marker, ...whole.slice(1)]);
        expect(await harness.events.read(session, 0, 10)).toEqual([]);
        await expect(store.summary(session)).resolves.toMatchObject({ messages: 4, inContext: 2 });
      });

      it("takes a worker's memory of a replaced message away", async () => {
        await answered(session, "ou_ann");
        const claim = await claimed(session, "ou_ben");
        expect(claim.history).toHaveLength(2);
        await commitOf(store, claim);
        await retention.redact(session, { person: "ou_ann", numbers: [0], marker });
        expect((await claimed(session, "ou_ben")).history).toEqual([
          marker,
          assistantText("answer 1"),
        ]);
      });

      it("takes the settled approvals of that person, of no other, and none that is pending", async () => {
        await answered(session, "ou_ann");
        const ann = { requester: { id: "ou_ann" } };
        await harness.approvals.add(approvalOf(session, 1, { kind: "rule", ...ann }));
        await harness.approvals.add(approvalOf(session, 2, { kind: "rule" }));
        await harness.approvals.add(approvalOf(session, 3, { kind: "rule", ...ann }));
        for (const number of [1, 2]) {
          await harness.approvals.decide(session, approvalIdOf(number), decisionOf("approve"));
        }
        await retention.redact(session, { person: "ou_ann", numbers: [], marker });
        expect(await harness.approvals.find("cli_app", approvalIdOf(1))).toBeUndefined();
        expect(await harness.approvals.find("cli_app", approvalIdOf(2))).toMatchObject({
          state: "approved",
        });
        expect(await harness.approvals.find("cli_app", approvalIdOf(3))).toMatchObject({
          state: "pending",
        });
      });

      it("makes no session of one that is gone", async () => {
        expect(await retention.redact(session, { person: "ou_ann", numbers: [0], marker })).toBe(0);
        expect(await retention.forget(session, "ou_ann", 0)).toBe(true);
        expect(await retention.adopt(new AbortController().signal)).toBe(0);
      });
    });

    describe("the audit log", () => {
      const pageSize = 10;

      async function places(): Promise<{ part: string; place: AuditPlace }[]> {
        const { auditRetention } = harness;
        const all: { part: string; place: AuditPlace }[] = [];
        for (const part of auditRetention.parts()) {
          let after: AuditPlace | undefined;
          for (;;) {
            const page = await auditRetention.page(part, after, pageSize);
            all.push(...page.map(({ atMs, number }) => ({ part, place: { atMs, number } })));
            const last = page.at(-1);
            if (last === undefined) break;
            after = { atMs: last.atMs, number: last.number };
          }
        }
        return all;
      }

      async function write(count: number): Promise<void> {
        for (let at = 0; at < count; at += 1) {
          await harness.audit.append({ kind: "rule_added", ...callFacts, ruleId: `r${at}` });
        }
      }

      it("is read page by page, every record once", async () => {
        await write(25);
        const all = await places();
        expect(all).toHaveLength(25);
        expect(new Set(all.map(({ place }) => `${place.atMs}-${place.number}`)).size).toBe(25);
      });

      it("drops records by age, and by number when there are too many", async () => {
        await write(25);
        const { auditRetention } = harness;
        const [first] = await places();
        const part = first?.part ?? "";
        expect(await auditRetention.trim(part, { beforeMs: 0, maxRecords: 30 })).toBe(0);
        await auditRetention.trim(part, { beforeMs: 0, maxRecords: 20 });
        expect(await places()).toHaveLength(20);
        await auditRetention.trim(part, { beforeMs: soon(), maxRecords: 20 });
        expect(await places()).toEqual([]);
      });

      it("drops nothing that is not archived", async () => {
        await write(10);
        const all = await places();
        const { auditRetention } = harness;
        const part = all[0]?.part ?? "";
        const bounds = { beforeMs: soon(), maxRecords: 1 };
        expect(await auditRetention.trim(part, { ...bounds, archived: { upTo: undefined } })).toBe(
          0,
        );
        await auditRetention.trim(part, { ...bounds, archived: { upTo: all[3]?.place } });
        expect(await places()).toEqual(all.slice(4));
      });
    });
  });
}
