import { InboundMessage, parserOf } from "@larkline/protocol";
import { systemClock } from "@larkline/protocol/clock";
import type { DeadLetter, OutboxRecord } from "@larkline/store";
import { OperatorOrders, type OperatorOrder, type OrderResult } from "@larkline/store/operations";
import { AppInspector } from "@larkline/feishu";
import { startFeishuSimulator } from "@larkline/simulator";
import { expect, it, onTestFinished } from "vitest";

import type { Bot } from "./bot.ts";
import { applyOrder, resetReply, startOrders } from "./operator-orders.ts";
import { newWorld, servicesOf, type World } from "./turn-world.fixture.ts";

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
  const { orders } = servicesOf(newWorld());
  expect(await orders.handIn(reset, 100)).toEqual({ state: "not_taken" });
  expect(await orders.serve(async () => ({ result: "done" }))).toBe(false);
});

it("an order whose worker dies with it is uncertain, and no other worker does it again", async () => {
  let nowMs = 0;
  const orders = new OperatorOrders({
    ...newWorld(),
    clock: { ...systemClock, monotonic: () => nowMs },
  });
  const handed = orders.handIn(reset, 1_000);
  const dying = async (): Promise<never> => await Promise.reject(new Error("died"));
  await expect
    .poll(async () => await orders.serve(dying).catch((error: Error) => error.message))
    .toBe("died");
  expect(await orders.serve(async () => ({ result: "done" }))).toBe(false);
  nowMs = 1_000;
  expect(await handed).toEqual({ state: "uncertain" });
});

it("an order is done by one worker, once, and its result returned", async () => {
  const world = newWorld();
  const { store, audit } = world;
  await store.append(message);
  const { gen } = await store.summary(session);
  await store.claim(session, gen, "worker");
  const stopped: string[] = [];
  const publish = async ({ turnId = "" }: { turnId?: string }): Promise<void> =>
    void stopped.push(turnId);
  const services = servicesOf(world);
  const { orders } = services;
  services.cancels.publish = publish;
  const workers = [1, 2].map(() => startOrders(services));
  try {
    const done = await orders.handIn(reset, 60_000);
    expect(done).toEqual({ state: "done", result: { result: "done", turnId: `${session}-1` } });
    expect(stopped).toEqual([`${session}-1`]);
    const lease = await store.outbox.lease(session);
    expect(lease?.record).toMatchObject({ id: `${session}-1`, target: { messageId: "om_1" } });
    expect(resetReply(`${session}-1`, message, { onCard: true, nowMs: 1 })).toMatchObject({
      view: { state: "stopped" },
    });
    const records = [];
    for await (const { kind, userId } of audit.export(0, Number.MAX_SAFE_INTEGER)) {
      records.push({ kind, userId });
    }
    expect(records).toContainEqual({ kind: "session_reset", userId: "console" });
  } finally {
    await Promise.all(workers.map(async (worker) => await worker.close()));
  }
});

const turnId = `${session}-1`;

/** One message that a worker answers now, and others that wait. */
async function runOne({ store }: World, ...waiting: string[]): Promise<void> {
  await store.append(message);
  const { gen } = await store.summary(session);
  await store.claim(session, gen, "worker");
  for (const id of waiting) await store.append({ ...message, id });
}

async function recordsOf({ audit }: World, kind: string) {
  const records = [];
  for await (const record of audit.export(0, Number.MAX_SAFE_INTEGER)) {
    if (record.kind === kind) records.push(record);
  }
  return records;
}

const orderOf = (act: OperatorOrder["act"]): OperatorOrder => ({ v: 1, by: "console", act });

it("a session whose message no version can read is reset", async () => {
  const world = newWorld();
  await runOne(world);
  const [key = ""] = await world.redis.keys(`{${world.namespace}:*}:in:${session}`);
  await (world.redis as { lset(key: string, at: number, value: string): Promise<unknown> }).lset(
    key,
    0,
    '1:{"v":9}',
  );
  expect(await applyOrder(servicesOf(world), reset)).toMatchObject({ result: "done", turnId });
  expect(await world.store.summary(session)).toMatchObject({
    state: "idle",
    waiting: 0,
    unsent: 0,
  });
});

