import { createHash, createCipheriv } from "node:crypto";
import {
  Agent as HttpAgent,
  type ClientRequest,
  request as httpRequest,
  type IncomingMessage,
} from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { type Clock, pause } from "@larkline/protocol/clock";
import type { SimApp, Transport } from "./apps.ts";
import { randomFraction, randomHex, isJsonObject, type JsonObject, newId } from "./open-api.ts";

/** An event on its way to an app. The ids and the payload stay the same on every attempt. */
export interface OutgoingEvent {
  app: SimApp;
  eventId: string;
  eventType: string;
  messageId?: string;
  /** Of ordered events: those of one order are handed over one after another, and one that is not acknowledged holds up the rest. */
  order?: string;
  /** The envelope as JSON text. */
  payload: string;
}

/** One attempt to hand an event over. Times are milliseconds. */
export interface DeliveryAttempt {
  transport: "webhook" | "websocket" | "none";
  at: number;
  durationMs: number;
  acknowledged: boolean;
  /** HTTP status of a webhook, or the code of a long-connection ack. */
  status?: number;
  /** Why it was not acknowledged. */
  error?: string;
  /** The answer's body, decoded; a callback's toast or card. */
  response?: unknown;
}

/** An attempt with what it carried: an entry of the delivery log. */
export interface DeliveryRecord extends DeliveryAttempt {
  appId: string;
  eventId: string;
  eventType: string;
  messageId?: string;
  /** 1 for the first attempt. */
  attempt: number;
}

/**
 * How a delivery ended: acknowledged; given up after the last retry; abandoned because the simulator closed; or not
 * sent because the app is not subscribed to it.
 */
export type DeliveryOutcome = "acknowledged" | "exhausted" | "abandoned" | "not_subscribed";

export interface DeliveryReport {
  eventId: string;
  messageId?: string;
  outcome: DeliveryOutcome;
  attempts: readonly DeliveryAttempt[];
}

/** Hands one event over by one transport; it resolves in bounded time and never rejects. */
export type Push = (event: OutgoingEvent) => Promise<DeliveryAttempt>;

interface DeliveryParts {
  webhook: Push;
  websocket: Push;
  isConnected: (appId: string) => boolean;
  /** Waits between attempts; as many retries as there are waits. */
  retryDelaysMs: readonly number[];
  clock: Clock;
  onAttempt: (record: DeliveryRecord) => void;
}

/** What may happen to events between the platform and an app (event overview: at least once, in no order). */
export interface DeliveryNoise {
  /** So many acknowledgements get lost on their way: the app has the event, and it is retried. */
  lostAcks?: number;
  /** Each acknowledged event is delivered once more, with the same ids. */
  duplicates?: boolean;
  /** Events wait up to this long, at random, so that their order changes. */
  shuffleMs?: number;
}

/** Delivers with the platform's retry schedule (event overview: 15 s, 5 min, 1 h, 6 h). */
export interface DeliveryService {
  deliver(event: OutgoingEvent): Promise<DeliveryReport>;
  /** A single attempt: callbacks are never retried; a redelivery on demand is one more attempt. */
  deliverOnce(event: OutgoingEvent): Promise<DeliveryReport>;
  /** From now on; callbacks and redeliveries on demand are spared. */
  setNoise(noise: DeliveryNoise): void;
  close(): void;
}

