import { randomUUID } from "node:crypto";
import type { Approval } from "@larkline/protocol/approval";
import { blankTurn } from "@larkline/protocol/turn";
import { afterEach, beforeEach, expect, inject, it, vi } from "vitest";
import { ApprovalStore } from "./approval-store.ts";
import { AuditLog } from "./audit-log.ts";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { createKeyspace } from "./keys.ts";
import { SessionStore } from "./session-store.ts";

const session = "cli_app.oc_chat";
const dayMs = 86_400_000;
const namespace = `test-${randomUUID()}`;
const keys = createKeyspace(namespace);

let redis: RedisConnection;
beforeEach(() => {
  redis = connectRedis(inject("redisUrl"));
});
afterEach(() => closeRedis(redis));

function questionOf(number: number, expiresAtMs: number): Approval {
  return {
    v: 1,
    id: number.toString(16).padStart(32, "0"),
    kind: "rule",
    session,
    turnId: "",
    callId: "",
    app: "cli_app",
    chatId: "oc_chat",
    requester: { id: "ou_user" },
    tool: "shell",
    arguments: {},
    argumentsHash: "",
    secrets: [],
    deciders: { requester: true, people: [], roles: [], fourEyes: false, count: 1 },
    reason: "",
    risk: "low",
    language: "en",
    target: { channel: "none" },
    createdAtMs: 1,
    expiresAtMs,
  };
}

it("keeps an approval until it is settled, then until a week after its expiry", async () => {
  const approvals = new ApprovalStore({ redis, namespace });
  const question = questionOf(1, Date.now() + dayMs);
  const record = keys.session(session).approvalOf(question.id);
  await approvals.add(question);
  expect(await redis.pttl(record)).toBe(-1);
  expect((await redis.pttl(keys.approvalSessionOf(question.id))) / dayMs).toBeCloseTo(8, 1);
  await approvals.decide(session, question.id, { decision: "reject", by: { id: "ou_boss" } });
  expect((await redis.pttl(record)) / dayMs).toBeCloseTo(8, 1);
  expect((await redis.pttl(keys.session(session).kept)) / dayMs).toBeCloseTo(8, 1);
});

it("an approval that is settled long after its expiry is still kept for a week", async () => {
  const approvals = new ApprovalStore({ redis, namespace });
  const question = questionOf(2, Date.now() - 100 * dayMs);
  await approvals.add(question);
  expect(await approvals.find("cli_app", question.id)).toMatchObject({ state: "pending" });
  await approvals.settle(session, question.id, "expired");
  expect((await redis.pttl(keys.session(session).approvalOf(question.id))) / dayMs).toBeCloseTo(
    7,
    1,
  );
});

it("keeps about as many audit records as it is set to", async () => {
  const audit = new AuditLog({ redis, namespace: `${namespace}-audit`, auditMaxRecords: 100 });
  for (let i = 0; i < 1_000; i += 1) await audit.append({ kind: "rule_added", ruleId: String(i) });
  const kept: string[] = [];
  for await (const { ruleId = "" } of audit.export(0, Date.now() + dayMs)) kept.push(ruleId);
  expect(kept.length).toBeGreaterThanOrEqual(100);
  expect(kept.length).toBeLessThan(400);
  expect(kept.at(-1)).toBe("999");
});

it("a call costs one round trip each to hand out, start, answer and end, its audit records included", async () => {
  const store = new SessionStore({ redis, namespace, stateKey: "0".repeat(64) });
  const facts = { app: "cli_app", tool: "shell", userId: "ou_user" };

  async function runCall(message: string): Promise<number[]> {
    const { wakeGen = 0 } = await store.append({
      v: 1,
      session,
      id: message,
      app: "cli_app",
      sender: { id: "ou_user" },
      chatType: "p2p",
      parts: [{ type: "text", text: "?" }],
      createdAtMs: 1,
      reply: { channel: "none" },
    });
    const claim = await store.claim(session, wakeGen, "worker");
    if (claim?.head === undefined) throw new Error("nothing to claim");
    const { epoch, head } = claim;
    const write = { session, epoch, history: [], events: [], consumed: 0 };
    const turnId = `${session}-${head.seq}`;
    const turn = { ...blankTurn({ turnId, message: head.message, startedAtMs: 1 }), steps: 1 };
    const sent = vi.spyOn(redis, "sendCommand");
    const counts: number[] = [];
    for (const step of [
      () =>
        store.save({
          ...write,
          turn,
          open: [{ callId: "c1", deadlineMs: 1, facts }],
          mode: "continue",
        }),
      () => store.begin(session, "c1", "once", { runner: "tools" }),
      () => store.deliver(session, "c1", { ok: true, result: 1 }, { runner: "tools" }),
      () => store.commit({ ...write, seq: head.seq, more: false }),
    ]) {
      sent.mockClear();
      await step();
      counts.push(sent.mock.calls.length);
    }
    sent.mockRestore();
    return counts;
  }

  await runCall("loads the scripts");
  expect(await runCall("om_2")).toEqual([1, 1, 1, 1]);
});
