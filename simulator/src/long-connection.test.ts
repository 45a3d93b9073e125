import { once } from "node:events";
import { patientClock } from "@larkline/testkit";
import { afterEach, expect, test } from "vitest";
import { WebSocket } from "ws";
import { decodeFrame, encodeFrame, frameHeader, type Frame } from "./long-connection.ts";
import { startFeishuSimulator, type FeishuSimulator, type SimulatorOptions } from "./index.ts";
import { callOpenApi } from "./open-api.fixture.ts";

const appId = "cli_0123456789abcdef";
const appSecret = "s";
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

async function start(options: Partial<SimulatorOptions> = {}): Promise<FeishuSimulator> {
  const simulator = await startFeishuSimulator({
    apps: [{ appId, appSecret }],
    retryDelaysMs: [10, 20],
    clock: patientClock,
    ...options,
  });
  closing.push(simulator.close);
  return simulator;
}

function endpoint(simulator: FeishuSimulator, secret = appSecret) {
  const call = {
    method: "POST",
    path: "/callback/ws/endpoint",
    body: { AppID: appId, AppSecret: secret },
  };
  return callOpenApi(simulator.url, call);
}

interface Client {
  socket: WebSocket;
  frames: Frame[];
  next(matching: (frame: Frame) => boolean): Promise<Frame>;
}

/** Connects and pings, like the official client; `onData` answers data frames. */
async function connect(
  simulator: FeishuSimulator,
  onData?: (frame: Frame, socket: WebSocket) => void,
): Promise<Client> {
  const { data } = await endpoint(simulator);
  const socket = new WebSocket(String(data.URL));
  const frames: Frame[] = [];
  const waiting: { matching: (frame: Frame) => boolean; resolve: (frame: Frame) => void }[] = [];
  socket.on("message", (bytes: Buffer) => {
    const frame = decodeFrame(bytes);
    if (frame === undefined) return;
    frames.push(frame);
    for (const waiter of waiting) if (waiter.matching(frame)) waiter.resolve(frame);
    if (frame.method === 1) onData?.(frame, socket);
  });
  const next = (matching: (frame: Frame) => boolean): Promise<Frame> =>
    new Promise((resolve) => {
      const existing = frames.find(matching);
      if (existing === undefined) waiting.push({ matching, resolve });
      else resolve(existing);
    });
  await once(socket, "open");
  const pong = next((frame) => frame.method === 0);
  socket.send(
    encodeFrame({ seqId: 0, logId: 0, service: 33, method: 0, headers: [["type", "ping"]] }),
  );
  await pong;
  return { socket, frames, next };
}

function ack(frame: Frame, socket: WebSocket, body: unknown = { code: 200 }): void {
  const payload = Buffer.from(JSON.stringify(body));
  socket.send(encodeFrame({ ...frame, headers: [...frame.headers, ["biz_rt", "-3"]], payload }));
}

async function send(simulator: FeishuSimulator, text = "hi") {
  const { openId } = simulator.addUser({ name: "Ann" });
  const { chatId } = simulator.addChat({ type: "p2p", members: [openId] });
  return simulator.sendMessage({ appId, chatId, from: openId, text });
}

test("the endpoint answers with an address whose first parameter may be lost, and the client settings", async () => {
  const simulator = await start({
    connection: { reconnectIntervalSeconds: 1, reconnectNonceSeconds: 0 },
  });
  const { data, code } = await endpoint(simulator);
  const parameters = [...new URL(String(data.URL)).searchParams.keys()];
  expect(code).toBe(0);
  expect(parameters.slice(1)).toEqual(expect.arrayContaining(["device_id", "service_id"]));
  expect(data.ClientConfig).toEqual({
    ReconnectCount: -1,
    ReconnectInterval: 1,
    ReconnectNonce: 0,
    PingInterval: 120,
  });
});

test("a wrong secret is refused with 514 and a data object", async () => {
  const simulator = await start();
  expect((await endpoint(simulator, "wrong")).body).toMatchObject({ code: 514, data: {} });
});

test("a ticket works once", async () => {
  const simulator = await start();
  const { data } = await endpoint(simulator);
  const first = new WebSocket(String(data.URL));
  await once(first, "open");
  const second = new WebSocket(String(data.URL));
  const [, response] = await once(second, "unexpected-response");
  expect(response.headers["handshake-status"]).toBe("514");
});

test("a ping is answered with all four client settings", async () => {
  const simulator = await start();
  const client = await connect(simulator);
  const pong = await client.next((frame) => frameHeader(frame, "type") === "pong");
  expect(JSON.parse(String(pong.payload))).toEqual({
    ReconnectCount: -1,
    ReconnectInterval: 120,
    ReconnectNonce: 30,
    PingInterval: 120,
  });
});

