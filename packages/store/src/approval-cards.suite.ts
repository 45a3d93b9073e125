import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ApprovalLease, ApprovalStore } from "./approval-store.ts";
import type {
  MakeSessionStore,
  SessionStoreDemands,
  SessionStoreHarness,
} from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import {
  approvalIdOf,
  approvalOf,
  commitOf,
  decisionOf,
  farFutureMs,
  messageOf,
  mustClaim,
  saveAs,
} from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const one = approvalIdOf(1);
const due = { session, approvalId: one };

/** Who may send and update the cards of an approval, and when. */
export function describeApprovalCards(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: cards of approvals`, () => {
    const opened: SessionStoreHarness[] = [];
    let store: SessionStore;
    let approvals: ApprovalStore;
    let harness: SessionStoreHarness;

    async function open(demands: SessionStoreDemands): Promise<void> {
      harness = await makeHarness(demands);
      opened.push(harness);
      ({ store, approvals } = harness);
      await store.append(messageOf(session, "om_1"));
      await saveAs(store, await mustClaim(store, session, 1), {
        mode: "suspend",
        approvals: [approvalOf(session, 1)],
      });
    }

    beforeEach(() => open({}));
    afterEach(async () => {
      for (const each of opened.splice(0)) await each.close();
    });

    async function isDue(): Promise<boolean> {
      return (await approvals.dueCards(harness.now() + 1, 10)).length > 0;
    }

    async function lease(from = approvals): Promise<ApprovalLease> {
      const held = await from.leaseCards(session, one);
      if (held === undefined) throw new Error("the cards are not to be had");
      return held;
    }

    /** Sends the cards of a question as they should be. */
    async function shown(messageId = "om_card"): Promise<void> {
      const held = await lease();
      const cards = [{ to: "", messageId, shows: held.status.state }];
      expect(await approvals.saveCards({ ...held, cards })).toBe(true);
    }

    it("are due as soon as there is a question, to one sender at a time", async () => {
      expect(await approvals.dueCards(harness.now() + 1, 10)).toEqual([due]);
      const held = await lease();
      expect(held).toMatchObject({ cards: [], attempts: 0 });
      expect(held.status).toEqual(await approvals.find("cli_app", one));
      expect(await harness.elsewhere.approvals.leaseCards(session, one)).toBeUndefined();
      expect(await isDue()).toBe(false);
    });

    describe("of a question for the card of the reply", () => {
      const two = approvalIdOf(2);
      const place = async (isPlaced: boolean) =>
        await approvals.placeInReply(session, two, isPlaced);
      const isDueAt = async (atMs: number) =>
        (await approvals.dueCards(atMs, 10)).some(({ approvalId }) => approvalId === two);
      /** When it was asked at the earliest. */
      let askedFromMs: number;

      beforeEach(async () => {
        askedFromMs = harness.now();
        await approvals.add(approvalOf(session, 2, { inReply: true }));
      });

      it("are due after ten seconds, unless the worker of the turn tells before that it stands there", async () => {
        expect(await isDueAt(askedFromMs + 9_000)).toBe(false);
        expect(await isDueAt(harness.now() + 11_000)).toBe(true);
        expect(await approvals.inReply(session, [one, two])).toMatchObject([
          { approval: { id: two }, reasonAskedAtMs: 0 },
        ]);
        expect(await place(true)).toBe(true);
        expect(await isDueAt(farFutureMs)).toBe(false);
        const [asked] = await approvals.inReply(session, [two]);
        if (asked !== undefined) await approvals.noteReasonAsked(asked.approval);
        expect((await approvals.inReply(session, [two]))[0]?.reasonAskedAtMs).toBeGreaterThan(0);
      });

      it("are due at once when the worker tells that it cannot be shown there, also when it was", async () => {
        expect(await place(true)).toBe(true);
        expect(await place(false)).toBe(false);
        expect(await isDueAt(harness.now() + 1)).toBe(true);
        const held = await approvals.leaseCards(session, two);
        expect(held?.cards).toEqual([]);
        expect(await place(true)).toBe(false);
        if (held === undefined) throw new Error("the cards are not to be had");
        await approvals.saveCards({
          ...held,
          cards: [{ to: "", messageId: "om_own", shows: "pending" }],
        });
        expect(await place(true)).toBe(false);
        expect(await approvals.inReply(session, [two])).toEqual([]);
      });
    });

    it("are never due where no person gets one", async () => {
      await approvals.add(approvalOf(session, 2, { kind: "rule", target: { channel: "none" } }));
      await approvals.decide(session, approvalIdOf(2), decisionOf("reject"));
      expect(await approvals.leaseCards(session, approvalIdOf(2))).toBeUndefined();
      expect(await approvals.dueCards(farFutureMs, 10)).toEqual([due]);
    });

    it("are due where no wake-up comes with an approved rule: the worker that looks after them writes it", async () => {
      await approvals.add(approvalOf(session, 2, { kind: "rule", target: { channel: "none" } }));
      await approvals.decide(session, approvalIdOf(2), decisionOf("approve"));
      const held = await approvals.leaseCards(session, approvalIdOf(2));
      expect(held).toMatchObject({ cards: [], status: { state: "approved" } });
      if (held === undefined) throw new Error("unreachable: it is held");
      expect(await approvals.saveCards(held)).toBe(true);
      expect(await approvals.dueCards(farFutureMs, 10)).toEqual([due]);
    });

    it("are done when they are saved, until the answer comes", async () => {
      await shown();
      expect(await isDue()).toBe(false);
      expect(await approvals.leaseCards(session, one)).toBeUndefined();
      const { elsewhere } = harness;
      expect((await elsewhere.approvals.shownBy(session, "om_card"))?.id).toBe(one);
      expect(await elsewhere.approvals.shownBy(session, "om_other")).toBeUndefined();
      await approvals.decide(session, one, decisionOf("approve"));
      expect(await isDue()).toBe(true);
      expect(await lease(harness.elsewhere.approvals)).toMatchObject({
        attempts: 0,
        cards: [{ to: "", messageId: "om_card", shows: "pending" }],
        status: { state: "approved", decisions: [{ by: { id: "ou_boss" } }] },
      });
    });

    it("have to change with each approval of several", async () => {
      const deciders = { ...approvalOf(session, 2).deciders, count: 2 };
      await approvals.add(approvalOf(session, 2, { kind: "rule", deciders }));
      const second = approvalIdOf(2);
      const held = await approvals.leaseCards(session, second);
      if (held) await approvals.saveCards(held);
      expect(await approvals.leaseCards(session, second)).toBeUndefined();
      await approvals.decide(session, second, decisionOf("approve", "ou_a"));
      const again = await approvals.leaseCards(session, second);
      expect(again).toMatchObject({ status: { state: "pending", decisions: [{}] } });
      if (again) await approvals.saveCards(again);
      await approvals.decide(session, second, decisionOf("approve", "ou_a"));
      expect(await approvals.leaseCards(session, second)).toBeUndefined();
    });

    it("have to change when the turn ends or time does", async () => {
      await shown();
      await approvals.settle(session, one, "undeliverable");
      expect(await lease()).toMatchObject({ status: { state: "undeliverable" } });
      const claim = await mustClaim(store, session, 2);
      await saveAs(store, claim, { mode: "continue", approvals: [approvalOf(session, 3)] });
      await commitOf(store, claim);
      expect(await approvals.leaseCards(session, approvalIdOf(3))).toMatchObject({
        status: { state: "cancelled" },
      });
    });

    it("are due again when the sender says", async () => {
      expect(await approvals.saveCards(await lease(), farFutureMs)).toBe(true);
      expect(await approvals.leaseCards(session, one)).toBeUndefined();
      expect(await isDue()).toBe(false);
      expect(await approvals.dueCards(farFutureMs, 10)).toEqual([due]);
    });

    it("tell how often they have been tried since the state changed", async () => {
      for (const attempts of [0, 1, 2]) {
        const held = await lease();
        expect(held.attempts).toBe(attempts);
        await approvals.saveCards(held, harness.now());
      }
      await approvals.decide(session, one, decisionOf("reject"));
      expect(await lease()).toMatchObject({ attempts: 0, status: { state: "rejected" } });
    });

    it("are due at once when the state has changed while they were sent, whatever the sender says", async () => {
      for (const retryAtMs of [undefined, farFutureMs]) {
        await open({});
        const held = await lease();
        await approvals.decide(session, one, decisionOf("approve"));
        expect(await isDue()).toBe(false);
        expect(await approvals.saveCards(held, retryAtMs)).toBe(true);
        expect(await lease()).toMatchObject({ attempts: 0, status: { state: "approved" } });
      }
    });

    it("a change does not wait for the next try", async () => {
      await approvals.saveCards(await lease(), farFutureMs);
      expect(await isDue()).toBe(false);
      await approvals.decide(session, one, decisionOf("approve"));
      expect(await isDue()).toBe(true);
    });

    it("go to the next sender when the first one died, with the number of the try", async () => {
      await open({});
      const dead = await lease();
      await harness.advance(harness.cardsLeaseMs);
      expect(await isDue()).toBe(true);
      const next = await lease(harness.elsewhere.approvals);
      expect(next).toMatchObject({ attempts: 1, cards: [] });
      const cards = [{ to: "", messageId: "om_next" }];
      expect(
        await approvals.saveCards({ ...dead, cards: [{ to: "", messageId: "om_dead" }] }),
      ).toBe(false);
      expect(await approvals.saveCards({ ...next, cards })).toBe(true);
      expect(await approvals.saveCards({ ...next, cards: [] })).toBe(false);
      await approvals.decide(session, one, decisionOf("approve"));
      expect(await lease()).toMatchObject({ cards });
    });

    it("a late sender counts while no other sender took over: nothing is sent twice", async () => {
      await open({});
      const late = await lease();
      await harness.advance(harness.cardsLeaseMs);
      expect(await approvals.saveCards({ ...late, cards: [{ to: "", messageId: "om_1" }] })).toBe(
        true,
      );
      expect(await isDue()).toBe(false);
    });

    it("of unknown approvals are never leased", async () => {
      expect(await approvals.leaseCards(session, approvalIdOf(9))).toBeUndefined();
      const held = await lease();
      const approval = approvalOf(session, 9);
      expect(await approvals.saveCards({ ...held, status: { ...held.status, approval } })).toBe(
        false,
      );
    });

    it("are reported by the time they are due, oldest first", async () => {
      await approvals.saveCards(await lease(), 5_000);
      for (const [number, dueAtMs] of [
        [2, 4_000],
        [3, 6_000],
      ] as const) {
        await approvals.add(approvalOf(session, number, { kind: "rule" }));
        const held = await approvals.leaseCards(session, approvalIdOf(number));
        if (held) await approvals.saveCards(held, dueAtMs);
      }
      const found = await approvals.dueCards(5_500, 10);
      expect(found.map(({ approvalId }) => approvalId)).toEqual([approvalIdOf(2), one]);
      expect(await approvals.dueCards(9_000, 1)).toHaveLength(1);
    });
  });
}
