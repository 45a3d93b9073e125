import { messageStop } from "@larkline/model";
import { turnIdOf } from "@larkline/protocol";
import { systemClock } from "@larkline/protocol/clock";
import { textOf } from "@larkline/protocol/content";
import { readResultName } from "@larkline/protocol/tool";
import type { SessionStore } from "@larkline/store";
import { describe, expect, it, vi } from "vitest";
import { calling, eventsOf, resultsIn, typesOf } from "./approval-world.fixture.ts";
import { checkEnds } from "./crash.fixture.ts";
import { TurnHolds, type HoldEnd } from "./running-turns.ts";
import {
  append,
  holding,
  inbound,
  newWorld,
  onHandOut,
  outboxOf,
  runnerOf,
  runTools,
  runWakes,
  session,
  tell,
  type Differences,
  type World,
} from "./turn-world.fixture.ts";

const never = new AbortController().signal;

/** Runs the next wake-up, and nothing after it. */
async function runOne(
  world: World,
  differences: Differences,
  { signal = never, alone = false }: { signal?: AbortSignal; alone?: boolean } = {},
) {
  return await runnerOf(world, differences)(
    { v: 1, session, gen: world.wakes.shift() ?? 0 },
    signal,
    alone,
  );
}

/** The world with a store whose `name` does something else. */
function replacing<Name extends "claim" | "save">(
  world: World,
  name: Name,
  does: (real: SessionStore[Name]) => SessionStore[Name],
): void {
  const { store } = world;
  world.store = new Proxy(store, {
    get: (target, asked) => {
      const real: unknown = Reflect.get(target, asked);
      if (asked === name) return does(store[name].bind(store) as SessionStore[Name]);
      return typeof real === "function" ? real.bind(target) : real;
    },
  });
}

async function answered(
  world: World,
  jobs: readonly { turnId: string; callId: string }[],
): Promise<void> {
  for (const { callId } of jobs) {
    world.dispatched.splice(0);
    await tell(world, await world.store.deliver(session, callId, { ok: true, result: callId }));
  }
}

/** What keeps a turn from keeping its slot. */
interface Unheld {
  tool?: string;
  alone?: boolean;
  before?: (world: World) => void;
}

async function textsOf(world: World): Promise<string[]> {
  return (await outboxOf(world)).map(({ text }) => text);
}

