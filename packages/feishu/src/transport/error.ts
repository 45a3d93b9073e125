import type { IncomingMessage } from "node:http";

/**
 * What a failed call means for the caller.
 * `retry`: the platform asks to try again; `rate_limit`: after a wait; `unavailable`: not reached, or
 * it broke (see `uncertain`); `token`: the access token was refused twice; `target_gone`: the message
 * to answer is recalled or invisible, the chat may still be fine; `no_threads`: the chat has no
 * threads; `forbidden`: this chat or person cannot be written to; `app_setup`: an operator has to fix
 * the app (rights, secret, quota); `too_long`; `too_large`: a file over the limit; `content_blocked`:
 * refused by content review; `bad_request`: our request is wrong; `cancelled`: the caller's signal;
 * `unknown`: a code that is not in the tables below.
 *
 * Of cards: `streaming_closed`: has to be enabled again first; `sequence_behind`: another writer used
 * this operation number or a higher one; `applied_before`: this `uuid` was used; `card_gone`: no longer
 * there, not ours, or sent before; `card_locked`: between a click and its answer; `card_full`: over a limit of size,
 * elements or tables; `card_invalid`: the content is refused; `card_too_old`: this way of updating
 * has run out (14 days after the send, or the token of a click).
 */
export type FeishuErrorKind =
  | "retry"
  | "rate_limit"
  | "unavailable"
  | "token"
  | "target_gone"
  | "no_threads"
  | "forbidden"
  | "app_setup"
  | "too_long"
  | "too_large"
  | "streaming_closed"
  | "sequence_behind"
  | "applied_before"
  | "card_gone"
  | "card_locked"
  | "card_full"
  | "card_invalid"
  | "card_too_old"
  | "content_blocked"
  | "bad_request"
  | "cancelled"
  | "unknown";

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
  /** Our own rate limiter held the call back: it never left, and the platform knows nothing of it. */
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

/** Whether a call failed in one of these ways. */
export function isKind(error: unknown, ...kinds: FeishuErrorKind[]): error is FeishuError {
  return error instanceof FeishuError && kinds.includes(error.kind);
}

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
  /** Permissions of which the platform misses one, where it names them. */
  readonly missingScopes: string[];

  constructor(
    httpStatus: number,
    body: Record<string, unknown> | undefined,
    headers: IncomingMessage["headers"],
  ) {
    super(`HTTP ${httpStatus}`);
    this.httpStatus = httpStatus;
    this.code = typeof body?.["code"] === "number" ? body["code"] : 0;
    this.platformMessage = typeof body?.["msg"] === "string" ? body["msg"] : "";
    this.logId = String(headers["x-tt-logid"] ?? "").slice(0, 100);
    const resetSeconds = Number(headers["x-ogw-ratelimit-reset"] ?? headers["retry-after"] ?? 0);
    this.retryAfterMs =
      Number.isFinite(resetSeconds) && resetSeconds > 0 ? Math.ceil(resetSeconds * 1000) : 0;
    const named = Number(headers["x-ogw-ratelimit-limit"] ?? 0);
    this.namedLimit = Number.isInteger(named) && named > 0 ? named : 0;
    this.unreadable = body === undefined;
    this.missingScopes = missingScopesIn(body?.["error"]);
  }
}

const maxScopes = 20;

/** Of `error.permission_violations` ("Obtain authorization code"). */
function missingScopesIn(error: unknown): string[] {
  const list: unknown =
    typeof error === "object" && error !== null ? Reflect.get(error, "permission_violations") : [];
  if (!Array.isArray(list)) return [];
  return list.slice(0, maxScopes).flatMap((violation: unknown) => {
    const subject: unknown =
      typeof violation === "object" && violation !== null
        ? Reflect.get(violation, "subject")
        : undefined;
    return typeof subject === "string" && subject !== "" && subject.length <= 200 ? [subject] : [];
  });
}

/** No usable answer. `sent`: whether the request may have reached the platform. */
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

/** What a call threw, as a FeishuError. */
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
    return new FeishuError({
      api,
      kind,
      code: 0,
      httpStatus: 0,
      uncertain: thrown.sent,
      reason: thrown.message,
    });
  }
  return new FeishuError({
    api,
    kind: "unknown",
    code: 0,
    httpStatus: 0,
    reason: thrown instanceof Error ? thrown.name : "unknown failure",
  });
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

type CodeTable = Partial<Record<FeishuErrorKind, readonly number[]>>;

/** Codes that mean the same on every API ("Common error codes" of the platform's documents). */
const gatewayCodes: CodeTable = {
  rate_limit: [99991400, 1000004, 1000005, 11232, 11233, 11247],
  retry: [1000003, 1500, 2200, 5000, 10101, 1663],
  token: [99991663, 99991664, 99991665, 99991671],
  app_setup: [99991401, 99991403, 99991662, 99991672, 99991673, 99991679],
  bad_request: [99991661, 99991668, 99991677, 99991201, 99991301, 99992354, 99992361, 99992402],
};

