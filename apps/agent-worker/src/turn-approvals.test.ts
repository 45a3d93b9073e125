import { FeishuError } from "@larkline/feishu";
import { systemClock } from "@larkline/protocol/clock";
import { describe, expect, it } from "vitest";
import { calling, eventsOf, resultsIn } from "./approval-world.fixture.ts";
import {
  append,
  askPeople,
  inbound,
  newWorld,
  policyOf,
  runnerOf,
  runTools,
  runWakes,
  session,
  settle,
  type World,
} from "./turn-world.fixture.ts";

async function approvePayments(world: World, count: number, policy = policyOf()): Promise<void> {
  world.word = ({ kind }) => (kind === "rule" ? undefined : "approve");
  for (let number = 1; number <= count; number += 1) {
    await append(world, inbound(`om_${number}`, "please"));
    await settle(world, { backend: calling(["pay"]).backend, policy });
  }
}

async function proposalsIn(world: World): Promise<unknown[]> {
  return (await eventsOf(world)).filter(({ type }) => type === "permission_learn");
}

it("a remembered decision holds for the next call, also when the process that took it died before it added the rule", async () => {
  const world = newWorld();
  const { decide } = world.approvals;
  let decided = 0;
  world.approvals.decide = async (where, id, decision) => {
    decided += 1;
    return await decide.call(world.approvals, where, id, { ...decision, remember: true });
  };
  await approvePayments(world, 2);
  expect(decided).toBe(1);
  expect(world.ran.size).toBe(2);
  expect(await world.rules.inForce("cli_app", "oc_1")).toHaveLength(1);
});

describe("approvals of one kind again and again", () => {
  it("propose a rule, as an event and as a question with a card", async () => {
    const world = newWorld();
    await approvePayments(world, 2);
    expect(await proposalsIn(world)).toEqual([]);
    await approvePayments(world, 3);
    expect(await proposalsIn(world)).toMatchObject([{ rules: [{ ruleString: "pay(*)" }] }]);
    const [asked, ...more] = await world.approvals.pending(session);
    expect(more).toEqual([]);
    expect(asked?.approval).toMatchObject({
      kind: "rule",
      tool: "pay",
      remember: { tool: "pay", pattern: "*" },
    });
    expect(world.carded).toContain(asked?.approval.id);
  });

  it("ask no more once the rule is approved, also before the worker that looks after its cards has written it", async () => {
    const world = newWorld();
    await approvePayments(world, 3);
    const [asked] = await world.approvals.pending(session);
    const { id, tool } = asked?.approval ?? expect.fail("a rule was proposed");
    await world.approvals.decide(session, id, { decision: "approve", by: { id: "ou_1" } });
    expect(await world.rules.inForce("cli_app", "oc_1")).toEqual([]);
    const questions = world.carded.length;
    await append(world, inbound("om_4", "please"));
    await settle(world, { backend: calling([tool]).backend });
    expect(world.ran.size).toBe(4);
    expect(world.carded).toHaveLength(questions);
  });

  it("propose nothing where such calls are to be allowed already, or policy remembers nothing", async () => {
    const remembering = newWorld();
    const { decide } = remembering.approvals;
    // People press "always allow" each time.
    remembering.approvals.decide = async (where, id, decision) =>
      await decide.call(remembering.approvals, where, id, { ...decision, remember: true });
    await approvePayments(remembering, 3);
    expect(await proposalsIn(remembering)).toEqual([]);
    const strict = newWorld();
    await approvePayments(strict, 3, policyOf({ approvals: { remember: false } }));
    expect(await proposalsIn(strict)).toEqual([]);
    const never = newWorld();
    await approvePayments(never, 3, policyOf({ approvals: { learnAfter: 0 } }));
    expect(await proposalsIn(never)).toEqual([]);
  });

  it("that could not be counted keep nothing from running", async () => {
    const world = newWorld();
    world.rules.approvedAgain = async () => await Promise.reject(new Error("away"));
    await approvePayments(world, 3);
    expect(world.ran.size).toBe(3);
    expect(await proposalsIn(world)).toEqual([]);
  });
});

