import { errorCodes, type ErrorCode } from "@larkline/protocol/error";
import type { ModelFailure } from "@larkline/protocol/model-stream";
import { plainProfile, type VendorProfile } from "./profile.ts";

type FailureDetails = Partial<
  Pick<ModelFailure, "retryable" | "partial" | "retryAfterMs" | "silent" | "vendor" | "blames">
> & {
  suggestion?: string;
};

/** A failure chunk; suggestion and retryable come from the code unless given. */
export function modelFailure(
  code: ErrorCode,
  message: string,
  details: FailureDetails = {},
): ModelFailure {
  return { type: "error", code, message, ...errorCodes[code], partial: false, ...details };
}

/** What a vendor said when it refused. */
export interface VendorRefusal {
  /** HTTP status; undefined for an error event inside a stream. */
  status?: number | undefined;
  /** The vendor's own error type or code. */
  kind?: string | undefined;
  /** Absent when the body was none of the vendor's, such as the page of a proxy: that is not shown. */
  message?: string | undefined;
  /** The field of the request that it names. */
  param?: string | undefined;
  requestId?: string | undefined;
  retryAfterMs?: number | undefined;
  /** What the vendor may quote and must not be repeated. */
  secret?: string | undefined;
  /** How this vendor says what went wrong. */
  profile?: RefusalWords | undefined;
}

type RefusalWords = Pick<VendorProfile, "overflowCodes" | "overflowWords" | "filterCodes">;

const authKinds = new Set(["authentication_error", "permission_error", "invalid_api_key"]);
const rateKinds = new Set(["rate_limit_error", "rate_limit_exceeded", "tokens", "requests"]);
const busyKinds = new Set([
  "overloaded_error",
  "api_error",
  "server_error",
  "timeout_error",
  "server_is_overloaded",
]);
const billingKind = /credit|balance|billing|quota/i;
const billingText = /\b(?:credits?|balance|billing|quota)\b/i;

function codeOfKind(kind: string): ErrorCode | null {
  if (authKinds.has(kind)) return "api_auth_error";
  if (rateKinds.has(kind)) return "api_rate_limit";
  if (busyKinds.has(kind)) return "api_overloaded";
  return null;
}

function codeOfStatus(status: number): ErrorCode {
  if (status === 401 || status === 402 || status === 403) return "api_auth_error";
  if (status === 429) return "api_rate_limit";
  if (status === 413) return "context_overflow";
  if (status === 408 || status === 409 || status === 425 || status >= 500) return "api_overloaded";
  return "api_bad_request";
}

function isBilling({ status, kind = "", message = "" }: VendorRefusal): boolean {
  return status === 402 || billingKind.test(kind) || billingText.test(message);
}

function codeOf(refusal: VendorRefusal): ErrorCode {
  const { status, kind = "" } = refusal;
  if (isBilling(refusal)) return "api_auth_error";
  if (isOverflow(refusal)) return "context_overflow";
  if (status !== undefined) return codeOfStatus(status);
  return codeOfKind(kind) ?? (kind.startsWith("invalid") ? "api_bad_request" : "api_overloaded");
}

function isOverflow({
  status,
  kind = "",
  message = "",
  profile = plainProfile,
}: VendorRefusal): boolean {
  if (profile.overflowCodes.includes(kind)) return true;
  const words = message.toLowerCase();
  return (
    (status ?? 400) === 400 &&
    profile.overflowWords.some((word) => words.includes(word.toLowerCase()))
  );
}

/** Statuses of refusals that the same request gets again. */
const requestStatuses: readonly (number | undefined)[] = [400, 415, 422, undefined];

/** What of the request a vendor refuses: its content, by a filter, or something that it does not name to us. */
function blameOf(code: ErrorCode, refusal: VendorRefusal): Pick<ModelFailure, "blames"> {
  const { status, kind = "", param, profile = plainProfile } = refusal;
  // The vendor has no such answer: no part of the conversation is to blame.
  if (param === "previous_response_id") return {};
  if (code !== "api_bad_request" || !requestStatuses.includes(status)) return {};
  return { blames: profile.filterCodes.includes(kind) ? "content" : "request" };
}

/** What people may read about a refusal: none of the vendor's own words. */
const ourWords: Partial<Record<ErrorCode, string>> = {
  api_auth_error: "The model vendor refused the credentials",
  api_rate_limit: "The model vendor takes no more requests now",
  api_overloaded: "The model vendor could not answer",
  context_overflow: "The conversation is too long for the model",
};
const accountWords = "The account at the model vendor has nothing left";
const accountAdvice = "Look at the account: its credit, balance, billing or quota.";