export function createDeliveryService(parts: DeliveryParts): DeliveryService {
  const closing = new AbortController();
  const attemptCounts = new WeakMap<OutgoingEvent, number>();

  let noise: DeliveryNoise = {};

  const push = async (event: OutgoingEvent, noisy: boolean): Promise<DeliveryAttempt> => {
    const attempt = (attemptCounts.get(event) ?? 0) + 1;
    attemptCounts.set(event, attempt);
    const pushed = await pushOver(parts, event);
    const result =
      noisy && pushed.acknowledged && (noise.lostAcks ?? 0) > 0 ? lostAck(pushed) : pushed;
    if (result !== pushed) noise = { ...noise, lostAcks: (noise.lostAcks ?? 0) - 1 };
    parts.onAttempt({
      ...result,
      appId: event.app.appId,
      eventId: event.eventId,
      eventType: event.eventType,
      ...(event.messageId === undefined ? {} : { messageId: event.messageId }),
      attempt,
    });
    return result;
  };

  const deliver = async (event: OutgoingEvent): Promise<DeliveryReport> => {
    const made: DeliveryAttempt[] = [];
    const delaysMs = [randomFraction() * (noise.shuffleMs ?? 0), ...parts.retryDelaysMs];
    for (const delayMs of delaysMs) {
      if (delayMs > 0) await pause(parts.clock, delayMs, closing.signal);
      if (closing.signal.aborted) return report(event, "abandoned", made);
      const result = await push(event, true);
      made.push(result);
      if (!result.acknowledged) continue;
      if (noise.duplicates === true) made.push(await push(event, false));
      return report(event, "acknowledged", made);
    }
    return report(event, "exhausted", made);
  };

  const orders = new Map<string, Promise<DeliveryReport>>();
  /** After all earlier events of the same order were acknowledged, or given up ("Approval events"). */
  const deliverInOrder = async (event: OutgoingEvent): Promise<DeliveryReport> => {
    if (event.order === undefined) return await deliver(event);
    const name = `${event.app.appId} ${event.order}`;
    const before = orders.get(name);
    const mine = (async () => {
      await before;
      return await deliver(event);
    })();
    orders.set(name, mine);
    const made = await mine;
    if (orders.get(name) === mine) orders.delete(name);
    return made;
  };

  const deliverOnce = async (event: OutgoingEvent): Promise<DeliveryReport> => {
    if (closing.signal.aborted) return report(event, "abandoned", []);
    const result = await push(event, false);
    return report(event, result.acknowledged ? "acknowledged" : "exhausted", [result]);
  };

  return {
    deliver: deliverInOrder,
    deliverOnce,
    setNoise(next) {
      noise = next;
    },
    close: () => closing.abort(),
  };
}

function lostAck(attempt: DeliveryAttempt): DeliveryAttempt {
  return { ...attempt, acknowledged: false, error: "the acknowledgement was lost" };
}

/** The report of an event that the app is not subscribed to. */
export function unsubscribed(event: OutgoingEvent): DeliveryReport {
  return report(event, "not_subscribed", []);
}

function report(
  event: OutgoingEvent,
  outcome: DeliveryOutcome,
  attempts: readonly DeliveryAttempt[],
): DeliveryReport {
  const message = event.messageId === undefined ? {} : { messageId: event.messageId };
  return { eventId: event.eventId, ...message, outcome, attempts };
}

async function pushOver(parts: DeliveryParts, event: OutgoingEvent): Promise<DeliveryAttempt> {
  const transport = chosenTransport(
    event.app.transport,
    event.app,
    parts.isConnected(event.app.appId),
  );
  if (transport === "websocket") return parts.websocket(event);
  if (transport === "webhook") return parts.webhook(event);
  return {
    transport: "none",
    at: parts.clock.now(),
    durationMs: 0,
    acknowledged: false,
    error: "the app has no long connection and no webhook address",
  };
}

function chosenTransport(
  setting: Transport,
  app: SimApp,
  connected: boolean,
): "webhook" | "websocket" | "none" {
  if (setting !== "webhook" && connected) return "websocket";
  if (setting !== "websocket" && app.webhookUrl !== undefined) return "webhook";
  return "none";
}

const responseLimitBytes = 256 * 1024;

export interface WebhookTimeouts {
  connectTimeoutMs: number;
  /** From the start to the end of the answer. */
  totalTimeoutMs: number;
}

/** What checking an app's request address found. */
export interface WebhookVerification {
  verified: boolean;
  error?: string;
}

/** Posts events to the request address of an app: encrypted and signed when the app has an encrypt key. */
export interface WebhookSender {
  push: Push;
  /** `url_verification`, as the developer console sends it when the address is saved: within 1 s, never signed. */
  verify(app: SimApp): Promise<WebhookVerification>;
  close(): void;
}

interface Post {
  url: string;
  body: string;
  headers: Record<string, string>;
  timeouts: WebhookTimeouts;
}

