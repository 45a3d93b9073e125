import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest, type RequestOptions } from "node:https";
import { parseJson, parserOf, type Parser } from "@larkline/protocol";
import { pause, type Clock, type Random } from "@larkline/protocol/clock";
import { tokenDigestOf } from "@larkline/protocol/tool";
import { Type } from "@larkline/protocol/type";
import type { RatePriority, TokenSource } from "@larkline/store/platform";
import { FeishuError, feishuErrorOf, TransportFailure, HttpRejection } from "./error.ts";
import {
  tenantTokenName,
  type CallLimits,
  type CallTurn,
  type RateLimiter,
} from "./rate-limiter.ts";
import {
  openClient,
  tokenHeaders,
  type Client,
  type FeishuLogger,
  type HttpInstance,
  type HttpRequestOptions,
} from "./sdk.ts";

/** How often and how patiently a call is repeated. Times in ms. */
export interface RetryPolicy {
  attempts: number;
  minDelayMs: number;
  /** Longest wait between two attempts; when the platform asks for more, the caller gets the error instead. */
  maxDelayMs: number;
}

const defaultRetryPolicy: RetryPolicy = { attempts: 3, minDelayMs: 200, maxDelayMs: 5_000 };

/** How a caller wants a call to be made. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
  /** Default `final`. A `frame` is tried once: the next one replaces it. */
  priority?: RatePriority | undefined;
  /**
   * Longest wait for the limits that the platform sets, in ms: 5 s for `final`, 0 for `frame`. After
   * that the call rejects with a `rate_limit` that is `heldBack`, and never leaves.
   */
  maxWaitMs?: number | undefined;
  /** Of the message that the call is made for; passed to the `watch`. */
  traceparent?: string | undefined;
  /**
   * Called when the call has its turn, before it leaves. When it rejects, the call rejects with the same error and
   * never leaves.
   */
  beforeLeaving?: (() => Promise<void>) | undefined;
}

/** One call of the platform. Only requests that are safe to repeat: reads, and sends with a `uuid`. */
export interface ApiRequest<T> {
  /** Name for errors and classification, for example `im.message.reply`. */
  api: string;
  run: (client: Client, options: { headers: Record<string, string> }) => Promise<unknown>;
  parse: Parser<T>;
  /** What the call counts against, beside the limits of its API. */
  limits?: CallLimits;
  /** The call is tried once, because a repeat would do harm. */
  once?: boolean;
  /** What the transport has to do differently. */
  context?: Omit<CallContext, "signals">;
}

/** A call as telemetry may see it: it holds no secret and no content. */
interface WatchedCall {
  /** Such as `im.message.reply`. */
  api: string;
  /** Of the message that the call is made for, where it is known. */
  traceparent: string | undefined;
}

/** Telemetry of the calls of one app. Called synchronously; must return at once and never throw. */
export interface CallWatch {
  /** The rate limiter has let the call go after this time, or (`left` is false) never. */
  waited(call: WatchedCall, ms: number, left: boolean): void;
  /** The call leaves. The returned function is called when it has ended. */
  began(call: WatchedCall): (error?: FeishuError) => void;
}

interface ApiCallerOptions {
  appId: string;
  appSecret: string;
  /** Without a trailing slash. */
  baseUrl: string;
  /** Shares the access token among processes. */
  tokenCache: TokenSource;
  logger: FeishuLogger;
  /** Deadline of one HTTP request in ms. */
  timeoutMs: number;
  retry?: Partial<RetryPolicy> | undefined;
  /** Without it every call leaves at once. */
  limiter?: RateLimiter | undefined;
  watch?: CallWatch | undefined;
  clock: Clock;
  random: Random;
}

/** Makes the calls of one app: with a token, within the rate limits, with retries and classified errors. */
export class ApiCaller {
  readonly appId: string;
  readonly baseUrl: string;
  readonly http: HttpTransport;
  readonly #client: Client;
  readonly #token: AccessToken;
  readonly #retry: RetryPolicy;
  readonly #limiter: RateLimiter | undefined;
  readonly #watch: CallWatch | undefined;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #closing = new AbortController();

