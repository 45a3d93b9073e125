import { replaced } from "@larkline/store/testing";
import { describe, expect, it } from "vitest";
import { calling, resultsIn } from "./approval-world.fixture.ts";
import type { LivingRunner } from "@larkline/store/runners";
import { systemClock } from "@larkline/protocol/clock";
import { silentTelemetry, type Telemetry } from "@larkline/process/telemetry";
import { startSweeper, sweepDeadlines, sweepOwn } from "./background-jobs.ts";
import {
  append,
  inbound,
  newWorld,
  outboxOf,
  runWakes,
  session,
  settle,
  type World,
  healedIn,
  servicesOf,
} from "./turn-world.fixture.ts";

/** Leaves a call that has no answer when its deadline passes. */
async function unanswered(
  world: World,
  tool: string,
  { started }: { started: boolean },
): Promise<void> {
  await append(world, inbound("om_1", "please"));
  await runWakes(world, { backend: calling([tool]).backend });
  const [job] = world.dispatched.splice(0);
  if (job !== undefined && started) await world.store.begin(session, job.callId, job.effect);
}

/** Calls that were reported to observers. */
const late: string[] = [];
const telemetry: Telemetry = {
  ...silentTelemetry,
  events: {
    ...silentTelemetry.events,
    emit: ({ eventName, attributes }) => {
      if (eventName === "turn.healed") {
        late.push(`${String(attributes?.turn)} ${String(attributes?.tool)}`);
      }
    },
  },
};

function livingRunner(runner: string): LivingRunner {
  return {
    runner,
    instance: "i",
    generation: "",
    tools: [],
    beganAtMs: 0,
    expiresAtMs: 0,
    isCurrent: true,
  };
}

async function sweep(world: World, living: readonly string[]): Promise<number> {
  const clock = { ...systemClock, now: () => systemClock.now() + 3_600_000 };
  const services = servicesOf(world, { services: { clock, telemetry } });
  services.runners.runners = async () => living.map(livingRunner);
  const before = healedIn(world, "deadline");
  await sweepDeadlines(services);
  return healedIn(world, "deadline") - before;
}

/** What the model reads. */
async function told(
  world: World,
  tool: string,
): Promise<[text: string, isError: boolean] | undefined> {
  await settle(world, { backend: calling([tool]).backend });
  return (await resultsIn(world))[0];
}

