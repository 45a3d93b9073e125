import {
  startFeishuSimulator,
  type FeishuSimulator,
  type SimulatorOptions,
} from "@larkline/simulator";
import { describe, expect, it, onTestFinished } from "vitest";
import { noLogger } from "../transport/sdk.ts";
import type { Envelope } from "./inbound-message.ts";
import { LongConnection, type LongConnectionOptions } from "./long-connection.ts";

const appId = "cli_0123456789abcdef";
const appSecret = "s3cret-of-the-app";

interface Connected {
  simulator: FeishuSimulator;
  connection: LongConnection;
  states: string[];
  say: (text: string) => ReturnType<FeishuSimulator["sendMessage"]>;
}

function connectTo(domain: string, options: Partial<LongConnectionOptions> = {}): LongConnection {
  const connection = new LongConnection({
    appId,
    appSecret,
    domain,
    onEvent: () => Promise.resolve(),
    backOffMs: { min: 20, max: 200 },
    ...options,
  });
  onTestFinished(() => connection.close());
  connection.start();
  return connection;
}

async function simulated(options: Partial<SimulatorOptions> = {}): Promise<FeishuSimulator> {
  const simulator = await startFeishuSimulator({
    apps: [{ appId, appSecret, transport: "websocket" }],
    retryDelaysMs: [50, 50],
    ...options,
    // Longer than this process may stand still: an event that is not acknowledged yet is not delivered again.
    connection: { ackTimeoutMs: 60_000, ...options.connection },
  });
  onTestFinished(() => simulator.close());
  return simulator;
}

async function connected(
  options: Partial<LongConnectionOptions> = {},
  simulatorOptions: Partial<SimulatorOptions> = {},
): Promise<Connected> {
  const simulator = await simulated(simulatorOptions);
  const states: string[] = [];
  const connection = connectTo(simulator.url, {
    onState: (state) => states.push(state),
    ...options,
  });
  await expect.poll(() => simulator.apps[0]?.connections, { timeout: 60_000 }).toBe(1);
  const user = simulator.addUser({ name: "Ann" });
  const chat = simulator.addChat({ type: "p2p", members: [user.openId] });
  return {
    simulator,
    connection,
    states,
    say: (text) => simulator.sendMessage({ appId, chatId: chat.chatId, from: user.openId, text }),
  };
}