  constructor(options: ApiCallerOptions) {
    const { appId, appSecret, baseUrl, logger, timeoutMs, tokenCache, clock, random } = options;
    this.appId = appId;
    this.baseUrl = baseUrl;
    this.http = new HttpTransport({ timeoutMs, clock });
    this.#client = openClient({ appId, appSecret, baseUrl, http: this.http.instance, logger });
    this.#token = new AccessToken({
      client: this.#client,
      appId,
      appSecret,
      baseUrl,
      tokenCache,
      clock,
    });
    this.#retry = { ...defaultRetryPolicy, ...options.retry };
    this.#limiter = options.limiter;
    this.#watch = options.watch;
    this.#clock = clock;
    this.#random = random;
  }

  /** Aborted when the caller is closed. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Aborts what is running and ends all connections. */
  close(): void {
    this.#closing.abort();
    this.http.close();
  }

  /** Rejects with a FeishuError, or with what `beforeLeaving` rejected with. */
  async call<T>(request: ApiRequest<T>, options: CallOptions = {}): Promise<T> {
    const plan = planOf(options, this.closing);
    let doubt = false;
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#withToken(request, plan);
      } catch (thrown) {
        if (thrown instanceof Withdrawn) throw thrown.cause;
        const error = feishuErrorOf(request.api, thrown);
        doubt ||= error.uncertain;
        if (request.once === true || !(await this.#mayRepeat(error, tries, plan))) {
          throw afterAll(error, doubt, tries > 1);
        }
      }
    }
  }

  /** The app's token; another one where its digest is that of one that was refused. */
  async token(refused?: string): Promise<string> {
    const token = await this.#token.get();
    return tokenDigestOf(token.value) === refused
      ? (await this.#token.get(token)).value
      : token.value;
  }

  /** When the platform refuses the token, fetches a new one and repeats the call once, also without retries left. */
  async #withToken<T>(request: ApiRequest<T>, plan: CallPlan): Promise<T> {
    if (plan.signals.some(({ aborted }) => aborted)) {
      throw new TransportFailure("aborted", false, "aborted");
    }
    const token = await this.#token.get();
    try {
      return await this.#attempt(request, plan, token);
    } catch (error) {
      if (!(error instanceof FeishuError) || error.kind !== "token") throw error;
      return await this.#attempt(request, plan, await this.#token.get(token));
    }
  }

  async #attempt<T>(request: ApiRequest<T>, plan: CallPlan, token: Token): Promise<T> {
    const leave = await this.#enter(request, plan);
    const ended = this.#watch?.began({ api: request.api, traceparent: plan.traceparent });
    try {
      const context = withCallContext(token.headers, { ...request.context, signals: plan.signals });
      const answer = parsed(request, await request.run(this.#client, context));
      ended?.();
      return answer;
    } catch (thrown) {
      const error = feishuErrorOf(request.api, thrown);
      ended?.(error);
      this.#limiter?.refused(request, error);
      throw error;
    } finally {
      leave?.();
    }
  }

  /** Waits for the call's turn. Resolves to the function that reports the end of the call to the rate limiter. */
  async #enter<T>(request: ApiRequest<T>, plan: CallPlan): Promise<(() => void) | undefined> {
    const startedMs = this.#clock.monotonic();
    let left = false;
    try {
      const leave = await this.#limiter?.enter(request, plan);
      await plan.beforeLeaving?.().catch((cause: unknown) => {
        leave?.();
        throw new Withdrawn("the caller does not want the call any more", { cause });
      });
      left = true;
      return leave;
    } finally {
      const call = { api: request.api, traceparent: plan.traceparent };
      this.#watch?.waited(call, this.#clock.monotonic() - startedMs, left);
    }
  }

  /** Resolves to true after the wait before the next attempt, to false when there is to be none. */
  async #mayRepeat(
    error: FeishuError,
    tries: number,
    { priority, signals }: CallPlan,
  ): Promise<boolean> {
    const { attempts, maxDelayMs } = this.#retry;
    if (priority === "frame" || error.heldBack) return false;
    if (!error.retryable || error.kind === "token" || tries >= attempts) return false;
    if (error.retryAfterMs > maxDelayMs) return false;
    const signal = AbortSignal.any([...signals]);
    await pause(this.#clock, waitOf(error, tries, this.#retry, this.#random), signal);
    return !signal.aborted;
  }
}

/** `beforeLeaving` rejected, with the `cause`. */
class Withdrawn extends Error {
  override readonly name = "Withdrawn";
}

interface CallPlan extends CallTurn {
  traceparent: string | undefined;
  beforeLeaving: CallOptions["beforeLeaving"];
}

const finalWaitMs = 5_000;

function planOf(options: CallOptions, closing: AbortSignal): CallPlan {
  const { priority = "final", signal, traceparent, beforeLeaving } = options;
  const maxWaitMs = options.maxWaitMs ?? (priority === "final" ? finalWaitMs : 0);
  const signals = signal === undefined ? [closing] : [closing, signal];
  return { priority, maxWaitMs, signals, traceparent, beforeLeaving };
}

function parsed<T>(request: ApiRequest<T>, body: unknown): T {
  const result = request.parse(body);
  if (result.ok) return result.value;
  throw new FeishuError({
    api: request.api,
    kind: "unavailable",
    code: 0,
    httpStatus: 200,
    uncertain: true,
    reason: "unexpected answer",
  });
}