describe("a turn that may keep its slot", () => {
  it("continues under the same claim when its calls are answered at once, step after step", async () => {
    const world = holding(newWorld(), "at once");
    const claims: number[] = [];
    replacing(world, "claim", (claim) => async (key, gen, ...rest) => {
      claims.push(gen);
      return await claim(key, gen, ...rest);
    });
    const { backend } = calling(["echo", "look"], ["look"], ["echo"]);
    await append(world, inbound("om_1", "please"));
    expect(await runOne(world, { backend })).toBe("done");
    expect(claims).toEqual([1]);
    expect(world.wakes).toEqual([]);
    expect(world.held).toEqual(["answered", "answered", "answered"]);
    expect(await textsOf(world)).toEqual(["c1-0|c1-1|c2-0|c3-0"]);
    expect(await world.store.summary(session)).toMatchObject({ state: "idle", gen: 1 });
    await checkEnds(world, [1]);
    const results = (await eventsOf(world)).filter(({ type }) => type === "tool_result");
    expect(results).toHaveLength(4);
  });

  it("is suspended when the time is over, and an outcome wakes it", async () => {
    const world = holding(newWorld(), "late");
    const { backend } = calling(["echo"]);
    await append(world, inbound("om_1", "please"));
    await runOne(world, { backend });
    expect(world.held).toEqual(["late"]);
    expect(await world.store.summary(session)).toMatchObject({ state: "suspended" });
    await runTools(world);
    expect(world.wakes).toEqual([2]);
    await runWakes(world, { backend });
    expect(await textsOf(world)).toEqual(["c1-0"]);
  });

  it("finds an outcome whose news was lost when the time is over, and continues", async () => {
    const world = holding(newWorld(), "late");
    onHandOut(world, async ([job]) => {
      await world.store.deliver(session, job?.callId ?? "", { ok: true, result: "found" });
    });
    // The time is over before the call is answered, and asked for after that.
    replacing(world, "save", (save) => async (request) => {
      if (request.mode === "suspend") {
        await vi.waitUntil(async () => !(await isOpen(world)), { timeout: 60_000, interval: 1 });
      }
      return await save(request);
    });
    await append(world, inbound("om_1", "please"));
    await runOne(world, { backend: calling(["echo"]).backend });
    expect(world.held).toEqual(["late"]);
    expect(world.wakes).toEqual([]);
    expect(await textsOf(world)).toEqual(["found"]);
  });

  it.each(["before", "after"] as const)(
    "loses no outcome that comes just %s it is suspended",
    async (when) => {
      const world = holding(newWorld(), "late");
      const deliver = async () =>
        await tell(world, await world.store.deliver(session, "c1-0", { ok: true, result: 1 }));
      replacing(world, "save", (save) => async (request) => {
        if (request.mode !== "suspend") return await save(request);
        if (when === "before") await deliver();
        const saved = await save(request);
        if (when === "after") await deliver();
        return saved;
      });
      const { backend } = calling(["echo"]);
      await append(world, inbound("om_1", "please"));
      await runOne(world, { backend });
      expect(world.wakes).toEqual(when === "before" ? [] : [2]);
      await runWakes(world, { backend });
      expect(await textsOf(world)).toEqual(["1"]);
      await checkEnds(world, [1]);
    },
  );

  it("asks the gate when another worker has carried over an outcome before", async () => {
    const world = holding(newWorld(), "at once");
    onHandOut(world, async ([first, second]) => {
      await world.store.deliver(session, first?.callId ?? "", { ok: true, result: "elsewhere" });
      await answered(world, second === undefined ? [] : [second]);
    });
    await append(world, inbound("om_1", "please"));
    await runOne(world, { backend: calling(["echo", "look"]).backend });
    expect(world.held).toEqual(["missed"]);
    expect(await textsOf(world)).toEqual(["elsewhere|c1-1"]);
  });

  it("shows what is answered at once, and is suspended for the calls that take longer", async () => {
    const world = holding(newWorld(), "at once");
    const isLate = Promise.withResolvers<void>();
    const after = (_ms: number, work: () => void) => {
      void isLate.promise.then(work);
      return () => undefined; // an end after another one changes nothing
    };
    const onEnd = (end: HoldEnd) => void world.held.push(end);
    world.holds = new TurnHolds({
      clock: { ...systemClock, after },
      holdMs: 60_000,
      slots: 2,
      onEnd,
    });
    onHandOut(world, async ([first]) => await answered(world, first === undefined ? [] : [first]));
    const { backend } = calling(["echo", "look"]);
    await append(world, inbound("om_1", "please"));
    const run = runOne(world, { backend });
    await expect.poll(async () => typesOf(await eventsOf(world))).toContain("tool_result");
    isLate.resolve();
    await run;
    expect(world.held).toEqual(["late"]);
    const { state, turn } = await world.store.summary(session);
    expect([state, turn?.calls.map((call) => call.state)]).toEqual([
      "suspended",
      ["done", "running"],
    ]);
    expect((await eventsOf(world)).filter(({ type }) => type === "tool_result")).toHaveLength(1);
    await tell(world, await world.store.deliver(session, "c1-1", { ok: true, result: "slow" }));
    await runWakes(world, { backend });
    expect(await textsOf(world)).toEqual(["c1-0|slow"]);
  });

  it.each([true, false])(
    "ends at once when it is cancelled (announced: %s)",
    async (isAnnounced) => {
      const world = holding(newWorld(), "at once");
      const turnId = turnIdOf(session, 1);
      onHandOut(world, async (jobs) => {
        await world.store.cancel(session, { turnId, reason: "stopped" });
        if (isAnnounced) world.running.cancel(session, turnId);
        // The turn finds a cancel that was not announced when it gets the outcome, and asks no model any more.
        else await answered(world, jobs);
      });
      const { backend, requests } = calling(["echo"]);
      await append(world, inbound("om_1", "please"));
      await runOne(world, { backend });
      // A worker also looks for cancels now and then.
      expect(world.held).toEqual([
        isAnnounced ? "stopped" : expect.stringMatching(/^(missed|stopped)$/),
      ]);
      expect(requests).toHaveLength(1);
      expect((await textsOf(world))[0]).toContain("Stopped.");
      await checkEnds(world, [1]);
      expect(world.stopped).toEqual([{ runner: "test", session, turnId }]);
    },
  );

  it("is suspended when its process stops, and gets the outcome elsewhere", async () => {
    const world = holding(newWorld(), "at once");
    const shutdown = new AbortController();
    onHandOut(world, async () => await Promise.resolve(shutdown.abort("shutdown")));
    const { backend } = calling(["echo"]);
    await append(world, inbound("om_1", "please"));
    expect(await runOne(world, { backend }, { signal: shutdown.signal })).toBe("done");
    expect(world.held).toEqual(["stopped"]);
    expect(await world.store.summary(session)).toMatchObject({ state: "suspended" });
    await runTools(world);
    await runWakes(world, { backend });
    expect(await textsOf(world)).toEqual(["c1-0"]);
  });

  it("gives way to a job that takes the last slot", async () => {
    const world = holding(newWorld(), "at once");
    onHandOut(world, async () => await Promise.resolve(world.holds.jobBegins()));
    await append(world, inbound("om_1", "please"));
    await runOne(world, { backend: calling(["echo"]).backend });
    expect(world.held).toEqual(["crowded"]);
    expect(await world.store.summary(session)).toMatchObject({ state: "suspended" });
  });

  it.each([
    ["has to be alone", { alone: true }],
    ["waits for people", { tool: "pay" }],
    ["has no free slot beside it", { before: (world: World) => world.holds.jobBegins() }],
    [
      "runs while another one has to be alone",
      { before: (world: World) => world.holds.makeRoom() },
    ],
  ])("keeps no slot when it %s", async (_what, how: Unheld) => {
    const { tool = "look", alone = false, before } = how;
    const world = holding(newWorld(), "late");
    before?.(world);
    await append(world, inbound("om_1", "please"));
    await runOne(world, { backend: calling(["echo", tool]).backend }, { alone });
    expect(world.held).toEqual([]);
    expect(await world.store.summary(session)).toMatchObject({ state: "suspended" });
  });

  it("takes in the messages that came while it waited, as after a wake-up", async () => {
    const world = holding(newWorld(), "at once");
    onHandOut(world, async (jobs) => {
      await append(world, inbound("om_2", "and this"));
      await answered(world, jobs);
    });
    const { backend, requests } = calling(["echo"]);
    await append(world, inbound("om_1", "please"));
    await runOne(world, { backend, agent: { busy: "steer" } });
    expect(requests[1]?.messages.map(textOf)).toContain("and this");
    await checkEnds(world, [1, 2]);
  });

  it("fails as without a slot when its calls cannot be handed out: it is suspended first", async () => {
    const world = holding(newWorld(), "at once");
    world.queues = { dispatch: async () => await Promise.reject(new Error("no queue")) };
    await append(world, inbound("om_1", "please"));
    await expect(runOne(world, { backend: calling(["echo"]).backend })).rejects.toThrow("no queue");
    expect(world.held).toEqual(["dropped"]);
    expect(await world.store.summary(session)).toMatchObject({ state: "suspended" });
  });

  it("writes nothing more when its session was reset meanwhile", async () => {
    const world = holding(newWorld(), "late");
    replacing(world, "save", (save) => async (request) => {
      if (request.mode === "suspend") {
        await world.store.reset(session, { by: "op", replyOf: async () => undefined });
      }
      return await save(request);
    });
    await append(world, inbound("om_1", "please"));
    await runOne(world, { backend: calling(["echo"]).backend });
    expect((await world.store.history(session)).map(textOf)).toEqual(["please"]);
    expect(await world.store.summary(session)).toMatchObject({ state: "idle" });
    expect(world.sent).toEqual([]);
  });

  it("is run again by another worker when its own dies meanwhile, which counts as its death", async () => {
    const world = holding(newWorld(), "at once");
    onHandOut(world, async () => {});
    const { backend } = calling(["echo"]);
    await append(world, inbound("om_1", "please"));
    const stuck = runOne(world, { backend });
    await vi.waitUntil(() => world.dispatched.length === 1, { timeout: 60_000 });
    expect(await world.store.summary(session)).toMatchObject({ state: "running" });
    // What the dead one has done is all that is known: its calls are handed out once more, and it is fenced.
    const gen = await world.store.heal(session, 1);
    const claim = await world.store.claim(session, gen ?? 0, "worker-2", {
      fateOf: async () => "died",
    });
    expect(claim).toMatchObject({
      failures: {},
      deaths: { together: 1 },
      turn: { calls: [{ state: "running" }] },
    });
    await world.store.handOff(session, claim?.epoch ?? "");
    const outcome = await world.store.deliver(session, "c1-0", { ok: true, result: "kept" });
    world.holds.delivered(session, outcome);
    world.holds.makeRoom();
    await stuck;
    world.wakes.push(gen ?? 0);
    await runWakes(world, { backend });
    expect(await textsOf(world)).toEqual(["kept"]);
    await checkEnds(world, [1]);
  });

  it("waits for the answer of a built-in tool like for any other", async () => {
    const world = holding(newWorld(), "at once");
    const wanted = { name: readResultName, arguments: { handle: "res_0123456789abcdef" } };
    await append(world, inbound("om_1", "please"));
    await runOne(world, { backend: calling([wanted, "echo"]).backend });
    expect(world.held).toEqual(["answered"]);
    expect(await resultsIn(world)).toEqual([
      [expect.stringContaining("no stored result"), true],
      ["c1-1", false],
    ]);
  });
});

