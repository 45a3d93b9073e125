import { systemClock, type InboundMessage, type OperatorOrder } from "@larkline/protocol";
import { OperatorOrders } from "@larkline/store/operations";
import { expect, it } from "vitest";
import { resetReply, startOrders } from "./background-jobs.ts";
import { newWorld, servicesOf } from "./turn-world.fixture.ts";

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
  const orders = new OperatorOrders({ ...newWorld(), clock: { ...systemClock, monotonic: () => nowMs } });
  const handed = orders.handIn(reset, 1_000);
  const dying = async (): Promise<never> => await Promise.reject(new Error("died"));
  await expect.poll(async () => await orders.serve(dying).catch((error: Error) => error.message)).toBe("died");
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
  const publish = async ({ turnId = "" }: { turnId?: string }): Promise<void> => void stopped.push(turnId);
  const services = servicesOf(world);
  const { orders } = services;
  services.cancels.publish = publish;
  const workers = [1, 2].map(() => startOrders(services));
  try {
    const done = await orders.handIn(reset, 60_000);
    expect(done).toEqual({ state: "done", result: { result: "done", turnId: `${session}-1` } });
    expect(stopped).toEqual([`${session}-1`]);
    const lease = await store.leaseOutbox(session);
    expect(lease?.record).toMatchObject({ id: `${session}-1`, target: { messageId: "om_1" } });
    expect(resetReply(`${session}-1`, message, { onCard: true, nowMs: 1 })).toMatchObject({
      view: { state: "stopped" },
    });
    const records = [];
    for await (const { kind, userId } of audit.export(0, Number.MAX_SAFE_INTEGER)) records.push({ kind, userId });
    expect(records).toContainEqual({ kind: "session_reset", userId: "console" });
  } finally {
    await Promise.all(workers.map(async (worker) => await worker.close()));
  }
});
