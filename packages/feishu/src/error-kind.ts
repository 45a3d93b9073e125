/**
 * What a failed call means for the caller.
 * `retry`: the platform asks to try again; `rate_limit`: after a wait; `unavailable`: not reached, or
 * it broke (see `uncertain`); `token`: the access token was refused twice; `target_gone`: the message
 * to answer is recalled or invisible, the chat may still be fine; `no_threads`: the chat has no
 * threads; `forbidden`: this chat or person cannot be written to; `app_setup`: an operator has to fix
 * the app (rights, secret, quota); `too_long`; `too_large`: a file over the limit; `content_blocked`:
 * refused by content review; `bad_request`: our request is wrong; `cancelled`: the caller's signal;
 * `unknown`: a code nobody listed.
 *
 * Of cards: `streaming_closed`: has to be enabled again first; `sequence_behind`: somebody used this
 * operation number or a higher one; `applied_before`: this `uuid` was used; `card_gone`: no longer
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
      230002, 230009, 230012, 230013, 231022, 230015, 230017, 230018, 230026, 230027, 230029, 230033, 230035, 230036,
      230038, 230050, 230052, 230053, 230073, 230074, 230075, 232009, 232011, 231002, 231007, 231008, 231018, 234002,
      234004, 234008, 234009, 234038, 234040, 234041, 234042,
    ],
    app_setup: [230006, 234007],
    too_long: [230025],
    too_large: [234006, 234037, 234039],
    content_blocked: [230022, 230028],
    card_too_old: [230031],
    card_invalid: [230099, 200621],
    card_gone: [200740, 200750, 300311],
    bad_request: [
      230001, 230023, 230024, 230034, 230054, 230055, 230071, 230072, 230111, 231001, 231010, 231011, 231017, 231203,
      231204, 232006, 234001, 234003, 234005, 234010, 234011, 234043,
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
      10002, 200220, 200621, 300121, 300122, 300301, 300302, 300303, 300307, 300310, 300312, 300313, 300314, 300315,
      230099,
    ],
  },
  // "Query the user groups of a user".
  contact: { retry: [40003], forbidden: [41050], bad_request: [40001, 40011, 40012, 41071, 41073, 41074] },
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
  return /over|exceed|limit|too (?:many|large|long)|table|element/i.test(text) ? "card_full" : "card_invalid";
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
export function errorKindOf(api: string, { code, httpStatus, text = "" }: Refusal): FeishuErrorKind {
  if (code === 230099 || code === 11310) return ofCardRefusal(code === 11310 ? `ErrCode: ${code}; ${text}` : text);
  const family = api.slice(0, Math.max(0, api.indexOf(".")));
  return ofApi.get(api)?.get(code) ?? ofFamily.get(family)?.get(code) ?? ofGateway.get(code) ?? ofStatus(httpStatus);
}

const retryableKinds: ReadonlySet<FeishuErrorKind> = new Set([
  "retry",
  "rate_limit",
  "unavailable",
  "token",
  "card_locked",
]);

/** Whether the same request may succeed later without anybody changing anything. */
export function isRetryableKind(kind: FeishuErrorKind): boolean {
  return retryableKinds.has(kind);
}
