import { randomUUID } from "node:crypto";
import type { InboundMessage, OperatorOrder } from "@larkline/protocol";
import { closeRedis, connectRedis, OperatorOrders, type RedisConnection } from "@larkline/store";
import { openTestStores } from "@larkline/store/testing";
import { createLogger } from "@larkline/process/telemetry";
import { afterEach, beforeEach, expect, inject, it } from "vitest";
import { resetReply, startOperatorDesk } from "./background-jobs.ts";

let redis: RedisConnection;
let orders: OperatorOrders;
beforeEach(() => {
  redis = connectRedis(inject("redisUrl"));
  orders = new OperatorOrders({ redis, namespace: `test-${randomUUID()}` });
});
afterEach(async () => await closeRedis(redis));

const session = "cli_1.oc_1";
const reset: OperatorOrder = { v: 1, by: "console", act: { do: "reset", session } };
const message: InboundMessage = {
  v: 1,
  session,
  id: "om_1",
  app: "cli_1",
  sender: { id: "ou_1" },
  chatType: "p2p",
  parts: [{ type: "text", text: "hi" }],
  createdAtMs: 1,
  reply: { channel: "feishu", app: "cli_1", chatId: "oc_1", messageId: "om_1", inThread: false },
};

it("an order that no worker takes is not done, now or later", async () => {
  expect(await orders.handIn(reset, 100)).toEqual({ state: "not_taken" });
  expect(await orders.serve(async () => ({ result: "done" }))).toBe(false);
});

it("an order whose worker dies with it is uncertain, and no other worker does it again", async () => {
  const handed = orders.handIn(reset, 1_000);
  const dying = async (): Promise<never> => await Promise.reject(new Error("died"));
  await expect.poll(async () => await orders.serve(dying).catch((error: Error) => error.message)).toBe("died");
  expect(await orders.serve(async () => ({ result: "done" }))).toBe(false);
  expect(await handed).toEqual({ state: "uncertain" });
});

it("an order is done by one worker, once, and its result told", async () => {
  const { store, letters, rules, audit } = openTestStores();
  await store.append(message);
  const { gen } = await store.summary(session);
  await store.claim(session, gen, "worker");
  const stopped: string[] = [];
  const stop = async ({ turnId }: { turnId: string }): Promise<void> => void stopped.push(turnId);
  const parts = { orders, store, letters, rules, audit, wake: async () => {}, stop, stopCalls: async () => {} };
  const desks = [1, 2].map(() =>
    startOperatorDesk({ ...parts, logger: createLogger({ service: "t", level: "silent" }) }),
  );
  try {
    const done = await orders.handIn(reset, 5_000);
    expect(done).toEqual({ state: "done", result: { result: "done", turnId: `${session}-1` } });
    expect(stopped).toEqual([`${session}-1`]);
    const lease = await store.leaseOutbox(session);
    expect(lease?.record).toMatchObject({ id: `${session}-1`, target: { messageId: "om_1" } });
    expect(resetReply(`${session}-1`, message, true)).toMatchObject({ view: { state: "stopped" } });
    const records = [];
    for await (const { kind, userId } of audit.export(0, Number.MAX_SAFE_INTEGER)) records.push({ kind, userId });
    expect(records).toContainEqual({ kind: "session_reset", userId: "console" });
  } finally {
    await Promise.all(desks.map(async (desk) => await desk.close()));
  }
});
