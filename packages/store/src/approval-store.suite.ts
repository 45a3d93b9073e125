import { turnIdOf, type ControlEntry } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { describeApprovalCards } from "./approval-cards.suite.ts";
import { describeApprovalRaces } from "./approval-races.suite.ts";
import type { ApprovalStore } from "./approval-store.ts";
import type {
  MakeSessionStore,
  SessionStoreDemands,
  SessionStoreHarness,
} from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { Claim, SaveRequest, SaveResult } from "./session-types.ts";
import {
  approvalIdOf,
  approvalOf,
  commitOf,
  decisionOf,
  farFutureMs,
  messageOf,
  mustClaim,
  openCalls,
  saveAs,
} from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const other = "cli_app.oc_other.main";
const one = approvalIdOf(1);
const soonMs = 20;

/** What a session learns of an approval. */
function toldOf(approval: Approval, state: string, decisions: unknown[]): unknown {
  return {
    type: "decision",
    turnId: turnIdOf(session, 1),
    approvalId: approval.id,
    argumentsHash: approval.argumentsHash,
    state,
    decisions,
  };
}

/** What every ApprovalStore promises, together with the SessionStore whose turns wait for it. */
export function describeApprovalStore(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: approvals`, () => {
    const opened: SessionStoreHarness[] = [];
    let store: SessionStore;
    let approvals: ApprovalStore;
    let harness: SessionStoreHarness;

    async function open(demands: SessionStoreDemands): Promise<void> {
      harness = await makeHarness(demands);
      opened.push(harness);
      ({ store, approvals } = harness);
    }

    beforeEach(() => open({}));
    afterEach(async () => {
      for (const each of opened.splice(0)) await each.close();
    });

    /** Appends a message to an idle session and claims it. */
    async function started(key = session, id = `om_${key}`): Promise<Claim> {
      const { wakeGen } = await store.append(messageOf(key, id));
      return await mustClaim(store, key, wakeGen);
    }

    /** A turn that has asked, and waits. */
    async function asked(...questions: Approval[]): Promise<Claim> {
      const claim = await started(questions[0]?.session);
      expect(await ask(claim, { approvals: questions })).toEqual({ state: "suspended" });
      return claim;
    }

    async function ask(claim: Claim, fields: Partial<SaveRequest>): Promise<SaveResult> {
      return await saveAs(store, claim, { mode: "suspend", ...fields });
    }

    async function controlOf(gen: number | undefined): Promise<ControlEntry[]> {
      return (await mustClaim(store, session, gen)).control;
    }

    function decide(word: Parameters<typeof decisionOf>[0], person?: string, number = 1) {
      return approvals.decide(session, approvalIdOf(number), decisionOf(word, person));
    }

    async function stateOf(number = 1): Promise<string | undefined> {
      return (await approvals.find("cli_app", approvalIdOf(number)))?.state;
    }

    describe("asking", () => {
      it("AL-28: what a turn asks is there as soon as the turn waits, whole, and found by its id alone", async () => {
        const approval = approvalOf(session, 1, {
          remember: { tool: "deploy", pattern: "支付*", person: "ou_user" },
        });
        await asked(approval);
        const status = { approval, state: "pending", decisions: [] };
        expect(await harness.elsewhere.approvals.find("cli_app", one)).toEqual(status);
        expect(await approvals.pending(session)).toEqual([status]);
      });

      it("is not found by another app, or by an unknown id", async () => {
        await asked(approvalOf(session, 1));
        expect(await approvals.find("cli_other", one)).toBeUndefined();
        expect(await approvals.find("cli_app", approvalIdOf(9))).toBeUndefined();
        expect(await approvals.find("cli_app", "")).toBeUndefined();
      });

      it("is refused to a worker that was replaced", async () => {
        const old = await started();
        await mustClaim(store, session, 1);
        expect(await ask(old, { approvals: [approvalOf(session, 1)] })).toEqual({
          state: "fenced",
        });
        expect(await approvals.find("cli_app", one)).toBeUndefined();
        expect(await approvals.pending(session)).toEqual([]);
        expect(await approvals.dueCards(farFutureMs, 10)).toEqual([]);
      });

      it("again leaves what there is, decided or not", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "continue", approvals: [approvalOf(session, 1)] });
        await saveAs(store, claim, {
          mode: "continue",
          approvals: [approvalOf(session, 1, { tool: "other" })],
        });
        expect(await approvals.pending(session)).toMatchObject([{ approval: { tool: "deploy" } }]);
        await decide("reject");
        await saveAs(store, claim, { mode: "continue", approvals: [approvalOf(session, 1)] });
        expect(await stateOf()).toBe("rejected");
        expect(await approvals.pending(session)).toEqual([]);
        expect(await approvals.dueExpiries(farFutureMs, 10)).toEqual([]);
      });

      it("lists what is pending, oldest first, of that session only", async () => {
        await asked(approvalOf(session, 3), approvalOf(session, 1), approvalOf(session, 2));
        await asked(approvalOf(other, 4));
        const listed = async () =>
          (await approvals.pending(session)).map(({ approval }) => approval.callId);
        expect(await listed()).toEqual(["c1", "c2", "c3"]);
        await decide("approve", "ou_boss", 2);
        expect(await listed()).toEqual(["c1", "c3"]);
        expect(await approvals.pending("cli_app.unknown")).toEqual([]);
      });

      it("lists what was asked at one moment in the order in which it was asked", async () => {
        const numbers = [5, 2, 9, 1, 7, 3];
        await asked(
          ...numbers.map((number) =>
            approvalOf(session, number, { createdAtMs: 1_700_000_000_000 }),
          ),
        );
        const listed = (await approvals.pending(session)).map(({ approval }) => approval.callId);
        expect(listed).toEqual(numbers.map((number) => `c${number}`));
      });

      it("holds copies: changing what went in or came out changes nothing stored", async () => {
        const approval = approvalOf(session, 1);
        await asked(approval);
        approval.arguments["service"] = "changed";
        (await approvals.pending(session))[0]?.decisions.push({
          ...decisionOf("approve"),
          atMs: 1,
        });
        expect(await approvals.find("cli_app", one)).toEqual({
          approval: approvalOf(session, 1),
          state: "pending",
          decisions: [],
        });
      });
    });

    describe("deciding", () => {
      it("AL-34, AL-55: takes effect once: the second one, of another process, finds it closed", async () => {
        await asked(approvalOf(session, 1));
        const first = await decide("approve", "ou_user");
        expect(first).toMatchObject({
          result: "settled",
          wakeGen: 2,
          status: { state: "approved" },
        });
        const second = await harness.elsewhere.approvals.decide(session, one, decisionOf("reject"));
        expect(second).toMatchObject({
          result: "closed",
          status: { state: "approved", decisions: [{}] },
        });
        expect(await controlOf(2)).toHaveLength(1);
      });

      it("records who, when, why and what is to be remembered, and tells the session", async () => {
        const approval = approvalOf(session, 1);
        await asked(approval);
        const fromMs = harness.now();
        const given = {
          decision: "approve" as const,
          by: { id: "ou_boss", name: '王 "老板"' },
          note: "可以，\n但只今天 😀",
          remember: true,
        };
        const result = await approvals.decide(session, one, given);
        const status = await approvals.find("cli_app", one);
        const { decisions = [], settledAtMs = 0 } = status ?? {};
        expect(result).toEqual({ result: "settled", status, wakeGen: 2 });
        expect(decisions).toEqual([{ ...given, atMs: settledAtMs }]);
        expect(settledAtMs).toBeGreaterThanOrEqual(fromMs);
        expect(settledAtMs).toBeLessThanOrEqual(harness.now());
        expect(await controlOf(2)).toEqual([toldOf(approval, "approved", decisions)]);
      });

      it("wakes a waiting session once, and does not wake one that runs", async () => {
        await asked(approvalOf(session, 1), approvalOf(session, 2));
        expect(await decide("approve")).toMatchObject({ result: "settled", wakeGen: 2 });
        expect(await decide("reject", "ou_boss", 2)).not.toHaveProperty("wakeGen");
        const claim = await mustClaim(store, session, 2);
        expect(claim.control).toMatchObject([{ state: "approved" }, { state: "rejected" }]);
        await saveAs(store, claim, {
          mode: "continue",
          consumed: 2,
          approvals: [approvalOf(session, 3)],
        });
        expect(await decide("approve", "ou_boss", 3)).not.toHaveProperty("wakeGen");
        expect(await saveAs(store, claim, { mode: "suspend" })).toMatchObject({
          state: "running",
          control: [{ approvalId: approvalIdOf(3), state: "approved" }],
        });
      });

      it("again repeats a wake-up that may be lost", async () => {
        await asked(approvalOf(session, 1));
        await decide("approve");
        expect(await decide("approve")).toMatchObject({ result: "closed", wakeGen: 2 });
        await mustClaim(store, session, 2);
        expect(await decide("approve")).not.toHaveProperty("wakeGen");
      });

      it("waits until enough different people have approved", async () => {
        const deciders = { ...approvalOf(session, 1).deciders, count: 2 };
        await asked(approvalOf(session, 1, { deciders }));
        const first = await decide("approve", "ou_a");
        expect(first).toMatchObject({
          result: "counted",
          status: { state: "pending", decisions: [{}] },
        });
        expect(await decide("approve", "ou_a")).toMatchObject({
          result: "repeated",
          status: { decisions: [{}] },
        });
        expect(await store.summary(session)).toMatchObject({ state: "suspended" });
        const second = await decide("approve", "ou_b");
        expect(second).toMatchObject({
          result: "settled",
          wakeGen: 2,
          status: { state: "approved" },
        });
        const people = [{ by: { id: "ou_a" } }, { by: { id: "ou_b" } }];
        expect(await controlOf(2)).toMatchObject([{ state: "approved", decisions: people }]);
      });

      it("AL-35: one rejection is enough, also from a person who had approved", async () => {
        const deciders = { ...approvalOf(session, 1).deciders, count: 3 };
        await asked(approvalOf(session, 1, { deciders }));
        await decide("approve", "ou_a");
        expect(await decide("reject", "ou_a")).toMatchObject({
          result: "settled",
          status: { state: "rejected" },
        });
      });

      it.each([
        ["retry", "retried"],
        ["done", "done"],
        ["abort", "aborted"],
      ] as const)("about an unknown outcome with %s makes it %s", async (word, state) => {
        await asked(approvalOf(session, 1, { kind: "outcome" }));
        expect(await decide(word)).toMatchObject({ result: "settled", status: { state } });
        expect(await controlOf(2)).toMatchObject([{ type: "decision", state }]);
      });

      it("AL-31: a word that answers another kind of question changes nothing", async () => {
        await asked(approvalOf(session, 1), approvalOf(session, 2, { kind: "outcome" }));
        for (const word of ["retry", "done", "abort"] as const) {
          expect(await decide(word)).toEqual({ result: "unknown" });
        }
        for (const word of ["approve", "reject"] as const) {
          expect(await decide(word, "ou_boss", 2)).toEqual({ result: "unknown" });
        }
        expect(await approvals.pending(session)).toHaveLength(2);
        expect(await decide("approve")).toMatchObject({ result: "settled" });
      });

      it("finds nothing under unknown ids and in other sessions", async () => {
        await asked(approvalOf(session, 1));
        for (const [key, id] of [
          [other, one],
          [session, approvalIdOf(9)],
          [session, ""],
        ] as const) {
          expect(await approvals.decide(key, id, decisionOf("approve"))).toEqual({
            result: "unknown",
          });
          expect(await approvals.settle(key, id, "undeliverable")).toEqual({ result: "unknown" });
        }
        expect(await stateOf()).toBe("pending");
      });

      it("AL-41: an expired approval is closed, and the call learns that it has expired", async () => {
        const approval = approvalOf(session, 1, { expiresAtMs: harness.now() + soonMs });
        await asked(approval);
        await harness.advance(soonMs);
        const late = await decide("approve");
        expect(late).toMatchObject({
          result: "closed",
          wakeGen: 2,
          status: { state: "expired", decisions: [] },
        });
        expect(await approvals.dueExpiries(farFutureMs, 10)).toEqual([]);
        expect(await controlOf(2)).toEqual([toldOf(approval, "expired", [])]);
      });
    });

    describe("settling without a person", () => {
      it("AL-41: expires what has had its time, by the store's clock, once", async () => {
        const approval = approvalOf(session, 1, { expiresAtMs: harness.now() + soonMs });
        await asked(approval, approvalOf(session, 2));
        expect(await approvals.settle(session, approvalIdOf(2), "expired")).toMatchObject({
          result: "closed",
          status: { state: "pending" },
        });
        await harness.advance(soonMs);
        expect(await approvals.settle(session, one, "expired")).toMatchObject({
          result: "settled",
          wakeGen: 2,
          status: { state: "expired", decisions: [] },
        });
        expect(await approvals.settle(session, one, "expired")).toMatchObject({ result: "closed" });
        expect(await decide("approve")).toMatchObject({
          result: "closed",
          status: { state: "expired" },
        });
        expect(await controlOf(2)).toEqual([toldOf(approval, "expired", [])]);
      });

      it("AL-28: a question that reaches no person answers its call", async () => {
        const approval = approvalOf(session, 1);
        await asked(approval);
        expect(await approvals.settle(session, one, "undeliverable")).toMatchObject({
          result: "settled",
          wakeGen: 2,
        });
        expect(await controlOf(2)).toEqual([toldOf(approval, "undeliverable", [])]);
      });

      it("reports what has expired, oldest first, while it is pending", async () => {
        await asked(
          approvalOf(session, 1, { expiresAtMs: 3_000 }),
          approvalOf(session, 2, { expiresAtMs: 1_000 }),
          approvalOf(session, 3, { expiresAtMs: 2_000 }),
        );
        await asked(approvalOf(other, 4, { expiresAtMs: 500 }));
        expect(await approvals.dueExpiries(499, 10)).toEqual([]);
        const due = [
          { session: other, approvalId: approvalIdOf(4) },
          { session, approvalId: approvalIdOf(2) },
          { session, approvalId: approvalIdOf(3) },
        ];
        expect(await approvals.dueExpiries(2_000, 10)).toEqual(due);
        expect(await approvals.dueExpiries(9_000, 1)).toEqual(due.slice(0, 1));
        await approvals.settle(session, approvalIdOf(2), "expired");
        expect(await approvals.dueExpiries(2_000, 10)).toEqual([due[0], due[2]]);
      });
    });

    describe("the end of a turn", () => {
      it("cancels what it still asks, without a trace in the session", async () => {
        const claim = await asked(
          approvalOf(session, 1),
          approvalOf(session, 2, { kind: "outcome" }),
        );
        await store.append(messageOf(session, "om_2"));
        const next = await commitOf(store, claim, { more: true });
        expect(next).toMatchObject({ state: "next" });
        for (const number of [1, 2]) {
          expect(await stateOf(number)).toBe("cancelled");
          for (const word of ["approve", "retry"] as const) {
            expect(await decide(word, "ou_boss", number)).not.toMatchObject({ result: "settled" });
          }
        }
        expect(await approvals.pending(session)).toEqual([]);
        expect(await approvals.dueExpiries(farFutureMs, 10)).toEqual([]);
        expect(await saveAs(store, claim, { mode: "suspend" })).toEqual({ state: "suspended" });
        expect(await decide("approve")).toMatchObject({ result: "closed" });
        expect(await store.summary(session)).toMatchObject({ state: "suspended" });
      });

      it("leaves decisions of the turn as they are, and an idle session alone", async () => {
        const claim = await asked(approvalOf(session, 1), approvalOf(session, 2));
        await decide("reject");
        await commitOf(store, claim);
        expect([await stateOf(1), await stateOf(2)]).toEqual(["rejected", "cancelled"]);
        expect(await decide("approve", "ou_boss", 2)).toMatchObject({ result: "closed" });
        expect(await store.summary(session)).toMatchObject({ state: "idle", gen: 2 });
        expect(await store.heal(session, 2)).toBeUndefined();
      });

      it("a question that comes too late for its turn is cancelled, and reaches no person", async () => {
        await commitOf(store, await started());
        await approvals.add(approvalOf(session, 1));
        expect(await decide("approve")).toMatchObject({
          result: "closed",
          status: { state: "cancelled" },
        });
        await approvals.add(approvalOf(session, 2));
        expect(await approvals.settle(session, approvalIdOf(2), "undeliverable")).toMatchObject({
          result: "closed",
          status: { state: "cancelled" },
        });
        expect(await store.summary(session)).toMatchObject({ state: "idle" });
        expect(await store.heal(session, 1)).toBeUndefined();
        expect(await started(session, "om_2")).toMatchObject({ control: [] });
      });
    });

    describe("questions about rules", () => {
      const rule = approvalOf(session, 1, { kind: "rule", turnId: "", callId: "" });

      it("stand for themselves: no session learns of them, and no turn ends them", async () => {
        const claim = await started();
        await approvals.add(rule);
        await approvals.add({ ...rule, tool: "other" });
        await saveAs(store, claim, { mode: "suspend", open: openCalls("c1") });
        await commitOf(store, claim);
        expect(await approvals.pending(session)).toEqual([
          { approval: rule, state: "pending", decisions: [] },
        ]);
        const settled = await approvals.decide(session, one, {
          ...decisionOf("approve"),
          remember: true,
        });
        expect(settled).toMatchObject({
          result: "settled",
          status: { state: "approved", decisions: [{}] },
        });
        expect(settled).not.toHaveProperty("wakeGen");
        expect(await store.summary(session)).toMatchObject({ state: "idle" });
        expect(await store.heal(session, 1)).toBeUndefined();
      });

      it("neither wake a waiting session nor reach its inbox", async () => {
        const claim = await asked(approvalOf(session, 2));
        await approvals.add(rule);
        expect(await decide("reject")).not.toHaveProperty("wakeGen");
        expect(await store.summary(session)).toMatchObject({ state: "suspended" });
        expect(await mustClaim(store, session, claim.gen)).toMatchObject({ control: [] });
      });
    });

    describe("rules that were approved", () => {
      const rule = approvalOf(session, 1, { kind: "rule", turnId: "", callId: "" });

      it("are listed until their cards are done, those of that session only", async () => {
        expect(await approvals.approvedRules(session)).toEqual([]);
        await asked(approvalOf(session, 2));
        await approvals.add(rule);
        expect(await approvals.approvedRules(session)).toEqual([]);
        await decide("approve");
        expect(await harness.elsewhere.approvals.approvedRules(session)).toMatchObject([
          { approval: rule, state: "approved", decisions: [{ decision: "approve" }] },
        ]);
        expect(await approvals.approvedRules(other)).toEqual([]);
        const held = await approvals.leaseCards(session, one);
        expect(await approvals.approvedRules(session)).toHaveLength(1);
        await approvals.saveCards(held ?? expect.fail("the cards are held"));
        expect(await approvals.approvedRules(session)).toEqual([]);
      });

      it("are not those that were rejected", async () => {
        await approvals.add(rule);
        await decide("reject");
        expect(await approvals.approvedRules(session)).toEqual([]);
      });
    });

    describe("questions", () => {
      const question = { text: "Which?", choices: [] };
      const askedOf = (number: number, fields: Partial<Approval> = {}) =>
        approvalOf(session, number, { kind: "question", tool: "ask_person", question, ...fields });
      const reply = (id: string) => messageOf(session, id);
      const written = (messageId: string, text = messageId) => ({
        app: "cli_app",
        messageId,
        by: { id: "ou_user" },
        text,
      });
      const mayAnswer = { mayAnswer: true };

      it("take an answer and no other word, and approvals take none", async () => {
        await asked(askedOf(1), approvalOf(session, 2));
        expect(await decide("approve")).toEqual({ result: "unknown" });
        expect(await decide("retry")).toEqual({ result: "unknown" });
        expect(await decide("answer", "ou_user", 2)).toEqual({ result: "unknown" });
        expect(await approvals.answer(session, approvalIdOf(2), written("om_2"))).toEqual({
          result: "unknown",
        });
        expect(await decide("answer", "ou_user")).toMatchObject({
          result: "settled",
          status: { state: "answered" },
        });
        expect(await decide("answer", "ou_boss")).toMatchObject({ result: "closed" });
      });

      it("are asked about by messages that may answer, as long as one is open", async () => {
        expect(await store.append(reply("om_0"), mayAnswer)).toMatchObject({
          result: "accepted",
          seq: 1,
        });
        const claim = await mustClaim(store, session, 1);
        await ask(claim, { approvals: [askedOf(1), askedOf(2), approvalOf(session, 3)] });
        expect(await store.append(reply("om_1"), mayAnswer)).toMatchObject({
          result: "asks",
          seq: 0,
        });
        expect((await approvals.openQuestions(session)).map(({ approval }) => approval.id)).toEqual(
          [approvalIdOf(1), approvalIdOf(2)],
        );
        await decide("answer", "ou_user", 1);
        expect(await store.append(reply("om_1"), mayAnswer)).toMatchObject({ result: "asks" });
        await approvals.settle(session, approvalIdOf(2), "undeliverable");
        expect(await store.append(reply("om_1"), mayAnswer)).toMatchObject({
          result: "accepted",
          seq: 2,
        });
      });

      it("are over with their turn, and messages are messages again", async () => {
        const claim = await asked(askedOf(1));
        await commitOf(store, claim);
        expect(await stateOf()).toBe("cancelled");
        expect(await store.append(reply("om_1"), mayAnswer)).toMatchObject({ result: "accepted" });
      });

      it("are not answered by a message that was taken back, or after their time", async () => {
        await asked(askedOf(1, { expiresAtMs: Date.now() + 1 }), askedOf(2));
        await store.recall("cli_app", "om_2");
        expect(await approvals.answer(session, approvalIdOf(2), written("om_2"))).toEqual({
          result: "unknown",
        });
        await harness.advance(soonMs);
        const late = await approvals.answer(session, one, written("om_3"));
        expect(late).toMatchObject({ result: "closed", status: { state: "expired" } });
      });

      it("AT-20: take the answer of one message once, wherever the process that has it dies", async () => {
        for (const diesAfter of ["append", "answer", "nothing"] as const) {
          await open({});
          await asked(askedOf(1));
          /** One delivery of the message, as ingress deals with it; false: it died, and the platform delivers again. */
          const deliver = async (dies: string): Promise<boolean> => {
            const appended = await store.append(reply("om_1"), mayAnswer);
            if (dies === "append") return false;
            if (appended.result !== "asks") {
              return expect(appended.result).toBe("duplicate") === undefined;
            }
            await approvals.answer(session, one, written("om_1", "blue"));
            return dies !== "answer";
          };
          if (!(await deliver(diesAfter))) await deliver("nothing");
          const { wakeGen } = await store.append(reply("om_1"), mayAnswer);
          const control = await controlOf(wakeGen);
          expect(control, diesAfter).toMatchObject([
            {
              type: "decision",
              state: "answered",
              decisions: [{ decision: "answer", note: "blue" }],
            },
          ]);
          expect((await store.summary(session)).waiting).toBe(1);
          const audited = [];
          for await (const record of harness.audit.export(0, farFutureMs)) audited.push(record);
          const ours = audited.filter(({ approvalId }) => approvalId === one);
          expect(ours.map(({ kind }) => kind)).toEqual([
            "approval_requested",
            "approval_decided",
            "approval_settled",
          ]);
          expect(JSON.stringify(ours)).not.toContain("blue");
        }
      });

      it("AT-20: take one of two answers that come at the same moment", async () => {
        await asked(askedOf(1));
        const answers = await Promise.all([
          approvals.answer(session, one, written("om_1")),
          harness.elsewhere.approvals.answer(session, one, written("om_2")),
          harness.elsewhere.approvals.decide(session, one, {
            decision: "answer",
            by: { id: "ou_user" },
            note: "3",
          }),
        ]);
        expect(answers.map(({ result }) => result).toSorted()).toEqual([
          "closed",
          "closed",
          "settled",
        ]);
        expect((await approvals.find("cli_app", one))?.decisions).toHaveLength(1);
      });
    });

    describe("room", () => {
      it("is made by forgetting the oldest that are finished", async () => {
        await open({ maxApprovals: 3 });
        const none = { target: { channel: "none" as const } };
        const claim = await started();
        for (let number = 1; number <= 8; number += 1) {
          const expiresAtMs = farFutureMs + number;
          await saveAs(store, claim, {
            mode: "continue",
            approvals: [approvalOf(session, number, { ...none, expiresAtMs })],
          });
          if (number !== 2) await decide("reject", "ou_boss", number);
        }
        const states = await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map((number) => stateOf(number)));
        expect(states.map((state) => state !== undefined)).toEqual([
          false,
          true,
          false,
          false,
          false,
          false,
          true,
          true,
        ]);
        expect(states[1]).toBe("pending");
      });

      it("is not made by forgetting what is pending, or whose cards do not show what became of it", async () => {
        await open({ maxApprovals: 2 });
        const claim = await started();
        const numbers = [1, 2, 3, 4];
        await saveAs(store, claim, {
          mode: "continue",
          approvals: numbers.map((number) => approvalOf(session, number)),
        });
        await decide("reject");
        await saveAs(store, claim, { mode: "continue", approvals: [approvalOf(session, 5)] });
        expect(await stateOf(1)).toBe("rejected");
        expect(await approvals.pending(session)).toHaveLength(4);
      });
    });
  });
  describeApprovalCards(name, makeHarness);
  describeApprovalRaces(name, makeHarness);
}
