import { turnIdOf, type ControlEntry, type SessionKey } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { textOf } from "@larkline/protocol/content";
import { isTerminal, type EngineEvent } from "@larkline/protocol/event";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { ApprovalStore } from "./approval-store.ts";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { Claim, OutboxLease } from "./session-types.ts";
import {
  approvalOf,
  assistantText,
  commitOf,
  decisionOf,
  farFutureMs,
  messageOf,
  openCall,
  outboxRecord,
  saveAs,
  turnOf,
  userText,
} from "./suite-samples.ts";

const maxRounds = 100;

const endOfRun: EngineEvent = {
  type: "done",
  totalInputTokens: 0,
  totalOutputTokens: 0,
  totalCostUsd: 0,
  turnCount: 0,
  reason: "",
  final: "",
};

async function auditedOf({ audit }: SessionStoreHarness, session: SessionKey): Promise<string[]> {
  const kinds: string[] = [];
  for await (const record of audit.export(0, farFutureMs)) {
    if (record.session === session) kinds.push(record.kind);
  }
  return kinds;
}

class Crash extends Error {}

/** Where a process dies: at which call to the store, and whether the store still did it. */
interface CrashPoint {
  call: number;
  done: boolean;
  /** What the queue does with the job of the dead process. */
  job: "retried" | "lost";
}

/** Of a call that only reads it makes no difference whether it was done, and jobs do not read. */
function pointsOf(call: number, name: string): CrashPoint[] {
  if (/^(find|stale|due)/.test(name)) return [{ call, done: false, job: "lost" }];
  return [false, true].flatMap((done) =>
    (["lost", "retried"] as const).map((job) => ({ call, done, job })),
  );
}

/** A store as a process sees it that dies once, at the given call of all. */
function crashing<T extends object>(store: T, point: CrashPoint, calls: string[]): T {
  return new Proxy(store, {
    get(target, name) {
      const method: unknown = Reflect.get(target, name);
      if (typeof method !== "function") return method;
      return async (...given: unknown[]): Promise<unknown> => {
        calls.push(String(name));
        const dies = calls.length === point.call;
        if (dies && !point.done) throw new Crash();
        const result: unknown = await Reflect.apply(method, target, given);
        if (dies) throw new Crash();
        return result;
      };
    },
  });
}

/** The gate's protocol in small: one message, one `once` call that two people approve, one reply. */
class Deployment {
  readonly sent: string[] = [];
  executions = 0;
  /** What the card of the approval shows in the end. */
  shown = "";
  readonly session: SessionKey;
  readonly approval: Approval;
  readonly #store: SessionStore;
  readonly #approvals: ApprovalStore;
  readonly #harness: SessionStoreHarness;
  readonly #job: CrashPoint["job"];
  readonly #wakeups = new Set<number>();
  readonly #calls = new Set<string>();
  /** The people who see a button and have not clicked it yet. */
  readonly #buttons = new Set<string>();
  #isAcknowledged = false;

  constructor(
    harness: SessionStoreHarness,
    run: number,
    { point, calls }: { point: CrashPoint; calls: string[] },
  ) {
    this.session = `cli_app.oc_chat.r${run}`;
    const { deciders } = approvalOf(this.session, run);
    this.approval = approvalOf(this.session, run, { deciders: { ...deciders, count: 2 } });
    this.#store = crashing(harness.store, point, calls);
    this.#approvals = crashing(harness.approvals, point, calls);
    this.#harness = harness;
    this.#job = point.job;
  }

