import type { ControlEntry } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ApprovalStore, DecideResult } from "./approval-store.ts";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { Claim } from "./session-types.ts";
import {
  approvalIdOf,
  approvalOf,
  commitOf,
  decisionOf,
  messageOf,
  mustClaim,
  saveAs,
} from "./suite-samples.ts";

const rounds = 20;

/** A session of its own for each round, and the approval that it waits for. */
interface Round {
  session: string;
  id: string;
  approval: Approval;
}

function roundOf(number: number, fields: Partial<Approval> = {}): Round {
  const session = `cli_app.oc_chat.r${number}`;
  return { session, id: approvalIdOf(number), approval: approvalOf(session, number, fields) };
}

function settledIn(results: readonly DecideResult[]): DecideResult[] {
  return results.filter(({ result }) => result === "settled");
}

/** Decisions that meet each other, the clock and the worker, in whatever order the adapter takes them. */
export function describeApprovalRaces(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: races of approvals`, () => {
    let harness: SessionStoreHarness;
    let store: SessionStore;
    let here: ApprovalStore;
    let there: ApprovalStore;

    beforeEach(async () => {
      harness = await makeHarness({});
      ({ store, approvals: here } = harness);
      there = harness.elsewhere.approvals;
    });
    afterEach(() => harness.close());

    async function started(session: string): Promise<Claim> {
      const { wakeGen } = await store.append(messageOf(session, `${session}-om_1`));
      return await mustClaim(store, session, wakeGen);
    }

    async function asked({ session, approval }: Round): Promise<Claim> {
      const claim = await started(session);
      await saveAs(store, claim, { mode: "suspend", approvals: [approval] });
      return claim;
    }

    /** What the session got to know in all. */
    async function controlOf(session: string, gen = 2): Promise<ControlEntry[]> {
      return (await mustClaim(store, session, gen)).control;
    }

    it("AL-34, AL-55: of decisions at the same moment in two processes one takes effect", async () => {
      for (let round = 0; round < rounds; round += 1) {
        const question = roundOf(round);
        const { session, id } = question;
        await asked(question);
        const results = await Promise.all(
          Array.from({ length: 10 }, async (_, i) => {
            const decision = decisionOf(i % 3 === 0 ? "reject" : "approve", `ou_${i}`);
            return await (i % 2 === 0 ? here : there).decide(session, id, decision);
          }),
        );
        const [settled, ...others] = settledIn(results);
        expect(others).toEqual([]);
        const states = results.map((result) => "status" in result && result.status.state);
        expect(new Set(states).size).toBe(1);
        expect(await controlOf(session)).toMatchObject([{ type: "decision", state: states[0] }]);
        expect(settled).toMatchObject({ wakeGen: 2, status: { decisions: [{}] } });
      }
    });

    it("of many approvals at once as many count as are needed, each person once", async () => {
      const question = roundOf(1, { deciders: { ...roundOf(1).approval.deciders, count: 3 } });
      const { session, id } = question;
      await asked(question);
      const results = await Promise.all(
        Array.from({ length: 12 }, async (_, i) => {
          return await (i % 2 === 0 ? here : there).decide(
            session,
            id,
            decisionOf("approve", `ou_${i % 6}`),
          );
        }),
      );
      expect(settledIn(results)).toHaveLength(1);
      expect(results.filter(({ result }) => result === "counted")).toHaveLength(2);
      const [told] = await controlOf(session);
      const people = told?.type === "decision" ? told.decisions.map(({ by }) => by.id) : [];
      expect(new Set(people).size).toBe(3);
      expect(people).toHaveLength(3);
    });

    it("AL-41: a decision that meets the expiry counts or does not, and the session learns one of both", async () => {
      for (let round = 0; round < rounds; round += 1) {
        const question = roundOf(round, { expiresAtMs: harness.now() + 4 });
        const { session, id } = question;
        await asked(question);
        await harness.advance(round % 5);
        const results = await Promise.all([
          here.decide(session, id, decisionOf("approve")),
          there.settle(session, id, "expired"),
          there.decide(session, id, decisionOf("reject")),
        ]);
        await harness.advance(5);
        await here.settle(session, id, "expired");
        const { state } = (await here.find("cli_app", id)) ?? {};
        const settled = settledIn(results);
        expect(settled.length).toBeLessThanOrEqual(1);
        for (const each of settled) expect(each).toMatchObject({ status: { state } });
        expect(await controlOf(session)).toMatchObject([{ type: "decision", state }]);
      }
    });

    it("a decision that meets the end of its turn counts before it or not at all", async () => {
      for (let round = 0; round < rounds; round += 1) {
        const question = roundOf(round);
        const { session, id } = question;
        const claim = await asked(question);
        await store.append(messageOf(session, `${session}-om_2`));
        const early =
          round % 2 === 0 ? there.decide(session, id, decisionOf("approve")) : undefined;
        const committing = commitOf(store, claim, { more: true });
        const decided = await (early ?? there.decide(session, id, decisionOf("approve")));
        expect(await committing).toMatchObject({ state: "next" });
        const status = await here.find("cli_app", id);
        expect(status?.state).toBe(decided.result === "settled" ? "approved" : "cancelled");
        expect(await saveAs(store, claim, { mode: "suspend" })).toEqual({ state: "suspended" });
      }
    });

    it("a decision that crosses a suspension is either read or wakes", async () => {
      for (let round = 0; round < rounds; round += 1) {
        const { session, id, approval } = roundOf(round);
        const claim = await started(session);
        await saveAs(store, claim, { mode: "continue", approvals: [approval] });
        const early =
          round % 2 === 0 ? there.decide(session, id, decisionOf("approve")) : undefined;
        const saving = saveAs(store, claim, { mode: "suspend" });
        const decided = await (early ?? there.decide(session, id, decisionOf("approve")));
        const saved = await saving;
        const isRead = saved.state === "running" && saved.control.length === 1;
        const isWoken = "wakeGen" in decided && decided.wakeGen === 2;
        expect([isRead, isWoken].filter(Boolean)).toHaveLength(1);
      }
    });

    it("of senders one takes the cards", async () => {
      const question = roundOf(1);
      const { session, id } = question;
      await asked(question);
      const leased = await Promise.all(
        Array.from(
          { length: 10 },
          async (_, i) => await (i % 2 === 0 ? here : there).leaseCards(session, id),
        ),
      );
      expect(leased.filter((lease) => lease !== undefined)).toHaveLength(1);
    });
  });
}
