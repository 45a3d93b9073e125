import { afterEach, describe, expect, it } from "vitest";
import { startWorld, testApp, type FeishuWorld, type WorldOptions } from "../feishu.fixture.ts";
import { idOf } from "./door.ts";

const { appId: app } = testApp;
const code = "LEAVE-1";
const chat = "oc_0123456789abcdef";
const patience = { timeout: 60_000, interval: 10 };
const worlds: FeishuWorld[] = [];

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

/** A deployment whose app is subscribed to a form, and Ann, who asks Bob. */
async function world(door: { chat?: string }, settings: WorldOptions["settings"] = {}) {
  const here = await startWorld({
    settings: { doors: { approvals: { leave: { code, ...door } } }, ...settings },
    prepare: ({ work }) => work.approvals.addDefinition(code),
  });
  worlds.push(here);
  const { approvals } = here.platform.work;
  await expect.poll(() => approvals.subscribed(code), patience).toEqual([app]);
  const ask = () =>
    approvals.addApproval({
      initiator: here.ann,
      name: "Leave",
      form: [],
      approvers: [here.bob],
      definitionCode: code,
    });
  const send = async (
    event: Record<string, string>,
    more: { createdAt?: number; eventId?: string } = {},
  ) => {
    const eventType = event["task_id"] === undefined ? "approval_instance" : "approval_task";
    const shared = { approval_code: code, instance_code: "I-1", status: "PENDING" };
    const all = { ...shared, ...event };
    return (await here.platform.sendEvent({ appId: app, eventType, event: all, ...more })).outcome;
  };
  return { here, ask, send };
}

function sessionOf(person: string): string {
  return `${app}.approval-${idOf(["I-1", person])}`;
}

describe("an approval of a form that the configuration names", () => {
  it("is a run of the bot in the chat of the form, once for each change, with its state as data", async () => {
    const { here, ask, send } = await world({ chat });
    const { instanceCode } = ask();
    const session = `${app}.approvals-leave`;
    await expect.poll(async () => await here.waiting(session), patience).toBe(1);
    expect(await here.head(session)).toMatchObject({
      sender: { id: "program:approvals:leave" },
      foreign: true,
      addresses: [],
      reply: { chatId: chat, messageId: "" },
      parts: [{ text: expect.stringContaining(`instance: ${instanceCode}\nstate: PENDING`) }],
    });
    const eventId = "e-1";
    expect(await send({ status: "REJECTED" }, { eventId })).toBe("acknowledged");
    expect(await send({ status: "REJECTED" }, { eventId })).toBe("acknowledged");
    expect(await here.waiting(session)).toBe(2);
  });

  it("is a run as the person who has to decide, in their own chat, without a chat of the form", async () => {
    const { here, send } = await world({});
    const eventId = "e-1";
    const waits = { task_id: "7", open_id: here.bob };
    expect(await send(waits, { eventId })).toBe("acknowledged");
    expect(await send(waits, { eventId })).toBe("acknowledged");
    expect(await send({ ...waits, status: "APPROVED" })).toBe("acknowledged");
    expect(await send({ task_id: "7", open_id: "" })).toBe("acknowledged");
    const records = await here.ingress.store.summary(sessionOf(here.bob));
    expect(records.waiting).toBe(1);
    expect(records.head?.message).toMatchObject({
      sender: { id: here.bob },
      chatType: "p2p",
      foreign: true,
      reply: { chatId: here.bob, messageId: "" },
    });
  });

  it("starts nothing hours late, of another form, or for people whom the bot does not serve", async () => {
    const { here, send } = await world({});
    const waits = { task_id: "7", open_id: here.bob };
    const createdAt = Date.now() - 7 * 3_600_000;
    expect(await send(waits, { createdAt })).toBe("acknowledged");
    expect(await send({ ...waits, approval_code: "OTHER" })).toBe("acknowledged");
    expect(await here.waiting(sessionOf(here.bob))).toBe(0);
    const foreign = await world({}, { bots: { default: { tenants: ["other"] } } });
    const { bob } = foreign.here;
    expect(await foreign.send({ task_id: "7", open_id: bob })).toBe("acknowledged");
    expect(await foreign.here.waiting(sessionOf(bob))).toBe(0);
  });

  it("is acknowledged in a storm of a thousand, of which no more start runs than may wait", async () => {
    const { here, send } = await world({ chat });
    const storm = Array.from({ length: 1_000 }, async () => await send({}));
    expect(new Set(await Promise.all(storm))).toEqual(new Set(["acknowledged"]));
    expect(await here.waiting(`${app}.approvals-leave`)).toBe(20);
  });
});
