import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type Clock, systemRandom } from "@larkline/protocol/clock";
import protobuf from "protobufjs";
import { type WebSocket, WebSocketServer, type RawData } from "ws";
import { type SimApp, sameSecret } from "./apps.ts";
import type { Push, OutgoingEvent, DeliveryAttempt } from "./delivery.ts";
import { type JsonObject, randomHex, parseJsonObject, randomFraction } from "./open-api.ts";

const serviceId = 33;
const frameLimitBytes = 1024 * 1024;
const ticketLifetimeMs = 60_000;
const silenceMs = 500;

/** Long-connection settings; the defaults are those of the official SDK. */
export interface ConnectionOptions {
  /** Tries after a failed reconnect; below 0: without end. */
  reconnectCount?: number;
  reconnectIntervalSeconds?: number;
  /** Upper bound of the random wait before the first reconnect. */
  reconnectNonceSeconds?: number;
  pingIntervalSeconds?: number;
  /** Events above this size are split into several frames. Default 100 KB. */
  fragmentBytes?: number;
  /** Default 50 per app. */
  maxConnections?: number;
  /** Default 3 s. */
  ackTimeoutMs?: number;
}

export interface LongConnections {
  /** The answer of `POST /callback/ws/endpoint`; `host` is the address the caller used. */
  endpoint(body: JsonObject, host: string): JsonObject;
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  push: Push;
  /** Connections that take events. */
  count(appId: string): number;
  /** Cuts the connections (of one app) without a closing handshake. */
  drop(appId?: string): void;
  /** Half-open sockets: while frozen, pings and acks are ignored and nothing is sent. */
  freeze(frozen: boolean): void;
  close(): void;
}

interface LongConnectionParts {
  apps: ReadonlyMap<string, SimApp>;
  options: ConnectionOptions;
  clock: Clock;
  onChange: (appId: string, connections: number) => void;
}

interface Connection {
  appId: string;
  socket: WebSocket;
  /** Events go to it only from its first ping on, or after `silenceMs`: the client listens by then. */
  ready: boolean;
}

interface PendingAck {
  socket: WebSocket;
  settle: (ack: { code?: number; error?: string; response?: unknown }) => void;
}

interface State {
  parts: LongConnectionParts;
  connections: Set<Connection>;
  tickets: Map<string, { appId: string; expiresAt: number }>;
  pending: Map<string, PendingAck>;
  frozen: boolean;
  sequence: number;
}

export function createLongConnections(parts: LongConnectionParts): LongConnections {
  const server = new WebSocketServer({
    noServer: true,
    maxPayload: frameLimitBytes,
    perMessageDeflate: false,
  });
  const state: State = {
    parts,
    connections: new Set(),
    tickets: new Map(),
    pending: new Map(),
    frozen: false,
    sequence: 0,
  };
  return {
    endpoint: (body, host) => endpoint(state, body, host),
    upgrade(request, socket, head) {
      const admission = admit(state, request);
      if (admission.refusal !== undefined) return refuseHandshake(socket, admission.refusal);
      server.handleUpgrade(request, socket, head, (client) => open(state, admission.appId, client));
    },
    push: (event) => push(state, event),
    count: (appId) => ready(state, appId).length,
    drop(appId) {
      for (const connection of state.connections) {
        if (appId === undefined || connection.appId === appId) connection.socket.terminate();
      }
    },
    freeze(frozen) {
      state.frozen = frozen;
    },
    close() {
      for (const connection of state.connections) connection.socket.terminate();
      server.close();
    },
  };
}

function ready(state: State, appId: string): Connection[] {
  return [...state.connections].filter(
    (connection) => connection.ready && connection.appId === appId,
  );
}

function count(state: State, appId: string): number {
  let connections = 0;
  for (const connection of state.connections) if (connection.appId === appId) connections += 1;
  return connections;
}

function clientConfig(options: ConnectionOptions): JsonObject {
  return {
    ReconnectCount: options.reconnectCount ?? -1,
    ReconnectInterval: options.reconnectIntervalSeconds ?? 120,
    ReconnectNonce: options.reconnectNonceSeconds ?? 30,
    PingInterval: options.pingIntervalSeconds ?? 120,
  };
}

