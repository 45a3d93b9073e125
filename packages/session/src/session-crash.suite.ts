import { isTerminal, textOf, turnIdOf, type EngineEvent } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import type { OutboxLease, SessionStore } from "./session-store.ts";
import {
  assistantText,
  commitOf,
  farFutureMs,
  messageOf,
  outboxRecord,
  saveAs,
  userText,
  openCall,
} from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
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

class Crash extends Error {}

/** Where a process dies: at which call to the store, and whether the store still did it. */
interface CrashPoint {
  call: number;
  done: boolean;
  /** What the queue does with the job of the dead process. */
  job: "retried" | "lost";
}

/** The store as a process sees it that dies once, at the given call. */
function crashing(store: SessionStore, point: CrashPoint, calls: string[]): SessionStore {
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

/** The gate's protocol in small: one message, one `once` call, one reply. */
class Deployment {
  readonly sent: string[] = [];
  executions = 0;
  readonly #store: SessionStore;
  readonly #harness: SessionStoreHarness;
  readonly #job: CrashPoint["job"];
  readonly #wakeups = new Set<number>();
  readonly #calls = new Set<string>();
  #isAcknowledged = false;

  constructor(store: SessionStore, harness: SessionStoreHarness, job: CrashPoint["job"]) {
    this.#store = store;
    this.#harness = harness;
    this.#job = job;
  }

  /** Goes on, after crashes too, until nothing is left to do. */
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
    for (const gen of this.#wakeups) return await this.#guarded(this.#wakeups, gen, () => this.#work(gen));
    for (const callId of this.#calls) return await this.#guarded(this.#calls, callId, () => this.#runTool(callId));
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
    this.#wake((await this.#store.append(messageOf(session, "om_1"))).wakeGen);
    this.#isAcknowledged = true;
    return true;
  }

  #wake(gen: number | undefined): void {
    if (gen !== undefined) this.#wakeups.add(gen);
  }

  async #work(gen: number): Promise<void> {
    const claim = await this.#store.claim(session, gen, "worker");
    if (!claim?.head) return;
    const [outcome] = claim.control;
    if (!outcome) {
      const history = claim.turn ? [] : [userText("question")];
      const open = [openCall("c1", farFutureMs - 1)];
      const saved = await saveAs(this.#store, claim, { mode: "suspend", history, open });
      if (saved.state === "suspended") this.#calls.add("c1");
      if (saved.state === "running") this.#wakeups.add(gen);
      return;
    }
    const committed = await commitOf(this.#store, claim, {
      consumed: 1,
      history: [userText("result"), assistantText("answer")],
      events: [{ runId: turnIdOf(session, claim.head.seq), event: endOfRun }],
      outbox: outboxRecord(session, "r1"),
    });
    if ("deliver" in committed) await this.#send(committed.deliver);
  }

  async #send(lease: OutboxLease | undefined): Promise<void> {
    if (!lease) return;
    this.sent.push(lease.record.uuid);
    await this.#send(await this.#store.ackOutbox(session, lease.token));
  }

  async #runTool(callId: string): Promise<void> {
    const begun = await this.#store.begin(session, callId, "once");
    if (begun === "run") this.executions += 1;
    const { wakeGen } = await this.#store.deliver(session, callId, { ok: true, result: begun });
    this.#wake(wakeGen);
  }

  /** Returns whether there was anything to do. */
  async #sweep(): Promise<boolean> {
    const { state } = await this.#harness.store.summary(session);
    for (const { gen } of await this.#store.stale(farFutureMs, 10)) this.#wake(await this.#store.heal(session, gen));
    for (const { callId } of await this.#store.dueDeadlines(farFutureMs, 10)) {
      this.#wake((await this.#store.deliver(session, callId, { ok: false, error: "timeout" })).wakeGen);
    }
    const unsent = await this.#store.dueOutboxes(farFutureMs, 10);
    if (unsent.length > 0) {
      await this.#harness.advance(this.#harness.leaseMs + 1);
      await this.#send(await this.#store.leaseOutbox(session));
    }
    return state !== "idle" || unsent.length > 0;
  }
}

/** One turn with a tool call, with a crash at every call to the store. */
export function describeCrashPoints(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: crash points`, () => {
    async function runWith(point: CrashPoint): Promise<string[]> {
      const harness = await makeHarness({ shortLived: true });
      try {
        const calls: string[] = [];
        const world = new Deployment(crashing(harness.store, point, calls), harness, point.job);
        await world.run();
        const { store, events } = harness;
        const history = (await store.history(session)).map(textOf);
        expect(history).toEqual(["question", "result", "answer"]);
        expect(await store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
        expect(world.executions).toBeLessThanOrEqual(1);
        // Sent at least once, always under the same key, by which the platform drops repeats.
        expect(new Set(world.sent)).toEqual(new Set(["uuid-r1"]));
        const records = await events.read(session, 0, 100);
        expect(records.filter(({ event }) => isTerminal(event))).toHaveLength(1);
        expect(await store.dueDeadlines(farFutureMs, 10)).toEqual([]);
        return calls;
      } finally {
        await harness.close();
      }
    }

    it("AL-47: a turn happens exactly once, wherever a process dies", async () => {
      const calls = await runWith({ call: 0, done: false, job: "lost" });
      expect(calls).toEqual(expect.arrayContaining(["append", "claim", "save", "begin", "deliver", "commit"]));
      for (let call = 1; call <= calls.length; call += 1) {
        for (const done of [false, true]) {
          for (const job of ["lost", "retried"] as const) {
            await expect(
              runWith({ call, done, job }),
              `dies at ${calls[call - 1]}, done ${done}, job ${job}`,
            ).resolves.toContain("commit");
          }
        }
      }
    });
  });
}