const vendorChars = 500;

function vendorOf({
  status,
  message,
  requestId,
  secret = "",
}: VendorRefusal): NonNullable<ModelFailure["vendor"]> {
  const said = message ?? `status ${status}`;
  const kept = secret === "" ? said : said.replaceAll(secret, "[key]");
  return { message: kept.slice(0, vendorChars), ...(requestId === undefined ? {} : { requestId }) };
}

/**
 * Maps a vendor's refusal to our codes. `message` is in our own words; what the vendor said is in `vendor`, for
 * operators. What speaks of credit, balance, billing or quota is a matter of the account, whatever its status.
 */
export function failureOfRefusal(refusal: VendorRefusal): ModelFailure {
  const code = codeOf(refusal);
  const where = refusal.status === undefined ? "in the stream" : `status ${refusal.status}`;
  const billing = isBilling(refusal);
  const words = billing ? accountWords : (ourWords[code] ?? "The model vendor refused the request");
  return modelFailure(code, `${words} (${where}).`, {
    vendor: vendorOf(refusal),
    ...blameOf(code, refusal),
    ...(billing ? { suggestion: accountAdvice } : {}),
    ...(refusal.retryAfterMs === undefined || billing
      ? {}
      : { retryAfterMs: refusal.retryAfterMs }),
  });
}

/** The wait a vendor asked for, in ms: `retry-after-ms`, else `retry-after` as seconds or HTTP date. */
export function retryAfterOf(headers: Headers | undefined, nowMs: number): number | undefined {
  const exact = Number.parseFloat(headers?.get("retry-after-ms") ?? "");
  if (exact >= 0) return exact;
  const text = headers?.get("retry-after") ?? "";
  const seconds = Number(text === "" ? Number.NaN : text);
  if (seconds >= 0) return seconds * 1_000;
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, date - nowMs);
}

function textIn(value: unknown, name: string): string | undefined {
  const field: unknown =
    typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
  if (typeof field === "number") return String(field);
  return typeof field === "string" && field !== "" ? field : undefined;
}

/** The id under which the vendor finds a request again. */
export function requestIdOf(headers: Headers | undefined): string | undefined {
  return headers?.get("request-id") ?? headers?.get("x-request-id") ?? undefined;
}

/**
 * A refusal in a body of the form that vendors use: `{error: {type, code, message}}` or its inside; MiniMax has
 * `{base_resp: {status_code, status_msg}}`.
 */
export function refusalIn(body: unknown): Pick<VendorRefusal, "kind" | "message" | "param"> {
  const inner: unknown =
    typeof body === "object" && body !== null && "error" in body ? body.error : body;
  const base: unknown =
    typeof body === "object" && body !== null && "base_resp" in body ? body.base_resp : undefined;
  if (base !== undefined) {
    return { kind: textIn(base, "status_code"), message: textIn(base, "status_msg") };
  }
  const kind = textIn(inner, "code") ?? textIn(inner, "type");
  const message = textIn(inner, "message") ?? textIn(body, "message") ?? textIn(body, "error");
  return { kind, message, param: textIn(inner, "param") };
}

/** The error classes of a vendor's SDK. */
interface SdkErrors {
  APIConnectionTimeoutError: abstract new (...given: never[]) => Error;
  APIConnectionError: abstract new (...given: never[]) => Error;
  /** An HTTP answer; `error` is its body, when that was JSON. */
  APIError: abstract new (...given: never[]) => Error & {
    status: number | undefined;
    error: unknown;
    headers: Headers | undefined;
  };
}

/** What an error of a vendor's call means to us. `began`: the vendor's stream had started; `secret`: the key. */
export function failureOfCall(
  error: unknown,
  sdk: SdkErrors,
  {
    began,
    secret,
    profile,
    nowMs,
  }: { began: boolean; secret: string; profile?: RefusalWords; nowMs: number },
): ModelFailure {
  if (error instanceof sdk.APIConnectionTimeoutError) {
    return modelFailure("api_overloaded", "The model vendor did not answer in time.");
  }
  if (error instanceof sdk.APIConnectionError) {
    return modelFailure("api_overloaded", "The model vendor could not be reached.");
  }
  if (error instanceof sdk.APIError) {
    const { status, error: body, headers } = error;
    return failureOfRefusal({
      status,
      ...refusalIn(body),
      requestId: requestIdOf(headers),
      retryAfterMs: retryAfterOf(headers, nowMs),
      secret,
      profile,
    });
  }
  if (began) return modelFailure("stream_truncated", "The model's stream broke off.");
  return modelFailure(
    "internal_error",
    error instanceof Error ? error.message : "The model call failed.",
  );
}
