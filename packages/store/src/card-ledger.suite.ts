import { turnIdOf } from "@larkline/protocol";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CardLedger } from "./outbox.ts";
import type { CardReply } from "./session-types.ts";
import type {
  MakeSessionStore,
  SessionStoreDemands,
  SessionStoreHarness,
} from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { Claim, OutboxLease } from "./session-types.ts";
import {
  commitOf,
  farFutureMs,
  messageOf,
  mustClaim,
  outboxRecord,
  saveAs,
} from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const other = "cli_app.oc_other.main";

/** The cards of a turn's reply; `fields` tell one version from another. */
function replyOf(key: string, seq: number, fields: Partial<CardReply> = {}): CardReply {
  return {
    v: 1,
    replyId: turnIdOf(key, seq),
    session: key,
    app: "cli_app",
    chatId: "oc_chat",
    mode: "typewriter",
    cards: [
      {
        cardId: "739",
        messageId: "om_card",
        uuid: "u1",
        reservedSequence: 50,
        streamingSinceMs: 1_700_000_000_000,
        state: "sent",
        from: 0,
        bytes: 1_000,
        elements: 4,
        tables: 0,
        parts: { footer: "哈希" },
      },
    ],
    createdAtMs: 1_700_000_000_000,
    ...fields,
  };
}

