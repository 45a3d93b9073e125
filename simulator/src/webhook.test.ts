import { createDecipheriv, createHash } from "node:crypto";
import { patientClock } from "@larkline/testkit";
import { afterEach, expect, test } from "vitest";
import {
  signEvent,
  startFeishuSimulator,
  type AppOptions,
  type FeishuSimulator,
  type SimulatorOptions,
} from "./index.ts";
import { startTestWebhook, type ReceivedWebhook, type WebhookAnswer } from "./webhook.fixture.ts";

const appId = "cli_0123456789abcdef";
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

interface Scene {
  simulator: FeishuSimulator;
  received: ReceivedWebhook[];
  send(text?: string): ReturnType<FeishuSimulator["sendMessage"]>;
}

async function scene(
  answer: (request: ReceivedWebhook, index: number) => WebhookAnswer,
  {
    app = {},
    options = {},
  }: { app?: Partial<AppOptions>; options?: Partial<SimulatorOptions> } = {},
): Promise<Scene> {
  const webhook = await startTestWebhook(answer);
  const simulator = await startFeishuSimulator({
    apps: [{ appId, appSecret: "s", verificationToken: "vtoken", webhookUrl: webhook.url, ...app }],
    retryDelaysMs: [10, 20, 30, 40],
    clock: patientClock,
    ...options,
  });
  closing.push(simulator.close, webhook.close);
  const { openId } = simulator.addUser({ name: "Ann" });
  const { chatId } = simulator.addChat({ type: "p2p", members: [openId] });
  const send = (text = "hi") => simulator.sendMessage({ appId, chatId, from: openId, text });
  return { simulator, received: webhook.received, send };
}

test("an event is posted in the 2.0 envelope and acknowledged with 200", async () => {
  const { received, send } = await scene(() => ({}));
  const sent = await send();
  expect(await sent.delivery).toMatchObject({
    outcome: "acknowledged",
    attempts: [{ transport: "webhook", status: 200 }],
  });
  expect(received[0]?.body).toMatchObject({
    schema: "2.0",
    header: {
      event_id: sent.eventId,
      event_type: "im.message.receive_v1",
      token: "vtoken",
      app_id: appId,
    },
    event: {
      sender: { sender_type: "user" },
      message: {
        message_id: sent.messageId,
        chat_type: "p2p",
        message_type: "text",
        content: '{"text":"hi"}',
      },
    },
  });
  expect(received[0]?.headers["x-lark-signature"]).toBeUndefined();
});

test("with an encrypt key the body is encrypted and signed", async () => {
  const { received, send } = await scene(() => ({}), { app: { encryptKey: "test key" } });
  const sent = await send();
  await sent.delivery;
  const [request] = received;
  expect(Object.keys(request?.body ?? {})).toEqual(["encrypt"]);
  expect(JSON.parse(decrypted("test key", String(request?.body.encrypt)))).toMatchObject({
    header: { event_id: sent.eventId },
  });
  const expected = signEvent({
    timestamp: String(request?.headers["x-lark-request-timestamp"]),
    nonce: String(request?.headers["x-lark-request-nonce"]),
    encryptKey: "test key",
    body: request?.raw ?? "",
  });
  expect(request?.headers["x-lark-signature"]).toBe(expected);
});

function decrypted(encryptKey: string, wire: string): string {
  const bytes = Buffer.from(wire, "base64");
  const key = createHash("sha256").update(encryptKey).digest();
  const decipher = createDecipheriv("aes-256-cbc", key, bytes.subarray(0, 16));
  return Buffer.concat([decipher.update(bytes.subarray(16)), decipher.final()]).toString("utf8");
}

test("a refused event is retried after each wait with the same ids until it is acknowledged", async () => {
  const { received, send, simulator } = await scene((_request, index) => ({
    status: index < 2 ? 500 : 200,
  }));
  const sent = await send();
  const report = await sent.delivery;
  expect(report.outcome).toBe("acknowledged");
  expect(report.attempts.map((attempt) => attempt.status)).toEqual([500, 500, 200]);
  expect(new Set(received.map((request) => request.raw)).size).toBe(1);
  expect(Number(received[2]?.at) - Number(received[0]?.at)).toBeGreaterThanOrEqual(28);
  expect(simulator.deliveries.map((record) => record.attempt)).toEqual([1, 2, 3]);
});

test("an event is given up after four retries", async () => {
  const { received, send } = await scene(() => ({ status: 503 }));
  expect(await (await send()).delivery).toMatchObject({ outcome: "exhausted" });
  expect(received).toHaveLength(5);
});

test("an answer that takes too long counts as a failure", async () => {
  const never = new Promise<never>(() => undefined);
  const { send } = await scene((_request, index) => (index === 0 ? { after: never } : {}), {
    options: { webhookTimeouts: { totalTimeoutMs: 400 } },
  });
  const report = await (await send()).delivery;
  expect(report.attempts.map((attempt) => attempt.error)).toEqual(["timeout", undefined]);
});

test("an address that refuses connections counts as a failure", async () => {
  const { simulator, send } = await scene(() => ({}), { options: { retryDelaysMs: [] } });
  simulator.setWebhookUrl(appId, "http://127.0.0.1:1/feishu/events");
  expect(await (await send()).delivery).toMatchObject({
    outcome: "exhausted",
    attempts: [{ error: "ECONNREFUSED" }],
  });
});

