import { setTimeout as delay } from "node:timers/promises";
import type { Parser } from "@larkline/protocol";
import type { Client } from "@larksuiteoapi/node-sdk";
import { FeishuError, feishuErrorOf } from "./error.ts";
import { TransportFailure, withCallContext } from "./http-transport.ts";
import { authorization, type TokenProvider } from "./token-provider.ts";

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

/** One call of the platform. Only requests that are safe to repeat: reads, and sends with a `uuid`. */
export interface ApiRequest<T> {
  /** Name for errors and classification, for example `im.message.reply`. */
  api: string;
  run: (client: Client, options: SdkCallOptions) => Promise<unknown>;
  parse: Parser<T>;
}

/** Runs calls with a token, retries and classified errors. */
export interface ApiCaller {
  /** Rejects with a FeishuError. */
  call<T>(request: ApiRequest<T>, signal?: AbortSignal): Promise<T>;
}

export interface ApiCallerOptions {
  client: Client;
  tokens: TokenProvider;
  retry: RetryPolicy;
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

/** A later attempt that fails for certain does not undo the doubt that an earlier one left. */
function withDoubt(error: FeishuError, doubt: boolean): FeishuError {
  return doubt && !error.uncertain
    ? new FeishuError({ ...error, uncertain: true, reason: "after an uncertain attempt" })
    : error;
}

export function createApiCaller({ client, tokens, retry, closing }: ApiCallerOptions): ApiCaller {
  async function attempt<T>(request: ApiRequest<T>, signals: readonly AbortSignal[], token: string): Promise<T> {
    try {
      const options = withCallContext(authorization(token), { signals });
      return parsed(request, await request.run(client, options));
    } catch (error) {
      throw feishuErrorOf(request.api, error);
    }
  }

  /** A refused token is fetched again once, whatever the retry policy says. */
  async function withToken<T>(request: ApiRequest<T>, signals: readonly AbortSignal[]): Promise<T> {
    if (signals.some(({ aborted }) => aborted)) throw new TransportFailure("aborted", false, "aborted");
    const token = await tokens.get();
    try {
      return await attempt(request, signals, token);
    } catch (error) {
      if (!(error instanceof FeishuError) || error.kind !== "token") throw error;
      return await attempt(request, signals, await tokens.get(token));
    }
  }

  async function mayRepeat(error: FeishuError, tries: number, signals: AbortSignal[]): Promise<boolean> {
    if (!error.retryable || error.kind === "token" || tries >= retry.attempts) return false;
    if (error.retryAfterMs > retry.maxDelayMs) return false;
    try {
      return await delay(waitOf(error, tries, retry), true, { signal: AbortSignal.any(signals) });
    } catch {
      return false;
    }
  }

  return {
    call: async (request, callerSignal) => {
      const signals = callerSignal === undefined ? [closing] : [closing, callerSignal];
      let doubt = false;
      for (let tries = 1; ; tries += 1) {
        try {
          return await withToken(request, signals);
        } catch (thrown) {
          const error = feishuErrorOf(request.api, thrown);
          doubt ||= error.uncertain;
          if (!(await mayRepeat(error, tries, signals))) throw withDoubt(error, doubt);
        }
      }
    },
  };
}