it("a turn that is cancelled has the cancel in its session, with the operator's name on record", async () => {
  const world = newWorld();
  await runOne(world);
  const order = orderOf({ do: "cancel", session, seq: 1 });
  expect(await applyOrder(servicesOf(world), order)).toEqual({ result: "done" });
  expect(await world.store.cancelled(session)).toBe(true);
  expect(await recordsOf(world, "turn_cancelled")).toMatchObject([
    { session, turnId, userId: "console" },
  ]);
});

it("a schedule is paused, resumed and deleted, each with a record of who asked", async () => {
  const world = newWorld();
  const id = "00000000000000aa";
  const schedule = {
    id,
    app: "cli_1",
    owner: { id: "ou_1" },
    chatId: "oc_1",
    chatType: "p2p",
    title: "a",
    task: "b",
    timing: { kind: "cron", cron: "0 9 * * 1" },
    zone: "Asia/Shanghai",
    missed: "late",
    language: "en",
    createdAtMs: 1,
  } as const;
  await world.schedules.add(schedule, { dueMs: 5, alarmMs: 5 });
  const services = servicesOf(world);
  const carryOut = async (act: "pause_schedule" | "resume_schedule" | "delete_schedule") => {
    const { result } = await applyOrder(services, orderOf({ do: act, schedule: id }));
    const { state, why, dueMs = 0 } = (await world.schedules.read(id)) ?? {};
    return [result, state, why, dueMs > 5];
  };
  expect(await carryOut("pause_schedule")).toEqual(["done", "paused", "operator", false]);
  expect(await carryOut("resume_schedule")).toEqual(["done", "active", undefined, true]);
  expect(await carryOut("delete_schedule")).toEqual(["done", undefined, undefined, false]);
  expect(await carryOut("delete_schedule")).toEqual(["nothing", undefined, undefined, false]);
  for (const kind of ["schedule_paused", "schedule_resumed", "schedule_deleted"] as const) {
    expect(await recordsOf(world, kind)).toMatchObject([{ scheduleId: id, userId: "console" }]);
  }
});

it("the messages that wait are dropped, not the one that is being answered", async () => {
  const world = newWorld();
  await runOne(world, "om_2", "om_3");
  expect(await applyOrder(servicesOf(world), orderOf({ do: "drop", session }))).toEqual({
    result: "done",
  });
  expect(await world.store.summary(session)).toMatchObject({ state: "running", waiting: 1 });
  expect(await recordsOf(world, "inbox_dropped")).toMatchObject([{ session, userId: "console" }]);
});

it("a rule is taken back once, with the operator's name on record", async () => {
  const world = newWorld();
  const services = servicesOf(world);
  const rule = {
    v: 1,
    id: "a".repeat(32),
    app: message.app,
    chatId: "oc_1",
    tool: "deploy",
    pattern: "staging *",
    author: { id: "ou_boss" },
    createdAtMs: Date.now(),
    expiresAtMs: Date.now() + 3_600_000,
  } as const;
  await services.rules.add(rule);
  const order = orderOf({ do: "revoke_rule", app: message.app, ruleId: rule.id });
  expect(await applyOrder(services, order)).toEqual({ result: "done" });
  expect(await applyOrder(services, order)).toEqual({ result: "nothing" });
  expect(await services.rules.list(message.app)).toEqual([]);
  expect(await recordsOf(world, "rule_revoked")).toMatchObject([
    { ruleId: rule.id, userId: "console" },
  ]);
});

const replyRecord: OutboxRecord = {
  v: 1,
  id: turnId,
  uuid: "u-1",
  session,
  target: { app: message.app, chatId: "oc_1", messageId: "om_1", inThread: false },
  text: "hello",
  createdAtMs: 1,
  attempts: 3,
  uncertainSinceMs: 0,
};

