import { turnIdOf } from "@larkline/protocol";
import type { ToolOutcome } from "@larkline/protocol/tool";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { describeApprovalStore } from "./approval-store.suite.ts";
import { describeAuditLog } from "./audit-log.suite.ts";
import { describeCardLedger } from "./card-ledger.suite.ts";
import { describeCompaction } from "./compaction.suite.ts";
import { describeDeadLetters } from "./dead-letters.suite.ts";
import { describeEventLog } from "./event-log.suite.ts";
import type { EventLog } from "./event-log.ts";
import { describeInbox } from "./inbox.suite.ts";
import { describeOutbox } from "./outbox.suite.ts";
import { describeParking } from "./parking.suite.ts";
import { describePermissionRules } from "./permission-rules.suite.ts";
import { describeRetention } from "./retention.suite.ts";
import { describeCrashPoints } from "./session-crash.suite.ts";
import { describeSessionIndex } from "./session-index.suite.ts";
import { describeSessionModel } from "./session-model.suite.ts";
import { describeRaces } from "./session-races.suite.ts";
import { describeSessionReset } from "./session-reset.suite.ts";
import type {
  MakeSessionStore,
  SessionStoreDemands,
  SessionStoreHarness,
} from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { Fate } from "./presence.ts";
import { type Claim, type ClaimOptions, maxUncounted } from "./session-types.ts";
import { describeSetAside } from "./set-aside.suite.ts";
import {
  assistantText,
  commitOf,
  delta,
  farFutureMs,
  messageOf,
  mustClaim,
  openCall,
  openCalls,
  outboxRecord,
  saveAs,
  suspendOn,
  turnOf,
  userText,
} from "./suite-samples.ts";

export type { MakeSessionStore } from "./session-store-harness.ts";

const session = "cli_app.oc_chat.main";
const other = "cli_app.oc_other.main";
const succeeded: ToolOutcome = { ok: true, result: { celsius: 21 } };

/**
 * What every SessionStore with its EventLog, CardLedger, ApprovalStore and AuditLog, and the PermissionRules
 * beside it, promise. Call it at the top level of a test file.
 * `modelRuns`: how many random histories to try.
 */
