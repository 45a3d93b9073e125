import {
  startFeishuSimulator,
  type FeishuSimulator,
  type SimulatorOptions,
} from "@larkline/simulator";
import { patientClock } from "@larkline/testkit";
import { afterEach, expect, test } from "vitest";
import { startBot, type TestBot } from "./bot.fixture.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "secret" };
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

interface Scene {
  simulator: FeishuSimulator;
  bot: TestBot;
  say(text: string): Promise<string>;
}

async function scene(options: Partial<SimulatorOptions> = {}): Promise<Scene> {
  const simulator = await startFeishuSimulator({
    apps: [app],
    clock: patientClock, // a stall of this process is no fault of the bot
    retryDelaysMs: [50, 50, 50, 50],
    connection: { reconnectIntervalSeconds: 0.1, reconnectNonceSeconds: 0 },
    ...options,
  });
  closing.push(simulator.close);
  const bot = await startBot({ ...app, domain: simulator.url, answer: (text) => `**${text}**` });
  closing.push(bot.close);
  const { openId } = simulator.addUser({ name: "Ann" });
  const { chatId } = simulator.addChat({ type: "p2p", members: [openId] });
  const say = async (text: string) =>
    (await simulator.sendMessage({ appId: app.appId, chatId, from: openId, text })).messageId;
  return { simulator, bot, say };
}

test("the official SDK connects, receives and replies", async () => {
  const { simulator, bot, say } = await scene();
  const reply = await simulator.waitForReply(await say("你好"), { timeoutMs: 60_000 });
  expect(reply).toMatchObject({ messageType: "post", text: "**你好**" });
  expect((await bot.api.botInfo()).openId).toBe(simulator.apps[0]?.openId);
});

test("the official SDK puts fragments of a large event together", async () => {
  const { simulator, say } = await scene({ connection: { fragmentBytes: 100 } });
  const text = "长消息".repeat(200);
  const reply = await simulator.waitForReply(await say(text), { timeoutMs: 60_000 });
  expect(reply.text).toContain(text);
});

test("the official SDK comes back after its connection is cut, and fetches a new token after expiry", async () => {
  const { simulator, say } = await scene();
  await simulator.waitForReply(await say("one"), { timeoutMs: 60_000 });
  const back = new Promise<void>((resolve) => {
    simulator.on("connection", ({ connections }) => connections > 0 && resolve());
  });
  simulator.dropConnections();
  simulator.expireTokens();
  await back;
  await simulator.waitForReply(await say("two"), { timeoutMs: 60_000 });
  expect(simulator.apiCalls.map((call) => call.code)).toContain(99991663);
});

test("a lost response does not make a second reply", async () => {
  const { simulator, say } = await scene();
  simulator.faults.add({
    match: { path: /\/reply$/ },
    times: 1,
    action: { kind: "lose_response" },
  });
  const messageId = await say("once");
  const { chatId } = await simulator.waitForReply(messageId, { timeoutMs: 60_000 });
  const replies = () => simulator.apiCalls.filter((call) => call.path.endsWith("/reply")).length;
  await expect.poll(replies, { timeout: 60_000 }).toBe(2);
  expect(simulator.messages(chatId).filter((message) => message.senderType === "app")).toHaveLength(
    1,
  );
});