/** Refusals carry an empty `data`: without it the official SDK takes every failure for a passing one. */
function endpoint(state: State, body: JsonObject, host: string): JsonObject {
  const app = typeof body.AppID === "string" ? state.parts.apps.get(body.AppID) : undefined;
  if (app === undefined || !sameSecret(body.AppSecret, app.appSecret)) {
    return { code: 514, msg: "auth failed", data: {} };
  }
  if (count(state, app.appId) >= (state.parts.options.maxConnections ?? 50)) {
    return { code: 1000040350, msg: "the number of connections exceeded the limit", data: {} };
  }
  const now = state.parts.clock.now();
  for (const [ticket, entry] of state.tickets) {
    if (entry.expiresAt <= now) state.tickets.delete(ticket);
  }
  const ticket = systemRandom.uuid();
  state.tickets.set(ticket, { appId: app.appId, expiresAt: now + ticketLifetimeMs });
  // The official SDK loses the first query parameter, so it must not be one that it needs.
  const query = new URLSearchParams({
    fpid: "493",
    device_id: randomHex(16),
    access_key: randomHex(16),
    service_id: String(serviceId),
    ticket,
  });
  const url = `ws://${host}/ws/v2?${query.toString()}`;
  return {
    code: 0,
    msg: "ok",
    data: { URL: url, ClientConfig: clientConfig(state.parts.options) },
  };
}

type Admission =
  | { appId: string; refusal?: undefined }
  | { refusal: { status: number; message: string; authCode?: number } };

function admit(state: State, request: IncomingMessage): Admission {
  const url = new URL(request.url ?? "/", "http://platform.invalid");
  if (url.pathname !== "/ws/v2") return { refusal: { status: 404, message: "not found" } };
  const key = url.searchParams.get("ticket") ?? "";
  const ticket = state.tickets.get(key);
  state.tickets.delete(key);
  if (ticket === undefined || ticket.expiresAt <= state.parts.clock.now()) {
    return { refusal: { status: 514, message: "auth failed" } };
  }
  if (count(state, ticket.appId) >= (state.parts.options.maxConnections ?? 50)) {
    return { refusal: { status: 514, message: "exceed connection limit", authCode: 1000040350 } };
  }
  return { appId: ticket.appId };
}

function refuseHandshake(
  socket: Duplex,
  refusal: { status: number; message: string; authCode?: number },
): void {
  socket.on("error", () => socket.destroy());
  const httpStatus = refusal.status === 404 ? "404 Not Found" : "403 Forbidden";
  const auth =
    refusal.authCode === undefined ? "" : `Handshake-Autherrcode: ${refusal.authCode}\r\n`;
  const headers = `Handshake-Status: ${refusal.status}\r\nHandshake-Msg: ${refusal.message}\r\n${auth}`;
  socket.end(`HTTP/1.1 ${httpStatus}\r\nConnection: close\r\nContent-Length: 0\r\n${headers}\r\n`);
}

function open(state: State, appId: string, socket: WebSocket): void {
  const connection: Connection = { appId, socket, ready: false };
  state.connections.add(connection);
  const cancelReady = state.parts.clock.after(silenceMs, () => markReady(state, connection));
  socket.on("message", (data) => {
    receive(state, socket, data);
    markReady(state, connection);
  });
  socket.on("error", () => socket.terminate());
  socket.on("close", () => {
    cancelReady();
    state.connections.delete(connection);
    for (const [messageId, ack] of state.pending) {
      if (ack.socket !== socket) continue;
      state.pending.delete(messageId);
      ack.settle({ error: "the connection closed before the ack" });
    }
    state.parts.onChange(appId, ready(state, appId).length);
  });
}

function markReady(state: State, connection: Connection): void {
  if (connection.ready) return;
  connection.ready = true;
  state.parts.onChange(connection.appId, ready(state, connection.appId).length);
}

function receive(state: State, socket: WebSocket, data: RawData): void {
  if (state.frozen) return;
  const frame = Buffer.isBuffer(data) ? decodeFrame(data) : undefined;
  if (frame === undefined) return;
  if (frame.method === 0 && frameHeader(frame, "type") === "ping") {
    return pong(state, socket, frame);
  }
  if (frame.method === 1) settleAck(state, frame);
}

function pong(state: State, socket: WebSocket, ping: Frame): void {
  const payload = Buffer.from(JSON.stringify(clientConfig(state.parts.options)));
  socket.send(
    encodeFrame({
      seqId: 0,
      logId: 0,
      service: ping.service,
      method: 0,
      headers: [["type", "pong"]],
      payload,
    }),
  );
}

function settleAck(state: State, frame: Frame): void {
  const messageId = frameHeader(frame, "message_id") ?? "";
  const ack = state.pending.get(messageId);
  if (ack === undefined) return;
  state.pending.delete(messageId);
  const body = parseJsonObject(frame.payload?.toString("utf8") ?? "");
  const code = typeof body?.code === "number" ? body.code : 0;
  const response = typeof body?.data === "string" ? decodeAckData(body.data) : undefined;
  ack.settle({ code, response });
}