test("a message is redelivered on demand with the same ids", async () => {
  const { received, send, simulator } = await scene(() => ({}));
  const sent = await send();
  await sent.delivery;
  expect(await simulator.redeliver(sent.messageId)).toMatchObject({
    eventId: sent.eventId,
    outcome: "acknowledged",
  });
  expect(received).toHaveLength(2);
  expect(received[1]?.raw).toBe(received[0]?.raw);
  const fresh = await simulator.redeliver(sent.messageId, { freshEventId: true });
  expect(fresh.eventId).not.toBe(sent.eventId);
  expect(received[2]?.body).toMatchObject({
    header: { event_id: fresh.eventId },
    event: { message: { message_id: sent.messageId } },
  });
});

test("a callback is attempted once and its answer is reported", async () => {
  const toast = { toast: { type: "success", content: "ok" } };
  const { simulator, received } = await scene((_request, index) =>
    index === 0 ? { body: toast } : { status: 500 },
  );
  const click = {
    appId,
    eventType: "card.action.trigger",
    event: { action: { value: {} } },
    callback: true,
  };
  expect(await simulator.sendEvent(click)).toMatchObject({
    outcome: "acknowledged",
    attempts: [{ response: toast }],
  });
  expect(await simulator.sendEvent(click)).toMatchObject({ outcome: "exhausted" });
  expect(received).toHaveLength(2);
});

test.each([undefined, "test key"])(
  "the challenge verifies a request address (encrypt key: %s)",
  async (encryptKey) => {
    const app = encryptKey === undefined ? {} : { encryptKey };
    const { simulator, received } = await scene(
      ({ body }) => {
        const plain =
          encryptKey === undefined ? body : JSON.parse(decrypted(encryptKey, String(body.encrypt)));
        return { body: { challenge: plain.challenge } };
      },
      { app },
    );
    expect(await simulator.verifyWebhook(appId)).toEqual({ verified: true });
    expect(received[0]?.headers["x-lark-signature"]).toBeUndefined();
  },
);

test("an address that does not return the challenge is not verified", async () => {
  const { simulator } = await scene(() => ({ body: { challenge: "wrong" } }));
  expect(await simulator.verifyWebhook(appId)).toMatchObject({ verified: false });
});

test("closing abandons waiting retries", async () => {
  const { simulator, send } = await scene(() => ({ status: 500 }), {
    options: { retryDelaysMs: [3_600_000] },
  });
  const attempted = new Promise((resolve) => simulator.on("delivery", resolve));
  const sent = await send();
  await attempted;
  await simulator.close();
  expect(await sent.delivery).toMatchObject({ outcome: "abandoned" });
});

test("an app without a connection and an address gets nothing yet", async () => {
  const { simulator, send } = await scene(() => ({}), { options: { retryDelaysMs: [] } });
  simulator.setTransport(appId, "websocket");
  expect(await (await send()).delivery).toMatchObject({
    outcome: "exhausted",
    attempts: [{ transport: "none" }],
  });
});

test("group messages reach an app that is mentioned, or all of them when it asked for all", async () => {
  const { simulator, received } = await scene(() => ({}), { app: { groupScope: "mentioned" } });
  const { openId } = simulator.addUser({ name: "Bob" });
  const { chatId } = simulator.addChat({ type: "group", members: [openId] });
  const send = async (mention: boolean) =>
    (await simulator.sendMessage({ appId, chatId, from: openId, text: "x", mention })).delivery;
  expect((await send(false)).outcome).toBe("not_subscribed");
  expect((await send(true)).outcome).toBe("acknowledged");
  simulator.setGroupScope(appId, "all");
  expect((await send(false)).outcome).toBe("acknowledged");
  const [bot] = simulator.apps;
  expect(received[0]?.body).toMatchObject({
    event: {
      message: {
        content: '{"text":"@_user_1 x"}',
        mentions: [{ key: "@_user_1", id: { open_id: bot?.openId }, mentioned_type: "bot" }],
      },
    },
  });
});

test("a message keeps its own time, and a reply its links", async () => {
  const { simulator, received } = await scene(() => ({}));
  const { openId } = simulator.addUser({ name: "Bob" });
  const { chatId } = simulator.addChat({ type: "group", members: [openId] });
  const old = { appId, chatId, from: openId, text: "old", createdAtMs: 1_700_000_000_000 };
  const first = await simulator.sendMessage(old);
  await first.delivery;
  const second = await simulator.sendMessage({
    appId,
    chatId,
    from: openId,
    text: "more",
    rootId: first.messageId,
  });
  await second.delivery;
  expect(received[0]?.body).toMatchObject({ event: { message: { create_time: "1700000000000" } } });
  expect(received[1]?.body).toMatchObject({
    event: { message: { root_id: first.messageId, parent_id: first.messageId } },
  });
});

test("the bot gets an event of a recalled message", async () => {
  const { simulator, received, send } = await scene(() => ({}));
  const sent = await send();
  await sent.delivery;
  const told = new Promise((resolve) => simulator.on("delivery", resolve));
  await simulator.recall(sent.messageId);
  await told;
  expect(received[1]?.body).toMatchObject({
    header: { event_type: "im.message.recalled_v1" },
    event: { message_id: sent.messageId, recall_type: "message_owner" },
  });
});

test("waiting for a reply ends in time", async () => {
  const { simulator, send } = await scene(() => ({}));
  const { messageId } = await send();
  await expect(simulator.waitForReply(messageId, { timeoutMs: 20 })).rejects.toThrow("No reply");
});
