import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest, type RequestOptions } from "node:https";
import { parsedObject } from "./json.ts";
import type { HttpInstance, HttpRequestOptions } from "./sdk.ts";

/** The platform answered and refused: non-2xx, or 2xx with a business code other than 0. */
export class HttpRejection extends Error {
  override readonly name = "HttpRejection";
  readonly httpStatus: number;
  readonly code: number;
  /** May quote the request: never log it unread. */
  readonly platformMessage: string;
  readonly logId: string;
  readonly retryAfterMs: number;
  /** What the gateway names as the limit; 0 when it names none. */
  readonly namedLimit: number;
  /** The body was no JSON object. */
  readonly unreadable: boolean;

  constructor(httpStatus: number, body: Record<string, unknown> | undefined, headers: IncomingMessage["headers"]) {
    super(`HTTP ${httpStatus}`);
    this.httpStatus = httpStatus;
    this.code = typeof body?.["code"] === "number" ? body["code"] : 0;
    this.platformMessage = typeof body?.["msg"] === "string" ? body["msg"] : "";
    this.logId = String(headers["x-tt-logid"] ?? "").slice(0, 100);
    const resetSeconds = Number(headers["x-ogw-ratelimit-reset"] ?? headers["retry-after"] ?? 0);
    this.retryAfterMs = Number.isFinite(resetSeconds) && resetSeconds > 0 ? Math.ceil(resetSeconds * 1000) : 0;
    const named = Number(headers["x-ogw-ratelimit-limit"] ?? 0);
    this.namedLimit = Number.isInteger(named) && named > 0 ? named : 0;
    this.unreadable = body === undefined;
  }
}

/** No usable answer. `sent` tells whether the request may have reached the platform. */
export class TransportFailure extends Error {
  override readonly name = "TransportFailure";
  /** `too_large`: a download over its own limit; `oversized`: an answer that no API gives. */
  readonly reason: "timeout" | "aborted" | "connection" | "oversized" | "too_large";
  readonly sent: boolean;

  constructor(reason: TransportFailure["reason"], sent: boolean, detail: string) {
    super(detail);
    this.reason = reason;
    this.sent = sent;
  }
}

/** What one call tells the transport. It travels through the SDK as a symbol among the headers. */
export interface CallContext {
  /** Any of them aborts the call. A list, because an `AbortSignal.any` per call cost measurable time. */
  signals?: readonly AbortSignal[];
  timeoutMs?: number;
  /** Sent unchanged, in place of the SDK's data. */
  body?: { bytes: Buffer; mediaType: string };
  /** The answer is a file of at most so many bytes: resolves to a {@link FileAnswer}. */
  maxFileBytes?: number;
}

/** A file as the platform answers it. */
export interface FileAnswer {
  bytes: Buffer;
  headers: IncomingMessage["headers"];
}

const contextKey = Symbol("larkline.call-context");

/** Request options that carry `context` to the transport. */
export function withCallContext(
  headers: Record<string, string>,
  context: CallContext,
): { headers: Record<string, string> } {
  return { headers: Object.assign({}, headers, { [contextKey]: context }) };
}

export interface HttpTransportOptions {
  /** Deadline of one request in ms, from its start to the last byte of the answer. */
  timeoutMs: number;
  maxConnections?: number;
  maxResponseBytes?: number;
}

/**
 * Plain node:http with kept-alive connections, in place of the SDK's axios, which costs about twice the CPU time
 * per call.
 */
export class HttpTransport {
  /** For the SDK. Its methods resolve to the body of a good answer and reject with HttpRejection or TransportFailure. */
  readonly instance: HttpInstance;
  readonly #httpAgent: HttpAgent;
  readonly #httpsAgent: HttpsAgent;
  readonly #timeoutMs: number;
  readonly #maxBytes: number;

