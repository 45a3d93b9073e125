import { setTimeout as delay } from "node:timers/promises";
import { parserOf, type Parser } from "@larkline/protocol";
import type { RateLane, TokenCache } from "@larkline/store";
import { Type } from "typebox";
import { FeishuError, feishuErrorOf } from "./error.ts";
import { HttpTransport, TransportFailure, withCallContext, type CallContext } from "./http.ts";
import { tenantTokenName } from "./limits.ts";
import type { CallLimits, CallTurn, RateLimiter } from "./rate-limiter.ts";
import { openClient, tokenHeaders, type Client, type FeishuLogger } from "./sdk.ts";

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
  lane?: RateLane | undefined;
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
export interface WatchedCall {
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

export interface ApiCallerOptions {
  appId: string;
  appSecret: string;
  /** Without a trailing slash. */
  baseUrl: string;
  /** Shares the access token among processes. */
  tokenCache: TokenCache;
  logger: FeishuLogger;
  /** Deadline of one HTTP request in ms. */
  timeoutMs: number;
  retry?: Partial<RetryPolicy> | undefined;
  /** Without it every call leaves at once. */
  limiter?: RateLimiter | undefined;
  watch?: CallWatch | undefined;
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
  readonly #closing = new AbortController();

  constructor(options: ApiCallerOptions) {
    const { appId, appSecret, baseUrl, logger, timeoutMs, tokenCache } = options;
    this.appId = appId;
    this.baseUrl = baseUrl;
    this.http = new HttpTransport({ timeoutMs });
    this.#client = openClient({ appId, appSecret, baseUrl, http: this.http.instance, logger });
    this.#token = new AccessToken({ client: this.#client, appId, appSecret, baseUrl, tokenCache });
    this.#retry = { ...defaultRetryPolicy, ...options.retry };
    this.#limiter = options.limiter;
    this.#watch = options.watch;
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

  /** When the platform refuses the token, fetches a new one and repeats the call once, also without retries left. */
  async #withToken<T>(request: ApiRequest<T>, plan: CallPlan): Promise<T> {
    if (plan.signals.some(({ aborted }) => aborted)) throw new TransportFailure("aborted", false, "aborted");
    const token = await this.#token.get();
    try {
      return await this.#attempt(request, plan, token);
    } catch (error) {
      if (!(error instanceof FeishuError) || error.kind !== "token") throw error;
      return await this.#attempt(request, plan, await this.#token.get(token));
    }
  }

  async #attempt<T>(request: ApiRequest<T>, plan: CallPlan, token: string): Promise<T> {
    const leave = await this.#enter(request, plan);
    const ended = this.#watch?.began({ api: request.api, traceparent: plan.traceparent });
    try {
      const context = withCallContext(tokenHeaders(token), { ...request.context, signals: plan.signals });
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

  /** Waits for the call's turn. Resolves to the function that tells the rate limiter that the call is over. */
  async #enter<T>(request: ApiRequest<T>, plan: CallPlan): Promise<(() => void) | undefined> {
    const startedMs = performance.now();
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
      this.#watch?.waited(call, performance.now() - startedMs, left);
    }
  }

  /** Resolves to true after the wait before the next attempt, to false when there is to be none. */
  async #mayRepeat(error: FeishuError, tries: number, { lane, signals }: CallPlan): Promise<boolean> {
    const { attempts, maxDelayMs } = this.#retry;
    if (lane === "frame" || error.heldBack) return false;
    if (!error.retryable || error.kind === "token" || tries >= attempts) return false;
    if (error.retryAfterMs > maxDelayMs) return false;
    try {
      return await delay(waitOf(error, tries, this.#retry), true, { signal: AbortSignal.any([...signals]) });
    } catch {
      return false;
    }
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
  const { lane = "final", signal, traceparent, beforeLeaving } = options;
  const maxWaitMs = options.maxWaitMs ?? (lane === "final" ? finalWaitMs : 0);
  const signals = signal === undefined ? [closing] : [closing, signal];
  return { lane, maxWaitMs, signals, traceparent, beforeLeaving };
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

function waitOf(error: FeishuError, attempt: number, retry: RetryPolicy): number {
  const backOff = Math.min(retry.maxDelayMs, retry.minDelayMs * 2 ** (attempt - 1));
  return error.retryAfterMs + backOff * (0.5 + Math.random() / 2);
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
  throw new FeishuError({ api, kind: "bad_request", code: 0, httpStatus: 0, reason: "malformed id" });
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
  Type.Object({ tenant_access_token: Type.String({ minLength: 1 }), expire: Type.Number({ minimum: 0 }) }),
);

interface AccessTokenOptions {
  client: Client;
  appId: string;
  appSecret: string;
  baseUrl: string;
  tokenCache: TokenCache;
}

/** The app's tenant access token, shared by all processes through `tokenCache` and remembered here for a minute. */
class AccessToken {
  readonly #options: AccessTokenOptions;
  #memo: { token: Promise<string>; untilMs: number } | undefined;

  constructor(options: AccessTokenOptions) {
    this.#options = options;
  }

  /** Resolves to a token that is believed to be good, and is not `rejected`, which the platform refused. */
  async get(rejected?: string): Promise<string> {
    if (this.#memo !== undefined && this.#memo.untilMs > Date.now()) {
      const token = await this.#memo.token;
      if (token !== rejected) return token;
    }
    const entry = { token: this.#shared(rejected), untilMs: Date.now() + memoMs };
    this.#memo = entry;
    entry.token.catch(() => {
      if (this.#memo === entry) this.#memo = undefined;
    });
    return await entry.token;
  }

  async #shared(rejected?: string): Promise<string> {
    const { tokenCache, baseUrl, appId } = this.#options;
    try {
      return await tokenCache.get(tenantTokenName(baseUrl, appId), async () => await this.#fetch(), rejected);
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
        throw new FeishuError({ api: tokenApi, kind: "unavailable", code: 0, httpStatus: 200, reason });
      }
      const { tenant_access_token: value, expire } = answer.value;
      return { value, ttlMs: Math.max(expire - marginSeconds, expire / 2) * 1000 };
    } catch (thrown) {
      const error = feishuErrorOf(tokenApi, thrown);
      // Without a token the call itself was not made, so it is never uncertain.
      throw error.uncertain ? new FeishuError({ ...error, reason: "no access token", uncertain: false }) : error;
    }
  }
}