  /** Takes one step after another, after crashes too, until nothing is left to do. */
  async run(): Promise<void> {
    for (let round = 0; round < maxRounds; round += 1) {
      try {
        if (await this.#step()) continue;
        return;
      } catch (error) {
        if (!(error instanceof Crash)) throw error;
      }
    }
    throw new Error("the deployment does not come to rest");
  }

  async #step(): Promise<boolean> {
    if (!this.#isAcknowledged) return await this.#receive();
    for (const gen of this.#wakeups) {
      return await this.#guarded(this.#wakeups, gen, () => this.#work(gen));
    }
    for (const person of this.#buttons) return await this.#click(person);
    for (const callId of this.#calls) {
      return await this.#guarded(this.#calls, callId, () => this.#runTool(callId));
    }
    return await this.#sweep();
  }

  /** Runs a job; the queue keeps or drops it when its process dies. */
  async #guarded<T>(queue: Set<T>, job: T, run: () => Promise<void>): Promise<boolean> {
    queue.delete(job);
    try {
      await run();
    } catch (error) {
      if (this.#job === "retried") queue.add(job);
      throw error;
    }
    return true;
  }

  async #receive(): Promise<boolean> {
    this.#wake((await this.#store.append(messageOf(this.session, "om_1"))).wakeGen);
    this.#isAcknowledged = true;
    return true;
  }

  #wake(gen: number | undefined): void {
    if (gen !== undefined) this.#wakeups.add(gen);
  }

  async #work(gen: number): Promise<void> {
    const claim = await this.#store.claim(this.session, gen, "worker");
    if (!claim?.head) return;
    const [entry] = claim.control;
    if (entry?.type !== "outcome") return await this.#askOrRun(claim, entry);
    const committed = await commitOf(this.#store, claim, {
      history: [userText("result"), assistantText("answer")],
      events: [{ runId: turnIdOf(this.session, claim.head.seq), event: endOfRun }],
      outbox: outboxRecord(this.session, "r1"),
    });
    if ("deliver" in committed) await this.#send(committed.deliver);
  }

  /** Asks in the first step, runs the call in the second; again after a crash. */
  async #askOrRun(claim: Claim, entry: ControlEntry | undefined): Promise<void> {
    const decided = entry?.type === "decision" ? [userText(entry.state)] : [];
    const steps = decided.length > 0 ? 2 : (claim.turn?.steps ?? 1);
    const saved = await saveAs(this.#store, claim, {
      mode: "suspend",
      consumed: claim.control.length,
      turn: turnOf(claim, { steps }),
      history: claim.turn ? decided : [userText("question")],
      ...(steps === 1
        ? { approvals: [this.approval] }
        : { open: [openCall("c1", farFutureMs - 1)] }),
    });
    if (saved.state === "suspended" && steps === 2) this.#calls.add("c1");
    if (saved.state === "running") this.#wakeups.add(claim.gen);
  }

  /** A person clicks; one who gets no answer, because the process died, clicks again. */
  async #click(person: string): Promise<boolean> {
    const status = await this.#approvals.find("cli_app", this.approval.id);
    if (status === undefined) throw new Error("a card without an approval");
    const decided = await this.#approvals.decide(
      this.session,
      this.approval.id,
      decisionOf("approve", person),
    );
    if ("wakeGen" in decided) this.#wake(decided.wakeGen);
    this.#buttons.delete(person);
    return true;
  }

  /** Sends the card, or changes it to what became of the question. */
  async #showCards(): Promise<boolean> {
    const { cardsLeaseMs } = this.#harness;
    const isDue = (await this.#approvals.dueCards(this.#harness.now(), 10)).length > 0;
    if (!isDue && (await this.#approvals.dueCards(farFutureMs, 10)).length === 0) return false;
    if (!isDue) await this.#harness.advance(cardsLeaseMs + 1);
    const lease = await this.#approvals.leaseCards(this.session, this.approval.id);
    if (lease === undefined) return true;
    const { state } = lease.status;
    this.shown = state;
    if (state === "pending") for (const person of ["ou_a", "ou_b"]) this.#buttons.add(person);
    await this.#approvals.saveCards({
      ...lease,
      cards: [{ to: "", messageId: "om_card", shows: state }],
    });
    return true;
  }

  async #send(lease: OutboxLease | undefined): Promise<void> {
    if (!lease) return;
    this.sent.push(lease.record.uuid);
    await this.#send(await this.#store.outbox.ack(this.session, lease.token));
  }

  async #runTool(callId: string): Promise<void> {
    const begun = await this.#store.begin(this.session, callId, "once");
    if (begun === "run") this.executions += 1;
    const { wakeGen } = await this.#store.deliver(this.session, callId, {
      ok: true,
      result: begun,
    });
    this.#wake(wakeGen);
  }

  /** Returns whether there was anything to do. */
  async #sweep(): Promise<boolean> {
    const { state } = await this.#harness.store.summary(this.session);
    for (const { gen } of await this.#store.stale(farFutureMs, 10)) {
      this.#wake(await this.#store.heal(this.session, gen));
    }
    for (const { callId } of await this.#store.dueDeadlines(farFutureMs, 10)) {
      this.#wake(
        (await this.#store.deliver(this.session, callId, { ok: false, error: "timeout" })).wakeGen,
      );
    }
    const unsent = await this.#store.dueOutboxes(farFutureMs, 10);
    if (unsent.length > 0) {
      await this.#harness.advance(this.#harness.leaseMs + 1);
      await this.#send(await this.#store.outbox.lease(this.session));
    }
    const hasCards = await this.#showCards();
    return state !== "idle" || unsent.length > 0 || hasCards;
  }
}

