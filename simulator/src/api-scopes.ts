import type { ApiRoute } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

const im = "/open-apis/im/v1";
const message = `${im}/messages/:message_id`;
const reading = ["im:message", "im:message:readonly"];
const sending = ["im:message", "im:message:send_as_bot"];
const chat = ["im:chat", "im:chat:readonly"];

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
  ["GET /open-apis/contact/v3/group/member_belong", ["contact:group:readonly"]],
  ["GET /open-apis/contact/v3/users/:user_id", ["contact:user.base:readonly"]],
  ["POST /open-apis/contact/v3/users/basic_batch", ["contact:user.basic_profile:readonly"]],
]);

/** Refuses with 99991672 when the app has none of the scopes that allow the call. */
export function checkScopes(route: ApiRoute, granted: ReadonlySet<string>): void {
  const needed = route.path.startsWith("/open-apis/cardkit/")
    ? ["cardkit:card:write"]
    : (scopes.get(`${route.method} ${route.path}`) ?? []);
  if (needed.length > 0 && !needed.some((scope) => granted.has(scope))) throw missingScopes(needed);
}

/** The refusal names the scopes, any of which would do. */
export function missingScopes(needed: readonly string[]): PlatformError {
  return new PlatformError(99991672, `Access denied. One of the following scopes is required: [${needed.join(", ")}].`);
}