async function isOpen({ store }: World): Promise<boolean> {
  return (await store.begin(session, "c1-0", "pure")) !== "closed";
}

describe("holds", () => {
  function turnIn(key: string): Parameters<TurnHolds["open"]>[0] {
    const message = inbound("om_1", "please", { session: key });
    return { message, calls: [{ id: "c1", name: "echo", arguments: {}, state: "running" }] };
  }

  function holds(slots: number) {
    const ends: HoldEnd[] = [];
    const all = new TurnHolds({
      clock: systemClock,
      holdMs: 60_000,
      slots,
      onEnd: (end) => ends.push(end),
    });
    return { all, ends };
  }

  it("give way one by one, the oldest first", async () => {
    const { all, ends } = holds(3);
    all.jobBegins();
    const first = all.open(turnIn("a"), never);
    all.jobBegins();
    const second = all.open(turnIn("b"), never);
    all.jobBegins();
    expect(await first?.next()).toBeUndefined();
    expect(ends).toEqual(["crowded"]);
    expect(all.open(turnIn("c"), never)).toBeUndefined();
    all.jobEnds();
    all.jobBegins();
    expect(await second?.next()).toBeUndefined();
    expect(ends).toEqual(["crowded", "crowded"]);
  });

  it("begin again when a job that had to be alone has had its way", () => {
    const { all } = holds(3);
    all.jobBegins();
    all.makeRoom();
    expect(all.open(turnIn("a"), never)).toBeUndefined();
    all.jobEnds();
    all.jobBegins();
    const hold = all.open(turnIn("a"), never);
    expect(hold).toBeDefined();
    hold?.end("stopped");
  });

  it("believe nothing that came when their time was over, even if the process stood still meanwhile", async () => {
    const all = new TurnHolds({ clock: systemClock, holdMs: 5, slots: 2, onEnd: () => {} });
    const hold = all.open(turnIn("a"), never);
    const untilMs = performance.now() + 10;
    while (performance.now() < untilMs) messageStop("end_turn"); // no timer fires
    all.delivered("a", {
      accepted: true,
      unread: {
        entry: { type: "outcome", callId: "c1", outcome: { ok: true, result: 1 } },
        count: 1,
      },
    });
    expect(await hold?.next()).toBeUndefined();
  });
});