interface PostResult {
  status?: number;
  text?: string;
  error?: string;
}

export function createWebhookSender(clock: Clock, timeouts: WebhookTimeouts): WebhookSender {
  const http = new HttpAgent({ keepAlive: true, maxSockets: 512 });
  const https = new HttpsAgent({ keepAlive: true, maxSockets: 512 });
  const post = async (parts: Post): Promise<PostResult> => {
    const first = await attemptPost(clock, parts, { http, https });
    // The other side closed an idle connection: not an attempt of ours.
    return first.reusedSocketLost ? attemptPost(clock, parts, { http, https }) : first;
  };
  return {
    async push(event) {
      const at = clock.now();
      const result = await post({ ...signedBody(event, at), timeouts });
      return attemptOf(result, at, clock.now() - at);
    },
    async verify(app) {
      const challenge = randomHex(24);
      const plain = JSON.stringify({
        challenge,
        token: app.verificationToken,
        type: "url_verification",
      });
      const body =
        app.encryptKey === undefined
          ? plain
          : JSON.stringify({ encrypt: encryptEvent(app.encryptKey, plain) });
      const limits = {
        connectTimeoutMs: timeouts.connectTimeoutMs,
        totalTimeoutMs: Math.min(1000, timeouts.totalTimeoutMs),
      };
      const result = await post({
        url: app.webhookUrl ?? "",
        body,
        headers: jsonHeaders,
        timeouts: limits,
      });
      if (result.error !== undefined) return { verified: false, error: result.error };
      const answer = parseAnswer(result.text);
      if (result.status === 200 && isJsonObject(answer) && answer.challenge === challenge) {
        return { verified: true };
      }
      return {
        verified: false,
        error: `status ${result.status ?? 0}, the challenge was not returned`,
      };
    },
    close() {
      http.destroy();
      https.destroy();
    },
  };
}

const jsonHeaders = { "content-type": "application/json; charset=utf-8" };

function signedBody(event: OutgoingEvent, at: number): Omit<Post, "timeouts"> {
  const url = event.app.webhookUrl ?? "";
  const { encryptKey } = event.app;
  if (encryptKey === undefined) return { url, body: event.payload, headers: jsonHeaders };
  const body = JSON.stringify({ encrypt: encryptEvent(encryptKey, event.payload) });
  const timestamp = String(Math.floor(at / 1000));
  const nonce = randomHex(16);
  return {
    url,
    body,
    headers: {
      ...jsonHeaders,
      "x-lark-request-timestamp": timestamp,
      "x-lark-request-nonce": nonce,
      "x-lark-signature": signEvent({ timestamp, nonce, encryptKey, body }),
    },
  };
}

function attemptOf(result: PostResult, at: number, durationMs: number): DeliveryAttempt {
  const acknowledged = result.error === undefined && result.status === 200;
  const error = result.error ?? (acknowledged ? undefined : `status ${result.status ?? 0}`);
  return {
    transport: "webhook",
    at,
    durationMs,
    acknowledged,
    ...(result.status === undefined ? {} : { status: result.status }),
    ...(error === undefined ? {} : { error }),
    ...(result.text === undefined || result.text === ""
      ? {}
      : { response: parseAnswer(result.text) }),
  };
}

function parseAnswer(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? "");
  } catch {
    return text;
  }
}

interface Agents {
  http: HttpAgent;
  https: HttpsAgent;
}

function attemptPost(
  clock: Clock,
  post: Post,
  agents: Agents,
): Promise<PostResult & { reusedSocketLost?: boolean }> {
  const late = new AbortController();
  const cancelDeadline = clock.after(post.timeouts.totalTimeoutMs, () => late.abort());
  const posted = new Promise<PostResult & { reusedSocketLost?: boolean }>((resolve) => {
    const secure = post.url.startsWith("https:");
    const options = {
      method: "POST",
      headers: { ...post.headers, "content-length": Buffer.byteLength(post.body) },
      signal: late.signal,
    };
    let request: ClientRequest;
    try {
      request = secure
        ? httpsRequest(post.url, { ...options, agent: agents.https })
        : httpRequest(post.url, { ...options, agent: agents.http });
    } catch {
      resolve({ error: "the webhook address is not a URL" });
      return;
    }
    limitConnect(clock, request, post.timeouts.connectTimeoutMs);
    request.on("response", (response) => void readAnswer(response).then(resolve));
    request.on("error", (error) => {
      const reusedSocketLost =
        request.reusedSocket && "code" in error && error.code === "ECONNRESET";
      resolve({ error: failureText(error), reusedSocketLost });
    });
    request.end(post.body);
  });
  return posted.finally(cancelDeadline);
}

