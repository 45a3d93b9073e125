/**
 * What a failed call means for the caller.
 * `retry`: the platform asks to try again; `rate_limit`: after a wait; `unavailable`: not reached, or
 * it broke (see `uncertain`); `token`: the access token was refused twice; `target_gone`: the message
 * to answer is recalled or invisible, the chat may still be fine; `no_threads`: the chat has no
 * threads; `forbidden`: this chat or person cannot be written to; `app_setup`: an operator has to fix
 * the app (rights, secret, quota); `too_long`; `content_blocked`: refused by content review;
 * `bad_request`: our request is wrong; `cancelled`: the caller's signal; `unknown`: a code nobody listed.
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
  | "content_blocked"
  | "bad_request"
  | "cancelled"
  | "unknown";

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
    retry: [230049, 18121, 231015],
    target_gone: [230011, 230110, 231003, 230019],
    forbidden: [
      230002, 230013, 231022, 230015, 230017, 230018, 230027, 230029, 230035, 230036, 230038, 230050, 230053, 230073,
      230074, 232009, 232011,
    ],
    app_setup: [230006],
    too_long: [230025],
    content_blocked: [230022, 230028],
    bad_request: [230001, 230034, 230054, 230055, 230099, 231203, 231204],
  },
};

/** Codes that mean something else on one API. */
const apiCodes: Record<string, CodeTable> = {
  "im.message.reply": {
    no_threads: [230071],
    // Aggregated, self-destructing, invisible or unknown: the message cannot be answered, the chat can.
    target_gone: [230072, 230111, 230050, 99992354],
  },
};

function flatten(table: CodeTable | undefined): Map<number, FeishuErrorKind> {
  const kinds = new Map<number, FeishuErrorKind>();
  for (const [kind, codes] of Object.entries(table ?? {})) {
    for (const code of codes) kinds.set(code, kind as FeishuErrorKind); // the keys of a CodeTable
  }
  return kinds;
}

function flattenAll(tables: Record<string, CodeTable>): ReadonlyMap<string, Map<number, FeishuErrorKind>> {
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

/** Classifies by (API, code), then by the API's family, the gateway's codes, and last the HTTP status. */
export function errorKindOf(api: string, code: number, httpStatus: number): FeishuErrorKind {
  const family = api.slice(0, Math.max(0, api.indexOf(".")));
  return ofApi.get(api)?.get(code) ?? ofFamily.get(family)?.get(code) ?? ofGateway.get(code) ?? ofStatus(httpStatus);
}

const retryableKinds: ReadonlySet<FeishuErrorKind> = new Set(["retry", "rate_limit", "unavailable", "token"]);

/** Whether the same request may succeed later without anybody changing anything. */
export function isRetryableKind(kind: FeishuErrorKind): boolean {
  return retryableKinds.has(kind);
}
