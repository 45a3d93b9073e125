import { randomBytes } from "node:crypto";
import { Agent as HttpAgent, request as httpRequest, type ClientRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import type { SimApp } from "./app.ts";
import type { DeliveryAttempt, OutgoingEvent, Push } from "./delivery.ts";
import { encryptEvent, signEvent } from "./event-cipher.ts";
import { isJsonObject } from "./json-fields.ts";

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

export function createWebhookSender(now: () => number, timeouts: WebhookTimeouts): WebhookSender {
  const http = new HttpAgent({ keepAlive: true, maxSockets: 512 });
  const https = new HttpsAgent({ keepAlive: true, maxSockets: 512 });
  const post = async (parts: Post): Promise<PostResult> => {
    const first = await attemptPost(parts, { http, https });
    // The other side closed an idle connection: not an attempt of ours.
    return first.reusedSocketLost ? attemptPost(parts, { http, https }) : first;
  };
  return {
    async push(event) {
      const at = now();
      const result = await post({ ...signedBody(event, at), timeouts });
      return attemptOf(result, at, now() - at);
    },
    async verify(app) {
      const challenge = randomBytes(12).toString("hex");
      const plain = JSON.stringify({ challenge, token: app.verificationToken, type: "url_verification" });
      const body =
        app.encryptKey === undefined ? plain : JSON.stringify({ encrypt: encryptEvent(app.encryptKey, plain) });
      const limits = {
        connectTimeoutMs: timeouts.connectTimeoutMs,
        totalTimeoutMs: Math.min(1000, timeouts.totalTimeoutMs),
      };
      const result = await post({ url: app.webhookUrl ?? "", body, headers: jsonHeaders, timeouts: limits });
      if (result.error !== undefined) return { verified: false, error: result.error };
      const answer = parseAnswer(result.text);
      if (result.status === 200 && isJsonObject(answer) && answer.challenge === challenge) return { verified: true };
      return { verified: false, error: `status ${result.status ?? 0}, the challenge was not returned` };
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
  const nonce = randomBytes(8).toString("hex");
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
    ...(result.text === undefined || result.text === "" ? {} : { response: parseAnswer(result.text) }),
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

function attemptPost(post: Post, agents: Agents): Promise<PostResult & { reusedSocketLost?: boolean }> {
  return new Promise((resolve) => {
    const secure = post.url.startsWith("https:");
    const options = {
      method: "POST",
      headers: { ...post.headers, "content-length": Buffer.byteLength(post.body) },
      signal: AbortSignal.timeout(post.timeouts.totalTimeoutMs),
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
    limitConnect(request, post.timeouts.connectTimeoutMs);
    request.on("response", (response) => void readAnswer(response).then(resolve));
    request.on("error", (error) => {
      const reusedSocketLost = request.reusedSocket && "code" in error && error.code === "ECONNRESET";
      resolve({ error: failureText(error), reusedSocketLost });
    });
    request.end(post.body);
  });
}

function limitConnect(request: ClientRequest, timeoutMs: number): void {
  request.on("socket", (socket) => {
    if (!socket.connecting) return;
    const timer = setTimeout(() => request.destroy(new Error("connect timeout")), timeoutMs);
    socket.once("connect", () => clearTimeout(timer));
    socket.once("close", () => clearTimeout(timer));
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