  constructor({ timeoutMs, maxConnections = 64, maxResponseBytes = 4 * 1024 * 1024 }: HttpTransportOptions) {
    const agentOptions = { keepAlive: true, maxSockets: maxConnections, keepAliveMsecs: 10_000, noDelay: true };
    this.#httpAgent = new HttpAgent(agentOptions);
    this.#httpsAgent = new HttpsAgent(agentOptions);
    this.#timeoutMs = timeoutMs;
    this.#maxBytes = maxResponseBytes;
    this.instance = {
      request: (request) => this.#send(request),
      get: (url, request) => this.#send({ ...request, url, method: "GET" }),
      delete: (url, request) => this.#send({ ...request, url, method: "DELETE" }),
      head: (url, request) => this.#send({ ...request, url, method: "HEAD" }),
      options: (url, request) => this.#send({ ...request, url, method: "OPTIONS" }),
      post: (url, data, request) => this.#send({ ...request, url, data, method: "POST" }),
      put: (url, data, request) => this.#send({ ...request, url, data, method: "PUT" }),
      patch: (url, data, request) => this.#send({ ...request, url, data, method: "PATCH" }),
    };
  }

  /** Ends idle and running connections. */
  close(): void {
    this.#httpAgent.destroy();
    this.#httpsAgent.destroy();
  }

