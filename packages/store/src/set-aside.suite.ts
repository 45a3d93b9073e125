import { turnIdOf, type ControlEntry, type InboundMessage } from "@larkline/protocol";
import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { Claim, CommitResult, SaveResult } from "./session-types.ts";
import {
  approvalIdOf,
  approvalOf,
  commitOf,
  decisionOf,
  messageOf,
  mustClaim,
  openCalls,
  outboxRecord,
  saveAs,
  suspendOn,
  turnOf,
} from "./suite-samples.ts";

const session = "cli_app.oc_group";

/** What a person writes in the group. */
function said(person: string, id: string, fields: Partial<InboundMessage> = {}): InboundMessage {
  return messageOf(session, id, { chatType: "group", sender: { id: person }, ...fields });
}

/** Turns that wait for people, and the turns of others meanwhile. */
export function describeSetAside(
  name: string,
  makeHarness: MakeSessionStore,
  modelRuns: number,
): void {
  describe(`${name}: turns set aside`, () => {
    let harness: SessionStoreHarness;
    let store: SessionStore;

    beforeEach(async () => {
      harness = await makeHarness({});
      ({ store } = harness);
    });
    afterEach(() => harness.close());

    /** The turn asks people, by the approval of its number, and waits for nothing else. */
    async function wait(claim: Claim): Promise<SaveResult> {
      const seq = claim.head?.seq ?? 0;
      const approvals = [approvalOf(session, seq, { turnId: turnIdOf(session, seq) })];
      const waits = claim.head?.message.sender.id ?? "";
      return await saveAs(store, claim, { mode: "suspend", turn: turnOf(claim), approvals, waits });
    }

    async function approve(seq: number): Promise<number | undefined> {
      const decided = await harness.approvals.decide(
        session,
        approvalIdOf(seq),
        decisionOf("approve"),
      );
      expect(decided.result).toBe("settled");
      return "wakeGen" in decided ? decided.wakeGen : undefined;
    }

    /** Ann's turn waits, as number 1. */
    async function annWaits(): Promise<Claim> {
      const { wakeGen } = await store.append(said("ann", "om_1"));
      const claim = await mustClaim(store, session, wakeGen);
      expect(await wait(claim)).toEqual({ state: "suspended" });
      return claim;
    }

    const approvedOf = (seq: number): unknown => ({
      type: "decision",
      turnId: turnIdOf(session, seq),
      approvalId: approvalIdOf(seq),
      state: "approved",
    });

    it("AL-45: a message of another person is run while a turn waits for people only", async () => {
      await annWaits();
      const second = await store.append(said("bob", "om_2"));
      expect(second).toMatchObject({ result: "accepted", seq: 2, ahead: 0, wakeGen: 2 });
      const claim = await mustClaim(store, session, 2);
      expect(claim).toMatchObject({
        head: { seq: 2 },
        failures: {},
        othersWait: true,
        control: [],
      });
      expect(claim).not.toHaveProperty("turn");
      const { setAside, waiting } = await store.summary(session);
      expect(setAside).toMatchObject([
        { head: { seq: 1 }, turn: { turnId: turnIdOf(session, 1) } },
      ]);
      expect(waiting).toBe(2);
      // Then the session waits as it did before.
      expect(await commitOf(store, claim)).toEqual({ state: "idle" });
      const summary = await store.summary(session);
      expect(summary).toMatchObject({
        state: "suspended",
        head: { seq: 1 },
        setAside: [],
        waiting: 1,
      });
      expect(summary.turn).toMatchObject({ turnId: turnIdOf(session, 1) });
      expect(await harness.approvals.pending(session)).toHaveLength(1);
    });

    it("messages of the same person wait, and those of others behind them do not", async () => {
      await annWaits();
      const own = await store.append(said("ann", "om_2"));
      expect(own).toMatchObject({ ahead: 1, head: { seq: 1 } });
      expect(own).not.toHaveProperty("wakeGen");
      const { wakeGen } = await store.append(said("bob", "om_3"));
      const claim = await mustClaim(store, session, wakeGen);
      expect(claim.head).toMatchObject({ seq: 3 });
      // What is Ann's own is still before what she writes now.
      expect(await store.append(said("ann", "om_4"))).toMatchObject({ head: { seq: 1 } });
      expect(await commitOf(store, claim, { more: true })).toEqual({ state: "idle" });
      const next = await mustClaim(store, session, await approve(1));
      expect(next).toMatchObject({ head: { seq: 1 }, turn: {}, control: [approvedOf(1)] });
      expect(await commitOf(store, next, { more: true })).toMatchObject({
        state: "next",
        head: { seq: 2 },
      });
    });

    it("a message behind hundreds of the person who waits is found", async () => {
      await annWaits();
      for (let at = 2; at <= 260; at += 1) await store.append(said("ann", `om_${at}`));
      const { wakeGen } = await store.append(said("bob", "om_261"));
      expect(await mustClaim(store, session, wakeGen)).toMatchObject({ head: { seq: 261 } });
    });

    it("others do not come before a turn that waits for calls, in a direct chat, or of an earlier version", async () => {
      const { wakeGen } = await store.append(said("ann", "om_1"));
      const claim = await mustClaim(store, session, wakeGen);
      await suspendOn(store, claim, "c1");
      expect(await store.append(said("bob", "om_2"))).not.toHaveProperty("wakeGen");
      await store.deliver(session, "c1", { ok: true, result: 1 });
      expect(await mustClaim(store, session, 2)).toMatchObject({ head: { seq: 1 } });
    });

    it("a decision that comes while another turn runs is read when that has ended, and by its own turn only", async () => {
      await annWaits();
      const { wakeGen } = await store.append(said("bob", "om_2"));
      const bobs = await mustClaim(store, session, wakeGen);
      expect(await approve(1)).toBeUndefined();
      expect(await saveAs(store, bobs, { mode: "continue" })).toEqual({
        state: "running",
        control: [],
      });
      await store.append(said("cleo", "om_3"));
      const ended = await commitOf(store, bobs, { more: true });
      expect(ended).toMatchObject({ state: "requeue" });
      const anns = await mustClaim(store, session, "wakeGen" in ended ? ended.wakeGen : 0);
      expect(anns).toMatchObject({ head: { seq: 1 }, control: [approvedOf(1)], othersWait: false });
      expect(await commitOf(store, anns, { more: true })).toMatchObject({
        state: "next",
        head: { seq: 3 },
      });
    });

    it("a decision does not disturb a turn of another person that waits for calls", async () => {
      await annWaits();
      const { wakeGen } = await store.append(said("bob", "om_2"));
      const bobs = await mustClaim(store, session, wakeGen);
      await saveAs(store, bobs, { mode: "suspend", open: openCalls("c1") });
      expect(await approve(1)).toBeUndefined();
      expect(await store.summary(session)).toMatchObject({ state: "suspended", head: { seq: 2 } });
      const delivered = await store.deliver(session, "c1", { ok: true, result: 1 });
      const again = await mustClaim(store, session, delivered.wakeGen);
      expect(again.control).toMatchObject([{ type: "outcome" }]);
      expect(await commitOf(store, again)).toMatchObject({ state: "requeue" });
    });

    it("several people wait at once, and each gets an answer", async () => {
      await annWaits();
      const bob = await store.append(said("bob", "om_2"));
      const bobs = await mustClaim(store, session, bob.wakeGen);
      expect(await wait(bobs)).toEqual({ state: "suspended" });
      const cleo = await store.append(said("cleo", "om_3"));
      const cleos = await mustClaim(store, session, cleo.wakeGen);
      expect(cleos.head).toMatchObject({ seq: 3 });
      const { setAside } = await store.summary(session);
      expect(setAside.map(({ head }) => head.seq)).toEqual([1, 2]);
      expect(await wait(cleos)).toEqual({ state: "suspended" });
      for (const seq of [2, 1, 3]) {
        const claim = await mustClaim(store, session, await approve(seq));
        expect(claim).toMatchObject({
          head: { seq },
          turn: { turnId: turnIdOf(session, seq) },
          control: [approvedOf(seq)],
        });
        await commitOf(store, claim);
      }
      expect(await store.summary(session)).toMatchObject({
        state: "idle",
        waiting: 0,
        setAside: [],
      });
    });

    it("a turn that begins to wait lets those continue that have come meanwhile", async () => {
      const { wakeGen } = await store.append(said("ann", "om_1"));
      const claim = await mustClaim(store, session, wakeGen);
      await store.append(said("bob", "om_2"));
      expect(await wait(claim)).toEqual({ state: "suspended", wakeGen: 2 });
      expect(await mustClaim(store, session, 2)).toMatchObject({ head: { seq: 2 } });
    });

    it("a cancel reaches a turn set aside, and not the one that runs", async () => {
      await annWaits();
      const { wakeGen } = await store.append(said("bob", "om_2"));
      const bobs = await mustClaim(store, session, wakeGen);
      const turnId = turnIdOf(session, 1);
      expect(await store.cancel(session, { turnId, reason: "stopped" })).toEqual({
        accepted: true,
      });
      expect(await store.cancelled(session, [turnIdOf(session, 2)])).toBe(false);
      expect(await store.cancelled(session)).toBe(true);
      expect(await saveAs(store, bobs, { mode: "continue" })).toEqual({
        state: "running",
        control: [],
      });
      const ended = await commitOf(store, bobs);
      const anns = await mustClaim(store, session, "wakeGen" in ended ? ended.wakeGen : 0);
      expect(anns).toMatchObject({ head: { seq: 1 }, control: [{ type: "cancel", turnId }] });
    });

    it("a message that is taken back before its turn leaves everything as it was", async () => {
      await annWaits();
      const { wakeGen = 0 } = await store.append(said("bob", "om_2"));
      await store.cancel(session, { turnId: turnIdOf(session, 2), reason: "recalled" });
      expect(await store.claim(session, wakeGen, "w")).toBeUndefined();
      expect(await store.summary(session)).toMatchObject({
        state: "suspended",
        head: { seq: 1 },
        waiting: 1,
      });
      expect(await store.stale(harness.now() + 60_000, 10)).toEqual([]);
      expect(await mustClaim(store, session, await approve(1))).toMatchObject({ head: { seq: 1 } });
    });

    it("keeps what belongs to it: deaths, checkpoint, joined messages and questions, over the end of others", async () => {
      const { wakeGen = 0 } = await store.append(said("ann", "om_1"));
      await store.append(said("ann", "om_2"));
      await store.claim(session, wakeGen, "worker-0");
      const first = await mustClaim(store, session, await store.heal(session, wakeGen));
      await saveAs(store, first, { mode: "continue", absorbed: [2] });
      await wait(first);
      const bob = await store.append(said("bob", "om_3"));
      await commitOf(store, await mustClaim(store, session, bob.wakeGen));
      expect(await harness.approvals.pending(session)).toHaveLength(1);
      const cancelled = await store.cancel(session, {
        turnId: turnIdOf(session, 2),
        reason: "recalled",
      });
      const claim = await mustClaim(store, session, cancelled.wakeGen);
      expect(claim).toMatchObject({
        head: { seq: 1 },
        failures: {},
        deaths: { together: 1, alone: 0 },
      });
    });

    it("a crash of the turn that runs is its own", async () => {
      await annWaits();
      const { wakeGen = 0 } = await store.append(said("bob", "om_2"));
      await store.claim(session, wakeGen, "worker-0");
      const healed = await store.heal(session, wakeGen);
      expect(await mustClaim(store, session, healed)).toMatchObject({
        head: { seq: 2 },
        deaths: { together: 1 },
      });
      await harness.approvals.settle(session, approvalIdOf(1), "undeliverable");
      const again = await mustClaim(store, session, healed);
      expect(again).toMatchObject({ head: { seq: 2 }, deaths: { together: 1 }, control: [] });
      const ended = await commitOf(store, again);
      const anns = await mustClaim(store, session, "wakeGen" in ended ? ended.wakeGen : 0);
      expect(anns).toMatchObject({
        head: { seq: 1 },
        failures: {},
        control: [{ state: "undeliverable" }],
      });
    });

    it("ends with a reset of the session, which tells every person that waits", async () => {
      await annWaits();
      const { wakeGen } = await store.append(said("bob", "om_2"));
      await mustClaim(store, session, wakeGen);
      await store.reset(session, {
        by: "console",
        replyOf: async (id) => outboxRecord(session, id),
      });
      expect(await store.summary(session)).toMatchObject({
        state: "idle",
        waiting: 0,
        setAside: [],
        unsent: 2,
      });
      expect(await harness.approvals.pending(session)).toEqual([]);
      const ends = (await harness.events.read(session, 0, 100)).filter(
        ({ event }) => event.type === "done",
      );
      expect(ends.map(({ runId }) => runId).toSorted()).toEqual([
        turnIdOf(session, 1),
        turnIdOf(session, 2),
      ]);
      const next = await store.append(said("ann", "om_3"));
      expect(await mustClaim(store, session, next.wakeGen)).toMatchObject({
        head: { seq: 3 },
        othersWait: false,
      });
    });

    it("its person is not forgotten, and its session not removed, while it waits", async () => {
      await annWaits();
      const { wakeGen } = await store.append(said("bob", "om_2"));
      const bobs = await mustClaim(store, session, wakeGen);
      expect(await harness.retention.forget(session, "ann", 99)).toBe(false);
      await commitOf(store, bobs);
      expect(await harness.retention.erase(session, Number.MAX_SAFE_INTEGER)).toBe("in_use");
    });

    it("what is refused as busy otherwise is not, when only people are waited for", async () => {
      await annWaits();
      expect(await store.append(said("ann", "om_2"), { maxWaiting: 1 })).toMatchObject({
        result: "full",
      });
      expect(await store.append(said("bob", "om_3"), { maxWaiting: 1 })).toMatchObject({
        result: "accepted",
      });
    });

    it("AL-34, AL-45: whatever happens when, nothing is lost, every person is answered in the order of their messages", async () => {
      const people = ["ann", "bob", "cleo"];
      const move = fc.record({
        kind: fc.constantFrom(
          "write",
          "write",
          "work",
          "work",
          "work",
          "decide",
          "decide",
          "cancel",
          "crash",
        ),
        who: fc.nat({ max: 2 }),
        pick: fc.nat({ max: 9 }),
      });
      let run = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(move, { maxLength: 60, size: "max" }), async (moves) => {
          run += 1;
          const world = new Group(harness, `${session}_${run}`);
          for (const { kind, who, pick } of moves) {
            if (kind === "write") await world.write(people[who] ?? "");
            else if (kind === "work") await world.work(pick);
            else if (kind === "decide") await world.decide(pick);
            else if (kind === "cancel") await world.cancel(pick);
            else await world.crash();
          }
          await world.settle();
        }),
        { numRuns: modelRuns, examples: [[cancelledAtTheHead]] },
      );
    });
  });
}

