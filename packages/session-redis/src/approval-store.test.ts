import { randomUUID } from "node:crypto";
import type { Approval } from "@larkline/protocol";
import { afterEach, beforeEach, expect, inject, it } from "vitest";
import { createRedisApprovalStore } from "./approval-store.ts";
import { createRedisAuditLog } from "./audit-log.ts";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { createKeyspace } from "./keys.ts";

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
  const approvals = createRedisApprovalStore({ redis, namespace });
  const question = questionOf(1, Date.now() + dayMs);
  const record = keys.session(session).approvalOf(question.id);
  await approvals.add(question);
  expect(await redis.pttl(record)).toBe(-1);
  expect((await redis.pttl(keys.approval(question.id))) / dayMs).toBeCloseTo(8, 1);
  await approvals.decide(session, question.id, { decision: "reject", by: { id: "ou_boss" } });
  expect((await redis.pttl(record)) / dayMs).toBeCloseTo(8, 1);
  expect((await redis.pttl(keys.session(session).kept)) / dayMs).toBeCloseTo(8, 1);
});

it("an approval that is settled long after its expiry is still kept for a week", async () => {
  const approvals = createRedisApprovalStore({ redis, namespace });
  const question = questionOf(2, Date.now() - 100 * dayMs);
  await approvals.add(question);
  expect(await approvals.find("cli_app", question.id)).toMatchObject({ state: "pending" });
  await approvals.settle(session, question.id, "expired");
  expect((await redis.pttl(keys.session(session).approvalOf(question.id))) / dayMs).toBeCloseTo(7, 1);
});

it("keeps about as many audit records as it is told", async () => {
  const audit = createRedisAuditLog({ redis, namespace: `${namespace}-audit`, auditMaxRecords: 100 });
  for (let i = 0; i < 1_000; i += 1) await audit.append({ kind: "rule_added", ruleId: String(i) });
  const kept: string[] = [];
  for await (const { ruleId = "" } of audit.export(0, Date.now() + dayMs)) kept.push(ruleId);
  expect(kept.length).toBeGreaterThanOrEqual(100);
  expect(kept.length).toBeLessThan(400);
  expect(kept.at(-1)).toBe("999");
});
