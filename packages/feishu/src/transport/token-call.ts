import { systemClock } from "@larkline/protocol/clock";
import { withCallContext, HttpTransport } from "./api-call.ts";
import { HttpRejection, TransportFailure } from "./error.ts";
import {
  asPerson,
  type Client,
  noLogger,
  openClient,
  type RequestOptions,
  tokenHeaders,
} from "./sdk.ts";

// Calls with a token that the caller was given for them alone. No app secret, no cache, no retry: who holds the token
// decides on those.

export type { FileAnswer } from "./api-call.ts";
export type { Client, RequestOptions } from "./sdk.ts";

/** As whom calls are made. The token is a secret. */
export interface TokenBearer {
  as: "person" | "bot";
  token: string;
  /** Origin of the Open API. */
  apiOrigin: string;
}

interface CallFailureFields {
  code: number;
  httpStatus: number;
  uncertain: boolean;
  retryAfterMs: number;
  scopes: string[];
  link: string | undefined;
}

/** A call has failed. The message holds neither the token nor what the call carried. */
export class TokenCallError extends Error {
  override readonly name = "TokenCallError";
  /** The platform's code; 0 when it did not answer. */
  readonly code: number;
  /** 0 when there was no answer. */
  readonly httpStatus: number;
  /** The platform may have executed the call. */
  readonly uncertain: boolean;
  /** How long the platform asks to wait; 0 when it says nothing. */
  readonly retryAfterMs: number;
  /** Permissions of which the platform misses one. */
  readonly scopes: readonly string[];
  /** Where an administrator adds them. */
  readonly link: string | undefined;

  constructor(fields: CallFailureFields) {
    super(
      fields.code === 0
        ? "the platform did not answer"
        : `the platform answered with code ${fields.code}`,
    );
    this.code = fields.code;
    this.httpStatus = fields.httpStatus;
    this.uncertain = fields.uncertain;
    this.retryAfterMs = fields.retryAfterMs;
    this.scopes = fields.scopes;
    this.link = fields.link;
  }
}

/** A file has more bytes than the caller takes. Nothing of it was kept. */
export class FileTooLargeError extends Error {
  override readonly name = "FileTooLargeError";
}

const timeoutMs = 20_000;
const fileTimeoutMs = 60_000;
/** A document of the largest size that the platform gives as Markdown. */
const maxResponseBytes = 12 * 1024 * 1024;

let transport: HttpTransport | undefined;
/** By origin. The SDK's client holds no token; a runner meets one origin, or few. */
const clients = new Map<string, Client>();

function clientFor(apiOrigin: string): Client {
  const known = clients.get(apiOrigin);
  if (known !== undefined) return known;
  transport ??= new HttpTransport({ timeoutMs, clock: systemClock, maxResponseBytes });
  const client = openClient({
    appId: "none",
    appSecret: "none", // no method is called that sends it
    baseUrl: apiOrigin,
    http: transport.instance,
    logger: noLogger,
  });
  clients.set(apiOrigin, client);
  return client;
}

/** Makes one call and resolves to its `data`. Rejects with a TokenCallError, also where a refusal came with HTTP 200. */
export async function callWithToken<T>(
  { as, token, apiOrigin }: TokenBearer,
  run: (client: Client, options: RequestOptions) => Promise<{ data?: T | undefined }>,
  signal?: AbortSignal,
  /** The answer is a file of at most so many bytes: {@link FileAnswer}, or a FileTooLargeError. */
  maxFileBytes?: number,
): Promise<Partial<T>> {
  const context = {
    ...(signal && { signals: [signal] }),
    ...(maxFileBytes !== undefined && { maxFileBytes, timeoutMs: fileTimeoutMs }),
  };
  const isPerson = as === "person";
  const { headers } = withCallContext(isPerson ? {} : tokenHeaders(token), context);
  try {
    const answer = await run(
      clientFor(apiOrigin),
      isPerson ? asPerson(token, headers) : { headers },
    );
    return answer.data ?? {};
  } catch (thrown) {
    throw callErrorOf(thrown);
  }
}

function callErrorOf(thrown: unknown): unknown {
  if (thrown instanceof HttpRejection) {
    const { code, httpStatus, retryAfterMs, missingScopes, platformMessage } = thrown;
    const link = /https:\/\/\S+\/app\/\S+/.exec(platformMessage)?.[0];
    const uncertain = httpStatus >= 500 || thrown.unreadable;
    return new TokenCallError({
      code,
      httpStatus,
      uncertain,
      retryAfterMs,
      scopes: missingScopes,
      link,
    });
  }
  if (thrown instanceof TransportFailure) {
    if (thrown.reason === "too_large") return new FileTooLargeError(thrown.message);
    const nothing = { code: 0, httpStatus: 0, retryAfterMs: 0, scopes: [], link: undefined };
    return new TokenCallError({ ...nothing, uncertain: thrown.sent });
  }
  return thrown;
}
