import { messageStop, toolCallDelta, type LlmBackend } from "@larkline/model";
import type { OperatorOrder, OrderResult } from "@larkline/store/operations";
import type { Approval } from "@larkline/protocol/approval";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { expect, it } from "vitest";
import { checkGrant } from "./approvals.ts";
import { applyOrder } from "./operator-orders.ts";
import {
  append,
  inbound,
  newWorld,
  outboxOf,
  policyOf,
  runWakes,
  servicesOf,
  session,
  settle,
  type Differences,
  type World,
} from "./turn-world.fixture.ts";

const paying: LlmBackend = {
  async *stream({ messages }): AsyncIterable<ModelChunk> {
    if (messages.at(-1)?.role === "tool") {
      yield { type: "text_delta", text: "done" };
      yield messageStop("end_turn");
      return;
    }
    yield toolCallDelta(0, { id: "c1", name: "pay", arguments: '{"n":1}' });
    yield messageStop("tool_use");
  },
};

function decidedBy(approvers: object): Differences {
  return {
    backend: paying,
    policy: policyOf({ permissions: [{ tools: ["pay"], do: "ask", approvers }] }),
  };
}

/** A world in which a call waits for people. */
async function asking(differences: Differences): Promise<{ world: World; approval: Approval }> {
  const world = newWorld();
  world.word = () => undefined;
  await append(world, inbound("om_1", "pay"));
  await runWakes(world, differences);
  const [status] = await world.approvals.pending(session);
  if (status === undefined) throw new Error("nothing waits");
  return { world, approval: status.approval };
}

async function say(
  world: World,
  { app, id, argumentsHash }: Approval,
  word: "approve" | "reject",
  {
    by = "console:Ann",
    ...changes
  }: Partial<Extract<OperatorOrder["act"], { do: "decide" }>> & { by?: string } = {},
): Promise<OrderResult> {
  const act = { do: "decide", app, approvalId: id, word, argumentsHash, ...changes } as const;
  return await applyOrder(servicesOf(world), { v: 1, by, act });
}

it("a call runs once when an operator approves it where the policy names operators, with the claimed name on record", async () => {
  const differences = decidedBy({ operators: true });
  const { world, approval } = await asking(differences);
  expect(approval.deciders).toMatchObject({ requester: false, operators: true });
  expect(await say(world, approval, "approve")).toEqual({ result: "done" });
  expect(await say(world, approval, "approve", { by: "console:Bo" })).toEqual({
    result: "nothing",
  });
  await settle(world, differences);
  expect([...world.ran.values()]).toEqual([1]);
  expect((await outboxOf(world)).map(({ text }) => text)).toEqual(["done"]);
  const records = [];
  for await (const { kind, userId, result } of world.audit.export(0, Number.MAX_SAFE_INTEGER)) {
    if (kind === "approval_decided") records.push([userId, result]);
  }
  expect(records).toEqual([["console:Ann", "approve"]]);
});

it("a call that an operator rejects is not run", async () => {
  const differences = decidedBy({ operators: true, requester: true });
  const { world, approval } = await asking(differences);
  expect(await say(world, approval, "reject")).toEqual({ result: "done" });
  await settle(world, differences);
  expect([...world.ran.values()]).toEqual([]);
});

it("operators decide nothing that the policy does not give them, and nothing that they were not shown", async () => {
  const { world, approval } = await asking(decidedBy({ people: ["ou_boss"] }));
  expect(await say(world, approval, "approve")).toEqual({ result: "not_possible" });
  expect(await say(world, approval, "reject")).toEqual({ result: "not_possible" });
  expect(await say(world, approval, "approve", { approvalId: "f".repeat(32) })).toEqual({
    result: "nothing",
  });
  const other = await asking(decidedBy({ operators: true }));
  const shown = { argumentsHash: "of other arguments" };
  expect(await say(other.world, other.approval, "approve", shown)).toEqual({
    result: "not_possible",
  });
  expect(await other.world.approvals.pending(session)).toHaveLength(1);
});

it("two operators are one person where two people have to approve", async () => {
  const differences = decidedBy({ operators: true, people: ["ou_boss"], count: 2 });
  const { world, approval } = await asking(differences);
  expect(await say(world, approval, "approve")).toEqual({ result: "done" });
  expect(await say(world, approval, "approve", { by: "console:Bo" })).toEqual({
    result: "nothing",
  });
  expect(await world.approvals.pending(session)).toHaveLength(1);
  const decided = await world.approvals.decide(session, approval.id, {
    decision: "approve",
    by: { id: "ou_boss" },
  });
  if (decided.result !== "settled") throw new Error(decided.result);
  world.wakes.push(decided.wakeGen ?? 0);
  await settle(world, differences);
  expect([...world.ran.values()]).toEqual([1]);
});

it("a word that only claims to come from an operator is not believed", async () => {
  for (const [approvers, via] of [
    [{ operators: true }, {}],
    [{ people: ["ou_boss"] }, { via: "console" as const }],
  ] as const) {
    const differences = decidedBy(approvers);
    const { world, approval } = await asking(differences);
    const decided = await world.approvals.decide(session, approval.id, {
      decision: "approve",
      by: { id: "console", name: "Ann" },
      ...via,
    });
    if (decided.result !== "settled") throw new Error(decided.result);
    expect((await checkGrant(servicesOf(world, differences), decided.status)).state).toBe(
      "cancelled",
    );
  }
});