async function withAbandonedReply() {
  const world = newWorld();
  const services = servicesOf(world);
  const { lease } = await world.store.outbox.push(replyRecord, "om_1");
  if (lease === undefined) throw new Error("the outbox is taken");
  await services.deadLetters.moveToDeadLetters(lease, "forbidden");
  return { world, services };
}

it("a reply that was given up is sent again once, however often that is ordered", async () => {
  const { world, services } = await withAbandonedReply();
  const order = orderOf({ do: "retry_letter", session, letterId: `reply:${turnId}` });
  const results = await Promise.all([1, 2, 3].map(async () => await applyOrder(services, order)));
  expect(results.filter(({ result }) => result === "done")).toHaveLength(1);
  expect((await world.store.summary(session)).unsent).toBe(1);
  expect((await world.store.outbox.lease(session))?.record).toMatchObject({
    id: turnId,
    uuid: "u-1",
    attempts: 0,
  });
  expect(await services.deadLetters.list(9)).toEqual([]);
  expect((await recordsOf(world, "letter_retried"))[0]).toMatchObject({
    letterId: `reply:${turnId}`,
    userId: "console",
  });
});

it("a letter is discarded once", async () => {
  const { world, services } = await withAbandonedReply();
  const order = orderOf({ do: "discard_letter", session, letterId: `reply:${turnId}` });
  expect(await applyOrder(services, order)).toEqual({ result: "done" });
  expect(await applyOrder(services, order)).toEqual({ result: "nothing" });
  expect(await recordsOf(world, "letter_discarded")).toHaveLength(1);
});

it("a message that was given up runs again as one new message", async () => {
  const world = newWorld();
  const services = servicesOf(world);
  const letter: DeadLetter = {
    v: 1,
    kind: "message",
    id: `turn:${turnId}`,
    session,
    reason: "its runs crashed 5 times",
    atMs: Date.now(),
    turnId,
    messageId: "om_1",
    message,
  };
  await services.deadLetters.add(letter);
  const order = orderOf({ do: "retry_letter", session, letterId: letter.id });
  await Promise.all([1, 2, 3].map(async () => await applyOrder(services, order)));
  const { head, waiting } = await world.store.summary(session);
  expect(waiting).toBe(1);
  expect(head?.message).toMatchObject({ id: "om_1.again-1", reply: { messageId: "om_1" } });
  expect(parserOf(InboundMessage)(head?.message).ok).toBe(true);
  expect(await services.deadLetters.list(9)).toEqual([]);
});

it("looks at an app on the platform: what it has, or why the platform refuses it", async () => {
  const app = { appId: "cli_0123456789abcdef", appSecret: "app-secret" };
  const platform = await startFeishuSimulator({ apps: [app] });
  onTestFinished(async () => await platform.close());
  const services = servicesOf(newWorld());
  const [bot = expect.fail()] = services.bots.values();
  const look = async (appSecret: string): Promise<OrderResult> => {
    const openInspector = () => new AppInspector({ ...app, appSecret, domain: platform.url });
    const bots = new Map([
      [app.appId, Object.assign(Object.create(bot) as Bot, { openInspector })],
    ]);
    const order = orderOf({ do: "check_app", app: app.appId });
    return await applyOrder({ ...services, bots }, order);
  };
  platform.setConsole(app.appId, { scopes: ["im:message", "application:application:self_manage"] });
  expect(await look(app.appSecret)).toMatchObject({
    result: "done",
    app: {
      bot: { status: "enabled" },
      scopes: expect.arrayContaining(["im:message"]),
      isPublished: true,
      events: expect.arrayContaining(["im.message.receive_v1"]),
      connection: { isOpen: true },
    },
  });
  const refused = await look("wrong-secret");
  expect(refused).toMatchObject({
    result: "done",
    app: { problem: expect.stringContaining("100") },
  });
  expect(JSON.stringify(refused)).not.toContain("wrong-secret");
  const unknown = orderOf({ do: "check_app", app: "cli_other" });
  expect(await applyOrder(services, unknown)).toEqual({ result: "nothing" });
});
