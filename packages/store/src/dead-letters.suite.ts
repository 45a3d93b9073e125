import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CardReply } from "./session-types.ts";
import { type DeadLetter, deadLetterLimits } from "./dead-letters.ts";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import { commitOf, messageOf, mustClaim, outboxRecord } from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const other = "cli_app.oc_other.main";

function letterOf(id: string, atMs: number): DeadLetter {
  return {
    v: 1,
    kind: "message",
    id,
    session,
    reason: "given up",
    atMs,
    messageId: "om_1",
    message: messageOf(session, "om_1"),
  };
}

function cardsOf(replyId: string): CardReply {
  return {
    v: 1,
    replyId,
    session,
    app: "cli_app",
    chatId: "oc_chat",
    mode: "final",
    cards: [],
    createdAtMs: 1,
  };
}

/** What was given up, and trying it again. */
export function describeDeadLetters(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: dead letters`, () => {
    let harness: SessionStoreHarness;

    beforeEach(async () => {
      harness = await makeHarness({});
    });
    afterEach(() => harness.close());

    /** An answer at the head of the outbox, leased. */
    const commitReply = async (id: string) => {
      const { store } = harness;
      const { wakeGen } = await store.append(messageOf(session, id));
      const result = await commitOf(store, await mustClaim(store, session, wakeGen), {
        outbox: outboxRecord(session, id),
      });
      return "deliver" in result ? result.deliver : undefined;
    };
    const mustCommitReply = async (id: string) => {
      const lease = await commitReply(id);
      if (lease === undefined) throw new Error("the outbox is somebody else's");
      return lease;
    };

    it("a letter is kept, found, listed without its content, and discarded once", async () => {
      const { letters } = harness;
      const letter = letterOf("turn:1", harness.now());
      await letters.add(letter);
      await letters.add(letter);
      expect(await letters.find(session, "turn:1")).toEqual(letter);
      const { message: _message, ...facts } = letter as DeadLetter & { kind: "message" };
      expect(await letters.list(10)).toEqual([facts]);
      expect(await letters.find(other, "turn:1")).toBeUndefined();
      expect(await letters.discard(session, "turn:1")).toBe(true);
      expect(await letters.discard(session, "turn:1")).toBe(false);
      expect(await letters.list(10)).toEqual([]);
    });

    it("the newest are listed first, and no more than asked for", async () => {
      const { letters } = harness;
      for (const age of [3, 1, 2]) {
        await letters.add({
          ...letterOf(`turn:${age}`, harness.now() - age * 1_000),
          session: age === 2 ? other : session,
        });
      }
      expect((await letters.list(2)).map(({ id }) => id)).toEqual(["turn:1", "turn:2"]);
      expect(await letters.count()).toBe(3);
    });

    it("no cell keeps more than its share, and the oldest go first", async () => {
      const { letters } = harness;
      const many = deadLetterLimits.perCell + 2;
      for (let at = 0; at < many; at += 1) {
        await letters.add(letterOf(`turn:${at}`, harness.now() + at));
      }
      const kept = await letters.list(many);
      expect(kept).toHaveLength(deadLetterLimits.perCell);
      expect(await letters.find(session, `turn:${many - 1}`)).toBeDefined();
    });

    it("a reply that is given up leaves the outbox with its cards, and the next one is leased", async () => {
      const { letters, store, cards } = harness;
      const lease = await mustCommitReply("om_1");
      await commitReply("om_2");
      await cards.save(cardsOf("om_1"), { outboxToken: lease.token });
      const next = await letters.moveToDeadLetters(lease, "forbidden 230013");
      expect(next?.record.id).toBe("om_2");
      expect(await cards.load(session, "om_1")).toBeUndefined();
      expect(await letters.find(session, "reply:om_1")).toMatchObject({
        kind: "reply",
        reason: "forbidden 230013",
        record: lease.record,
        cards: { replyId: "om_1" },
      });
      expect((await store.summary(session)).unsent).toBe(1);
    });

    it("nothing is given up under a lease that is lost", async () => {
      const { letters, store } = harness;
      const lease = await mustCommitReply("om_1");
      await store.outbox.ack(session, lease.token);
      expect(await letters.moveToDeadLetters(lease, "too late")).toBeUndefined();
      expect(await letters.list(10)).toEqual([]);
    });

    it("a reply is sent again once: under its id and keys, with its cards, its tries counted anew", async () => {
      const { letters, store, cards } = harness;
      const lease = await mustCommitReply("om_1");
      await store.outbox.retry({ ...lease, record: { ...lease.record, attempts: 7 } }, 0);
      const again = await store.outbox.lease(session);
      if (again === undefined) throw new Error("nothing to send");
      await cards.save(cardsOf("om_1"), { outboxToken: again.token });
      await letters.moveToDeadLetters(again, "too old");
      const results = await Promise.all(
        [1, 2, 3].map(async () => await letters.resend(session, "reply:om_1")),
      );
      expect(results.filter(Boolean)).toHaveLength(1);
      expect((await store.summary(session)).unsent).toBe(1);
      const sent = await store.outbox.lease(session);
      expect(sent?.record).toEqual({
        ...lease.record,
        attempts: 0,
        againAtMs: sent?.record.againAtMs,
      });
      expect(sent?.record.againAtMs).toBeGreaterThan(0);
      expect(await cards.load(session, "om_1")).toEqual(cardsOf("om_1"));
      expect(await letters.list(10)).toEqual([]);
    });

    it("only replies can be sent again", async () => {
      await harness.letters.add(letterOf("turn:1", harness.now()));
      expect(await harness.letters.resend(session, "turn:1")).toBe(false);
      expect(await harness.letters.find(session, "turn:1")).toBeDefined();
    });
  });
}
