import { errorCodes, type ErrorCode, type ModelFailure } from "@larkline/protocol";

/** A failure chunk; suggestion and retryable come from the code unless given. */
export function modelFailure(
  code: ErrorCode,
  message: string,
  details: { retryable?: boolean; partial?: boolean; retryAfterMs?: number } = {},
): ModelFailure {
  return {
    type: "error",
    code,
    message,
    suggestion: errorCodes[code].suggestion,
    retryable: details.retryable ?? errorCodes[code].retryable,
    partial: details.partial ?? false,
    ...(details.retryAfterMs === undefined ? {} : { retryAfterMs: details.retryAfterMs }),
  };
}

/** What a vendor said when it refused. `kind` is its own error type or code. */
export interface VendorRefusal {
  /** HTTP status; undefined for an error event inside a stream. */
  status?: number | undefined;
  kind?: string | undefined;
  message: string;
  retryAfterMs?: number | undefined;
}

const overflowText =
  /prompt is too long|context[ _]length|context window|maximum context|input is too long|too many (?:input )?tokens/i;
const overflowKinds = new Set(["context_length_exceeded", "request_too_large", "string_above_max_length"]);
const authKinds = new Set(["authentication_error", "permission_error", "invalid_api_key", "billing_error"]);
const rateKinds = new Set(["rate_limit_error", "rate_limit_exceeded", "tokens", "requests"]);
const busyKinds = new Set(["overloaded_error", "api_error", "server_error", "timeout_error", "server_is_overloaded"]);

function codeOfKind(kind: string): ErrorCode | null {
  if (overflowKinds.has(kind)) return "context_overflow";
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

function codeOf(refusal: VendorRefusal): ErrorCode {
  const { status, kind = "", message } = refusal;
  if (overflowKinds.has(kind) || (overflowText.test(message) && (status ?? 400) === 400)) return "context_overflow";
  if (status !== undefined) return codeOfStatus(status);
  return codeOfKind(kind) ?? (kind.startsWith("invalid") ? "api_bad_request" : "api_overloaded");
}

/**
 * Maps a vendor's refusal to our codes. The text of an authentication refusal is replaced,
 * because vendors quote the key in it. An exhausted quota is a rate limit that waiting does not cure.
 */
export function failureOfRefusal(refusal: VendorRefusal): ModelFailure {
  const code = codeOf(refusal);
  const where = refusal.status === undefined ? "in the stream" : `status ${refusal.status}`;
  const retryAfter = refusal.retryAfterMs === undefined ? {} : { retryAfterMs: refusal.retryAfterMs };
  if (code === "api_auth_error") return modelFailure(code, `The model vendor refused the credentials (${where}).`);
  const exhausted = refusal.kind === "insufficient_quota" ? { retryable: false } : {};
  return modelFailure(code, `${refusal.message.slice(0, 500)} (${where})`, { ...retryAfter, ...exhausted });
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
