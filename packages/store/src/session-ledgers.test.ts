import { randomUUID } from "node:crypto";
import type { InboundMessage } from "@larkline/protocol";
import { blankTurn } from "@larkline/protocol/turn";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { SessionIndex } from "./session-index.ts";
import { SessionStore } from "./session-store.ts";
import type { OutboxRecord } from "./session-types.ts";
import { afterEach, beforeEach, expect, inject, it } from "vitest";

const session = "cli_1.oc_1";
let redis: RedisConnection;
let namespace: string;
beforeEach(() => {
  redis = connectRedis(inject("redisUrl"));
  namespace = `test-${randomUUID()}`;
});
afterEach(async () => await closeRedis(redis));

const message: InboundMessage = {
  v: 1,
  session,
  id: "om_1",
  app: "cli_1",
  sender: { id: "ou_1" },
  chatType: "p2p",
  parts: [{ type: "text", text: "hi" }],
  createdAtMs: 1,
  reply: { channel: "none" },
};

function replyOf(id: string): OutboxRecord {
  const target = { app: "cli_1", chatId: "oc_1", messageId: id, inThread: false };
  const counts = { createdAtMs: 7, attempts: 0, uncertainSinceMs: 0 };
  return { v: 1, id, uuid: id, session, target, text: "secret", ...counts };
}

it("tells which calls are open and started, and which replies wait until when, without their content", async () => {
  const store = new SessionStore({ redis, namespace, stateKey: "0".repeat(64) });
  const index = new SessionIndex({ redis, namespace });
  expect(await index.ledger(session)).toEqual({ calls: new Map(), unsent: [] });
  const { wakeGen = 0 } = await store.append(message);
  const claim = await store.claim(session, wakeGen, "worker");
  const blank = blankTurn({ turnId: `${session}-1`, message, startedAtMs: 1 });
  const open = ["c1", "c2", "c3"].map((callId) => ({
    callId,
    deadlineMs: 9e12,
    facts: { tool: "t" },
  }));
  const write = { session, epoch: claim?.epoch ?? "", history: [], events: [], consumed: 0 };
  await store.save({ ...write, turn: { ...blank, steps: 1 }, open, mode: "suspend" });
  await store.begin(session, "c2", "once");
  await store.deliver(session, "c3", { ok: true, result: 1 });
  const { lease } = await store.outbox.push(replyOf("r1"), "r1");
  await store.outbox.push(replyOf("r2"), "r2");
  if (lease !== undefined) {
    const record = { ...lease.record, attempts: 2, problem: "forbidden 230013" };
    await store.outbox.retry({ ...lease, record }, 8_000_000_000_000);
  }
  const ledger = await index.ledger(session);
  expect([...ledger.calls]).toEqual(
    expect.arrayContaining([
      ["c1", "open"],
      ["c2", "started"],
      ["c3", "done"],
    ]),
  );
  expect(ledger.unsent).toEqual([
    { id: "r1", attempts: 2, createdAtMs: 7, problem: "forbidden 230013" },
    { id: "r2", attempts: 0, createdAtMs: 7 },
  ]);
  expect(ledger.retryAtMs).toBe(8_000_000_000_000);
});
