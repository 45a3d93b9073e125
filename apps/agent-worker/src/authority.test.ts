import { FeishuError } from "@larkline/feishu";
import type { ControlEntry } from "@larkline/protocol";
import type { Approval, ApprovalDecision } from "@larkline/protocol/approval";
import { argumentsHashOf } from "@larkline/protocol/runner";
import type { CallAuthority, ToolOutcome } from "@larkline/protocol/tool";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import type { ApprovalStatus } from "@larkline/store";
import { describe, expect, it } from "vitest";
import { settledDecision, checkGrant, DecidersUnknownError, keepRule } from "./approvals.ts";
import { objectionTo } from "./call-policy.ts";
import { newWorld, policyOf, servicesOf } from "./turn-world.fixture.ts";

const id = "a".repeat(32);
const session = "cli_1.oc_1";
const roles = { finance: { people: ["ou_cfo"], groups: ["g_finance"] } };
const given = { sum: 5 };

function approvalOf(fields: Partial<Approval> = {}): Approval {
  return {
    v: 1,
    id,
    kind: "call",
    session,
    turnId: `${session}-1`,
    callId: "c1",
    app: "cli_1",
    chatId: "oc_1",
    requester: { id: "ou_ann" },
    tool: "pay",
    arguments: given,
    argumentsHash: argumentsHashOf(JSON.stringify(given)),
    secrets: [],
    deciders: {
      requester: false,
      people: ["ou_boss"],
      roles: ["finance"],
      fourEyes: true,
      count: 2,
    },
    reason: "",
    risk: "high",
    remember: { tool: "pay", pattern: "*" },
    language: "en",
    target: { channel: "feishu", app: "cli_1", chatId: "oc_1", messageId: "om_1", inThread: false },
    createdAtMs: 1,
    expiresAtMs: 1_000,
    ...fields,
  };
}

function said(person: string, fields: Partial<ApprovalDecision> = {}): ApprovalDecision {
  return { decision: "approve", by: { id: person }, atMs: 500, ...fields };
}

/** What a worker makes of a record that ingress, or a program with its Redis user, has written. */
function scene(
  status: ApprovalStatus,
  groupsOf = async (_app: string, openId: string) => groupsIn[openId] ?? [],
) {
  const world = newWorld();
  world.approvals.find = async () => status;
  const policy = { ...policyOf(), roles, rulesExpireMs: 1_000_000_000_000_000 };
  const services = servicesOf(world, { policy, groupsOf });
  // The bot of these approvals has another app id than that of the world.
  services.bots = new Map([["cli_1", services.bots.get("cli_app") ?? expect.fail()]]);
  return { services, rules: world.rules };
}

const groupsIn: Record<string, string[]> = { ou_clerk: ["g_finance"] };

function approved(...decisions: ApprovalDecision[]): ApprovalStatus {
  return { approval: approvalOf(), state: "approved", decisions, settledAtMs: 600 };
}

/** What ingress, or a program with its Redis user, tells of it. */
const told: Extract<ControlEntry, { type: "decision" }> = {
  type: "decision",
  approvalId: id,
  argumentsHash: "0",
  state: "approved",
  decisions: [],
};