function waitOf(error: FeishuError, attempt: number, retry: RetryPolicy, random: Random): number {
  const backOff = Math.min(retry.maxDelayMs, retry.minDelayMs * 2 ** (attempt - 1));
  return error.retryAfterMs + backOff * (0.5 + random.fraction() / 2);
}

/** An earlier attempt that is uncertain stays so when a later one fails for certain or never leaves. */
function afterAll(error: FeishuError, doubt: boolean, left: boolean): FeishuError {
  const uncertain = doubt && !error.uncertain;
  if (!uncertain && !(left && error.heldBack)) return error;
  const reason = uncertain ? "after an uncertain attempt" : "after a refused attempt";
  return new FeishuError({ ...error, uncertain: doubt, heldBack: error.heldBack && !left, reason });
}

const idPattern = /^[A-Za-z0-9_-]{1,128}$/;

/**
 * An id as a path parameter. The SDK puts path parameters into the URL unchanged, so anything but
 * letters, digits, `_` and `-` is refused: it could address another resource. Throws a FeishuError.
 */
export function pathId(api: string, id: string): string {
  if (idPattern.test(id)) return id;
  throw new FeishuError({
    api,
    kind: "bad_request",
    code: 0,
    httpStatus: 0,
    reason: "malformed id",
  });
}

const tokenApi = "auth.tenantAccessToken";

/** A token of the shared cache is used for this long before the cache is asked again. */
const memoMs = 60_000;

/**
 * The platform returns the same token while it is good for more than 30 minutes, and keeps the old one valid
 * after that (document "tenant_access_token_internal"), so asking again 10 minutes before the end is safe.
 */
const marginSeconds = 600;

const parseToken = parserOf(
  Type.Object({
    tenant_access_token: Type.String({ minLength: 1 }),
    expire: Type.Number({ minimum: 0 }),
  }),
);

interface AccessTokenOptions {
  client: Client;
  appId: string;
  appSecret: string;
  baseUrl: string;
  tokenCache: TokenSource;
  clock: Clock;
}

interface Token {
  value: string;
  /** Those that make the SDK use it. */
  headers: Readonly<Record<string, string>>;
}

/** The app's tenant access token, shared by all processes through `tokenCache` and remembered here for a minute. */
class AccessToken {
  readonly #options: AccessTokenOptions;
  #memo: { token: Promise<Token>; untilMs: number } | undefined;

  constructor(options: AccessTokenOptions) {
    this.#options = options;
  }

  /** Resolves to a token that is believed to be good, and is not `rejected`, which the platform refused. */
  async get(rejected?: Token): Promise<Token> {
    if (this.#memo !== undefined && this.#memo.untilMs > this.#options.clock.monotonic()) {
      const token = await this.#memo.token;
      if (token.value !== rejected?.value) return token;
    }
    const entry = {
      token: this.#shared(rejected?.value),
      untilMs: this.#options.clock.monotonic() + memoMs,
    };
    this.#memo = entry;
    entry.token.catch(() => {
      if (this.#memo === entry) this.#memo = undefined;
    });
    return await entry.token;
  }

  async #shared(rejected?: string): Promise<Token> {
    const { tokenCache, baseUrl, appId } = this.#options;
    const fetch = async () => await this.#fetch();
    try {
      const value = await tokenCache.get(tenantTokenName(baseUrl, appId), fetch, rejected);
      return { value, headers: tokenHeaders(value) };
    } catch (error) {
      if (error instanceof FeishuError) throw error;
      throw new FeishuError({
        api: tokenApi,
        kind: "unavailable",
        code: 0,
        httpStatus: 0,
        reason: "token cache failed",
      });
    }
  }

  async #fetch(): Promise<{ value: string; ttlMs: number }> {
    const { client, appId, appSecret } = this.#options;
    try {
      const body: unknown = await client.auth.v3.tenantAccessToken.internal({
        data: { app_id: appId, app_secret: appSecret },
      });
      const answer = parseToken(body);
      if (!answer.ok) {
        const reason = "answer without a token";
        throw new FeishuError({
          api: tokenApi,
          kind: "unavailable",
          code: 0,
          httpStatus: 200,
          reason,
        });
      }
      const { tenant_access_token: value, expire } = answer.value;
      return { value, ttlMs: Math.max(expire - marginSeconds, expire / 2) * 1000 };
    } catch (thrown) {
      const error = feishuErrorOf(tokenApi, thrown);
      // Without a token the call itself was not made, so it is never uncertain.
      throw error.uncertain
        ? new FeishuError({ ...error, reason: "no access token", uncertain: false })
        : error;
    }
  }
}