describe("a call past its deadline", () => {
  it("whose runner is gone was not run, and the model reads that no runner is there", async () => {
    const world = newWorld();
    await unanswered(world, "echo", { started: false });
    expect(await sweep(world, [])).toBe(1);
    expect(late.splice(0)).toEqual([`${session}-1 echo`]);
    expect(await told(world, "echo")).toEqual([
      "tool_not_found: the runner 'test' of this tool is not running, and the call was not answered in time. The call was not run.",
      true,
    ]);
  });

  it("that is answered at the last moment is not counted as healed", async () => {
    const world = newWorld();
    await unanswered(world, "echo", { started: true });
    const { store } = world;
    world.store = replaced(store, {
      dueDeadlines: async (...given) => {
        const due = await store.dueDeadlines(...given);
        for (const { callId } of due) {
          await store.deliver(session, callId, { ok: true, result: "just so" });
        }
        return due;
      },
    });
    expect(await sweep(world, [])).toBe(0);
    expect(await told(world, "echo")).toEqual(["just so", false]);
  });

  it("that waited in a queue for too long was not run", async () => {
    const world = newWorld();
    await unanswered(world, "echo", { started: false });
    await sweep(world, ["test"]);
    expect(await told(world, "echo")).toEqual([
      "tool_execution_error: timeout: no answer before the deadline. The call was not run.",
      true,
    ]);
  });

  it("that had started and must run once is a question to a person", async () => {
    const world = newWorld();
    await unanswered(world, "echo", { started: true });
    await sweep(world, []);
    await runWakes(world, { backend: calling(["echo"]).backend });
    const [asked] = await world.approvals.pending(session);
    expect(asked?.approval).toMatchObject({ kind: "outcome", tool: "echo", callId: "c1-0" });
    world.word = () => "done";
    expect(await told(world, "echo")).toEqual([expect.stringContaining("it took effect"), false]);
    expect(world.ran.size).toBe(0);
  });

  it("that was not started because its runner is away is handed out anew, and only that attempt can start", async () => {
    const world = newWorld();
    await unanswered(world, "echo", { started: false });
    expect(await sweep(world, [])).toBe(1);
    // When its deadline is over.
    const later = Date.now() + 300_000;
    const clock = { ...systemClock, now: () => later };
    const away = { services: { clock }, presence: { awayForMs: 500_000 } };
    await runWakes(world, { backend: calling(["echo"]).backend, ...away });
    const [job] = world.dispatched;
    expect(job).toMatchObject({ callId: "c1-0", attempt: 2 });
    expect(job?.deadlineMs).toBeGreaterThan(later + 500_000);
    expect(await world.store.begin(session, "c1-0", "once")).toBe("closed");
    expect(await told(world, "echo")).toEqual(["c1-0.2", false]);
    expect([...world.ran]).toEqual([["c1-0.2", 1]]);
  });

  it("whose job was lost with the last writes of Redis is handed out again at the next sweep, under the same id", async () => {
    const world = newWorld();
    await unanswered(world, "echo", { started: true });
    expect(world.dispatched).toEqual([]);
    let returned = (): void => expect.unreachable("the sweeper waits for no return of Redis");
    const services = servicesOf(world, { services: { telemetry } });
    Object.assign(services.presence, {
      onReturned: (listener: () => void) => (returned = listener),
    });
    const steps: (() => void)[] = [];
    const after = (_ms: number, step: () => void) => {
      steps.push(step);
      return () => undefined;
    };
    const sweeper = startSweeper(
      { ...services, clock: { ...systemClock, after } },
      { holds: () => true },
    );
    returned();
    steps.shift()?.();
    await sweeper.close();
    await runWakes(world, { backend: calling(["echo"]).backend });
    expect(world.dispatched).toMatchObject([{ callId: "c1-0" }]);
    expect(world.dispatched[0]?.attempt ?? 1).toBe(1);
  });

  it("of a pure tool is a timeout, nothing else", async () => {
    const world = newWorld();
    await unanswered(world, "look", { started: false });
    await sweep(world, ["test"]);
    expect(await told(world, "look")).toEqual([
      "tool_execution_error: timeout: no answer before the deadline.",
      true,
    ]);
  });

  it("is answered although another one cannot be: a newer version may have written its turn", async () => {
    const world = newWorld();
    await unanswered(world, "echo", { started: false });
    const { summary, dueDeadlines } = world.store;
    world.store.summary = async (of) => {
      if (of === "other") throw new Error("stored turn is not readable");
      return await summary.call(world.store, of);
    };
    world.store.dueDeadlines = async (nowMs, limit) => {
      return [
        { session: "other", callId: "c1" },
        ...(await dueDeadlines.call(world.store, nowMs, limit)),
      ];
    };
    await expect(sweep(world, ["test"])).rejects.toThrow("not readable");
    expect(await told(world, "echo")).toEqual([
      "tool_execution_error: timeout: no answer before the deadline. The call was not run.",
      true,
    ]);
  });

  it("is answered once", async () => {
    const world = newWorld();
    await unanswered(world, "echo", { started: false });
    expect(await sweep(world, [])).toBe(1);
    expect(await sweep(world, [])).toBe(0);
  });
});

describe("a session that is running, as Redis has it", () => {
  /** The worker of this world claims it, and Redis loses what came after that. */
  async function claimed(owner: string): Promise<World> {
    const world = newWorld();
    await append(world, inbound("om_1", "hello"));
    expect(await world.store.claim(session, world.wakes.shift() ?? 0, owner)).toBeDefined();
    return world;
  }

  async function sweepLater(world: World, isHeld: boolean): Promise<void> {
    const clock = { ...systemClock, now: () => systemClock.now() + 1_000 };
    await sweepOwn(servicesOf(world, { services: { clock } }), { holds: () => isHeld });
  }

  it("is taken up by its worker when that does not run it: nothing else would ever wake it", async () => {
    const world = await claimed("worker-1");
    await sweepLater(world, false);
    expect(await world.store.summary(session)).toMatchObject({ state: "queued" });
    await settle(world);
    expect(await outboxOf(world)).toMatchObject([{ text: "answer to hello" }]);
    expect(healedIn(world, "crash")).toBe(1);
  });

  it("is left alone while a run of it is under way, and when it is another worker's", async () => {
    const world = await claimed("worker-1");
    await sweepLater(world, true);
    expect(await world.store.summary(session)).toMatchObject({ state: "running" });
    const other = await claimed("worker-2");
    await sweepLater(other, false);
    expect(await other.store.summary(session)).toMatchObject({ state: "running" });
  });
});