describe("an approval of a person whose user groups cannot be looked up for a while", () => {
  const policy = policyOf({
    roles: { finance: { groups: ["g_finance"] } },
    approvals: { approvers: { roles: ["finance"] } },
  });

  /** A platform whose first look-ups, or all, fail. */
  function failing(times: number): { asked: number; groupsOf: () => Promise<string[]> } {
    const groups = {
      asked: 0,
      groupsOf: async () => {
        groups.asked += 1;
        return groups.asked <= times
          ? await Promise.reject(new Error("the platform is away"))
          : ["g_finance"];
      },
    };
    return groups;
  }

  /** The question is asked and approved; the wake-up for it is `gen`. */
  async function approved(world: World, wanted: string[] = ["pay"]) {
    const { backend } = calling(wanted);
    await append(world, inbound("om_1", "please"));
    await runWakes(world, { backend, policy });
    await askPeople(world);
    return { backend, gen: world.wakes.shift() ?? expect.fail("nothing wakes the turn") };
  }

  it.each([1, 2, 3])("is not lost: its call runs once they can (%i failures)", async (failures) => {
    const world = newWorld();
    const { backend, gen } = await approved(world);
    const { groupsOf } = failing(failures);
    const run = runnerOf(world, { backend, policy, groupsOf });
    const results = [];
    for (let look = 0; look <= failures; look += 1) {
      results.push(await run({ v: 1, session, gen }, new AbortController().signal));
    }
    expect(results).toEqual([...Array.from({ length: failures }, () => "postpone"), "done"]);
    await settle(world, { backend, policy, groupsOf });
    expect(await resultsIn(world)).toEqual([["c1-0", false]]);
    expect(world.ran.size).toBe(1);
  });

  it("is not refused when they cannot be looked up again before the call is handed out, and others are", async () => {
    const world = newWorld();
    const { backend, gen } = await approved(world, ["pay", "look"]);
    await runTools(world);
    let asked = 0;
    const groupsOf = async (): Promise<string[]> => {
      asked += 1;
      return asked === 3 ? await Promise.reject(new Error("the platform is away")) : ["g_finance"];
    };
    const run = runnerOf(world, { backend, policy, groupsOf });
    expect(await run({ v: 1, session, gen }, new AbortController().signal)).toBe("postpone");
    await settle(world, { backend, policy, groupsOf });
    expect(await resultsIn(world)).toEqual([
      ["c1-0", false],
      ["c1-1", false],
    ]);
    expect(world.ran.size).toBe(2);
  });

  it("waits for ten minutes, and the model reads why", async () => {
    const world = newWorld();
    const { backend, gen } = await approved(world);
    const { groupsOf } = failing(Infinity);
    const clock = { ...systemClock, now: () => systemClock.now() + 11 * 60_000 };
    const run = runnerOf(world, { backend, policy, groupsOf, services: { clock } });
    expect(await run({ v: 1, session, gen }, new AbortController().signal)).toBe("done");
    expect(await resultsIn(world)).toEqual([
      [expect.stringContaining("could not be checked"), true],
    ]);
    expect(world.ran.size).toBe(0);
  });

  it("does not wait where the platform refuses to say: the model reads that it could not be checked", async () => {
    const world = newWorld();
    const { backend, gen } = await approved(world);
    const forbidden = {
      api: "contact.group.member_belong",
      kind: "forbidden",
      code: 99_991_672,
      httpStatus: 403,
    } as const;
    const groupsOf = async () => await Promise.reject(new FeishuError(forbidden));
    const run = runnerOf(world, { backend, policy, groupsOf });
    expect(await run({ v: 1, session, gen }, new AbortController().signal)).toBe("done");
    expect(await resultsIn(world)).toEqual([
      [expect.stringContaining("could not be checked"), true],
    ]);
    expect(world.ran.size).toBe(0);
  });

  it("can be cancelled meanwhile", async () => {
    const world = newWorld();
    const { backend, gen } = await approved(world);
    const { groupsOf } = failing(Infinity);
    const run = runnerOf(world, { backend, policy, groupsOf });
    expect(await run({ v: 1, session, gen }, new AbortController().signal)).toBe("postpone");
    await world.store.cancel(session, { reason: "stopped" });
    expect(await run({ v: 1, session, gen }, new AbortController().signal)).toBe("done");
    expect(await resultsIn(world)).toEqual([[expect.stringContaining("not run"), true]]);
    expect(await world.store.summary(session)).toMatchObject({ state: "idle" });
  });
});
