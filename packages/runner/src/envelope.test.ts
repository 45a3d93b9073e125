import {
  argumentsHashOf,
  inputHashOf,
  runnerKeyOf,
  signCall,
  type CallClaims,
  type ToolJob,
} from "@larkline/protocol/runner";
import { describe, expect, it } from "vitest";
import { checkEnvelope } from "./call.ts";

const runnerKey = runnerKeyOf("k".repeat(32), "alpha");
const nowMs = 1_000_000;
const actor = { app: "app", tenant: "t1", userId: "ou_1", userName: "小明", chatId: "oc_1" };
const claims: CallClaims = {
  v: 1,
  runner: "alpha",
  tool: "pay",
  session: "app.oc_1",
  turnId: "app.oc_1-1",
  callId: "c1",
  attempt: 1,
  argumentsHash: argumentsHashOf('{"amount":1}'),
  actor,
  authority: { by: "approval", id: "a1", people: ["ou_2"] },
  expiresAtMs: nowMs + 1,
};

function jobWith(changes: Partial<ToolJob>, key = runnerKey, signed: CallClaims = claims): ToolJob {
  return {
    v: 1,
    session: "app.oc_1",
    turnId: "app.oc_1-1",
    callId: "c1",
    name: "pay",
    arguments: '{"amount":1}',
    effect: "once",
    attempt: 1,
    actor,
    envelope: signCall(key, signed),
    queuedAtMs: 0,
    deadlineMs: nowMs,
    ...changes,
  };
}

function problemOf(job: ToolJob, runner = "alpha"): string | undefined {
  const checked = checkEnvelope(job, { runnerKey, runner }, nowMs);
  return checked.ok ? undefined : checked.error;
}

describe("the envelope of a call", () => {
  it("gives what the worker vouches for when it is genuine and about this very call", () => {
    expect(checkEnvelope(jobWith({}), { runnerKey, runner: "alpha" }, nowMs)).toEqual({
      ok: true,
      value: claims,
    });
  });

  const wrong: [string, Partial<ToolJob>, string][] = [
    ["another tool", { name: "pay_all" }, "tool"],
    ["other arguments", { arguments: '{"amount":1000}' }, "argumentsHash"],
    ["the same arguments written in another way", { arguments: '{"amount": 1}' }, "argumentsHash"],
    ["answers of people that the worker has not signed", { input: { responses: {} } }, "inputHash"],
    ["another session", { session: "app.oc_2" }, "session"],
    ["another turn", { turnId: "app.oc_1-2" }, "turnId"],
    ["another call", { callId: "c2" }, "callId"],
    ["another attempt", { attempt: 2 }, "attempt"],
    ["another person", { actor: { ...actor, userId: "ou_9" } }, "actor"],
    ["another tenant", { actor: { ...actor, tenant: "t2" } }, "actor"],
    [
      "a person with something added",
      { actor: { ...actor, role: "admin" } as typeof actor },
      "actor",
    ],
  ];
  it.each(wrong)("is refused for %s", (_what, changes, name) => {
    expect(problemOf(jobWith(changes))).toBe(`it is for another ${name}`);
  });

  it("is refused for other answers of people than those that the worker has signed, or for none", () => {
    const input = {
      responses: { k: { action: "accept", content: { city: "Rome" } } },
      state: "s",
    } as const;
    const signed = { ...claims, inputHash: inputHashOf(input) };
    expect(problemOf(jobWith({ input }, runnerKey, signed))).toBeUndefined();
    const others = [
      { ...input, state: "t" },
      { responses: { k: { action: "decline" as const } }, state: "s" },
    ];
    for (const other of others) {
      expect(problemOf(jobWith({ input: other }, runnerKey, signed))).toMatch(/inputHash/);
    }
    expect(problemOf(jobWith({}, runnerKey, signed))).toBe("it is for another inputHash");
  });

  it("is refused by another runner, with another runner's key, and without a key", () => {
    expect(problemOf(jobWith({}), "beta")).toBe("it is for another runner");
    expect(problemOf(jobWith({}, runnerKeyOf("k".repeat(32), "beta")))).toBe(
      "the signature is wrong",
    );
    for (const envelope of ["", ".", "a.b", "x".repeat(16_384)]) {
      expect(problemOf(jobWith({ envelope }))).toBe("the signature is wrong");
    }
  });

  it("is refused when it has expired, was changed or is of another version", () => {
    expect(problemOf(jobWith({}, runnerKey, { ...claims, expiresAtMs: nowMs - 1 }))).toBe(
      "it has expired",
    );
    const [payload = "", signature = ""] = signCall(runnerKey, claims).split(".");
    const forged = Buffer.from(JSON.stringify({ ...claims, callId: "c2" })).toString("base64url");
    expect(problemOf(jobWith({ callId: "c2", envelope: `${forged}.${signature}` }))).toBe(
      "the signature is wrong",
    );
    expect(problemOf(jobWith({ envelope: `${payload}.${signature}.${signature}` }))).toBe(
      "the signature is wrong",
    );
    const later: object = { ...claims, v: 2 };
    expect(problemOf(jobWith({}, runnerKey, later as CallClaims))).toMatch(/v must be/);
  });
});