  async #send<R>(request: HttpRequestOptions<unknown>): Promise<R> {
    const call = exchangeOf(request, this.#timeoutMs);
    return resultOf(call, await this.#exchange(call)) as R; // the type that the SDK claims; callers check the value
  }

  async #exchange(call: Exchange): Promise<Answer> {
    const { signals = [], timeoutMs } = call.context;
    if (signals.some(({ aborted }) => aborted)) throw new TransportFailure("aborted", false, "aborted");
    const secure = call.url.protocol === "https:";
    return await new Promise((resolve, reject) => {
      const agent = secure ? this.#httpsAgent : this.#httpAgent;
      const requestOptions: RequestOptions = { method: call.method, headers: call.headers, agent };
      const request = (secure ? httpsRequest : httpRequest)(call.url, requestOptions);
      let sent = false;
      const stop = (cause: "timeout" | "aborted"): void => {
        const detail = cause === "timeout" ? `no answer within ${timeoutMs} ms` : "aborted";
        request.destroy(new TransportFailure(cause, sent, detail));
      };
      const onAbort = (): void => stop("aborted");
      const timer = setTimeout(stop, timeoutMs, "timeout");
      for (const signal of signals) signal.addEventListener("abort", onAbort, { once: true });
      const settle = (finish: () => void): void => {
        clearTimeout(timer);
        for (const signal of signals) signal.removeEventListener("abort", onAbort);
        finish();
      };
      request.once("socket", (socket) => {
        if (!socket.connecting) sent = true;
        else socket.once(secure ? "secureConnect" : "connect", () => (sent = true));
      });
      request.on("error", (error) => settle(() => reject(failureOf(error, sent))));
      request.once("response", (response) => {
        const httpStatus = response.statusCode ?? 0;
        collect(response, capOf(call.context, httpStatus, this.#maxBytes)).then(
          (body) => settle(() => resolve({ httpStatus, headers: response.headers, body })),
          (error: unknown) => settle(() => reject(failureOf(error, true))),
        );
      });
      request.end(call.body);
    });
  }
}

interface Exchange {
  url: URL;
  method: string;
  headers: Record<string, string>;
  body: Buffer | undefined;
  context: CallContext;
}

interface Answer {
  httpStatus: number;
  headers: IncomingMessage["headers"];
  body: Buffer;
}

function contextOf(headers: object | undefined): CallContext {
  const context: unknown = headers === undefined ? undefined : Reflect.get(headers, contextKey);
  return typeof context === "object" && context !== null ? context : {};
}

function urlOf(options: HttpRequestOptions<unknown>): URL {
  const url = new URL(options.url ?? "");
  for (const [name, value] of Object.entries(options.params ?? {})) {
    if (value !== undefined && value !== null) url.searchParams.append(name, String(value));
  }
  return url;
}

function isEmptyObject(data: unknown): boolean {
  return typeof data === "object" && data !== null && Object.keys(data).length === 0;
}

function exchangeOf(options: HttpRequestOptions<unknown>, timeoutMs: number): Exchange {
  const method = (options.method ?? "GET").toUpperCase();
  const context = contextOf(options.headers);
  const hasBody = options.data !== undefined && !(method === "GET" && isEmptyObject(options.data));
  const body = context.body?.bytes ?? (hasBody ? Buffer.from(JSON.stringify(options.data)) : undefined);
  const headers: Record<string, string> = { ...options.headers };
  if (body !== undefined) {
    headers["Content-Type"] = context.body?.mediaType ?? "application/json; charset=utf-8";
    headers["Content-Length"] = String(body.length);
  }
  return {
    url: urlOf(options),
    method,
    headers,
    body,
    context: { timeoutMs: options.timeout ?? timeoutMs, ...context },
  };
}

function bodyOf(answer: Answer): Record<string, unknown> {
  const body = parsedObject(answer.body.toString("utf8"));
  const good = answer.httpStatus >= 200 && answer.httpStatus < 300;
  if (!good || body === undefined || (body["code"] !== undefined && body["code"] !== 0)) {
    // A proxy's page with status 200 is a broken platform, not a refusal.
    throw new HttpRejection(good && body === undefined ? 502 : answer.httpStatus, body, answer.headers);
  }
  return body;
}

/** Throws for a refusal in place of a file: a bad status, or JSON that is no attachment and carries a code. */
function fileOf(answer: Answer): FileAnswer {
  const { httpStatus, headers, body } = answer;
  const mayRefuse = /^application\/json/i.test(headers["content-type"] ?? "") && !headers["content-disposition"];
  const refusal = mayRefuse ? parsedObject(body.toString("utf8")) : undefined;
  if (httpStatus !== 200 || (typeof refusal?.["code"] === "number" && refusal["code"] !== 0)) bodyOf(answer);
  return { bytes: body, headers };
}

function resultOf({ context }: Exchange, answer: Answer): FileAnswer | Record<string, unknown> {
  return context.maxFileBytes === undefined ? bodyOf(answer) : fileOf(answer);
}

/** How many bytes of an answer are read, and the failure when it has more. */
interface Cap {
  maxBytes: number;
  reason: "oversized" | "too_large";
}

/** A refusal is read whole, however small the permitted file is. */
const minAnswerBytes = 64 * 1024;

function capOf(context: CallContext, httpStatus: number, maxBytes: number): Cap {
  if (context.maxFileBytes === undefined) return { maxBytes, reason: "oversized" };
  if (httpStatus !== 200) return { maxBytes: minAnswerBytes, reason: "oversized" };
  return { maxBytes: context.maxFileBytes, reason: "too_large" };
}

async function collect(response: IncomingMessage, { maxBytes, reason }: Cap): Promise<Buffer> {
  const tooLarge = (): TransportFailure => new TransportFailure(reason, true, `more than ${maxBytes} bytes`);
  if (Number(response.headers["content-length"] ?? 0) > maxBytes) {
    response.once("error", () => undefined);
    response.destroy();
    throw tooLarge();
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  return await new Promise((resolve, reject) => {
    response.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > maxBytes) response.destroy(tooLarge());
      else chunks.push(chunk);
    });
    response.once("end", () =>
      resolve(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks)),
    );
    response.once("error", reject);
    response.once("close", () => {
      if (!response.complete) reject(new TransportFailure("connection", true, "answer cut off"));
    });
  });
}

function failureOf(error: unknown, sent: boolean): TransportFailure {
  if (error instanceof TransportFailure) return error;
  const code: unknown = error instanceof Error && "code" in error ? error.code : undefined;
  return new TransportFailure("connection", sent, typeof code === "string" ? code : "connection failed");
}
