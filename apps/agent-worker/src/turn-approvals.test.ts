import { describe, expect, it } from "vitest";
import { calling, eventsOf } from "./approval-world.fixture.ts";
import { append, inbound, newWorld, policyOf, session, settle, type World } from "./turn-world.fixture.ts";

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
    expect(asked?.approval).toMatchObject({ kind: "rule", tool: "pay", remember: { tool: "pay", pattern: "*" } });
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
