import { readResultName } from "@larkline/session";
import { describe, expect, inject, it } from "vitest";
import { calling, eventsOf, redisWorld, resultsIn } from "./approval-world.fixture.ts";
import { checkEnds, repliedTo, survives } from "./crash.fixture.ts";
import { inbound, newWorld, policyOf, session, type World } from "./turn-world.fixture.ts";

describe.each([
  ["memory", (): World => newWorld()],
  ["Redis", (): World => redisWorld(inject("redisUrl"))],
])("with sessions in %s", { timeout: 120_000 }, (_where, makeWorld) => {
  it("AL-39: a crash anywhere in [plain, approval, plain, approval] leaves one question and one result per call", async () => {
    const policy = policyOf({ approvals: { learnAfter: 1 } });
    await survives({
      makeWorld,
      differences: (world) => {
        world.word = ({ kind, callId }) => (kind === "rule" ? undefined : callId === "c1-3" ? "reject" : "approve");
        return { backend: calling(["echo", "pay", "echo", "pay"]).backend, policy };
      },
      messages: [inbound("om_1", "please")],
      check: async (world) => {
        expect((await resultsIn(world)).map(([text]) => text)).toEqual([
          "c1-0",
          "c1-1",
          "c1-2",
          "User rejected this action.",
        ]);
        expect(world.ran.size).toBe(3);
        await checkEnds(world, [1]);
        expect(await repliedTo(world)).toEqual(["om_1"]);
        const events = await eventsOf(world);
        expect(events.filter(({ type }) => type === "permission_request")).toHaveLength(2);
        expect(events.filter(({ type }) => type === "permission_learn")).toHaveLength(1);
        // Nothing but the rule that was proposed waits for people, and that once.
        const pending = await world.approvals.pending(session);
        expect(pending.map(({ approval }) => [approval.kind, approval.callId])).toEqual([["rule", "c1-1"]]);
      },
    });
  });

  it("a crash anywhere starts a call with an unknown outcome once more, when a person says so, and not twice", async () => {
    await survives({
      makeWorld,
      differences: (world) => {
        world.word = () => "retry";
        world.outcomeOf = ({ attempt }) =>
          attempt === 1 ? { ok: false, error: "unknown", unknown: true } : { ok: true, result: "paid" };
        return { backend: calling(["echo"]).backend };
      },
      messages: [inbound("om_1", "please")],
      check: async (world) => {
        expect(await resultsIn(world)).toEqual([["paid", false]]);
        expect([...world.ran.keys()]).toEqual(["c1-0", "c1-0.2"]);
        await checkEnds(world, [1]);
      },
    });
  });

  it("a crash anywhere leaves a call of a built-in tool with one answer, beside those of runners", async () => {
    const wanted = { name: readResultName, arguments: { handle: "res_0123456789abcdef" } };
    await survives({
      makeWorld,
      differences: () => ({ backend: calling(["echo", wanted]).backend }),
      messages: [inbound("om_1", "please")],
      check: async (world) => {
        expect(await resultsIn(world)).toEqual([
          ["c1-0", false],
          [expect.stringContaining("no stored result"), true],
        ]);
        await checkEnds(world, [1]);
        expect(await repliedTo(world)).toEqual(["om_1"]);
      },
    });
  });
});
