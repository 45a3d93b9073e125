import type { SimApp } from "./apps.ts";
import type { SimUser } from "./directory.ts";
import type { FileAnswer } from "./faults.ts";
import type { FormParts } from "./media.ts";
import { type JsonObject, PlatformError } from "./open-api.ts";
import type { ApiLimits } from "./rate-limiter.ts";

// Operations of the open API, and the scopes that they need.

/** An authenticated call of the open API. */
export interface ApiCallContext {
  app: SimApp;
  /** Whose token the call carries; absent: the app's. */
  person?: SimUser;
  params: Readonly<Record<string, string>>;
  /** The address that the caller used. */
  host: string;
  query: URLSearchParams;
  body: JsonObject;
  /** The fields of a form with files. */
  form?: FormParts;
}

/** One operation of the open API. A family of operations is one module that lists its routes. */
export interface ApiRoute {
  method: string;
  /** Path with `:name` segments. */
  path: string;
  /** Scopes of which a person must have granted one, for a call with their token; absent: it takes the app's token alone. */
  personScopes?: readonly string[];
  /** A second list of scopes, of which the person must have granted one, too. */
  alsoPersonScopes?: readonly string[];
  /** Default: 50 a second and 1,000 a minute. */
  limits?: ApiLimits;
  /** The answer's body; refusals are thrown as PlatformError. */
  handle(call: ApiCallContext): JsonObject | FileAnswer;
}

const im = "/open-apis/im/v1";
const message = `${im}/messages/:message_id`;
const reading = ["im:message", "im:message:readonly"];
const sending = ["im:message", "im:message:send_as_bot"];
const chat = ["im:chat", "im:chat:readonly"];
export const panelPath = "/open-apis/application/v7/app_slash_commands";
const panelWriting = ["application:app_slash_command:write"];

/** Any one of the scopes allows the call (each API's page); APIs that are not listed need none here. */
const scopes: ReadonlyMap<string, readonly string[]> = new Map([
  [`POST ${im}/messages`, sending],
  [`POST ${message}/reply`, sending],
  [`PUT ${message}`, sending],
  [`PATCH ${message}`, sending],
  [`DELETE ${message}`, sending],
  [`GET ${message}`, reading],
  [`GET ${im}/messages`, reading],
  [`GET ${message}/resources/:file_key`, reading],
  [`POST ${message}/reactions`, ["im:message", "im:message.reactions:write_only"]],
  [`DELETE ${message}/reactions/:reaction_id`, ["im:message", "im:message.reactions:write_only"]],
  [`POST ${im}/images`, ["im:resource"]],
  [`POST ${im}/files`, ["im:resource"]],
  [`GET ${im}/chats/:chat_id`, chat],
  [`GET ${im}/chats/:chat_id/members`, chat],
  [`GET ${im}/chats/:chat_id/members/is_in_chat`, chat],
  [`GET ${panelPath}`, ["application:app_slash_command:read"]],
  [`POST ${panelPath}`, panelWriting],
  [`PATCH ${panelPath}/:command_id`, panelWriting],
  [`DELETE ${panelPath}/:command_id`, panelWriting],
  ["GET /open-apis/contact/v3/group/member_belong", ["contact:group:readonly"]],
  ["GET /open-apis/contact/v3/users/:user_id", ["contact:user.base:readonly"]],
  ["POST /open-apis/contact/v3/users/basic_batch", ["contact:user.basic_profile:readonly"]],
]);

/** Scopes of a person for the operations of chats and people that take their token, too; any one of each list will do. */
export const personTalkScopes = {
  send: { personScopes: ["im:message"], alsoPersonScopes: ["im:message.send_as_user"] },
  history: {
    personScopes: ["im:message:readonly", "im:message"],
    alsoPersonScopes: ["im:message.group_msg:get_as_user", "im:message.p2p_msg:get_as_user"],
  },
  chat: { personScopes: ["im:chat:read", "im:chat:readonly", "im:chat"] },
  names: { personScopes: ["contact:user.basic_profile:readonly", "contact:user.base:readonly"] },
} as const satisfies Record<string, Pick<ApiRoute, "personScopes" | "alsoPersonScopes">>;

/** Refuses with 99991672 when the app has none of the scopes that allow the call. */
export function checkScopes(route: ApiRoute, granted: ReadonlySet<string>): void {
  const needed = route.path.startsWith("/open-apis/cardkit/")
    ? ["cardkit:card:write"]
    : (scopes.get(`${route.method} ${route.path}`) ?? []);
  if (needed.length > 0 && !needed.some((scope) => granted.has(scope))) throw missingScopes(needed);
}

/** Refuses a call with a person's token: 99991663 where the operation takes none, 99991679 where no scope allows it. */
export function checkPersonScopes(
  { personScopes, alsoPersonScopes = [] }: ApiRoute,
  granted: ReadonlySet<string>,
): void {
  if (personScopes === undefined) {
    throw new PlatformError(99991663, "This API does not support the access token type.");
  }
  for (const needed of [personScopes, alsoPersonScopes]) {
    if (needed.length === 0 || needed.some((scope) => granted.has(scope))) continue;
    const reason = `Unauthorized. The user has not granted one of the scopes [${needed.join(", ")}].`;
    throw new PlatformError(99991679, reason, violations(needed));
  }
}

/** The refusal names the scopes, any of which would do. */
export function missingScopes(needed: readonly string[]): PlatformError {
  const reason = `Access denied. One of the following scopes is required: [${needed.join(", ")}].`;
  return new PlatformError(99991672, reason, violations(needed));
}

function violations(needed: readonly string[]) {
  const list = needed.map((subject) => ({ type: "action_scope_required", subject }));
  return { fields: { error: { permission_violations: list } } };
}