function limitConnect(clock: Clock, request: ClientRequest, timeoutMs: number): void {
  request.on("socket", (socket) => {
    if (!socket.connecting) return;
    const cancel = clock.after(timeoutMs, () => void request.destroy(new Error("connect timeout")));
    socket.once("connect", cancel);
    socket.once("close", cancel);
  });
}

async function readAnswer(response: IncomingMessage): Promise<PostResult> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of response) {
      if (!Buffer.isBuffer(chunk)) continue;
      size += chunk.length;
      if (size > responseLimitBytes) return { error: "the answer is too large" };
      chunks.push(chunk);
    }
  } catch (error) {
    return { error: failureText(error) };
  }
  return { status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString("utf8") };
}

function failureText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name === "AbortError" || error.name === "TimeoutError") return "timeout";
  return "code" in error && typeof error.code === "string" ? error.code : error.message;
}

/** Encrypts an event body: base64 of IV and AES-256-CBC under SHA-256 of the encrypt key (event subscription guide). */
export function encryptEvent(
  encryptKey: string,
  plain: string,
  iv: Buffer = Buffer.from(randomHex(32), "hex"),
): string {
  const key = createHash("sha256").update(encryptKey, "utf8").digest();
  const cipher = createCipheriv("aes-256-cbc", key, iv);
  return Buffer.concat([iv, cipher.update(plain, "utf8"), cipher.final()]).toString("base64");
}

/** What a signature covers; `body` is the raw request body as sent. */
export interface SignedParts {
  timestamp: string;
  nonce: string;
  encryptKey: string;
  body: string;
}

/** `X-Lark-Signature`: hex SHA-256 of timestamp, nonce, encrypt key and raw body, joined without separators. */
export function signEvent({ timestamp, nonce, encryptKey, body }: SignedParts): string {
  return createHash("sha256")
    .update(timestamp + nonce + encryptKey, "utf8")
    .update(body, "utf8")
    .digest("hex");
}

/** Events on their way to the bots that they concern. */
export interface EventPush {
  /** Settles when each event was acknowledged or given up; one report per bot. */
  readonly reports: Promise<readonly DeliveryReport[]>;
}

/** An event to wrap in the 2.0 envelope. */
interface EventBody {
  eventType: string;
  event: JsonObject;
  messageId?: string;
  createdAt: number;
}

/** Wraps an event in the 2.0 envelope (event overview). */
export function envelope(app: SimApp, body: EventBody): OutgoingEvent {
  const eventId = newId("");
  const header = {
    event_id: eventId,
    event_type: body.eventType,
    create_time: String(body.createdAt),
    token: app.verificationToken,
    app_id: app.appId,
    tenant_key: app.tenantKey,
  };
  return {
    app,
    eventId,
    eventType: body.eventType,
    ...(body.messageId === undefined ? {} : { messageId: body.messageId }),
    payload: JSON.stringify({ schema: "2.0", header, event: body.event }),
  };
}

/** Wraps an event in the 1.0 envelope, which has no header (event overview). */
export function legacyEnvelope(
  app: SimApp,
  { eventType, event, createdAt }: EventBody,
): OutgoingEvent {
  const eventId = newId("");
  const body = { type: eventType, app_id: app.appId, tenant_key: app.tenantKey, ...event };
  const ts = `${(createdAt / 1000).toFixed(3)}0000`;
  const payload = JSON.stringify({
    ts,
    uuid: eventId,
    token: app.verificationToken,
    type: "event_callback",
    event: body,
  });
  return { app, eventId, eventType, payload };
}