/**
 * A message of a person whose turn waits is taken back when it is at the head and has not begun. A claim brings the
 * waiting turn to the head then, and a cancel that waited for the message would be read by the wrong turn.
 */
const cancelledAtTheHead = (
  [
    ["write", 0, 0],
    ["write", 1, 0],
    ["work", 0, 0],
    ["work", 0, 0],
    ["work", 0, 0],
    ["write", 1, 0],
    ["work", 0, 2],
    ["decide", 0, 0],
    ["write", 0, 0],
    ["work", 0, 4],
    ["cancel", 0, 3],
  ] as const
).map(([kind, who, pick]) => ({ kind, who, pick }));

interface Answer {
  person: string;
  seq: number;
}

/** A group around one store: what its turns must have done is checked after every step. */
class Group {
  readonly #harness: SessionStoreHarness;
  readonly #session: string;
  readonly #written = new Map<number, string>();
  readonly #wakes: number[] = [];
  /** Turns that wait, and how many entries of theirs were read. */
  readonly #asked = new Set<number>();
  readonly #decided = new Set<number>();
  readonly #cancelled = new Set<number>();
  readonly #answers: Answer[] = [];
  #claim: Claim | undefined;

  constructor(harness: SessionStoreHarness, name: string) {
    this.#harness = harness;
    this.#session = name;
  }