test("an event goes to exactly one connection and its ack settles the delivery", async () => {
  const simulator = await start();
  const clients = [
    await connect(simulator, ack),
    await connect(simulator, ack),
    await connect(simulator, ack),
  ];
  const sent = await send(simulator);
  expect(await sent.delivery).toMatchObject({
    outcome: "acknowledged",
    attempts: [{ transport: "websocket", status: 200 }],
  });
  const frames = clients.flatMap((client) => client.frames.filter((frame) => frame.method === 1));
  expect(frames).toHaveLength(1);
  expect(JSON.parse(String(frames[0]?.payload))).toMatchObject({
    header: { event_id: sent.eventId },
  });
});

test("a callback's answer comes back from the ack", async () => {
  const simulator = await start();
  const answer = { toast: { type: "info", content: "好" } };
  const data = Buffer.from(JSON.stringify(answer)).toString("base64");
  await connect(simulator, (frame, socket) => ack(frame, socket, { code: 200, data }));
  const click = { appId, eventType: "card.action.trigger", event: {}, callback: true };
  expect((await simulator.sendEvent(click)).attempts[0]?.response).toEqual(answer);
});

test("code 500 and a missing ack are retried on the schedule", async () => {
  const simulator = await start({ connection: { ackTimeoutMs: 400 } });
  let received = 0;
  await connect(simulator, (frame, socket) => {
    received += 1;
    if (received === 1) ack(frame, socket, { code: 500 });
    if (received === 3) ack(frame, socket);
  });
  const report = await (await send(simulator)).delivery;
  expect(report.outcome).toBe("acknowledged");
  expect(report.attempts.map((attempt) => attempt.error)).toEqual([
    "ack code 500",
    "timeout",
    undefined,
  ]);
});

test("a connection that is cut before the ack fails the attempt at once", async () => {
  const simulator = await start({ retryDelaysMs: [] });
  await connect(simulator, () => simulator.dropConnections(appId));
  expect(await (await send(simulator)).delivery).toMatchObject({
    outcome: "exhausted",
    attempts: [{ error: "the connection closed before the ack" }],
  });
  expect(simulator.apps[0]?.connections).toBe(0);
});

test("a large event is split into numbered fragments", async () => {
  const simulator = await start({ connection: { fragmentBytes: 200 } });
  const parts: Buffer[] = [];
  await connect(simulator, (frame, socket) => {
    parts[Number(frameHeader(frame, "seq"))] = frame.payload ?? Buffer.alloc(0);
    if (parts.length === Number(frameHeader(frame, "sum"))) ack(frame, socket);
  });
  const sent = await send(simulator, "你好".repeat(100));
  expect((await sent.delivery).outcome).toBe("acknowledged");
  expect(parts.length).toBeGreaterThan(3);
  const event = JSON.parse(Buffer.concat(parts).toString("utf8"));
  expect(JSON.parse(event.event.message.content).text).toBe("你好".repeat(100));
});

test("frozen connections stay open, answer no ping and take no event", async () => {
  const simulator = await start({ retryDelaysMs: [], connection: { ackTimeoutMs: 400 } });
  const client = await connect(simulator, ack);
  simulator.freezeConnections(true);
  expect((await (await send(simulator)).delivery).attempts[0]?.error).toBe("timeout");
  expect(client.socket.readyState).toBe(WebSocket.OPEN);
  simulator.freezeConnections(false);
  expect((await (await send(simulator)).delivery).outcome).toBe("acknowledged");
});

test("a connection beyond the limit is refused by the endpoint and at the handshake", async () => {
  const simulator = await start({ connection: { maxConnections: 2 } });
  const early = await endpoint(simulator);
  await connect(simulator);
  await connect(simulator);
  expect((await endpoint(simulator)).body).toMatchObject({ code: 1000040350, data: {} });
  const late = new WebSocket(String(early.data.URL));
  const [, response] = await once(late, "unexpected-response");
  expect(response.headers["handshake-autherrcode"]).toBe("1000040350");
});

test("the transport can be chosen, and connections are announced", async () => {
  const simulator = await start({ retryDelaysMs: [] });
  const announced: number[] = [];
  simulator.on("connection", ({ connections }) => announced.push(connections));
  const client = await connect(simulator, ack);
  simulator.setTransport(appId, "webhook");
  expect((await (await send(simulator)).delivery).attempts[0]?.transport).toBe("none");
  const gone = new Promise((resolve) => simulator.on("connection", resolve));
  client.socket.close();
  await gone;
  expect(announced).toEqual([1, 0]);
});

test("bytes that are no frame do not disturb the connection", async () => {
  const simulator = await start();
  const client = await connect(simulator, ack);
  client.socket.send(Buffer.from("garbage"));
  client.socket.send("text");
  expect((await (await send(simulator)).delivery).outcome).toBe("acknowledged");
});