/** What one call says to the transport. It travels through the SDK as a symbol among the headers. */
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
  headers: Readonly<Record<string, string>>,
  context: CallContext,
): { headers: Record<string, string> } {
  return { headers: Object.assign({}, headers, { [contextKey]: context }) };
}

interface HttpTransportOptions {
  /** Deadline of one request in ms, from its start to the last byte of the answer. */
  timeoutMs: number;
  clock: Clock;
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
  readonly #clock: Clock;
  readonly #maxBytes: number;

  constructor({
    timeoutMs,
    clock,
    maxConnections = 64,
    maxResponseBytes = 4 * 1024 * 1024,
  }: HttpTransportOptions) {
    this.#clock = clock;
    const agentOptions = {
      keepAlive: true,
      maxSockets: maxConnections,
      keepAliveMsecs: 10_000,
      noDelay: true,
    };
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
    const call = exchangeOf(isForm(request) ? await asForm(request) : request, this.#timeoutMs);
    return resultOf(call, await this.#exchange(call)) as R; // the type that the SDK claims; callers check the value
  }

  async #exchange(call: Exchange): Promise<Answer> {
    const { signals = [], timeoutMs = this.#timeoutMs } = call.context;
    if (signals.some(({ aborted }) => aborted)) {
      throw new TransportFailure("aborted", false, "aborted");
    }
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
      const cancel = this.#clock.after(timeoutMs, () => stop("timeout"));
      for (const signal of signals) signal.addEventListener("abort", onAbort, { once: true });
      const settle = (finish: () => void): void => {
        cancel();
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

/** The SDK's methods that upload files give the fields of a form as an object. */
function isForm({ headers, data }: HttpRequestOptions<unknown>): boolean {
  return (
    headers !== undefined &&
    Reflect.get(headers, "Content-Type") === "multipart/form-data" &&
    typeof data === "object"
  );
}

async function asForm({
  data,
  headers = {},
  ...request
}: HttpRequestOptions<unknown>): Promise<HttpRequestOptions<unknown>> {
  const form = new FormData();
  for (const [name, value] of Object.entries(data ?? {})) {
    if (Buffer.isBuffer(value)) form.set(name, new Blob([new Uint8Array(value)]), name);
    else if (value !== undefined) form.set(name, String(value));
  }
  const context = { ...contextOf(headers), body: await multipart(form) };
  return { ...request, ...withCallContext({ ...headers }, context) };
}

/** A form as bytes that are sent unchanged. */
export async function multipart(form: FormData): Promise<{ bytes: Buffer; mediaType: string }> {
  const encoded = new Response(form);
  return {
    bytes: Buffer.from(await encoded.arrayBuffer()),
    mediaType: encoded.headers.get("content-type") ?? "multipart/form-data",
  };
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
  const body =
    context.body?.bytes ?? (hasBody ? Buffer.from(JSON.stringify(options.data)) : undefined);
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
    throw new HttpRejection(
      good && body === undefined ? 502 : answer.httpStatus,
      body,
      answer.headers,
    );
  }
  return body;
}

/** Throws for a refusal in place of a file: a bad status, or JSON that is no attachment and carries a code. */
function fileOf(answer: Answer): FileAnswer {
  const { httpStatus, headers, body } = answer;
  const mayRefuse =
    /^application\/json/i.test(headers["content-type"] ?? "") && !headers["content-disposition"];
  const refusal = mayRefuse ? parsedObject(body.toString("utf8")) : undefined;
  if (httpStatus !== 200 || (typeof refusal?.["code"] === "number" && refusal["code"] !== 0)) {
    bodyOf(answer);
  }
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
  const tooLarge = (): TransportFailure =>
    new TransportFailure(reason, true, `more than ${maxBytes} bytes`);
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
  return new TransportFailure(
    "connection",
    sent,
    typeof code === "string" ? code : "connection failed",
  );
}

/** A JSON object of which nothing is known yet. */
/** Most entries of a list in one answer of the platform, whose largest pages have 1,000. */
export const maxListed = 5_000;

export type JsonObject = Record<string, unknown>;

/** The value when it is an object and no list, otherwise undefined. */
export function objectOf(value: unknown): JsonObject | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return value as JsonObject; // its fields are as unknown as they were
}

/** The object that a JSON text holds; undefined for anything else. */
export function parsedObject(text: string): JsonObject | undefined {
  try {
    return objectOf(parseJson(text));
  } catch {
    return undefined;
  }
}

/** A text field of the object; empty when it is missing or no text. */
export function textField(object: JsonObject | undefined, name: string): string {
  const value = object?.[name];
  return typeof value === "string" ? value : "";
}