/** Codes are unique within a family of APIs only. */
const familyCodes: Record<string, CodeTable> = {
  auth: { app_setup: [10003, 10014, 10015, 99991543] },
  im: {
    rate_limit: [230020],
    retry: [230049, 18121, 231015, 232096, 234019],
    target_gone: [230011, 230110, 231003, 230019],
    forbidden: [
      230002, 230009, 230012, 230013, 231022, 230015, 230017, 230018, 230026, 230027, 230029,
      230033, 230035, 230036, 230038, 230050, 230052, 230053, 230073, 230074, 230075, 232009,
      232011, 231002, 231007, 231008, 231018, 234002, 234004, 234008, 234009, 234038, 234040,
      234041, 234042,
    ],
    app_setup: [230006, 234007],
    too_long: [230025],
    too_large: [234006, 234037, 234039],
    content_blocked: [230022, 230028],
    card_too_old: [230031],
    card_invalid: [230099, 200621],
    card_gone: [200740, 200750, 300311],
    bad_request: [
      230001, 230023, 230024, 230034, 230054, 230055, 230071, 230072, 230111, 231001, 231010,
      231011, 231017, 231203, 231204, 232006, 234001, 234003, 234005, 234010, 234011, 234043,
    ],
  },
  cardkit: {
    rate_limit: [230020],
    retry: [300120],
    streaming_closed: [300309, 200850, 200510],
    sequence_behind: [300317],
    applied_before: [200770],
    card_gone: [200740, 200750, 300311],
    card_locked: [200810],
    card_full: [200860, 300305],
    content_blocked: [230022, 230028],
    card_invalid: [
      10002, 200220, 200621, 300121, 300122, 300301, 300302, 300303, 300307, 300310, 300312, 300313,
      300314, 300315, 230099,
    ],
  },
  // "Task v2 overview".
  task: { bad_request: [1470400], forbidden: [1470403], target_gone: [1470404] },
  // "Query the user groups of a user".
  contact: {
    retry: [40003],
    forbidden: [41050],
    bad_request: [40001, 40011, 40012, 41071, 41073, 41074],
  },
  // "Delayed update of a card", by the token of a click.
  interactive: {
    rate_limit: [230020],
    target_gone: [200000],
    card_gone: [200310, 200320],
    card_too_old: [300020, 300030, 300040],
    card_full: [100000],
    card_invalid: [10002, 11311, 100030, 200830, 230099],
    bad_request: [300090],
  },
};

/** Codes that mean something else on one API. */
const apiCodes: Record<string, CodeTable> = {
  "im.message.reply": {
    no_threads: [230071],
    // Aggregated, self-destructing, invisible or unknown: the message cannot be answered, the chat can.
    target_gone: [230072, 230111, 230050, 99992354],
  },
  "im.message.get": { target_gone: [230050, 99992354] },
  "im.message.patch": { forbidden: [230071, 230072] },
  "im.reaction.create": { target_gone: [231018] },
};

function flatten(table: CodeTable | undefined): Map<number, FeishuErrorKind> {
  const kinds = new Map<number, FeishuErrorKind>();
  for (const [kind, codes] of Object.entries(table ?? {})) {
    for (const code of codes) kinds.set(code, kind as FeishuErrorKind); // the keys of a CodeTable
  }
  return kinds;
}

function flattenAll(
  tables: Record<string, CodeTable>,
): ReadonlyMap<string, Map<number, FeishuErrorKind>> {
  return new Map(Object.entries(tables).map(([name, table]) => [name, flatten(table)]));
}

const ofGateway = flatten(gatewayCodes);
const ofFamily = flattenAll(familyCodes);
const ofApi = flattenAll(apiCodes);

function ofStatus(httpStatus: number): FeishuErrorKind {
  if (httpStatus === 429) return "rate_limit";
  if (httpStatus >= 500) return "unavailable";
  if (httpStatus === 401 || httpStatus === 403) return "forbidden";
  return httpStatus >= 400 ? "bad_request" : "unknown";
}

/**
 * Reasons that a refused card carries in the platform's text ("Update a card": `ext=ErrCode: <n>; ErrMsg: …`). One
 * number stands for several refusals, so its words decide.
 */
function ofCardRefusal(text: string): FeishuErrorKind {
  const cardCode = cardCodeOf(text);
  if (cardCode === 200810 || /card action is lock/i.test(text)) return "card_locked";
  if (cardCode === 200860 || cardCode === 300305) return "card_full";
  if (cardCode !== 11310) return "card_invalid";
  // Right after its creation a card is not known everywhere yet.
  if (/card_?id is invalid/i.test(text)) return "retry";
  if (/\bsent\b/i.test(text)) return "card_gone";
  return /over|exceed|limit|too (?:many|large|long)|table|element/i.test(text)
    ? "card_full"
    : "card_invalid";
}

/** The number of a refused card in the platform's text. */
export function cardCodeOf(text: string): number | undefined {
  const digits = /ErrCode:\s*(\d+)/.exec(text)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** What the platform answered when it refused. */
export interface Refusal {
  code: number;
  httpStatus: number;
  /** Its words; read for refused cards only. */
  text?: string;
}

/** Classifies by (API, code), then by the API's family, the gateway's codes, and last the HTTP status. */
export function errorKindOf(
  api: string,
  { code, httpStatus, text = "" }: Refusal,
): FeishuErrorKind {
  if (code === 230099 || code === 11310) {
    return ofCardRefusal(code === 11310 ? `ErrCode: ${code}; ${text}` : text);
  }
  const family = api.slice(0, Math.max(0, api.indexOf(".")));
  return (
    ofApi.get(api)?.get(code) ??
    ofFamily.get(family)?.get(code) ??
    ofGateway.get(code) ??
    ofStatus(httpStatus)
  );
}

const retryableKinds: ReadonlySet<FeishuErrorKind> = new Set([
  "retry",
  "rate_limit",
  "unavailable",
  "token",
  "card_locked",
]);

/** Whether the same request may succeed later without a change of settings. */
export function isRetryableKind(kind: FeishuErrorKind): boolean {
  return retryableKinds.has(kind);
}