describe("a decision that comes to a worker", () => {
  it.each<[string, ApprovalStatus, string]>([
    ["of the people who may", approved(said("ou_boss"), said("ou_cfo")), "approved"],
    ["of a member of a group that may", approved(said("ou_boss"), said("ou_clerk")), "approved"],
    ["of too few people", approved(said("ou_boss")), "cancelled"],
    ["of one person, twice", approved(said("ou_boss"), said("ou_boss")), "cancelled"],
    ["without a decision", approved(), "cancelled"],
    ["of a person who may not decide", approved(said("ou_boss"), said("ou_eve")), "cancelled"],
    ["of the requester, who needs others", approved(said("ou_boss"), said("ou_ann")), "cancelled"],
    ["after its time", approved(said("ou_boss"), said("ou_cfo", { atMs: 2_000 })), "cancelled"],
    [
      "by another word",
      approved(said("ou_boss"), said("ou_cfo", { decision: "reject" })),
      "cancelled",
    ],
    ["that grants nothing", { ...approved(), state: "rejected" }, "rejected"],
  ])("%s counts as %j", async (_what, status, state) => {
    const { services } = scene(status);
    const checked = await settledDecision(services, "cli_1", told);
    expect(checked?.entry).toMatchObject({ state, argumentsHash: status.approval.argumentsHash });
    if (state === "cancelled") expect(checked?.entry.decisions).toEqual([]);
  });

  it("is none while the approval's own record says that nothing is settled", async () => {
    const { services } = scene({ approval: approvalOf(), state: "pending", decisions: [] });
    expect(await settledDecision(services, "cli_1", told)).toBeUndefined();
  });

  it("is not known to count where groups that decide cannot be looked up, and could make the difference", async () => {
    const { services } = scene(approved(), async () => await Promise.reject(new Error("down")));
    await expect(checkGrant(services, approved(said("ou_boss"), said("ou_clerk")))).rejects.toThrow(
      DecidersUnknownError,
    );
    expect(
      (await checkGrant(services, approved(said("ou_boss"), said("ou_clerk"), said("ou_cfo"))))
        .state,
    ).toBe("approved");
    expect((await checkGrant(services, approved(said("ou_clerk")))).state).toBe("cancelled");
  });

  it("leaves no rule behind where the platform refuses to say who may", async () => {
    const refusal = new FeishuError({
      api: "groups",
      kind: "bad_request",
      code: 1,
      httpStatus: 400,
    });
    const { services, rules } = scene(approved(), async () => await Promise.reject(refusal));
    const status = approved(
      said("ou_boss", { remember: true }),
      said("ou_clerk", { remember: true }),
    );
    await keepRule(services, status);
    expect(await rules.list("cli_1")).toEqual([]);
    const away = scene(approved(), async () => await Promise.reject(new Error("down")));
    await expect(keepRule(away.services, status)).rejects.toThrow(DecidersUnknownError);
  });

  it("leaves a rule behind only where it holds", async () => {
    const [boss, eve, cfo] = ["ou_boss", "ou_eve", "ou_cfo"].map((person) =>
      said(person, { remember: true }),
    );
    if (boss === undefined || eve === undefined || cfo === undefined) {
      throw new Error("unreachable");
    }
    const { services, rules } = scene(approved());
    await keepRule(services, approved(boss, eve));
    expect(await rules.list("cli_1")).toEqual([]);
    await keepRule(services, approved(boss, cfo));
    expect(await rules.list("cli_1")).toMatchObject([{ id, author: { id: "ou_cfo" } }]);
  });
});

describe("before a call is signed", () => {
  const call: CallState = { id: "c1", name: "pay", arguments: given, state: "running" };
  const approval: CallAuthority = { by: "approval", id, people: ["ou_boss", "ou_cfo"] };
  const turn = {
    turnId: `${session}-1`,
    message: { app: "cli_1", session, sender: { id: "ou_ann" }, reply: approvalOf().target },
  };
  const genuine = approved(said("ou_boss"), said("ou_cfo"));

  async function objection(
    status: ApprovalStatus,
    more: Partial<CallState> = {},
  ): Promise<ToolOutcome | undefined> {
    return await objectionTo(scene(status).services, turn as TurnState, {
      ...call,
      authority: approval,
      ...more,
    }); // all that is read of a turn
  }

  it("its approval is looked up: who gave it, for which call, and that nothing else was approved", async () => {
    expect(await objection(genuine)).toBeUndefined();
    expect(await objection(genuine, { authority: { by: "policy" } })).toBeUndefined();
    for (const wrong of [{ arguments: { sum: 6 } }, { name: "drop" }]) {
      expect(await objection(genuine, wrong)).toMatchObject({ denied: true });
    }
    expect(await objection(approved(said("ou_eve"), said("ou_eve")))).toMatchObject({
      denied: true,
    });
    expect(
      await objection({ ...genuine, approval: approvalOf({ turnId: `${session}-9` }) }),
    ).toMatchObject({
      denied: true,
    });
    expect(
      await objection({ ...genuine, approval: approvalOf({ session: "cli_1.oc_2" }) }),
    ).toMatchObject({
      denied: true,
    });
    expect(await objection({ ...genuine, approval: approvalOf({ kind: "rule" }) })).toMatchObject({
      denied: true,
    });
    expect(await objection({ ...genuine, state: "pending" })).toMatchObject({ denied: true });
  });

  it("its rule is looked up: stored, of this chat and tool, and not revoked", async () => {
    const { services, rules } = scene(genuine);
    const ruled = { ...call, authority: { by: "rule", id } } as const;
    const ask = async (more: Partial<CallState> = {}) =>
      await objectionTo(services, turn as TurnState, { ...ruled, ...more }); // as above
    expect(await ask()).toMatchObject({ denied: true });
    const author = { id: "ou_boss" };
    const shape = {
      v: 1,
      id,
      app: "cli_1",
      chatId: "oc_1",
      tool: "pay",
      pattern: "*",
      author,
      createdAtMs: 1,
    } as const;
    await rules.add({ ...shape, expiresAtMs: Date.now() + 60_000 });
    expect(await ask()).toBeUndefined();
    expect(await ask({ name: "drop" })).toMatchObject({ denied: true });
    await rules.revoke("cli_1", id, author);
    expect(await ask()).toMatchObject({ denied: true });
  });
});