/** One turn with a tool call, with a crash at every call to the store. */
export function describeCrashPoints(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: crash points`, () => {
    let harness: SessionStoreHarness;
    let runs = 0;

    beforeAll(async () => {
      harness = await makeHarness({});
    });
    afterAll(() => harness.close());

    async function expectOnce({ session, approval, ...world }: Deployment): Promise<void> {
      const { store, events, approvals } = harness;
      const history = (await store.history(session)).map(textOf);
      expect(history).toEqual(["question", "approved", "result", "answer"]);
      expect(await store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
      const decisions = [{ by: { id: "ou_a" } }, { by: { id: "ou_b" } }];
      expect(await approvals.find("cli_app", approval.id)).toMatchObject({
        state: "approved",
        decisions,
      });
      expect(world.shown).toBe("approved");
      // Sent at least once, always under the same key, by which the platform drops repeats.
      expect(new Set(world.sent)).toEqual(new Set(["uuid-r1"]));
      const records = await events.read(session, 0, 100);
      expect(records.filter(({ event }) => isTerminal(event))).toHaveLength(1);
      expect(await store.dueDeadlines(farFutureMs, 10)).toEqual([]);
      const audited = await auditedOf(harness, session);
      const asked = [
        "approval_requested",
        "approval_decided",
        "approval_decided",
        "approval_settled",
      ];
      expect(audited.filter((kind) => kind !== "call_started")).toEqual([
        ...asked,
        "call_opened",
        "call_ended",
      ]);
      const starts = audited.filter((kind) => kind === "call_started").length;
      expect(starts).toBeLessThanOrEqual(1);
      expect(world.executions).toBeLessThanOrEqual(starts);
    }

    async function runWith(point: CrashPoint): Promise<string[]> {
      const calls: string[] = [];
      runs += 1;
      const world = new Deployment(harness, runs, { point, calls });
      await world.run();
      await expectOnce(world);
      return calls;
    }

    it("AL-34, AL-47: a turn and the decision that it waits for happen exactly once, wherever a process dies", async () => {
      const calls = await runWith({ call: 0, done: false, job: "lost" });
      const turn = ["append", "claim", "save", "begin", "deliver", "commit"];
      const question = ["leaseCards", "saveCards", "find", "decide"];
      expect(calls).toEqual(expect.arrayContaining([...turn, ...question]));
      for (const [at, call] of calls.entries()) {
        for (const point of pointsOf(at + 1, call)) {
          await expect(
            runWith(point),
            `dies at ${call}, ${JSON.stringify(point)}`,
          ).resolves.toContain("commit");
        }
      }
    });
  });
}