/** A CardLedger and the SessionStore whose fences it obeys. */
export function describeCardLedger(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: card ledger`, () => {
    const opened: SessionStoreHarness[] = [];
    let store: SessionStore;
    let cards: CardLedger;
    let harness: SessionStoreHarness;

    async function open(demands: SessionStoreDemands): Promise<void> {
      harness = await makeHarness(demands);
      opened.push(harness);
      ({ store, cards } = harness);
    }

    beforeEach(() => open({}));
    afterEach(async () => {
      for (const each of opened.splice(0)) await each.close();
    });

    async function started(key = session, id = "om_1"): Promise<Claim> {
      const { wakeGen } = await store.append(messageOf(key, id));
      return await mustClaim(store, key, wakeGen);
    }

    /** Ends the turn with a reply on its way out. */
    async function answered(claim: Claim): Promise<OutboxLease> {
      const record = outboxRecord(claim.session, turnIdOf(claim.session, claim.head?.seq ?? 0));
      const committed = await commitOf(store, claim, { outbox: record });
      if (!("deliver" in committed) || !committed.deliver) {
        throw new Error("the outbox was not leased");
      }
      return committed.deliver;
    }

    it("gives back what was saved last, and nothing for what it does not know", async () => {
      const claim = await started();
      const reply = replyOf(session, 1);
      expect(await cards.load(session, reply.replyId)).toBeUndefined();
      expect(await cards.save(reply, claim)).toBe(true);
      expect(await cards.load(session, reply.replyId)).toEqual(reply);
      const slower = { ...reply, mode: "slow" as const, cards: [] };
      expect(await cards.save(slower, claim)).toBe(true);
      expect(await cards.load(session, reply.replyId)).toEqual(slower);
      expect(await cards.load(other, reply.replyId)).toBeUndefined();
      expect(await cards.load(session, turnIdOf(session, 2))).toBeUndefined();
    });

    it("a worker that was replaced cannot write, its successor continues with the same cards", async () => {
      const old = await started();
      await cards.save(replyOf(session, 1), old);
      const current = await mustClaim(store, session, 1);
      expect(await cards.save(replyOf(session, 1, { mode: "text" }), old)).toBe(false);
      expect(await cards.load(session, turnIdOf(session, 1))).toEqual(replyOf(session, 1));
      expect(await cards.save(replyOf(session, 1, { mode: "final" }), current)).toBe(true);
    });

    it("a suspended turn may still be written", async () => {
      const claim = await started();
      await saveAs(store, claim, { mode: "suspend" });
      expect(await cards.save(replyOf(session, 1), claim)).toBe(true);
    });

    it("an epoch writes the cards of its own turn only", async () => {
      const claim = await started();
      await store.append(messageOf(session, "om_2"));
      expect(await cards.save(replyOf(session, 2), claim)).toBe(false);
      await commitOf(store, claim, { more: true });
      expect(await cards.save(replyOf(session, 1), claim)).toBe(false);
      expect(await cards.save(replyOf(session, 2), claim)).toBe(true);
      expect(await cards.save(replyOf(other, 1), claim)).toBe(false);
    });

    it("no process writes without a session, with an empty epoch or with an empty token", async () => {
      expect(await cards.save(replyOf(session, 1), { epoch: "" })).toBe(false);
      expect(await cards.save(replyOf(session, 1), { outboxToken: "" })).toBe(false);
      await store.append(messageOf(session, "om_1"));
      expect(await cards.save(replyOf(session, 1), { epoch: "" })).toBe(false);
      expect(await cards.save(replyOf(session, 1), { epoch: "undefined" })).toBe(false);
    });

    it("after the commit the sender of the reply writes, and no other process", async () => {
      const claim = await started();
      await cards.save(replyOf(session, 1), claim);
      const { token } = await answered(claim);
      expect(await cards.save(replyOf(session, 1, { mode: "text" }), claim)).toBe(false);
      expect(
        await cards.save(replyOf(session, 1, { mode: "text" }), { outboxToken: "wrong" }),
      ).toBe(false);
      const final = replyOf(session, 1, { mode: "final" });
      expect(await cards.save(final, { outboxToken: token })).toBe(true);
      expect(await cards.load(session, final.replyId)).toEqual(final);
    });

    it("a sender writes the reply that it sends, not another one", async () => {
      const claim = await started();
      await store.append(messageOf(session, "om_2"));
      const record = outboxRecord(session, turnIdOf(session, 1));
      const committed = await commitOf(store, claim, { outbox: record, more: true });
      const token = "deliver" in committed ? (committed.deliver?.token ?? "") : "";
      expect(await cards.save(replyOf(session, 2), { outboxToken: token })).toBe(false);
      expect(await cards.save(replyOf(session, 1), { outboxToken: token })).toBe(true);
      await commitOf(store, claim, { seq: 2, outbox: outboxRecord(session, turnIdOf(session, 2)) });
      const next = await store.outbox.ack(session, token);
      expect(next).toMatchObject({ record: { id: turnIdOf(session, 2) } });
      expect(await cards.save(replyOf(session, 1), { outboxToken: next?.token ?? "" })).toBe(false);
      expect(await cards.save(replyOf(session, 2), { outboxToken: next?.token ?? "" })).toBe(true);
    });

    it("a sender that gave the reply back, or lost its lease to another one, cannot write", async () => {
      await open({});
      const first = await answered(await started());
      await harness.advance(harness.leaseMs + 1);
      const second = await store.outbox.lease(session);
      expect(await cards.save(replyOf(session, 1), { outboxToken: first.token })).toBe(false);
      expect(await cards.save(replyOf(session, 1), { outboxToken: second?.token ?? "" })).toBe(
        true,
      );
      if (second) await store.outbox.retry(second, harness.now() + 60_000);
      expect(await cards.save(replyOf(session, 1), { outboxToken: second?.token ?? "" })).toBe(
        false,
      );
    });

    it("is emptied with the reply that was sent, and what was sent is not written down again", async () => {
      const claim = await started();
      await cards.save(replyOf(session, 1), claim);
      const { token } = await answered(claim);
      await store.append(messageOf(session, "om_2"));
      const next = await mustClaim(store, session, 2);
      await cards.save(replyOf(session, 2), next);
      expect(await store.outbox.ack(session, token)).toBeUndefined();
      expect(await cards.load(session, turnIdOf(session, 1))).toBeUndefined();
      expect(await cards.load(session, turnIdOf(session, 2))).toEqual(replyOf(session, 2));
      expect(await cards.untouched(farFutureMs, 10)).toEqual([
        { session, replyId: turnIdOf(session, 2) },
      ]);
      for (const fence of [claim, { outboxToken: token }]) {
        expect(await cards.save(replyOf(session, 1), fence)).toBe(false);
      }
    });

    it("stays when an acknowledgement is refused or when the reply waits for its retry", async () => {
      const claim = await started();
      await cards.save(replyOf(session, 1), claim);
      const lease = await answered(claim);
      await store.outbox.ack(session, "wrong");
      await store.outbox.retry(lease, harness.now());
      expect(await store.outbox.ack(session, lease.token)).toBeUndefined();
      expect(await cards.load(session, turnIdOf(session, 1))).toEqual(replyOf(session, 1));
    });

    it("finds the cards of a record whatever stands first in it", async () => {
      const replyId = `${session}-"1"`;
      const { id: _, ...rest } = outboxRecord(session, replyId);
      for (const record of [outboxRecord(session, replyId), { ...rest, id: replyId }]) {
        const token = (await store.outbox.push(record, JSON.stringify(record))).lease?.token ?? "";
        expect(await cards.save(replyOf(session, 1, { replyId }), { outboxToken: token })).toBe(
          true,
        );
        await store.outbox.ack(session, token);
        expect(await cards.load(session, replyId)).toBeUndefined();
      }
    });

    it("lists replies that were not written lately, oldest first, no more than asked for", async () => {
      const keys = ["cli_app.oc_a.main", "cli_app.oc_b.main", "cli_app.oc_c.main"];
      const claims: Claim[] = [];
      for (const key of keys) {
        const claim = await started(key);
        claims.push(claim);
        await cards.save(replyOf(key, 1), claim);
        await harness.advance(5);
      }
      const ids = keys.map((key) => ({ session: key, replyId: turnIdOf(key, 1) }));
      expect(await cards.untouched(harness.now(), 10)).toEqual(ids);
      expect(await cards.untouched(harness.now(), 2)).toEqual(ids.slice(0, 2));
      const beforeMs = harness.now() - 1;
      const [first] = claims;
      if (first) await cards.save(replyOf(first.session, 1), first);
      expect(await cards.untouched(beforeMs, 10)).toEqual(ids.slice(1));
      expect((await cards.untouched(farFutureMs, 10)).at(-1)).toEqual(ids[0]);
    });

    it("a reply that was looked at counts as written, a forgotten one is gone", async () => {
      const claim = await started();
      await cards.save(replyOf(session, 1), claim);
      await harness.advance(20);
      const beforeMs = harness.now() - 5;
      const { replyId } = replyOf(session, 1);
      await cards.touch(session, "another");
      expect(await cards.untouched(beforeMs, 10)).toEqual([{ session, replyId }]);
      await cards.touch(session, replyId);
      expect(await cards.untouched(beforeMs, 10)).toEqual([]);
      await cards.forget(session, replyId);
      expect(await cards.load(session, replyId)).toBeUndefined();
      expect(await cards.untouched(farFutureMs, 10)).toEqual([]);
    });

    it("a refused write does not make a reply look alive", async () => {
      const old = await started();
      await cards.save(replyOf(session, 1), old);
      await mustClaim(store, session, 1);
      await harness.advance(20);
      const beforeMs = harness.now() - 5;
      await cards.save(replyOf(session, 1), old);
      expect(await cards.untouched(beforeMs, 10)).toHaveLength(1);
    });

    it("of workers that believe to hold the session one writes", async () => {
      await store.append(messageOf(session, "om_1"));
      const claims = await Promise.all(
        Array.from({ length: 8 }, () => mustClaim(store, session, 1)),
      );
      const saved = await Promise.all(
        claims.map((claim, i) => cards.save(replyOf(session, 1, { chatId: `oc_${i}` }), claim)),
      );
      expect(saved.filter(Boolean)).toHaveLength(1);
      expect((await cards.load(session, turnIdOf(session, 1)))?.chatId).toBe(
        `oc_${saved.indexOf(true)}`,
      );
    });

    it("lets the cards of a turn appear once the reply before it is delivered", async () => {
      const claim = await started();
      expect(await cards.mayAppear(session)).toBe(true);
      await store.append(messageOf(session, "om_2"));
      const record = outboxRecord(session, turnIdOf(session, 1));
      const committed = await commitOf(store, claim, { outbox: record, more: true });
      expect(await cards.mayAppear(session)).toBe(false);
      expect(await cards.mayAppear(other)).toBe(true);
      const { token = "" } = ("deliver" in committed ? committed.deliver : undefined) ?? {};
      await store.outbox.ack(session, token);
      expect(await cards.mayAppear(session)).toBe(true);
    });

    it("holds copies", async () => {
      const claim = await started();
      const reply = replyOf(session, 1);
      await cards.save(reply, claim);
      reply.cards.pop();
      (await cards.load(session, reply.replyId))?.cards.pop();
      expect(await cards.load(session, reply.replyId)).toEqual(replyOf(session, 1));
    });
  });
}