describe("a long connection", () => {
  it("hands over the whole envelope, nothing flattened", async () => {
    const seen: Envelope[] = [];
    const { connection, say, states } = await connected({
      onEvent: async (envelope) => void seen.push(envelope),
    });
    const { eventId, messageId, delivery } = await say("hi");
    expect((await delivery).outcome).toBe("acknowledged");
    expect(seen[0]).toMatchObject({
      eventId,
      type: "im.message.receive_v1",
      appId,
      event: { message: { message_id: messageId } },
    });
    expect(states).toEqual(["connecting", "connected"]);
    expect(connection.state()).toBe("connected");
  });

  it("acknowledges only after the handler settled", async () => {
    const gate = Promise.withResolvers<void>();
    const taken = Promise.withResolvers<void>();
    const { say, simulator } = await connected({
      onEvent: () => {
        taken.resolve();
        return gate.promise;
      },
    });
    const { delivery } = await say("hi");
    await taken.promise;
    expect(simulator.deliveries).toEqual([]);
    gate.resolve();
    expect((await delivery).attempts).toHaveLength(1);
  });

  it("lets the platform deliver again what a handler refused", async () => {
    let calls = 0;
    const { say } = await connected({
      onEvent: async () => {
        calls += 1;
        if (calls === 1) throw new Error("redis is down");
      },
    });
    const report = await (await say("hi")).delivery;
    expect(report.outcome).toBe("acknowledged");
    expect(report.attempts.map(({ status }) => status)).toEqual([500, 200]);
  });

  it("answers a callback with the handler's value", async () => {
    const toast = { toast: { type: "success", content: "ok" } };
    const { simulator } = await connected({ onEvent: () => Promise.resolve(toast) });
    const report = await simulator.sendEvent({
      appId,
      eventType: "card.action.trigger",
      event: { token: "c-1" },
      callback: true,
    });
    expect(report.attempts[0]?.response).toEqual(toast);
  });

  it("puts fragments together", async () => {
    const texts: unknown[] = [];
    const { say } = await connected(
      { onEvent: async ({ event }) => void texts.push(event["message"]) },
      { connection: { fragmentBytes: 300 } },
    );
    await (
      await say("长".repeat(1_000))
    ).delivery;
    expect(JSON.stringify(texts[0])).toContain("长".repeat(1_000));
  });

  it("connects again at once after a drop", async () => {
    const { simulator, connection, states, say } = await connected();
    const droppedAtMs = performance.now();
    simulator.dropConnections();
    await expect
      .poll(() => states, { timeout: 60_000, interval: 10 })
      .toEqual(["connecting", "connected", "reconnecting", "connected"]);
    expect(performance.now() - droppedAtMs).toBeLessThan(15_000);
    await expect.poll(() => simulator.apps[0]?.connections).toBe(1);
    expect((await (await say("hi")).delivery).outcome).toBe("acknowledged");
    expect(connection.state()).toBe("connected");
  });

  it("notices a half-open connection and makes a new one", async () => {
    const { simulator, states } = await connected(
      { pingTimeoutSeconds: 0.2 },
      { connection: { pingIntervalSeconds: 0.3 } },
    );
    simulator.freezeConnections(true);
    await expect.poll(() => states, { timeout: 60_000 }).toContain("reconnecting");
    simulator.freezeConnections(false);
    await expect.poll(() => states.at(-1), { timeout: 60_000 }).toBe("connected");
  });

  it("keeps trying after a first failure without the SDK's wait of up to 30 s", async () => {
    const simulator = await simulated();
    simulator.faults.add({
      match: { path: "/callback/ws/endpoint" },
      times: 2,
      action: { kind: "respond", status: 503 },
    });
    const startedAtMs = performance.now();
    const connection = connectTo(simulator.url);
    await expect
      .poll(() => connection.state(), { timeout: 60_000, interval: 10 })
      .toBe("connected");
    expect(performance.now() - startedAtMs).toBeLessThan(15_000);
  });

  it("says failed for a wrong secret, and recovers when the refusal ends", async () => {
    const simulator = await simulated();
    const states: string[] = [];
    const refusal = { code: 514, msg: "auth failed" };
    const heal = simulator.faults.add({
      match: { path: "/callback/ws/endpoint" },
      action: { kind: "respond", status: 200, body: refusal },
    });
    const errors: string[] = [];
    const logger = {
      ...noLogger,
      error: (_fields: object, text: string) => void errors.push(text),
    };
    const connection = connectTo(simulator.url, { onState: (state) => states.push(state), logger });
    await expect.poll(() => states).toContain("failed");
    expect(errors[0]).toContain("app id, secret");
    heal();
    await expect.poll(() => connection.state(), { timeout: 60_000 }).toBe("connected");
  });

  it("tells a malformed app id at the start", () => {
    expect(() => connectTo("http://127.0.0.1:1", { appId: "my-app" })).toThrow(/FEISHU_APP_ID/);
  });

  it("waits at close for running handlers and acknowledges their events", async () => {
    const gate = Promise.withResolvers<void>();
    const taken = Promise.withResolvers<void>();
    const { connection, say } = await connected({
      onEvent: () => {
        taken.resolve();
        return gate.promise;
      },
    });
    const { delivery } = await say("hi");
    await taken.promise;
    const closing = connection.close();
    expect(connection.close()).toBe(closing);
    gate.resolve();
    await closing;
    expect((await delivery).attempts).toMatchObject([{ acknowledged: true }]);
    expect(connection.state()).toBe("idle");
  });

  it("gives up waiting at close for a handler that never ends", async () => {
    const taken = Promise.withResolvers<void>();
    const { connection, say } = await connected({
      drainMs: 100,
      onEvent: () => {
        taken.resolve();
        return new Promise(() => undefined);
      },
    });
    await say("hi");
    await taken.promise;
    await connection.close();
    expect(connection.state()).toBe("idle");
  });

  it("stops trying when it is closed", async () => {
    const simulator = await simulated();
    simulator.faults.add({
      match: { path: "/callback/ws/endpoint" },
      action: { kind: "respond", status: 503 },
    });
    const connection = connectTo(simulator.url);
    await expect.poll(() => simulator.apiCalls.length).toBeGreaterThan(1);
    await connection.close();
    expect(connection.state()).toBe("idle");
    connection.start();
    expect(connection.state()).toBe("idle");
  });
});