function decodeAckData(data: string): unknown {
  const text = Buffer.from(data, "base64").toString("utf8");
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Hands an event to one connection of the app, chosen at random, and waits for its ack. */
async function push(state: State, event: OutgoingEvent): Promise<DeliveryAttempt> {
  const at = state.parts.clock.now();
  const candidates = ready(state, event.app.appId);
  const chosen = candidates[Math.floor(randomFraction() * candidates.length)];
  const attempt = { transport: "websocket" as const, at };
  if (chosen === undefined) {
    return { ...attempt, durationMs: 0, acknowledged: false, error: "not connected" };
  }
  const ack = await sendEvent(state, chosen.socket, event);
  const acknowledged = ack.code === 200;
  const error = ack.error ?? (acknowledged ? undefined : `ack code ${ack.code ?? 0}`);
  return {
    ...attempt,
    durationMs: state.parts.clock.now() - at,
    acknowledged,
    ...(ack.code === undefined ? {} : { status: ack.code }),
    ...(error === undefined ? {} : { error }),
    ...(ack.response === undefined ? {} : { response: ack.response }),
  };
}

function sendEvent(
  state: State,
  socket: WebSocket,
  event: OutgoingEvent,
): Promise<{ code?: number; error?: string; response?: unknown }> {
  return new Promise((resolve) => {
    const messageId = systemRandom.uuid();
    const cancelTimeout = state.parts.clock.after(state.parts.options.ackTimeoutMs ?? 3000, () => {
      state.pending.delete(messageId);
      resolve({ error: "timeout" });
    });
    state.pending.set(messageId, {
      socket,
      settle(ack) {
        cancelTimeout();
        resolve(ack);
      },
    });
    if (state.frozen) return;
    for (const frame of eventFrames(state, messageId, event)) socket.send(frame);
  });
}

function eventFrames(state: State, messageId: string, event: OutgoingEvent): Buffer[] {
  const payload = Buffer.from(event.payload, "utf8");
  const size = Math.max(1, state.parts.options.fragmentBytes ?? 100 * 1024);
  const sum = Math.max(1, Math.ceil(payload.length / size));
  return Array.from({ length: sum }, (_unused, seq) => {
    state.sequence += 1;
    return encodeFrame({
      seqId: state.sequence,
      logId: state.sequence,
      service: serviceId,
      method: 1,
      headers: [
        ["type", "event"],
        ["message_id", messageId],
        ["sum", String(sum)],
        ["seq", String(seq)],
        ["trace_id", event.eventId],
      ],
      payload: payload.subarray(seq * size, (seq + 1) * size),
    });
  });
}

/** A long-connection frame (protobuf `pbbp2.Frame`, proto2). `method`: 0 control, 1 data. */
export interface Frame {
  seqId: number;
  logId: number;
  service: number;
  method: number;
  headers: [key: string, value: string][];
  payloadEncoding?: string;
  payloadType?: string;
  payload?: Buffer;
  logIdNew?: string;
}

const frameType = protobuf
  .parse(`
  syntax = "proto2";
  message Header {
    required string key = 1;
    required string value = 2;
  }
  message Frame {
    required uint64 seqId = 1;
    required uint64 logId = 2;
    required int32 service = 3;
    required int32 method = 4;
    repeated Header headers = 5;
    optional string payloadEncoding = 6;
    optional string payloadType = 7;
    optional bytes payload = 8;
    optional string logIdNew = 9;
  }
`)
  .root.resolveAll()
  .lookupType("Frame");

/** A frame as protobufjs has it: absent fields are no properties. */
type WireFrame = Omit<Frame, "headers"> & { headers?: { key: string; value: string }[] };

/** Encodes a frame; the four required numbers are written even when they are 0. */
export function encodeFrame(frame: Frame): Buffer {
  const headers = frame.headers.map(([key, value]) => ({ key, value }));
  return Buffer.from(frameType.encode({ ...frame, headers }).finish());
}

/** Decodes a frame, or gives undefined when the bytes are not one. */
export function decodeFrame(buffer: Buffer): Frame | undefined {
  try {
    const { headers = [], ...fields } = frameType.toObject(frameType.decode(buffer), {
      longs: Number,
    }) as WireFrame;
    return { ...fields, headers: headers.map(({ key, value }) => [key, value]) };
  } catch {
    return undefined;
  }
}

/** The value of the first header with this key. */
export function frameHeader(frame: Frame, key: string): string | undefined {
  return frame.headers.find(([name]) => name === key)?.[1];
}
