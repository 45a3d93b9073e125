import { setTimeout as delay } from "node:timers/promises";
import type { Parser } from "@larkline/protocol";
import type { RateLane } from "@larkline/store";
import type { Client } from "@larksuiteoapi/node-sdk";
import { FeishuError, feishuErrorOf } from "./error.ts";
import { TransportFailure, withCallContext, type CallContext } from "./http-transport.ts";
import { openGate, type CallLimits, type GatePass, type RateGate } from "./rate-gate.ts";
import { authorization, type TokenProvider } from "./token-provider.ts";
import type { CallWatch } from "./watch.ts";

/** How often and how patiently a call is repeated. Times in ms. */
export interface RetryPolicy {
  attempts: number;
  minDelayMs: number;
  /** Longest wait between two attempts; when the platform asks for more, the caller gets the error instead. */
  maxDelayMs: number;
}

export const defaultRetryPolicy: RetryPolicy = { attempts: 3, minDelayMs: 200, maxDelayMs: 5_000 };

/** Options that every typed method of the SDK takes as its last argument. */
export type SdkCallOptions = ReturnType<typeof withCallContext>;

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
  /** Of the message that the call is made for; told to those who watch. */
  traceparent?: string | undefined;
  /** Asked once the call has its turn, before it leaves; when it rejects, the call rejects with that and never leaves. */
  beforeLeaving?: (() => Promise<void>) | undefined;
}

/** The caller did not want the call any more when its turn came. */
class Withdrawn extends Error {
  override readonly name = "Withdrawn";
}

/** One call of the platform. Only requests that are safe to repeat: reads, and sends with a `uuid`. */
export interface ApiRequest<T> {
  /** Name for errors and classification, for example `im.message.reply`. */
  api: string;
  run: (client: Client, options: SdkCallOptions) => Promise<unknown>;
  parse: Parser<T>;
  /** What it counts against, beside the limits of its API. */
  limits?: CallLimits;
  /** A repeat would do harm: tried once. */
  once?: boolean;
  /** What the transport has to do differently. */
  context?: Omit<CallContext, "signals">;
}

/** Runs calls with a token, retries and classified errors. */
export interface ApiCaller {
  /** Rejects with a FeishuError. */
  call<T>(request: ApiRequest<T>, options?: CallOptions): Promise<T>;
}

export interface ApiCallerOptions {
  client: Client;
  tokens: TokenProvider;
  retry: RetryPolicy;
  /** Without it every call leaves at once. */
  gate?: RateGate;
  /** Without it nobody is told. */
  watch?: CallWatch | undefined;
  /** Aborts every call when the API is closed. */
  closing: AbortSignal;
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

/** A later attempt that fails for certain, or never leaves, does not undo the doubt that an earlier one left. */
function afterAll(error: FeishuError, doubt: boolean, left: boolean): FeishuError {
  const uncertain = doubt && !error.uncertain;
  if (!uncertain && !(left && error.heldBack)) return error;
  const reason = uncertain ? "after an uncertain attempt" : "after a refused attempt";
  return new FeishuError({ ...error, uncertain: doubt, heldBack: error.heldBack && !left, reason });
}

const finalWaitMs = 5_000;

/** How a call may wait, and who made it. */
interface Pass extends GatePass, Pick<CallOptions, "beforeLeaving"> {
  traceparent: string | undefined;
}

function passOf(options: CallOptions, closing: AbortSignal): Pass {
  const { lane = "final", signal, traceparent, beforeLeaving } = options;
  const maxWaitMs = options.maxWaitMs ?? (lane === "final" ? finalWaitMs : 0);
  const signals = signal === undefined ? [closing] : [closing, signal];
  return { lane, maxWaitMs, signals, traceparent, beforeLeaving };
}

/** Waits until the call may leave, and tells how long that took. Resolves to what has to be told that it is over. */
async function enter<T>(
  { gate, watch }: { gate: RateGate; watch: CallWatch | undefined },
  request: ApiRequest<T>,
  pass: Pass,
): Promise<() => void> {
  const startedMs = performance.now();
  let left = false;
  try {
    const over = await gate.enter(request, pass);
    await pass.beforeLeaving?.().catch((cause: unknown) => {
      over();
      throw new Withdrawn("not wanted any more", { cause });
    });
    left = true;
    return over;
  } finally {
    watch?.waited({ api: request.api, traceparent: pass.traceparent }, performance.now() - startedMs, left);
  }
}

export function createApiCaller(options: ApiCallerOptions): ApiCaller {
  const { client, tokens, retry, gate = openGate, watch, closing } = options;

  async function attempt<T>(request: ApiRequest<T>, pass: Pass, token: string): Promise<T> {
    const over = await enter({ gate, watch }, request, pass);
    const ended = watch?.began({ api: request.api, traceparent: pass.traceparent });
    try {
      const context = withCallContext(authorization(token), { ...request.context, signals: pass.signals });
      const answer = parsed(request, await request.run(client, context));
      ended?.();
      return answer;
    } catch (thrown) {
      const error = feishuErrorOf(request.api, thrown);
      ended?.(error);
      gate.refused(request, error);
      throw error;
    } finally {
      over();
    }
  }

  /** A refused token is fetched again once, whatever the retry policy says. */
  async function withToken<T>(request: ApiRequest<T>, pass: Pass): Promise<T> {
    if (pass.signals.some(({ aborted }) => aborted)) throw new TransportFailure("aborted", false, "aborted");
    const token = await tokens.get();
    try {
      return await attempt(request, pass, token);
    } catch (error) {
      if (!(error instanceof FeishuError) || error.kind !== "token") throw error;
      return await attempt(request, pass, await tokens.get(token));
    }
  }

  async function mayRepeat(error: FeishuError, tries: number, { lane, signals }: GatePass): Promise<boolean> {
    if (lane === "frame" || error.heldBack) return false;
    if (!error.retryable || error.kind === "token" || tries >= retry.attempts) return false;
    if (error.retryAfterMs > retry.maxDelayMs) return false;
    try {
      return await delay(waitOf(error, tries, retry), true, { signal: AbortSignal.any([...signals]) });
    } catch {
      return false;
    }
  }

  return {
    call: async (request, callOptions = {}) => {
      const pass = passOf(callOptions, closing);
      let doubt = false;
      for (let tries = 1; ; tries += 1) {
        try {
          return await withToken(request, pass);
        } catch (thrown) {
          if (thrown instanceof Withdrawn) throw thrown.cause;
          const error = feishuErrorOf(request.api, thrown);
          doubt ||= error.uncertain;
          if (request.once === true || !(await mayRepeat(error, tries, pass))) throw afterAll(error, doubt, tries > 1);
        }
      }
    },
  };
}