  #wake(gen: number | undefined): void {
    if (gen !== undefined) this.#wakes.push(gen);
  }

  async write(person: string): Promise<void> {
    const message = messageOf(this.#session, `om_${this.#written.size}`, {
      chatType: "group",
      sender: { id: person },
    });
    const { seq, wakeGen } = await this.#harness.store.append(message);
    this.#written.set(seq, person);
    this.#wake(wakeGen);
  }

  /** The worker continues its turn, or takes the next wake-up. */
  async work(pick: number): Promise<void> {
    const claim = this.#claim;
    if (claim?.head === undefined) return await this.#take();
    const { seq } = claim.head;
    const entries: ControlEntry[] = claim.control;
    for (const entry of entries) {
      const isOwn =
        (entry.type === "decision" || entry.type === "cancel") &&
        (entry.turnId === undefined || entry.turnId === turnIdOf(this.#session, seq));
      expect(isOwn).toBe(true);
    }
    const isAnswered = entries.length > 0;
    if (!this.#asked.has(seq) && pick % 3 === 0) return await this.#ask(claim, seq);
    if (this.#asked.has(seq) && !isAnswered) return await this.#suspend(claim);
    await this.#end(claim, seq, pick % 2 === 0);
  }

  async #take(): Promise<void> {
    const gen = this.#wakes.shift();
    if (gen === undefined) return;
    this.#claim = await this.#harness.store.claim(this.#session, gen, "worker");
    if (this.#claim?.head === undefined) return;
    // No earlier message of a person is left behind, but for those that were taken back.
    const { seq, message } = this.#claim.head;
    this.#expectFirst(message.sender.id, seq);
  }

  #expectFirst(person: string, seq: number): void {
    const done = new Set(this.#answers.map((answer) => answer.seq));
    const earlier = [...this.#written].filter(
      ([n, who]) => who === person && n < seq && !done.has(n),
    );
    expect(earlier.filter(([n]) => !this.#cancelled.has(n))).toEqual([]);
  }

  async #ask(claim: Claim, seq: number): Promise<void> {
    this.#asked.add(seq);
    const approvals = [
      approvalOf(this.#session, this.#numberOf(seq), { turnId: turnIdOf(this.#session, seq) }),
    ];
    await this.#suspend(claim, approvals);
  }

  /** Ids of approvals are those of the store, not of one session. */
  #numberOf(seq: number): number {
    return (
      Number.parseInt(this.#session.slice(this.#session.lastIndexOf("_") + 1), 10) * 1_000 + seq
    );
  }

  async #suspend(claim: Claim, approvals: ReturnType<typeof approvalOf>[] = []): Promise<void> {
    const waits = claim.head?.message.sender.id ?? "";
    const saved = await saveAs(this.#harness.store, claim, {
      mode: "suspend",
      turn: turnOf(claim),
      approvals,
      waits,
    });
    expect(saved.state).not.toBe("fenced");
    if (saved.state === "running") {
      this.#claim = { ...claim, turn: turnOf(claim), control: saved.control };
    } else this.#claim = undefined;
    if (saved.state === "suspended") this.#wake(saved.wakeGen);
  }

  async #end(claim: Claim, seq: number, more: boolean): Promise<void> {
    const result: CommitResult = await commitOf(this.#harness.store, claim, { more });
    expect(result.state).not.toBe("fenced");
    this.#answers.push({ person: this.#written.get(seq) ?? "", seq });
    this.#claim = undefined;
    if (result.state === "requeue") this.#wake(result.wakeGen);
    if (result.state !== "next") return;
    const { turn: _turn, ...rest } = claim;
    this.#claim = { ...rest, head: result.head, control: [] };
    this.#expectFirst(result.head.message.sender.id, result.head.seq);
  }

  async decide(pick: number): Promise<void> {
    const open = [...this.#asked].filter((seq) => !this.#decided.has(seq));
    const seq = open[pick % open.length];
    if (seq === undefined) return;
    this.#decided.add(seq);
    const id = approvalIdOf(this.#numberOf(seq));
    const decided = await this.#harness.approvals.decide(this.#session, id, decisionOf("approve"));
    const isOver = this.#answers.some((answer) => answer.seq === seq);
    expect(decided.result).toBe(isOver ? "closed" : "settled");
    if ("wakeGen" in decided) this.#wake(decided.wakeGen);
  }

  async cancel(pick: number): Promise<void> {
    const seq = [...this.#written.keys()][pick];
    if (seq === undefined || this.#cancelled.has(seq)) return;
    const turnId = turnIdOf(this.#session, seq);
    const { accepted, wakeGen } = await this.#harness.store.cancel(this.#session, {
      turnId,
      reason: "recalled",
    });
    if (accepted) this.#cancelled.add(seq);
    this.#wake(wakeGen);
  }

  /** The worker dies; the sweeper finds what it has left. */
  async crash(): Promise<void> {
    const { store } = this.#harness;
    const { gen } =
      (await store.stale(Number.MAX_SAFE_INTEGER, 1_000)).find(
        (each) => each.session === this.#session,
      ) ?? {};
    this.#claim = undefined;
    this.#wakes.length = 0;
    if (gen !== undefined) this.#wake(await store.heal(this.#session, gen));
  }

  async settle(): Promise<void> {
    const { store } = this.#harness;
    for (let round = 0; round < 500; round += 1) {
      await this.work(1);
      if (this.#claim !== undefined || this.#wakes.length > 0) continue;
      const { state } = await store.summary(this.#session);
      if (state === "idle") break;
      await this.decide(0);
      if (this.#wakes.length === 0) await this.crash();
    }
    expect(await store.summary(this.#session)).toMatchObject({
      state: "idle",
      waiting: 0,
      setAside: [],
    });
    const answered = this.#answers.map(({ seq }) => seq);
    expect(new Set(answered).size).toBe(answered.length);
    const missing = [...this.#written.keys()].filter(
      (seq) => !answered.includes(seq) && !this.#cancelled.has(seq),
    );
    expect(missing).toEqual([]);
    for (const person of new Set(this.#written.values())) {
      const own = this.#answers.filter((answer) => answer.person === person).map(({ seq }) => seq);
      expect(own).toEqual(own.toSorted((a, b) => a - b));
    }
    expect(await this.#harness.approvals.pending(this.#session)).toEqual([]);
  }
}