export function describeSessionStore(
  name: string,
  makeHarness: MakeSessionStore,
  modelRuns = 60,
): void {
  describe(`${name}: session store`, () => {
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

    /** Appends a message to an idle session and claims it. */
    async function started(id = "om_1"): Promise<Claim> {
      const { wakeGen } = await store.append(messageOf(session, id));
      return await mustClaim(store, session, wakeGen);
    }

    describe("append", () => {
      it("wakes an idle session with a new generation", async () => {
        expect(await store.append(messageOf(session, "om_1"))).toMatchObject({
          result: "accepted",
          seq: 1,
          wakeGen: 1,
        });
        expect(await store.summary(session)).toMatchObject({
          state: "queued",
          gen: 1,
          waiting: 1,
          messages: 0,
        });
      });

      it("does not wake a session that is queued, running or suspended", async () => {
        const first = await store.append(messageOf(session, "om_1"));
        expect(await store.append(messageOf(session, "om_2"))).not.toHaveProperty("wakeGen");
        const claim = await mustClaim(store, session, first.wakeGen);
        expect(await store.append(messageOf(session, "om_3"))).not.toHaveProperty("wakeGen");
        expect(await suspendOn(store, claim, "c1")).toEqual({ state: "suspended" });
        const fourth = await store.append(messageOf(session, "om_4"));
        expect(fourth).toMatchObject({ result: "accepted", seq: 4 });
        expect(fourth).not.toHaveProperty("wakeGen");
        expect(await store.summary(session)).toMatchObject({
          state: "suspended",
          gen: 1,
          waiting: 4,
        });
      });

      it("AL-46: answers a redelivered message with its position and stores nothing", async () => {
        await store.append(messageOf(session, "om_1"));
        await store.append(messageOf(session, "om_2"));
        expect(await store.append(messageOf(session, "om_1"))).toMatchObject({
          result: "duplicate",
          seq: 1,
        });
        expect(await store.summary(session)).toMatchObject({ gen: 1, waiting: 2 });
      });

      it("a redelivery to a queued session repeats the wake-up that may be lost", async () => {
        await store.append(messageOf(session, "om_1"));
        expect(await store.append(messageOf(session, "om_1"))).toMatchObject({
          result: "duplicate",
          wakeGen: 1,
        });
      });

      it("a redelivery to a running, suspended or idle session adds no wake-up", async () => {
        const claim = await started();
        expect(await store.append(messageOf(session, "om_1"))).not.toHaveProperty("wakeGen");
        await suspendOn(store, claim, "c1");
        expect(await store.append(messageOf(session, "om_1"))).not.toHaveProperty("wakeGen");
        await commitOf(store, claim);
        const late = await store.append(messageOf(session, "om_1"));
        expect(late).toMatchObject({ result: "duplicate", seq: 1 });
        expect(late).not.toHaveProperty("wakeGen");
        expect(await store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
      });

      it("keeps messages of two apps with the same id apart", async () => {
        await store.append(messageOf(session, "om_1"));
        expect(await store.append(messageOf(session, "om_1", { app: "cli_other" }))).toMatchObject({
          result: "accepted",
          seq: 2,
        });
      });

      it("forgets a message id after its time to live", async () => {
        await open({});
        await store.append(messageOf(session, "om_1"));
        await harness.advance(harness.dedupTtlMs + 1);
        expect(await store.append(messageOf(session, "om_1"))).toMatchObject({
          result: "accepted",
          seq: 2,
        });
      });

      it("refuses a message to a full session, without trace", async () => {
        await open({ maxWaiting: 2 });
        const claim = await started();
        await store.append(messageOf(session, "om_2"));
        expect(await store.append(messageOf(session, "om_3"))).toMatchObject({
          result: "full",
          seq: 0,
        });
        expect(await store.summary(session)).toMatchObject({ waiting: 2 });
        await commitOf(store, claim);
        expect(await store.append(messageOf(session, "om_3"))).toMatchObject({
          result: "accepted",
          seq: 3,
        });
      });

      it("still recognises redeliveries when the session is full", async () => {
        await open({ maxWaiting: 1 });
        await store.append(messageOf(session, "om_1"));
        expect(await store.append(messageOf(session, "om_1"))).toMatchObject({
          result: "duplicate",
          seq: 1,
        });
      });

      it("keeps sessions apart", async () => {
        await store.append(messageOf(session, "om_1"));
        expect(await store.append(messageOf(other, "om_2"))).toMatchObject({ seq: 1, wakeGen: 1 });
        expect(await store.summary(session)).toMatchObject({ waiting: 1 });
      });

      it("tells the newest event where it tells any", async () => {
        const claim = await started();
        await store.emit({ ...claim, events: [{ runId: "r", event: delta("a") }] });
        const { eventSeq } = await store.append(messageOf(session, "om_2"));
        expect([undefined, 1]).toContain(eventSeq);
      });
    });

    describe("claim", () => {
      it("finds nothing in an unknown or idle session", async () => {
        expect(await store.claim(session, 1, "w")).toBeUndefined();
        await commitOf(store, await started());
        expect(await store.claim(session, 1, "w")).toBeUndefined();
      });

      it("hands over the oldest message and everything needed to run it", async () => {
        const message = messageOf(session, "om_1", {
          parts: [
            { type: "text", text: "看图\u0000 \u2028 😀 \"'\\" },
            { type: "image", source: { sourceType: "blob", blobId: "b1", mediaType: "image/png" } },
          ],
        });
        await store.append(message);
        await store.append(messageOf(session, "om_2"));
        const claim = await mustClaim(store, session, 1);
        expect(claim).toMatchObject({ session, gen: 1, failures: {}, control: [], history: [] });
        expect(claim.head).toEqual({ seq: 1, message });
        expect(claim).not.toHaveProperty("turn");
        expect(await store.summary(session)).toMatchObject({ state: "running", waiting: 2 });
      });

      it("is refused while another wake-up's worker runs the session", async () => {
        await started();
        expect(await store.claim(session, 2, "w")).toBeUndefined();
      });

      it("is refused to other wake-ups while the session is suspended", async () => {
        await suspendOn(store, await started(), "c1");
        expect(await store.claim(session, 2, "w")).toBeUndefined();
        expect(await store.summary(session)).toMatchObject({ state: "suspended" });
      });

      it("any wake-up takes a queued session", async () => {
        await store.append(messageOf(session, "om_1"));
        expect(await store.claim(session, 7, "w")).toMatchObject({ gen: 7 });
        expect(await store.claim(session, 1, "w")).toBeUndefined();
      });

      it("gives epochs that rise as integers", async () => {
        const epochs: bigint[] = [];
        for (
          let claim = await started();
          epochs.length < 12;
          claim = await mustClaim(store, session, 1)
        ) {
          epochs.push(BigInt(claim.epoch));
        }
        for (const [i, epoch] of epochs.entries()) {
          if (i > 0) expect(epoch).toBeGreaterThan(epochs[i - 1] ?? 0n);
        }
      });

      it("hands over checkpoint, history and unread control entries of an interrupted turn", async () => {
        const first = await started();
        const turn = turnOf(first, { steps: 4 });
        await saveAs(store, first, {
          mode: "suspend",
          turn,
          history: [userText("om_1")],
          open: openCalls("c1"),
        });
        const { wakeGen } = await store.deliver(session, "c1", succeeded);
        const second = await mustClaim(store, session, wakeGen);
        expect(second).toMatchObject({ turn, failures: {}, history: [userText("om_1")] });
        expect(second.control).toEqual([{ type: "outcome", callId: "c1", outcome: succeeded }]);
      });
    });

    describe("what has become of the last worker", () => {
      const fate = (what: Fate): ClaimOptions => ({
        fateOf: async () => await Promise.resolve(what),
      });
      const dead = fate("died");

      /** Another worker takes the session up, after it has lost its worker. */
      async function lost(worker: string, options: ClaimOptions = dead): Promise<Claim> {
        const gen = await store.heal(session, (await store.summary(session)).gen);
        const claim = await store.claim(session, gen ?? 0, worker, options);
        if (claim === undefined) throw new Error("nothing to claim");
        return claim;
      }

      async function startedBy(worker: string): Promise<number> {
        const { wakeGen = 0 } = await store.append(messageOf(session, "om_1"));
        await store.claim(session, wakeGen, worker);
        return wakeGen;
      }

      it("is asked about, and a living one keeps its session: nothing is written or counted", async () => {
        const gen = await startedBy("w1");
        const asked: string[] = [];
        const fateOf = async (owner: string): Promise<Fate> => {
          asked.push(owner);
          return await Promise.resolve("alive");
        };
        await expect(store.claim(session, gen, "w2", { fateOf })).rejects.toMatchObject({
          reason: "held",
        });
        expect(asked).toEqual(["w1"]);
        expect(await store.summary(session)).toMatchObject({ state: "running" });
        expect(await store.heal(session, gen, "w2")).toBeUndefined();
        expect(await store.heal(session, gen, "")).toBeUndefined();
      });

      it.each(["left", "silent", "unknown"] as const)(
        "counts nothing where it is not known to have died (%s)",
        async (what) => {
          const gen = await startedBy("w1");
          expect(await store.claim(session, gen, "w2", fate(what))).toMatchObject({
            failures: {},
            ranBefore: true,
            deaths: { together: 0, alone: 0 },
          });
        },
      );

      it("is not asked about by itself, and counts nothing; a run of its own that is under way keeps the session", async () => {
        const gen = await startedBy("w1");
        await expect(store.claim(session, gen, "w1", { isHeld: true })).rejects.toMatchObject({
          reason: "held",
        });
        const fateOf = async (): Promise<Fate> => await Promise.reject(new Error("it knows that"));
        expect(await lost("w1", { fateOf })).toMatchObject({ deaths: { together: 0, alone: 0 } });
      });

      it("counts two deaths beside other turns, and makes the message run alone", async () => {
        await startedBy("w1");
        expect(await lost("w2")).toMatchObject({ deaths: { together: 1, alone: 0 } });
        await expect(lost("w3")).rejects.toMatchObject({ reason: "alone" });
        // Nothing is lost by the refusal, and it is counted once.
        expect(await store.summary(session)).toMatchObject({ state: "queued", waiting: 1 });
        await expect(lost("w4")).rejects.toMatchObject({ reason: "alone" });
        const claim = await lost("w4", { ...dead, alone: true });
        expect(claim).toMatchObject({ deaths: { together: 2, alone: 0 } });
        expect(await lost("w5", { ...dead, alone: true })).toMatchObject({
          deaths: { together: 2, alone: 1 },
        });
        const last = await lost("w6", { ...dead, alone: true });
        expect(last).toMatchObject({ failures: {}, deaths: { together: 2, alone: 2 } });
        await commitOf(store, last);
      });

      it("counts deaths of one message: the next one begins without", async () => {
        await startedBy("w1");
        await store.append(messageOf(session, "om_2"));
        const claim = await lost("w2");
        await commitOf(store, claim, { more: true });
        expect(await lost("w3")).toMatchObject({ deaths: { together: 1, alone: 0 } });
      });

      it("does not count again for a session that was given back", async () => {
        await startedBy("w1");
        await saveAs(store, await lost("w2"), { mode: "handoff" });
        const claim = await store.claim(session, (await store.summary(session)).gen, "w3", dead);
        expect(claim).toMatchObject({ deaths: { together: 1, alone: 0 } });
      });

      it.each(["suspend", "handoff"] as const)(
        "counts nothing where it has saved all the same (%s), and dies later",
        async (mode) => {
          const { wakeGen = 0 } = await store.append(messageOf(session, "om_1"));
          const claim = await store.claim(session, wakeGen, "w1");
          if (claim === undefined) expect.unreachable("the session is waiting");
          // Another worker took it for dead.
          const healed = await store.heal(session, wakeGen, "w1");
          await saveAs(store, claim, { mode });
          const { wakeGen: gen = healed } = await store.cancel(session, { reason: "stopped" });
          expect(await store.claim(session, gen ?? 0, "w2", dead)).toMatchObject({
            deaths: { together: 0, alone: 0 },
          });
        },
      );

      it("does not count again for a session that was given back before anything was saved", async () => {
        await startedBy("w1");
        const claim = await lost("w2");
        expect(await store.handOff(session, claim.epoch)).toBe(true);
        const { state, gen } = await store.summary(session);
        expect(state).toBe("queued");
        const taken = await store.claim(session, gen, "w3", dead);
        expect(taken).toMatchObject({ gen, deaths: { together: 1, alone: 0 }, head: claim.head });
        expect(await store.handOff(session, claim.epoch)).toBe(false);
        expect(await store.summary(session)).toMatchObject({ state: "running" });
      });
    });

    describe("what is stored for newer processes", () => {
      it("is left to them, and nothing is counted", async () => {
        const claim = await started();
        await saveAs(store, claim, {
          mode: "handoff",
          turn: turnOf(claim, { needs: ["from-tomorrow"] }),
        });
        await expect(store.claim(session, 1, "w")).rejects.toMatchObject({ reason: "needs" });
        await expect(store.claim(session, 1, "w")).rejects.toThrow("from-tomorrow");
        expect(await store.summary(session)).toMatchObject({ state: "queued", epoch: claim.epoch });
        const taken = await store.claim(session, 1, "w", { features: ["from-tomorrow"] });
        expect(taken).toMatchObject({ failures: {}, turn: { needs: ["from-tomorrow"] } });
      });

      it("is left to them when it is a message, and what comes before it is not", async () => {
        const claim = await started();
        await store.append(messageOf(session, "om_2", { needs: ["from-tomorrow"] }));
        await commitOf(store, claim);
        await expect(store.claim(session, 2, "w")).rejects.toMatchObject({ reason: "needs" });
        expect(await store.claim(session, 2, "w", { features: ["from-tomorrow"] })).toMatchObject({
          head: { seq: 2 },
        });
      });

      it("is left to them when the end of a turn would take it, too", async () => {
        const claim = await started();
        await store.append(messageOf(session, "om_2", { needs: ["from-tomorrow"] }));
        const end = await commitOf(store, claim, { more: true });
        if (end.state !== "requeue") throw new Error(`not left to a claim: ${end.state}`);
        await expect(store.claim(session, end.wakeGen, "w")).rejects.toMatchObject({
          reason: "needs",
        });
      });

      it("is no matter any more when the turn does not need it", async () => {
        const claim = await started();
        await saveAs(store, claim, {
          mode: "continue",
          turn: turnOf(claim, { needs: ["from-tomorrow"] }),
        });
        await saveAs(store, claim, { mode: "handoff" });
        expect(await store.claim(session, 1, "w")).toMatchObject({ failures: {} });
      });
    });

    describe("failures", () => {
      /** A run that its own code ends. */
      async function failing(claim: Claim, way: string): Promise<Claim> {
        expect(await store.fail(session, claim.epoch, way)).toBe(true);
        return await mustClaim(store, session, claim.gen);
      }

      it("are counted by the way in which a run has failed, and give the session back under its generation", async () => {
        let claim = await started();
        expect(claim).toMatchObject({ failures: {}, ranBefore: false });
        for (const way of ["a", "b", "a"]) claim = await failing(claim, way);
        expect(claim).toMatchObject({
          gen: 1,
          failures: { a: 2, b: 1 },
          ranBefore: true,
          deaths: { together: 0 },
        });
      });

      it("are not counted by a worker that has lost the session", async () => {
        const first = await started();
        const second = await mustClaim(store, session, 1);
        expect(await store.fail(session, first.epoch, "a")).toBe(false);
        expect(await saveAs(store, second, { mode: "continue" })).toMatchObject({
          state: "running",
        });
      });

      it("stay over hand-offs and resumptions of the same message, which are none", async () => {
        const claim = await failing(await started(), "a");
        await saveAs(store, claim, { mode: "handoff" });
        const again = await mustClaim(store, session, 1);
        expect(again.failures).toEqual({ a: 1 });
        await suspendOn(store, again, "c1");
        // The retry of a job whose worker ended after suspending.
        expect(await mustClaim(store, session, 1)).toMatchObject({ failures: { a: 1 } });
      });

      it("start anew with the next message", async () => {
        const first = await started();
        await store.append(messageOf(session, "om_2"));
        await store.append(messageOf(session, "om_3"));
        const failed = await failing(first, "a");
        expect(await commitOf(store, failed, { more: true })).toMatchObject({ state: "next" });
        const second = await mustClaim(store, session, 1);
        expect(second).toMatchObject({ failures: {}, head: { seq: 2 } });
        const requeued = await commitOf(store, second);
        expect(requeued).toMatchObject({ state: "requeue" });
        const wakeGen = requeued.state === "requeue" ? requeued.wakeGen : undefined;
        expect(await mustClaim(store, session, wakeGen)).toMatchObject({
          failures: {},
          ranBefore: false,
          head: { seq: 3 },
        });
      });
    });

    describe("releaseUncounted", () => {
      it("of a run that the store has failed counts nothing, and the session continues under its generation", async () => {
        for (let round = 0; round < 7; round += 1) {
          const claim = round === 0 ? await started() : await mustClaim(store, session, 1);
          expect(claim).toMatchObject({ failures: {}, ranBefore: round > 0, head: { seq: 1 } });
          expect(await store.releaseUncounted(session, claim.epoch)).toEqual({
            uncounted: true,
            wakeGen: 1,
          });
        }
      });

      it("leaves a session that another worker has taken up to that one", async () => {
        const first = await started();
        const second = await mustClaim(store, session, 1);
        expect(await store.releaseUncounted(session, first.epoch)).toEqual({ uncounted: true });
        expect(await saveAs(store, second, { mode: "continue" })).toMatchObject({
          state: "running",
        });
      });

      it("forgets the worker, of whose end a sweeper has made another wake-up", async () => {
        const claim = await started();
        const healed = await store.heal(session, 1);
        expect(await store.releaseUncounted(session, claim.epoch)).toEqual({
          uncounted: true,
          wakeGen: healed,
        });
        const next = await store.claim(session, healed ?? 0, "w2");
        expect(next).toMatchObject({ failures: {}, deaths: { together: 0, alone: 0 } });
      });

      it("changes nothing of a turn that was saved or committed all the same", async () => {
        const claim = await started();
        await suspendOn(store, claim, "c1");
        expect(await store.releaseUncounted(session, claim.epoch)).toEqual({ uncounted: true });
        expect(await store.summary(session)).toMatchObject({ state: "suspended" });
        const { wakeGen } = await store.deliver(session, "c1", succeeded);
        // As one does whose suspension was stored and whose answer got lost.
        expect(await store.releaseUncounted(session, claim.epoch)).toEqual({
          uncounted: true,
          wakeGen,
        });
        const next = await mustClaim(store, session, wakeGen);
        expect(next.failures).toEqual({});
        await commitOf(store, next);
        expect(await store.releaseUncounted(session, next.epoch)).toEqual({ uncounted: true });
        expect(await store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
      });

      it(`is done ${maxUncounted} times for one message; then the caller counts a failure`, async () => {
        let claim = await started();
        for (let times = 0; times < maxUncounted; times += 1) {
          expect(await store.releaseUncounted(session, claim.epoch)).toMatchObject({
            uncounted: true,
          });
          claim = await mustClaim(store, session, 1);
        }
        expect(await store.releaseUncounted(session, claim.epoch)).toEqual({ uncounted: false });
        expect(await store.summary(session)).toMatchObject({ state: "running" });
      });
    });

    describe("save", () => {
      it("with continue keeps the session running and returns what arrived meanwhile", async () => {
        const claim = await started();
        expect(await saveAs(store, claim, { mode: "continue", open: openCalls("c1") })).toEqual({
          state: "running",
          control: [],
        });
        await store.deliver(session, "c1", succeeded);
        const control = [{ type: "outcome", callId: "c1", outcome: succeeded }];
        expect(await saveAs(store, claim, { mode: "continue" })).toEqual({
          state: "running",
          control,
        });
        expect(await store.summary(session)).toMatchObject({ state: "running" });
      });

      it("does not suspend over unread control entries", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "continue", open: openCalls("c1", "c2") });
        await store.deliver(session, "c1", succeeded);
        expect(await saveAs(store, claim, { mode: "suspend" })).toEqual({
          state: "running",
          control: [{ type: "outcome", callId: "c1", outcome: succeeded }],
        });
        expect(await store.summary(session)).toMatchObject({ state: "running" });
        expect(await saveAs(store, claim, { mode: "suspend", consumed: 1 })).toEqual({
          state: "suspended",
        });
      });

      it("drops consumed control entries from the front only", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "continue", open: openCalls("c1", "c2", "c3") });
        for (const callId of ["c2", "c1", "c3"]) await store.deliver(session, callId, succeeded);
        const saved = await saveAs(store, claim, { mode: "continue", consumed: 2 });
        expect(saved).toEqual({
          state: "running",
          control: [{ type: "outcome", callId: "c3", outcome: succeeded }],
        });
      });

      it("keeps unconsumed entries for the next claim, in order of arrival", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "continue", open: openCalls("c1", "c2") });
        await store.deliver(session, "c2", succeeded);
        await store.deliver(session, "c1", { ok: false, error: "无法访问", unknown: true });
        const next = await mustClaim(store, session, 1);
        expect(next.control).toEqual([
          { type: "outcome", callId: "c2", outcome: succeeded },
          {
            type: "outcome",
            callId: "c1",
            outcome: { ok: false, error: "无法访问", unknown: true },
          },
        ]);
      });

      it("with handoff queues the session under the same generation", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "handoff", history: [userText("om_1")] });
        expect(await store.summary(session)).toMatchObject({
          state: "queued",
          gen: 1,
          messages: 1,
        });
        expect(await mustClaim(store, session, 1)).toMatchObject({
          turn: turnOf(claim),
          history: [userText("om_1")],
        });
      });

      it("opening a call again changes nothing", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "continue", open: [openCall("c1", 1_000)] });
        await saveAs(store, claim, { mode: "continue", open: [openCall("c1", 9_000)] });
        expect(await store.dueDeadlines(1_000, 10)).toEqual([{ session, callId: "c1" }]);
        await store.deliver(session, "c1", succeeded);
        await saveAs(store, claim, { mode: "continue", consumed: 1, open: openCalls("c1") });
        expect(await store.deliver(session, "c1", succeeded)).toMatchObject({ accepted: false });
        expect(await store.dueDeadlines(farFutureMs, 10)).toEqual([]);
      });

      it("a started call that is opened again stays started", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "continue", open: openCalls("c1") });
        await store.begin(session, "c1", "once");
        await saveAs(store, claim, { mode: "continue", open: openCalls("c1") });
        expect(await store.begin(session, "c1", "once")).toBe("started_before");
      });
    });

    describe("deliver", () => {
      it("wakes a suspended session", async () => {
        await suspendOn(store, await started(), "c1", "c2");
        expect(await store.deliver(session, "c1", succeeded)).toEqual({
          accepted: true,
          wakeGen: 2,
        });
        expect(await store.summary(session)).toMatchObject({ state: "queued", gen: 2 });
        expect(await store.deliver(session, "c2", succeeded)).toEqual({ accepted: true });
      });

      it("does not wake a running session", async () => {
        await saveAs(store, await started(), { mode: "continue", open: openCalls("c1") });
        expect(await store.deliver(session, "c1", succeeded)).toMatchObject({ accepted: true });
        expect(await store.summary(session)).toMatchObject({ state: "running", gen: 1 });
      });

      it("tells of a running session what was added, and how much of it is not read", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "continue", open: openCalls("c1", "c2", "c3") });
        const entryOf = (callId: string) =>
          ({ type: "outcome", callId, outcome: succeeded }) as const;
        const unread = async (callId: string) =>
          (await store.deliver(session, callId, succeeded)).unread;
        expect(await unread("c1")).toEqual({ entry: entryOf("c1"), count: 1 });
        expect(await unread("c1")).toBeUndefined();
        await store.cancel(session, { reason: "stopped" });
        expect(await unread("c2")).toEqual({ entry: entryOf("c2"), count: 3 });
        const saved = await saveAs(store, claim, { mode: "suspend", consumed: 1 });
        expect(saved).toEqual({
          state: "running",
          control: expect.arrayContaining([entryOf("c2")]),
        });
        await saveAs(store, claim, { mode: "continue", consumed: 2 });
        expect(await unread("c3")).toEqual({ entry: entryOf("c3"), count: 1 });
      });

      it("takes the first answer of a call and refuses the second", async () => {
        await suspendOn(store, await started(), "c1");
        const { wakeGen } = await store.deliver(session, "c1", succeeded);
        const late = await store.deliver(session, "c1", { ok: false, error: "late" });
        expect(late).toEqual({ accepted: false, wakeGen });
        const { control } = await mustClaim(store, session, wakeGen);
        expect(control).toEqual([{ type: "outcome", callId: "c1", outcome: succeeded }]);
        expect(await store.deliver(session, "c1", succeeded)).toEqual({ accepted: false });
      });

      it("refuses answers to unknown calls and unknown sessions", async () => {
        expect(await store.deliver(other, "c1", succeeded)).toEqual({ accepted: false });
        await suspendOn(store, await started(), "c1");
        expect(await store.deliver(session, "c9", succeeded)).toEqual({ accepted: false });
        expect(await store.summary(session)).toMatchObject({ state: "suspended" });
      });

      it("does not take the word that a call was not run for one that was started, whose deadline stays", async () => {
        await suspendOn(store, await started(), "c1", "c2");
        await store.begin(session, "c1", "once");
        const notRun = { ok: false, error: "not run" } as const;
        expect(await store.deliver(session, "c1", notRun, { unlessStarted: true })).toEqual({
          accepted: false,
        });
        expect(await store.dueDeadlines(farFutureMs, 10)).toHaveLength(2);
        expect(await store.deliver(session, "c2", notRun, { unlessStarted: true })).toMatchObject({
          accepted: true,
        });
        expect(await store.begin(session, "c2", "once")).toBe("closed");
        expect(await store.deliver(session, "c1", succeeded)).toEqual({ accepted: true });
        expect(await store.deliver(session, "c1", notRun, { unlessStarted: true })).toMatchObject({
          accepted: false,
        });
      });

      it("closes an attempt that was not started, and says so: nothing can start it beside the next one", async () => {
        await suspendOn(store, await started(), "c1");
        const late = { ok: false, error: "late" } as const;
        const untouched = { unlessStarted: true, unstarted: true };
        const { wakeGen } = await store.deliver(session, "c1", late, untouched);
        expect(await store.deliver(session, "c1", late, untouched)).toMatchObject({
          accepted: false,
        });
        expect(await store.begin(session, "c1", "once")).toBe("closed");
        const claim = await mustClaim(store, session, wakeGen);
        expect(claim.control).toEqual([
          { type: "outcome", callId: "c1", outcome: late, unstarted: true },
        ]);
        const request = { mode: "suspend", consumed: 1, open: openCalls("c1.2") } as const;
        expect(await saveAs(store, claim, request)).toMatchObject({ state: "suspended" });
        expect(await store.begin(session, "c1", "once")).toBe("closed");
        expect(await store.begin(session, "c1.2", "once")).toBe("run");
      });

      it("answers a call that was started", async () => {
        await suspendOn(store, await started(), "c1");
        await store.begin(session, "c1", "once");
        expect(await store.deliver(session, "c1", succeeded)).toEqual({
          accepted: true,
          wakeGen: 2,
        });
      });

      it("refuses answers after the turn has ended", async () => {
        const claim = await started();
        await suspendOn(store, claim, "c1");
        await commitOf(store, claim);
        expect(await store.deliver(session, "c1", succeeded)).toEqual({ accepted: false });
        expect(await store.summary(session)).toMatchObject({ state: "idle" });
      });
    });

    describe("begin", () => {
      it("runs an open call, and a once call only once", async () => {
        await suspendOn(store, await started(), "c1");
        expect(await store.begin(session, "c1", "once")).toBe("run");
        expect(await store.begin(session, "c1", "once")).toBe("started_before");
      });

      it("runs a pure or idempotent call again that was started before", async () => {
        await suspendOn(store, await started(), "c1", "c2");
        for (const effect of ["pure", "idempotent"] as const) {
          const callId = effect === "pure" ? "c1" : "c2";
          expect(await store.begin(session, callId, effect)).toBe("run");
          expect(await store.begin(session, callId, effect)).toBe("run");
        }
      });

      it("runs a once call again for as long as its tool says, from its first beginning", async () => {
        await suspendOn(store, await started(), "c1", "c2");
        const by = { repeatMs: 30_000 };
        expect(await store.begin(session, "c1", "once", by)).toBe("run");
        expect(await store.begin(session, "c2", "once")).toBe("run");
        await harness.advance(29_000);
        expect(await store.begin(session, "c1", "once", by)).toBe("run");
        expect(await store.begin(session, "c1", "once")).toBe("started_before");
        // Its beginning was not noted down.
        expect(await store.begin(session, "c2", "once", by)).toBe("started_before");
        await harness.advance(2_000);
        expect(await store.begin(session, "c1", "once", by)).toBe("started_before");
        await store.deliver(session, "c1", succeeded);
        expect(await store.begin(session, "c1", "once", by)).toBe("closed");
      });

      it("lets a once call that began before look, where its tool can", async () => {
        await suspendOn(store, await started(), "c1", "c2");
        const by = { looks: true };
        expect(await store.begin(session, "c1", "once", by)).toBe("run");
        expect(await store.begin(session, "c2", "once")).toBe("run");
        expect(await store.begin(session, "c1", "once", by)).toBe("look");
        expect(await store.begin(session, "c1", "once", by)).toBe("look");
        expect(await store.begin(session, "c1", "once")).toBe("started_before");
        // Its beginning was not noted down.
        expect(await store.begin(session, "c2", "once", by)).toBe("started_before");
        const both = { looks: true, repeatMs: 30_000 };
        expect(await store.begin(session, "c1", "once", both)).toBe("run");
        await harness.advance(31_000);
        expect(await store.begin(session, "c1", "once", both)).toBe("look");
        await store.deliver(session, "c1", succeeded);
        expect(await store.begin(session, "c1", "once", by)).toBe("closed");
      });

      it("is closed for calls that are answered, unknown or of a finished turn", async () => {
        const claim = await started();
        await suspendOn(store, claim, "c1", "c2");
        await store.deliver(session, "c1", succeeded);
        expect(await store.begin(session, "c1", "pure")).toBe("closed");
        expect(await store.begin(session, "c9", "pure")).toBe("closed");
        expect(await store.begin(other, "c2", "pure")).toBe("closed");
        await commitOf(store, claim);
        expect(await store.begin(session, "c2", "once")).toBe("closed");
      });

      it("survives the crash of the worker: a started once call stays started", async () => {
        await suspendOn(store, await started(), "c1");
        await store.begin(session, "c1", "once");
        await suspendOn(store, await mustClaim(store, session, 1), "c1");
        expect(await store.begin(session, "c1", "once")).toBe("started_before");
      });
    });

    describe("cancel", () => {
      it("reaches a running turn as a control entry", async () => {
        const claim = await started();
        expect(await store.cancel(session, { reason: "user" })).toEqual({ accepted: true });
        expect(await saveAs(store, claim, { mode: "suspend" })).toEqual({
          state: "running",
          control: [{ type: "cancel", reason: "user" }],
        });
      });

      it("can be asked for by a process that missed the news, until it is dealt with", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "continue", open: [openCall("c1")] });
        await store.deliver(session, "c1", { ok: true, result: 1 });
        expect(await store.cancelled(session)).toBe(false);
        await store.cancel(session, { reason: "user" });
        expect(await store.cancelled(session)).toBe(true);
        expect(await saveAs(store, claim, { mode: "continue" })).toMatchObject({
          control: [{}, { type: "cancel" }],
        });
        await saveAs(store, claim, { mode: "continue", consumed: 2 });
        expect(await store.cancelled(session)).toBe(false);
        expect(await store.cancelled("cli_app.unknown")).toBe(false);
      });

      it("wakes a suspended turn", async () => {
        await suspendOn(store, await started(), "c1");
        const turnId = turnIdOf(session, 1);
        expect(await store.cancel(session, { turnId, reason: "user" })).toEqual({
          accepted: true,
          wakeGen: 2,
        });
        const { control } = await mustClaim(store, session, 2);
        expect(control).toEqual([{ type: "cancel", turnId, reason: "user" }]);
      });

      it("reaches a turn that is queued", async () => {
        await store.append(messageOf(session, "om_1"));
        expect(
          await store.cancel(session, { turnId: turnIdOf(session, 1), reason: "user" }),
        ).toMatchObject({
          accepted: true,
        });
        expect((await mustClaim(store, session, 1)).control).toHaveLength(1);
      });

      it("is refused when there is no such turn", async () => {
        expect(await store.cancel(session, { reason: "user" })).toEqual({ accepted: false });
        const claim = await started();
        expect(
          await store.cancel(session, { turnId: turnIdOf(session, 2), reason: "user" }),
        ).toMatchObject({
          accepted: false,
        });
        await commitOf(store, claim);
        expect(
          await store.cancel(session, { turnId: turnIdOf(session, 1), reason: "user" }),
        ).toMatchObject({
          accepted: false,
        });
        expect(await store.cancel(session, { reason: "user" })).toEqual({ accepted: false });
        expect(await store.summary(session)).toMatchObject({ state: "idle" });
      });

      it("drops a message that still waits and ends its run for followers", async () => {
        const claim = await started();
        await store.append(messageOf(session, "om_2"));
        await store.append(messageOf(session, "om_3"));
        const turnId = turnIdOf(session, 2);
        expect(await store.cancel(session, { turnId, reason: "user" })).toEqual({ accepted: true });
        expect(await saveAs(store, claim, { mode: "continue" })).toEqual({
          state: "running",
          control: [],
        });
        expect(await commitOf(store, claim, { more: true })).toMatchObject({
          state: "next",
          head: { seq: 3, message: { id: "om_3" } },
        });
        expect(await events.read(session, 0, 10)).toMatchObject([
          { runId: turnId, event: { type: "done", reason: "cancelled" } },
        ]);
      });

      it("does not reach into the next turn", async () => {
        const claim = await started();
        await store.append(messageOf(session, "om_2"));
        await store.cancel(session, { reason: "user" });
        expect(await commitOf(store, claim, { more: true })).toMatchObject({ state: "next" });
      });
    });

    describe("commit", () => {
      it("ends the turn and leaves the session idle when nothing waits", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "continue", history: [userText("om_1")] });
        expect(await commitOf(store, claim, { history: [assistantText("hi")] })).toEqual({
          state: "idle",
        });
        expect(await store.summary(session)).toEqual({
          state: "idle",
          gen: 1,
          epoch: claim.epoch,
          waiting: 0,
          messages: 2,
          inContext: 2,
          unsent: 0,
          eventSeq: 0,
          setAside: [],
          settings: {},
        });
        expect(await store.append(messageOf(session, "om_2"))).toMatchObject({
          seq: 2,
          wakeGen: 2,
        });
        const next = await mustClaim(store, session, 2);
        expect(next).toMatchObject({
          head: { seq: 2 },
          history: [userText("om_1"), assistantText("hi")],
        });
        expect(next).not.toHaveProperty("turn");
      });

      it("AL-45: continues with the next message under the same epoch", async () => {
        const claim = await started();
        await store.append(messageOf(session, "om_2"));
        const next = await commitOf(store, claim, { more: true });
        expect(next).toEqual({
          state: "next",
          head: { seq: 2, message: messageOf(session, "om_2") },
        });
        expect(await store.summary(session)).toMatchObject({
          state: "running",
          gen: 1,
          waiting: 1,
        });
        expect(await commitOf(store, claim, { seq: 2, more: true })).toEqual({ state: "idle" });
      });

      it("goes through the queue when asked to", async () => {
        const claim = await started();
        await store.append(messageOf(session, "om_2"));
        expect(await commitOf(store, claim)).toEqual({ state: "requeue", wakeGen: 2 });
        expect(await store.summary(session)).toMatchObject({ state: "queued", gen: 2 });
        expect(await mustClaim(store, session, 2)).toMatchObject({
          head: { seq: 2 },
          failures: {},
        });
      });

      it("AL-47: writes nothing a second time", async () => {
        const claim = await started();
        await store.append(messageOf(session, "om_2"));
        await commitOf(store, claim, { more: true, history: [assistantText("hi")] });
        expect(
          await commitOf(store, claim, { more: true, history: [assistantText("hi")] }),
        ).toEqual({
          state: "fenced",
        });
        expect(await store.summary(session)).toMatchObject({ waiting: 1, messages: 1 });
      });

      it("forgets calls, deadlines and control entries of the turn", async () => {
        const claim = await started();
        await saveAs(store, claim, { mode: "continue", open: openCalls("c1", "c2") });
        await store.deliver(session, "c1", succeeded);
        await store.append(messageOf(session, "om_2"));
        expect(await commitOf(store, claim, { more: true })).toMatchObject({ state: "next" });
        expect(await store.dueDeadlines(farFutureMs, 10)).toEqual([]);
        expect(await store.deliver(session, "c2", succeeded)).toEqual({ accepted: false });
        const again = await mustClaim(store, session, 1);
        expect(again.control).toEqual([]);
        expect(again).not.toHaveProperty("turn");
        expect(await suspendOn(store, again, "c1")).toEqual({ state: "suspended" });
        expect(await store.deliver(session, "c1", succeeded)).toMatchObject({ accepted: true });
      });
    });

    describe("fencing", () => {
      it("refuses every write of a worker that was replaced", async () => {
        const old = await started();
        const current = await mustClaim(store, session, 1);
        const events1 = [{ runId: "r", event: delta("zombie") }];
        const write = { history: [userText("zombie")], events: events1 };
        for (const mode of ["continue", "suspend", "handoff"] as const) {
          expect(await saveAs(store, old, { mode, open: openCalls("c1"), ...write })).toEqual({
            state: "fenced",
          });
        }
        const outbox = outboxRecord(session, "zombie");
        expect(await commitOf(store, old, { ...write, outbox })).toEqual({ state: "fenced" });
        expect(await store.emit({ ...old, events: events1 })).toBe(false);
        expect(await store.summary(session)).toMatchObject({
          state: "running",
          waiting: 1,
          messages: 0,
        });
        expect(await events.read(session, 0, 10)).toEqual([]);
        expect(await store.outbox.lease(session)).toBeUndefined();
        expect(await store.deliver(session, "c1", succeeded)).toEqual({ accepted: false });
        expect(await commitOf(store, current)).toEqual({ state: "idle" });
      });

      it("refuses a fenced write's consumption of control entries", async () => {
        const old = await started();
        await saveAs(store, old, { mode: "continue", open: openCalls("c1") });
        await store.deliver(session, "c1", succeeded);
        const current = await mustClaim(store, session, 1);
        await saveAs(store, old, { mode: "continue", consumed: 1 });
        expect(await saveAs(store, current, { mode: "continue" })).toMatchObject({
          control: [{ callId: "c1" }],
        });
      });

      it("refuses writes to a session that was never claimed", async () => {
        await store.append(messageOf(session, "om_1"));
        for (const epoch of ["", "0", "undefined"]) {
          expect(await store.emit({ session, epoch, events: [] })).toBe(false);
        }
      });
    });

    describe("history", () => {
      it("AL-54: keeps the order of appends and is empty for an unknown session", async () => {
        expect(await store.history(session)).toEqual([]);
        const claim = await started();
        await saveAs(store, claim, {
          mode: "continue",
          history: [userText("1"), assistantText("2")],
        });
        await saveAs(store, claim, { mode: "continue", history: [userText("3")] });
        await commitOf(store, claim, { history: [assistantText("4")] });
        expect(await store.history(session)).toEqual([
          userText("1"),
          assistantText("2"),
          userText("3"),
          assistantText("4"),
        ]);
      });

      it("AL-54: holds copies: changing what went in or came out changes nothing stored", async () => {
        const message = messageOf(session, "om_1");
        await store.append(message);
        message.parts.push({ type: "text", text: "changed" });
        const claim = await mustClaim(store, session, 1);
        const pristine = structuredClone(claim.head);
        expect(pristine?.message.parts).toHaveLength(1);
        claim.head?.message.parts.push({ type: "text", text: "changed" });
        const said = [userText("om_1")];
        const turn = turnOf({ session, ...(pristine && { head: pristine }) });
        await saveAs(store, claim, { mode: "continue", history: said, turn });
        turn.steps = 99;
        said[0]?.content.pop();
        (await store.history(session))[0]?.content.pop();
        (await mustClaim(store, session, 1)).history.pop();
        const again = await mustClaim(store, session, 1);
        expect(again).toMatchObject({
          head: pristine,
          turn: { steps: 1 },
          history: [userText("om_1")],
        });
      });
    });

    describe("sweeping", () => {
      it("reports calls past their deadline, oldest first", async () => {
        const open1 = [openCall("c1", 3_000), openCall("c2", 1_000), openCall("c3", 2_000)];
        await saveAs(store, await started(), { mode: "suspend", open: open1 });
        expect(await store.dueDeadlines(999, 10)).toEqual([]);
        const due = [
          { session, callId: "c2" },
          { session, callId: "c3" },
        ];
        expect(await store.dueDeadlines(2_000, 10)).toEqual(due);
        expect(await store.dueDeadlines(9_000, 1)).toEqual(due.slice(0, 1));
        await store.deliver(session, "c2", succeeded);
        expect(await store.dueDeadlines(2_000, 10)).toEqual([{ session, callId: "c3" }]);
      });

      it("reports the oldest calls of all sessions first, so that no session has to wait for others", async () => {
        const sessions = Array.from({ length: 20 }, (_, at) => `cli_app.oc_chat${at}`);
        for (const [at, waiting] of sessions.entries()) {
          const { wakeGen } = await store.append(messageOf(waiting, "om_1"));
          const claim = await mustClaim(store, waiting, wakeGen);
          await saveAs(store, claim, { mode: "suspend", open: [openCall("c1", 1_000 - at)] });
        }
        const oldest = sessions.slice(-3).toReversed();
        expect((await store.dueDeadlines(2_000, 3)).map(({ session: due }) => due)).toEqual(oldest);
      });

      it("a started call still has its deadline", async () => {
        await saveAs(store, await started(), { mode: "suspend", open: [openCall("c1", 1_000)] });
        await store.begin(session, "c1", "once");
        expect(await store.dueDeadlines(1_000, 10)).toEqual([{ session, callId: "c1" }]);
      });

      it("reports silent sessions that are queued or running, with the generation of their job", async () => {
        await store.append(messageOf(session, "om_1"));
        await store.append(messageOf(other, "om_2"));
        await store.claim(session, 1, "worker-7");
        const soon = harness.now() + 60_000;
        const stale = await store.stale(soon, 10);
        expect(stale.find((each) => each.session === session)).toEqual({
          session,
          state: "running",
          gen: 1,
          owner: "worker-7",
        });
        expect(stale.find((each) => each.session === other)).toMatchObject({
          state: "queued",
          gen: 1,
        });
        expect(stale).toHaveLength(2);
        expect(await store.stale(soon, 1)).toHaveLength(1);
        expect(await store.stale(harness.now() - 60_000, 10)).toEqual([]);
      });

      it("names the job that runs the session, not the newest generation", async () => {
        await store.append(messageOf(session, "om_1"));
        await mustClaim(store, session, 5);
        expect(await store.stale(harness.now() + 60_000, 10)).toMatchObject([{ session, gen: 5 }]);
      });

      it("does not report suspended and idle sessions", async () => {
        const claim = await started();
        await suspendOn(store, claim, "c1");
        expect(await store.stale(harness.now() + 60_000, 10)).toEqual([]);
        await commitOf(store, claim);
        expect(await store.stale(harness.now() + 60_000, 10)).toEqual([]);
      });

      it.each([
        ["touch", () => store.touch(session)],
        ["save", (claim: Claim) => saveAs(store, claim, { mode: "continue" })],
        ["claim", () => store.claim(session, 1, "w")],
        ["heal", () => store.heal(session, 1)],
      ])("%s makes a session look alive", async (_name, act) => {
        const claim = await started();
        await harness.advance(20);
        const beforeMs = harness.now() - 5;
        expect(await store.stale(beforeMs, 10)).toHaveLength(1);
        await act(claim);
        expect(await store.stale(beforeMs, 10)).toEqual([]);
      });

      it("a message to a session whose wake-up is lost does not make it look alive", async () => {
        await store.append(messageOf(session, "om_1"));
        await harness.advance(20);
        const beforeMs = harness.now() - 5;
        await store.append(messageOf(session, "om_2"));
        expect(await store.stale(beforeMs, 10)).toHaveLength(1);
      });

      it("touching an idle or unknown session does not make it stale", async () => {
        await store.touch(other);
        await commitOf(store, await started());
        await store.touch(session);
        expect(await store.stale(harness.now() + 60_000, 10)).toEqual([]);
      });
    });

    describe("heal", () => {
      it("repeats the current generation of a queued session", async () => {
        await store.append(messageOf(session, "om_1"));
        expect(await store.heal(session, 1)).toBe(1);
        expect(await store.summary(session)).toMatchObject({ state: "queued", gen: 1 });
      });

      it("queues a running session whose job is dead under a new generation", async () => {
        const old = await started();
        expect(await store.heal(session, 1)).toBe(2);
        expect(await store.summary(session)).toMatchObject({ state: "queued", gen: 2 });
        await mustClaim(store, session, 2);
        expect(await saveAs(store, old, { mode: "continue" })).toEqual({ state: "fenced" });
      });

      it("leaves a running session alone when another job died", async () => {
        await started();
        expect(await store.heal(session, 2)).toBeUndefined();
        expect(await store.summary(session)).toMatchObject({ state: "running", gen: 1 });
      });

      it("leaves suspended, idle and unknown sessions alone", async () => {
        expect(await store.heal(session, 1)).toBeUndefined();
        const claim = await started();
        await suspendOn(store, claim, "c1");
        expect(await store.heal(session, 1)).toBeUndefined();
        expect(await store.summary(session)).toMatchObject({ state: "suspended", gen: 1 });
        await commitOf(store, claim);
        expect(await store.heal(session, 1)).toBeUndefined();
        expect(await store.summary(session)).toMatchObject({ state: "idle" });
      });
    });
  });
  describeInbox(name, makeHarness);
  describeCompaction(name, makeHarness);
  describeOutbox(name, makeHarness);
  describeParking(name, makeHarness);
  describeRetention(name, makeHarness);
  describeCardLedger(name, makeHarness);
  describeApprovalStore(name, makeHarness);
  describePermissionRules(name, makeHarness);
  describeAuditLog(name, makeHarness);
  describeEventLog(name, makeHarness);
  describeSessionReset(name, makeHarness);
  describeSetAside(name, makeHarness, Math.ceil(modelRuns / 2));
  describeDeadLetters(name, makeHarness);
  describeSessionIndex(name, makeHarness);
  describeRaces(name, makeHarness);
  describeCrashPoints(name, makeHarness);
  describeSessionModel(name, makeHarness, modelRuns);
}
