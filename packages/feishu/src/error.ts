import { cardCodeOf, errorKindOf, isRetryableKind, type FeishuErrorKind } from "./error-kind.ts";
import { HttpRejection, TransportFailure } from "./http-transport.ts";

interface FeishuErrorFields {
  api: string;
  kind: FeishuErrorKind;
  /** The platform's code; 0 when it did not answer. */
  code: number;
  /** 0 when there was no answer. */
  httpStatus: number;
  logId?: string;
  uncertain?: boolean;
  retryAfterMs?: number;
  namedLimit?: number;
  heldBack?: boolean;
  reason?: string;
}

/** A call to the platform failed. The message holds neither secrets nor message text. */
export class FeishuError extends Error {
  override readonly name = "FeishuError";
  /** For example `im.message.reply`. */
  readonly api: string;
  readonly kind: FeishuErrorKind;
  readonly code: number;
  readonly httpStatus: number;
  /** The platform's id of the request, for its support; empty when unknown. */
  readonly logId: string;
  /** The same request may succeed later. */
  readonly retryable: boolean;
  /** The platform may have executed the request although it failed for us. */
  readonly uncertain: boolean;
  /** How long the platform asks to wait; 0 when it says nothing. */
  readonly retryAfterMs: number;
  /** What the platform names as its limit; 0 when it names none. */
  readonly namedLimit: number;
  /** Our own governor did not let it go: it never left, and the platform knows nothing of it. */
  readonly heldBack: boolean;

  constructor(fields: FeishuErrorFields) {
    const facts = [
      fields.code === 0 ? "" : `code ${fields.code}`,
      fields.httpStatus === 0 ? "" : `HTTP ${fields.httpStatus}`,
      fields.reason ?? "",
      fields.logId === undefined || fields.logId === "" ? "" : `log id ${fields.logId}`,
    ].filter(Boolean);
    super(`${fields.api} failed (${fields.kind}): ${facts.join(", ")}`);
    this.api = fields.api;
    this.kind = fields.kind;
    this.code = fields.code;
    this.httpStatus = fields.httpStatus;
    this.logId = fields.logId ?? "";
    this.retryable = isRetryableKind(fields.kind);
    this.uncertain = fields.uncertain ?? false;
    this.retryAfterMs = fields.retryAfterMs ?? 0;
    this.namedLimit = fields.namedLimit ?? 0;
    this.heldBack = fields.heldBack ?? false;
  }
}

const maxReasonLength = 200;

/**
 * The platform's own words, only where they cannot quote the request: the gateway's texts (which
 * name a missing permission) and the number of a refused card.
 */
function reasonOf(rejection: HttpRejection): string {
  if (rejection.code >= 99_991_000 && rejection.code <= 99_991_999) {
    return rejection.platformMessage.replaceAll(/[\s\p{Cc}]+/gu, " ").slice(0, maxReasonLength);
  }
  const cardCode = cardCodeOf(rejection.platformMessage);
  return cardCode === undefined ? "" : `ErrCode ${cardCode}`;
}

function kindOfFailure(failure: TransportFailure): FeishuErrorKind {
  if (failure.reason === "aborted") return "cancelled";
  return failure.reason === "too_large" ? "too_large" : "unavailable";
}

/** Whatever a call threw, as a FeishuError. */
export function feishuErrorOf(api: string, thrown: unknown): FeishuError {
  if (thrown instanceof FeishuError) return thrown;
  if (thrown instanceof HttpRejection) {
    const kind = errorKindOf(api, { ...thrown, text: thrown.platformMessage });
    return new FeishuError({
      api,
      kind,
      code: thrown.code,
      httpStatus: thrown.httpStatus,
      logId: thrown.logId,
      uncertain: thrown.httpStatus >= 500 || (thrown.unreadable && kind === "unavailable"),
      retryAfterMs: thrown.retryAfterMs,
      namedLimit: thrown.namedLimit,
      reason: reasonOf(thrown),
    });
  }
  if (thrown instanceof TransportFailure) {
    const kind = kindOfFailure(thrown);
    return new FeishuError({ api, kind, code: 0, httpStatus: 0, uncertain: thrown.sent, reason: thrown.message });
  }
  return new FeishuError({
    api,
    kind: "unknown",
    code: 0,
    httpStatus: 0,
    reason: thrown instanceof Error ? thrown.name : "unknown failure",
  });
}
