import type { InboundMessage } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { argumentsHashOf, runnerKeyOf, verifyCall, type ToolJob } from "@larkline/protocol/runner";
import {
  builtInRunner,
  type CallAuthority,
  type ToolOutcome,
  readResultName,
} from "@larkline/protocol/tool";
import { blankTurn, type CallState, type TurnState } from "@larkline/protocol/turn";
import type { DispatchOptions } from "@larkline/store/queues";
import type { ApprovalStatus } from "@larkline/store";
import { keepResult } from "@larkline/store/runners";
import { describe, expect, it } from "vitest";
import { dispatchCalls } from "./tools.ts";
import { newWorld, servicesOf, signingKey } from "./turn-world.fixture.ts";

/** One person was asked about this call, and has approved it. */
function approved({ id, name, arguments: given }: CallState): ApprovalStatus {
  const approval: Approval = {
    v: 1,
    id: "a".repeat(32),
    kind: "call",
    session: "s",
    turnId: "s-1",
    callId: id,
    app: "cli_1",
    chatId: "oc_1",
    requester: { id: "ou_1" },
    tool: name,
    arguments: { ...(given as object) },
    argumentsHash: argumentsHashOf(JSON.stringify(given)),
    secrets: [],
    deciders: { requester: false, people: ["ou_2"], roles: [], fourEyes: true, count: 1 },
    reason: "",
    risk: "high",
    language: "en",
    target: { channel: "feishu", app: "cli_1", chatId: "oc_1", messageId: "m1", inThread: false },
    createdAtMs: 1,
    expiresAtMs: 1_000,
  };
  const decisions: ApprovalStatus["decisions"] = [
    { decision: "approve", by: { id: "ou_2" }, atMs: 500 },
  ];
  return { approval, state: "approved", decisions, settledAtMs: 600 };
}

function turnOf(fields: Partial<InboundMessage> = {}): TurnState {
  return {
    ...blankTurn({
      turnId: "s-1",
      startedAtMs: 0,
      message: {
        v: 1,
        id: "m1",
        app: "cli_1",
        tenant: "t1",
        session: "s",
        sender: { id: "ou_1", name: "Ann" },
        chatType: "group",
        parts: [{ type: "text", text: "hello" }],
        createdAtMs: 0,
        reply: {
          channel: "feishu",
          app: "cli_1",
          chatId: "oc_1",
          messageId: "m1",
          inThread: false,
        },
        ...fields,
      },
    }),
    steps: 1,
  };
}

function callOf(fields: Partial<CallState> = {}): CallState {
  const deadlineMs = Date.now() + 60_000;
  const shape = {
    name: "pay",
    arguments: { sum: 5 },
    state: "running",
    runner: "bank",
    effect: "once",
  } as const;
  return { id: "c1", ...shape, deadlineMs, ...fields };
}

async function dispatched(calls: CallState[], turn = turnOf(), world = newWorld()) {
  const handedOut: {
    runner: string;
    jobs: readonly ToolJob[];
    options: DispatchOptions | undefined;
  }[] = [];
  const answers: [string, ToolOutcome][] = [];
  world.queues = {
    dispatch: async (runner, jobs, options) => void handedOut.push({ runner, jobs, options }),
  };
  const services = servicesOf(world);
  services.store.deliver = async (_session, callId, outcome) => {
    answers.push([callId, outcome]);
    return { accepted: true };
  };
  await dispatchCalls(services, turn, calls);
  return { handedOut, answers };
}

describe("handing out calls", () => {
  it("vouches for no call whose authority was not found again", async () => {
    const objection =
      "permission_denied: the rule that allowed this call does not hold any more. It was not run.";
    const { handedOut, answers } = await dispatched([
      callOf({ authority: { by: "rule", id: "revoked" } }),
    ]);
    expect(handedOut).toEqual([]);
    expect(answers).toEqual([["c1", { ok: false, denied: true, error: objection }]]);
  });

  it("vouches towards the call's own runner, and no other, for who it acts for and what allows it", async () => {
    const authority: CallAuthority = { by: "approval", id: "a".repeat(32), people: ["ou_2"] };
    const call = callOf({ authority });
    const world = newWorld();
    world.approvals.find = async () => approved(call);
    const { handedOut } = await dispatched([call], turnOf(), world);
    expect(handedOut.map(({ runner }) => runner)).toEqual(["bank"]);
    const [job] = handedOut[0]?.jobs ?? [];
    const claims = verifyCall(runnerKeyOf(signingKey, "bank"), job?.envelope ?? "", Date.now());
    expect(claims).toEqual({
      ok: true,
      value: {
        v: 1,
        runner: "bank",
        tool: "pay",
        session: "s",
        turnId: "s-1",
        callId: "c1",
        attempt: 1,
        argumentsHash: argumentsHashOf(job?.arguments ?? ""),
        actor: { app: "cli_1", tenant: "t1", userId: "ou_1", userName: "Ann", chatId: "oc_1" },
        authority,
        expiresAtMs: call.deadlineMs,
      },
    });
    expect(verifyCall(runnerKeyOf(signingKey, "other"), job?.envelope ?? "", Date.now()).ok).toBe(
      false,
    );
  });

  it("is the policy's word where no person was asked", async () => {
    const [batch] = (await dispatched([callOf()])).handedOut;
    const claims = verifyCall(
      runnerKeyOf(signingKey, "bank"),
      batch?.jobs[0]?.envelope ?? "",
      Date.now(),
    );
    expect(claims).toMatchObject({ value: { authority: { by: "policy" } } });
  });

  it("says which attempt it is, and when it was handed out", async () => {
    const beforeMs = Date.now();
    const [batch] = (await dispatched([callOf({ attempt: 2 })])).handedOut;
    expect(batch?.jobs[0]).toMatchObject({ callId: "c1", attempt: 2 });
    expect(batch?.jobs[0]?.queuedAtMs).toBeGreaterThanOrEqual(beforeMs);
  });

  it("sends calls of limited tools to their own queues, and those of background turns behind the others", async () => {
    const calls = [callOf(), callOf({ id: "c2", name: "transfer", limited: true })];
    const { handedOut } = await dispatched(calls, turnOf({ background: true }));
    expect(handedOut).toMatchObject([
      { options: { background: true, limitedTools: new Set(["transfer"]) } },
    ]);
  });

  it("answers a call with more arguments than a job may hold, in place of blocking its turn", async () => {
    const { handedOut, answers } = await dispatched([
      callOf({ arguments: { text: "文".repeat(100_000) }, attempt: 2 }),
    ]);
    expect(handedOut).toEqual([]);
    expect(answers).toEqual([
      ["c1.2", { ok: false, error: expect.stringContaining("too large (300011 bytes") }],
    ]);
  });

  it("runs calls of built-in tools here, and answers them like any runner", async () => {
    const world = newWorld();
    const { handle } = await keepResult(world.resultStores, "s", "a page");
    const call = callOf({ name: readResultName, runner: builtInRunner, arguments: { handle } });
    const { handedOut, answers } = await dispatched([call], turnOf(), world);
    expect(handedOut).toEqual([]);
    expect(answers).toEqual([["c1", { ok: true, result: expect.stringMatching(/^a page\n/) }]]);
  });
});
